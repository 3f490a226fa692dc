//! Death at every step of applying, and at every step of undoing that.

use std::panic::resume_unwind;

use super::*;
use crate::fault::with_hook;

/// Runs `body` and dies, as a process would, at the given point; `None` when it got to its end before.
fn killed_at<T: Send>(point: usize, body: impl FnOnce() -> T + Send) -> Option<T> {
    let hook = move |passed| {
        if passed == point {
            resume_unwind(Box::new("killed"));
        }
    };
    std::thread::scope(|scope| scope.spawn(|| with_hook(hook, body)).join().ok())
}

#[test]
fn any_death_is_undone_or_completed_exactly() {
    let mut outcomes = Vec::new();
    let mut scene = Scene::new();
    for point in 0.. {
        scene.afresh();
        let before = scene.state();
        if let Some(applied) = killed_at(point, || scene.apply(STRICT)) {
            assert_eq!(applied.unwrap().changed, 10);
            break;
        }
        let recovered = scene.recover().unwrap();
        match recovered {
            Recovered::RolledBack => assert_eq!(scene.state(), before, "point {point}"),
            Recovered::Finished | Recovered::Nothing => {
                assert_eq!(read_tree(scene.checkout.path()), scene.after, "point {point}");
            }
        }
        assert!(scene.leaves_no_trace(), "point {point}");
        outcomes.push(recovered);
    }
    let count = |wanted: Recovered| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let counts = [Recovered::RolledBack, Recovered::Finished, Recovered::Nothing].map(count);
    assert!(counts[0] > 20 && counts[1] > 5 && counts[2] == 1, "{counts:?}");
}

#[test]
fn a_recovery_that_dies_is_recovered() {
    let mut scene = Scene::new();
    for point in [14, 20, 26] {
        for second in 0.. {
            scene.afresh();
            let before = scene.state();
            assert!(killed_at(point, || scene.apply(STRICT)).is_none());
            let survived = killed_at(second, || scene.recover().unwrap()).is_some();
            if !survived {
                scene.recover().unwrap();
            }
            assert_eq!(scene.state(), before, "points {point}, {second}");
            assert!(scene.leaves_no_trace(), "points {point}, {second}");
            if survived {
                assert!(second > 5, "{second}");
                break;
            }
        }
    }
}

#[test]
fn the_next_apply_recovers_and_then_applies() {
    let scene = Scene::new();
    assert!(killed_at(24, || scene.apply(STRICT)).is_none());
    assert_ne!(read_tree(scene.checkout.path()), base());
    assert_eq!(scene.apply(STRICT).unwrap(), Applied { changed: 10, recovered: Recovered::RolledBack });
    assert_eq!(read_tree(scene.checkout.path()), scene.after);
}

#[test]
fn a_lost_staging_directory_is_reported_and_nothing_is_guessed() {
    let scene = Scene::new();
    assert!(killed_at(24, || scene.apply(STRICT)).is_none());
    let staging = fs::read_dir(scene.checkout.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| is_staging_name(path.file_name().unwrap().as_encoded_bytes()));
    fs::remove_dir_all(staging.unwrap()).unwrap();
    let state = scene.state();
    assert!(matches!(scene.apply(STRICT), Err(ApplyRefused::StagingLost { .. })));
    assert_eq!(scene.state(), state);
}
