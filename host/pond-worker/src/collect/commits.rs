//! What a job committed: HEAD and the branches of its copy that name another commit than those of the checkout do.
//!
//! HOSTILE INPUT, for people to read and for nothing else: a name or a number the job made up is as good as a real one, and no
//! object is looked at. Files are read as `head` reads them, from the layer the job saw them in; the number of branches is bounded.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};

use serde::{Deserialize, Serialize};

use super::Sources;
use super::head::{self, References};
use super::overlay::{DirectoryMark, Upper};
use crate::beneath;

const BRANCHES: &str = "refs/heads";
/// Entries of the job's branches that are looked at, and how many are told.
const MOST_ENTRIES: usize = 1000;
const MOST_TOLD: usize = 100;
const MOST_DEPTH: usize = 8;

/// A reference that names another commit than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// `HEAD`, or `refs/heads/…`.
    pub reference: String,
    /// None when there was no such reference.
    pub from: Option<String>,
    pub to: String,
}

/// HEAD first, then branches by name. Nothing for a copy that is only a part of its repository, which has none of its own.
pub(super) fn made(sources: &Sources) -> Vec<Moved> {
    let before = |path: &str, most| head::text(sources.lower.as_fd(), path, most);
    let after = |path: &str, most| match layer_of(sources, path)? {
        Layer::Job => head::text(sources.upper.as_fd(), path, most),
        Layer::Base => before(path, most),
    };
    let moved = |reference: String, from: Option<String>, to: Option<String>| {
        to.filter(|to| from.as_ref() != Some(to)).map(|to| Moved { reference, from, to })
    };
    if beneath::open_dir(&sources.upper, b".git").is_err() {
        return Vec::new();
    }
    let (before, after) = (References::of(&before), References::of(&after));
    let branches = candidates(sources).into_iter().filter_map(|name| {
        let (from, to) = (before.commit_of(&name), after.commit_of(&name));
        moved(name, from, to)
    });
    let head = moved("HEAD".to_owned(), before.head(), after.head());
    head.into_iter().chain(branches).take(MOST_TOLD).collect()
}

/// Branches the job wrote, sorted: files of its own, and lines of a table of its own.
fn candidates(sources: &Sources) -> Vec<String> {
    let mut found = Loose::default();
    loose(sources, BRANCHES, MOST_DEPTH, &mut found);
    let mut found = found.branches;
    let own = |path: &str, most| head::text(sources.upper.as_fd(), path, most);
    let own = References::of(&own);
    found.extend(own.packed().keys().filter(|name| is_branch(name)).take(MOST_ENTRIES).cloned());
    found.sort_unstable();
    found.dedup();
    found
}

/// What was found, among how many entries of any kind.
#[derive(Default)]
struct Loose {
    branches: Vec<String>,
    looked_at: usize,
}

fn loose(sources: &Sources, place: &str, depth: usize, found: &mut Loose) {
    let Ok(directory) = beneath::open_dir(&sources.upper, format!(".git/{place}").as_bytes()) else { return };
    let listed = beneath::each_name(
        directory.as_fd(),
        |_unreadable| Stop,
        |name| {
            found.looked_at += 1;
            if found.looked_at > MOST_ENTRIES {
                return Err(Stop);
            }
            let path = name.to_str().map(|name| format!("{place}/{name}"));
            match (path, sources.xattrs.entry(directory.as_fd(), name)) {
                (Ok(path), Ok(Upper::Directory)) if depth > 0 => loose(sources, &path, depth - 1, found),
                (Ok(path), Ok(Upper::File(..))) if is_branch(&path) => found.branches.push(path),
                // Whatever else lies there is no branch.
                (Ok(_) | Err(_), Ok(_) | Err(_)) => {}
            }
            Ok(())
        },
    );
    // What was found until then is told.
    if let Err(Stop) = listed {}
}

/// The end of a listing before its last name.
struct Stop;

/// A name git would take, as far as showing it goes.
fn is_branch(name: &str) -> bool {
    name.starts_with("refs/heads/") && !name.contains("..") && !name.contains(char::is_control)
}

/// Where what the job saw under a path lies.
enum Layer {
    Job,
    Base,
}

/// Nothing when the job saw nothing there, or something that cannot be told.
fn layer_of(sources: &Sources, path: &str) -> Option<Layer> {
    let mut directory = beneath::open_dir(&sources.upper, b"").ok()?;
    let mut base = Some(Layer::Base);
    for part in path.split('/') {
        match sources.xattrs.directory(directory.as_fd()).ok()? {
            DirectoryMark::Merged => {}
            DirectoryMark::Opaque => base = None,
            DirectoryMark::Redirected => return None,
        }
        if is_absent(directory.as_fd(), part) {
            return base;
        }
        match sources.xattrs.entry(directory.as_fd(), &CString::new(part).ok()?).ok()? {
            Upper::Directory => directory = beneath::open_dir(&directory, part.as_bytes()).ok()?,
            Upper::File(..) => return Some(Layer::Job),
            Upper::Link(_) | Upper::Whiteout | Upper::Refused(_) | Upper::Unsteady => return None,
        }
    }
    None
}

fn is_absent(directory: BorrowedFd<'_>, name: &str) -> bool {
    beneath::open_handle(directory, name.as_bytes()).is_err_and(beneath::is_absent)
}

#[cfg(test)]
mod tests {
    //! On a real overlay, with the files git would have written.
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::collect::OverlayXattrs;
    use crate::testkit::Overlay;

    const ONE: &str = "0123456789abcdef0123456789abcdef01234567";
    const TWO: &str = "fedcba9876543210fedcba9876543210fedcba98";
    const THREE: &str = "00112233445566778899aabbccddeeff00112233";

    fn put(tree: &Path, name: &str, text: &str) {
        let path = tree.join(".git").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn repository(lower: &Path) {
        put(lower, "HEAD", "ref: refs/heads/main\n");
        put(lower, "refs/heads/main", ONE);
        put(lower, "refs/heads/still", ONE);
        put(lower, "packed-refs", &format!("# pack-refs\n{ONE} refs/heads/old/packed\n"));
    }

    fn moved(reference: &str, from: Option<&str>, to: &str) -> Moved {
        Moved { reference: reference.to_owned(), from: from.map(str::to_owned), to: to.to_owned() }
    }

    #[test]
    fn commits_on_branches_old_and_new_are_told() {
        let overlay = Overlay::new(OverlayXattrs::Trusted, repository);
        let job = overlay.merged();
        assert_eq!(made(&overlay.sources()), []);
        put(&job, "index", "touched");
        assert_eq!(made(&overlay.sources()), []);
        put(&job, "refs/heads/main", &format!("{TWO}\n"));
        put(&job, "refs/heads/feature/x", &format!("{THREE}\n"));
        put(&job, "HEAD", "ref: refs/heads/feature/x\n");
        fs::remove_file(job.join(".git/refs/heads/still")).unwrap();
        let expected = [
            moved("HEAD", Some(ONE), THREE),
            moved("refs/heads/feature/x", None, THREE),
            moved("refs/heads/main", Some(ONE), TWO),
        ];
        assert_eq!(made(&overlay.sources()), expected);
        fs::remove_dir_all(job.join(".git/refs/heads")).unwrap();
        put(&job, "packed-refs", &format!("{THREE} refs/heads/feature/x\n{TWO} refs/heads/main\n"));
        assert_eq!(made(&overlay.sources()), expected, "packed");
    }

    #[test]
    fn a_repository_of_the_jobs_own_has_no_before() {
        let overlay = Overlay::new(OverlayXattrs::Trusted, |_| {});
        repository(&overlay.merged());
        let names = ["HEAD", "refs/heads/main", "refs/heads/old/packed", "refs/heads/still"];
        assert_eq!(made(&overlay.sources()), names.map(|name| moved(name, None, ONE)));
        let replaced = Overlay::new(OverlayXattrs::Trusted, repository);
        fs::remove_dir_all(replaced.merged().join(".git")).unwrap();
        assert_eq!(made(&replaced.sources()), []);
        put(&replaced.merged(), "HEAD", "ref: refs/heads/main\n");
        assert_eq!(made(&replaced.sources()), [], "an opaque directory shows nothing of the base");
        put(&replaced.merged(), "HEAD", TWO);
        assert_eq!(made(&replaced.sources()), [moved("HEAD", Some(ONE), TWO)]);
    }

    /// Read anew for each name it would take minutes.
    #[test]
    fn a_table_is_read_once_however_many_names_are_in_it() {
        let overlay = Overlay::new(OverlayXattrs::Trusted, repository);
        let read = Cell::new(0);
        let lower = overlay.sources();
        let counting = |path: &str, most| {
            read.set(read.get() + usize::from(path.ends_with("packed-refs")));
            head::text(lower.lower.as_fd(), path, most)
        };
        let references = References::of(&counting);
        let found =
            (0..1000).filter(|number| references.commit_of(&format!("refs/heads/{number}")).is_some());
        assert_eq!((found.count(), references.commit_of("refs/heads/old/packed").as_deref()), (0, Some(ONE)));
        assert_eq!(read.get(), 1);
    }

    #[test]
    fn what_a_job_forges_is_bounded_and_harmless() {
        let overlay = Overlay::new(OverlayXattrs::Trusted, repository);
        let job = overlay.merged();
        put(&job, "refs/heads/esc\u{1b}[2J", TWO);
        put(&job, "refs/heads/no-commit", "zzz");
        std::os::unix::fs::symlink("/etc/hostname", job.join(".git/refs/heads/link")).unwrap();
        put(&job, "packed-refs", &format!("{TWO} refs/heads/../../x\n{TWO} refs/heads/new\nline\u{1b}\n"));
        put(&job, "refs/heads/main", TWO);
        let expected = [
            moved("HEAD", Some(ONE), TWO),
            moved("refs/heads/main", Some(ONE), TWO),
            moved("refs/heads/new", None, TWO),
        ];
        assert_eq!(made(&overlay.sources()), expected);
        for number in 0..2 * MOST_TOLD {
            put(&job, &format!("refs/heads/b{number}"), ONE);
        }
        assert_eq!(made(&overlay.sources()).len(), MOST_TOLD);
    }
}
