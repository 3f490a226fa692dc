//! Matching is by subset, fair between projects, in order within one, and bounded.

use pond_policy::path::Path;
use proptest::prelude::*;

use super::*;

const AMPLE: Bounds = Bounds { intents: 100, intents_per_project: 50, waiting: 50 };

fn id(text: &str) -> Id {
    Id::try_from(text.to_owned()).unwrap()
}

fn project(text: &str) -> Project {
    Project::parse(text, &Path::root()).unwrap()
}

fn tags(texts: &[&str]) -> Vec<Tag> {
    texts.iter().map(|text| Tag::parse(text).unwrap()).collect()
}

fn intent(job: &str, owner: &str, capability: &str, required: &[&str]) -> Intent {
    Intent {
        job: id(job),
        project: project(owner),
        capability: Requirement::parse(capability),
        tags: tags(required),
        avoid: Vec::new(),
    }
}

fn applicant(worker: &str, granted: &[&str], capabilities: &[&str]) -> Applicant {
    let capabilities = capabilities.iter().map(|text| Capability::parse(text).unwrap()).collect();
    Applicant { worker: id(worker), tags: tags(granted), capabilities }
}

fn asked(matcher: &mut Matcher, who: Applicant) -> Option<String> {
    match matcher.ask(who).unwrap() {
        Asked::Given(intent) => Some(intent.job.as_str().to_owned()),
        Asked::Waits(ticket) => {
            matcher.leave(Some(ticket));
            None
        }
    }
}

#[test]
fn a_worker_gets_what_it_has_the_tags_and_capabilities_for() {
    let mut matcher = Matcher::new(AMPLE);
    for intent in [
        intent("trusted", "acme", "sandbox.gvisor", &["pool:trusted"]),
        intent("byo", "acme", "sandbox.*", &["pool:byo", "tenant:acme"]),
        intent("any", "acme", "sandbox.native", &[]),
    ] {
        assert_eq!(matcher.announce(intent), Ok(None));
    }
    let native = &["sandbox.native"][..];
    assert_eq!(
        asked(&mut matcher, applicant("w", &["pool:byo", "tenant:other"], native)),
        None,
        "foreign tenant"
    );
    assert_eq!(asked(&mut matcher, applicant("w", &["pool:byo", "tenant:acme"], &[])), None, "no capability");
    assert_eq!(asked(&mut matcher, applicant("w", &["pool:trusted"], native)).as_deref(), Some("any"));
    assert_eq!(asked(&mut matcher, applicant("w", &["pool:trusted"], native)), None, "not gvisor");
    assert_eq!(
        asked(&mut matcher, applicant("w", &["pool:byo", "tenant:acme"], native)).as_deref(),
        Some("byo")
    );
    let gvisor = &["sandbox.gvisor"][..];
    assert_eq!(asked(&mut matcher, applicant("w", &["pool:trusted"], gvisor)).as_deref(), Some("trusted"));
    assert_eq!((matcher.queued(), matcher.waiting()), (0, 0));
}

#[test]
fn a_job_goes_to_who_has_waited_longest_of_those_that_may_have_it() {
    let mut matcher = Matcher::new(AMPLE);
    for (worker, pool) in [("w1", "pool:byo"), ("w2", "pool:trusted"), ("w3", "pool:trusted")] {
        let asked = matcher.ask(applicant(worker, &[pool], &["sandbox.native"])).unwrap();
        assert!(matches!(asked, Asked::Waits(_)), "{asked:?}");
    }
    let mut given = |job: &str| {
        let pairing = matcher.announce(intent(job, "acme", "sandbox.*", &["pool:trusted"])).unwrap();
        pairing.map(|pairing| pairing.worker.as_str().to_owned())
    };
    assert_eq!(given("j1").as_deref(), Some("w2"));
    assert_eq!(given("j2").as_deref(), Some("w3"));
    assert_eq!(given("j3"), None);
}

#[test]
fn a_flood_of_one_project_does_not_starve_another() {
    let mut matcher = Matcher::new(AMPLE);
    for at in 0..5 {
        matcher.announce(intent(&format!("loud{at}"), "loud", "sandbox.*", &[])).unwrap();
    }
    for at in 0..2 {
        matcher.announce(intent(&format!("quiet{at}"), "quiet", "sandbox.*", &[])).unwrap();
    }
    let order: Vec<String> =
        std::iter::from_fn(|| asked(&mut matcher, applicant("w", &[], &["sandbox.native"]))).collect();
    assert_eq!(order, ["loud0", "quiet0", "loud1", "quiet1", "loud2", "loud3", "loud4"]);
}

#[test]
fn everything_has_a_bound() {
    let mut matcher = Matcher::new(Bounds { intents: 3, intents_per_project: 2, waiting: 1 });
    let mut announce =
        |job: &str, owner: &str| matcher.announce(intent(job, owner, "sandbox.*", &[])).map_err(Full::code);
    assert_eq!(
        [announce("j1", "a"), announce("j2", "a"), announce("j3", "a")],
        [Ok(None), Ok(None), Err("project_queue_full")]
    );
    assert_eq!([announce("j4", "b"), announce("j5", "c")], [Ok(None), Err("queue_full")]);
    assert_eq!(announce("j2", "a"), Ok(None), "announced again, held once");
    let mut ask = |worker: &str| matcher.ask(applicant(worker, &[], &[])).map_err(Full::code);
    let seats = [Ok(Asked::Waits(Ticket(0))), Err("too_many_waiting"), Ok(Asked::Waits(Ticket(1)))];
    assert_eq!([ask("w1"), ask("w2"), ask("w1")], seats);
    for job in ["j1", "j2", "j4"] {
        matcher.withdraw(&id(job));
    }
    assert_eq!((matcher.queued(), matcher.turns.len(), matcher.waiting()), (0, 0, 1));
}

#[test]
fn a_job_given_back_is_next() {
    let mut matcher = Matcher::new(AMPLE);
    for job in ["j1", "j2"] {
        matcher.announce(intent(job, "a", "sandbox.*", &[])).unwrap();
    }
    let first = intent("j1", "a", "sandbox.*", &[]);
    assert_eq!(matcher.ask(applicant("w", &[], &["sandbox.native"])), Ok(Asked::Given(first.clone())));
    assert_eq!(matcher.give_back(first), None);
    assert_eq!(asked(&mut matcher, applicant("w", &[], &["sandbox.native"])).as_deref(), Some("j1"));
}

proptest! {
    /// Whatever happens in whatever order: no job is given to who may not have it, none twice, none is lost, and no
    /// job waits beside a worker that may have it.
    #[test]
    fn jobs_are_neither_lost_nor_doubled_nor_misplaced(steps in proptest::collection::vec((0..4_u8, 0..8_usize), 0..80)) {
        let pools = [&["pool:trusted"][..], &["pool:byo", "tenant:p0"], &["pool:byo", "tenant:p1"], &[]];
        let needs = [&["pool:trusted"][..], &["pool:byo", "tenant:p0"], &[], &["gpu"]];
        let mut matcher = Matcher::new(AMPLE);
        let (mut announced, mut given) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for (step, which) in steps {
            let (who, job) = (format!("w{which}"), format!("j{which}"));
            let paired = match step {
                0 if given.contains(&job) => None,
                0 => {
                    announced.insert(job.clone());
                    matcher.announce(intent(&job, &format!("p{}", which % 2), "sandbox.*", needs[which % 4]))
                        .unwrap()
                        .map(|Pairing { worker, intent, .. }| (worker, intent))
                }
                1 => match matcher.ask(applicant(&who, pools[which % 4], &["sandbox.native"])).unwrap() {
                    Asked::Given(intent) => Some((id(&who), intent)),
                    Asked::Waits(_) => None,
                },
                2 => {
                    announced.remove(&job);
                    matcher.withdraw(&id(&job));
                    None
                }
                _ => None,
            };
            if let Some((worker, intent)) = paired {
                let name = intent.job.as_str().to_owned();
                let at: usize = worker.as_str()[1..].parse().unwrap();
                let job = JobTags { required: &intent.tags, project: Some(&intent.project) };
                prop_assert_eq!(may_receive(&tags(pools[at % 4]), job), Ok(()));
                prop_assert!(given.insert(name.clone()), "{} was given twice", name);
                announced.remove(&name);
            }
            prop_assert_eq!(matcher.queued(), announced.len());
            let idle = matcher.waiting.iter().any(|(_, who)| {
                matcher.queued.values().flatten().any(|intent| who.may_have(intent))
            });
            prop_assert!(!idle, "a worker waits beside its job");
        }
    }
}

#[test]
fn a_job_does_not_go_to_whom_it_avoids() {
    let mut matcher = Matcher::new(AMPLE);
    let avoiding = Intent { avoid: vec![id("ran-it")], ..intent("job", "acme", "sandbox.*", &[]) };
    matcher.announce(avoiding).unwrap();
    let worker = |name: &str| applicant(name, &["pool:trusted"], &["sandbox.native"]);
    assert_eq!(asked(&mut matcher, worker("ran-it")), None);
    assert_eq!(asked(&mut matcher, worker("another")), Some("job".to_owned()));
}
