//! Whoever watches a collection may end it anywhere, also in the middle of a file, and then there is nothing of it.

use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;

use super::*;
use crate::testkit::{WITHOUT_IGNORED, open};

/// Goes on so many times.
fn stopping_after(asked: &Cell<usize>, most: usize) -> impl Fn(Progress) -> ControlFlow<()> + '_ {
    move |_| {
        asked.set(asked.get() + 1);
        if asked.get() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_collection_that_is_stopped_anywhere_leaves_nothing() {
    let base = tree(&[("d/kept", file("x")), ("d/changed", file("old"))]);
    let overlay = Overlay::of(&base);
    fs::write(overlay.merged().join("d/changed"), "new").unwrap();
    fs::write(overlay.merged().join("large"), vec![7; 300 << 10]).unwrap();
    let mut stopped = 0;
    loop {
        let run = tempfile::tempdir().unwrap();
        let asked = Cell::new(0);
        let watch = stopping_after(&asked, stopped);
        let fd = open(run.path());
        let ended = collect(&overlay.sources(), &WITHOUT_IGNORED, &Caps::default(), fd.as_fd(), &watch);
        let left = fs::read_dir(run.path()).unwrap().count();
        match ended {
            Ok(collected) => {
                assert_eq!((collected.record.changes.len(), left), (2, 4));
                break;
            }
            Err(CollectFault::Stopped) => assert_eq!((left, asked.get()), (0, stopped + 1)),
            Err(other) => panic!("{other}"),
        }
        stopped += 1;
    }
    // Three entries, two changes in the patch, and more often than that for the pieces of a large file.
    assert!(stopped > 10, "{stopped}");
}

#[test]
fn whoever_watches_hears_how_far_it_is() {
    let overlay = Overlay::of(&tree(&[]));
    fs::write(overlay.merged().join("f"), "12345").unwrap();
    let run = tempfile::tempdir().unwrap();
    let heard = std::cell::RefCell::new(Vec::new());
    let watch = |progress| {
        heard.borrow_mut().push(progress);
        ControlFlow::Continue(())
    };
    let fd = open(run.path());
    collect(&overlay.sources(), &WITHOUT_IGNORED, &Caps::default(), fd.as_fd(), &watch).unwrap();
    let mut heard = heard.into_inner();
    heard.dedup();
    let expected = [
        Progress::Reading { entries: 1, bytes: 0 },
        Progress::Reading { entries: 1, bytes: 5 },
        Progress::WritingPatch { done: 0, of: 1 },
    ];
    assert_eq!(heard, expected);
}
