//! Projects come and go, and what there is can be counted.

use pond_control::store::{Actor, ProjectView, Removed};

use super::world::{START, World, at, document, name, project};

pub(crate) async fn a_project_goes_with_what_is_its_own_unless_it_has_runs(world: &World) {
    let (system, acme, other) = (Actor::System, project("acme"), project("other"));
    let store = &world.store;
    assert!(store.create_project(&other, &system, at(1)).await.unwrap());
    store.allow_egress(&other, "example.com", &system, at(1)).await.unwrap();
    store.set_credential(Some(&other), &name("K"), b"v", &system, at(1)).await.unwrap();
    let views = [
        ProjectView { name: acme.clone(), created_at: START },
        ProjectView { name: other.clone(), created_at: at(1) },
    ];
    assert_eq!(store.projects().await.unwrap(), views);
    assert_eq!(store.project(&other).await.unwrap(), Some(views[1].clone()));
    assert_eq!(store.remove_project(&other, &system, at(2)).await.unwrap(), Removed::Gone);
    assert_eq!(store.remove_project(&other, &system, at(2)).await.unwrap(), Removed::Unknown);
    assert_eq!(store.egress_rules(&other).await.unwrap(), [""; 0]);
    assert_eq!(store.credentials(Some(&other)).await.unwrap(), []);
    world.submit(&document(&["a"])).await;
    assert_eq!(store.remove_project(&acme, &system, at(3)).await.unwrap(), Removed::HasRuns);
    assert_eq!(store.projects().await.unwrap(), views[..1]);
}

pub(crate) async fn counts_are_by_state(world: &World) {
    world.store.ping().await.unwrap();
    world.submit(&document(&["a", "b", "c a"])).await;
    world.started(&world.worker("w").await, START).await;
    let counts = world.store.counts().await.unwrap();
    let pairs = |map: &std::collections::BTreeMap<String, u64>| {
        map.iter().map(|(state, count)| format!("{state} {count}")).collect::<Vec<_>>()
    };
    assert_eq!(
        (pairs(&counts.jobs), pairs(&counts.workers)),
        (vec!["queued 1".to_owned(), "running 1".to_owned()], vec!["active 1".to_owned()],)
    );
}
