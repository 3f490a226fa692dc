//! The commit that a repository's HEAD, or a branch of it, names. Read from files of a hostile tree: by descriptor, regular, within a
//! size, never through a link. Whatever is unusual (a linked worktree, a damaged reference) is no commit rather than a guess.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;

use super::above::Above;
use crate::beneath;

const MOST_REFERENCE: u64 = 4 << 10;
const MOST_PACKED: u64 = 4 << 20;

/// The text of a small file of a repository, by its path; nothing when it is anything else.
pub(super) type Reader<'a> = &'a dyn Fn(&str, u64) -> Option<String>;

/// In hexadecimal, of either length git has.
pub fn head_commit(checkout: BorrowedFd<'_>, above: Option<&Above>) -> Option<String> {
    let top = above.map_or(checkout, Above::top);
    References::of(&|path, most| text(top, path, most)).head()
}

/// What the references of one repository name. Its table is read once, however many are asked for.
pub(super) struct References<'a> {
    read: Reader<'a>,
    packed: OnceCell<BTreeMap<String, String>>,
}

impl<'a> References<'a> {
    pub(super) fn of(read: Reader<'a>) -> Self {
        Self { read, packed: OnceCell::new() }
    }

    pub(super) fn head(&self) -> Option<String> {
        let head = (self.read)(".git/HEAD", MOST_REFERENCE)?;
        match head.strip_prefix("ref: ").map(str::trim_end) {
            Some(name) => self.commit_of(name),
            None => commit(head.trim_end()),
        }
    }

    /// The commit that a reference names.
    pub(super) fn commit_of(&self, name: &str) -> Option<String> {
        if !name.starts_with("refs/") || name.contains("..") {
            return None;
        }
        match (self.read)(&format!(".git/{name}"), MOST_REFERENCE) {
            Some(loose) => commit(loose.trim_end()),
            None => self.packed().get(name).cloned(),
        }
    }

    /// By name; of lines with the same one, the first that names a commit.
    pub(super) fn packed(&self) -> &BTreeMap<String, String> {
        self.packed.get_or_init(|| {
            let table = (self.read)(".git/packed-refs", MOST_PACKED).unwrap_or_default();
            let mut packed = BTreeMap::new();
            for (number, name) in table.lines().filter_map(|line| line.split_once(' ')) {
                if let Some(commit) = commit(number) {
                    packed.entry(name.to_owned()).or_insert(commit);
                }
            }
            packed
        })
    }
}

fn commit(text: &str) -> Option<String> {
    let plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (matches!(text.len(), 40 | 64) && text.bytes().all(plain)).then(|| text.to_owned())
}

pub(super) fn text(top: BorrowedFd<'_>, path: &str, most: u64) -> Option<String> {
    let stat = rustix::fs::fstat(beneath::open_handle(top, path.as_bytes()).ok()?).ok()?;
    if beneath::kind(&stat) != FileType::RegularFile || beneath::size(&stat) > most {
        return None;
    }
    let mut text = String::new();
    File::from(beneath::open_file(top, path.as_bytes()).ok()?).take(most).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef01234567";
    const TWO: &str = "fedcba9876543210fedcba9876543210fedcba98";

    #[test]
    fn loose_packed_and_detached_heads_are_found_and_nothing_else() {
        let tree = tempfile::tempdir().unwrap();
        let git = tree.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads")).unwrap();
        let fd = File::open(tree.path()).unwrap();
        let put = |name: &str, text: &str| std::fs::write(git.join(name), text).unwrap();
        let head = || head_commit(fd.as_fd(), None);
        assert_eq!(head(), None);
        put("HEAD", "ref: refs/heads/main\n");
        assert_eq!(head(), None);
        put("packed-refs", &format!("# pack-refs\n{TWO} refs/heads/mainly\n{ONE} refs/heads/main\n"));
        assert_eq!(head().as_deref(), Some(ONE));
        put("refs/heads/main", &format!("{TWO}\n"));
        assert_eq!(head().as_deref(), Some(TWO));
        put("HEAD", &format!("{ONE}\n"));
        assert_eq!(head().as_deref(), Some(ONE));
        for hostile in ["ref: refs/../../secret\n", "ref: /etc/passwd\n", "not a commit\n", ""] {
            put("HEAD", hostile);
            assert_eq!(head(), None, "{hostile}");
        }
        std::fs::remove_file(git.join("HEAD")).unwrap();
        std::os::unix::fs::symlink("refs/heads/main", git.join("HEAD")).unwrap();
        assert_eq!(head(), None);
    }
}
