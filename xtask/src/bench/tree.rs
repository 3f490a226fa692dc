//! Stage and collect on a large tree: pond's time must not follow its size.

use std::fs;

use anyhow::Result;

use super::race::{self, Contender, Pace, Row};
use super::stand::Stand;

const DIRECTORIES: usize = 500;
const FILES_EACH: usize = 100;
const FILE_BYTES: usize = 4096;

pub(super) const EMPTY: &str = "pond run, empty tree";
pub(super) const LARGE: &str = "pond run, 50,000 files";

pub(super) fn measure(stand: &Stand, runs: u32) -> Result<Vec<Row>> {
    let tree = stand.path("tree");
    plant(&tree)?;
    let pond = |checkout: &str, command: &[&str]| {
        let words = stand.pond(checkout, &[&["--"], command].concat());
        stand.spawning(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let change = "for file in d00?/f0??; do echo changed >> $file; done";
    let copy = format!("exec cp -a {tree} $(mktemp -d {})", stand.path("copy-XXXXXX"));
    let contender = |name, instrument, pace| Contender { name, instrument, pace };
    let contenders = [
        contender(EMPTY, pond(&stand.path("checkout"), &["true"]), Pace::EveryRound),
        contender(LARGE, pond(&tree, &["true"]), Pace::EveryRound),
        contender(
            "pond run, 50,000 files, 1,000 changed",
            pond(&tree, &["sh", "-c", change]),
            Pace::EveryNth(10),
        ),
        contender("cp -a, 50,000 files", stand.spawning(&["sh", "-c", &copy]), Pace::EveryNth(50)),
    ];
    race::run(&contenders, runs, &stand.log)
}

fn plant(tree: &str) -> Result<()> {
    for directory in 0..DIRECTORIES {
        let directory = format!("{tree}/d{directory:03}");
        fs::create_dir_all(&directory)?;
        for file in 0..FILES_EACH {
            let line = format!("{directory}/f{file:03}\n");
            let content = line.repeat(FILE_BYTES / line.len());
            fs::write(format!("{directory}/f{file:03}"), content)?;
        }
    }
    Ok(())
}
