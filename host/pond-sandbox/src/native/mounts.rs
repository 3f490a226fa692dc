//! Which file systems are mounted below a directory. Asked only after a launch failed because of one.

use std::path::{Path, PathBuf};

/// The first mount below one of these directories, in the order of the kernel's table; none where it cannot be read.
pub(super) fn first_below<'a>(directories: impl IntoIterator<Item = &'a Path> + Clone) -> Option<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    points(&table).find(|point| is_below(point, directories.clone()))
}

fn is_below<'a>(point: &Path, directories: impl IntoIterator<Item = &'a Path>) -> bool {
    directories.into_iter().any(|directory| point != directory && point.starts_with(directory))
}

fn points(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| unescaped(point).into())
}

/// The kernel writes blanks, line ends and backslashes as a backslash and three octal digits.
fn unescaped(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(point.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 254:0 / / rw - ext4 /dev/vda rw
22 21 0:5 / /srv/project rw - tmpfs tmpfs rw
23 22 0:6 / /srv/project/a\\040b rw - tmpfs tmpfs rw
24 21 0:7 / /srv/project2/x rw - tmpfs tmpfs rw
";

    #[test]
    fn what_lies_below_is_found_and_nothing_beside_it() {
        let found = |directory: &str| {
            points(TABLE).filter(|point| is_below(point, [Path::new(directory)])).collect::<Vec<_>>()
        };
        assert_eq!(found("/srv/project"), [PathBuf::from("/srv/project/a b")]);
        assert_eq!(found("/srv/project/a b"), Vec::<PathBuf>::new());
        assert_eq!(found("/srv/pro"), Vec::<PathBuf>::new());
        assert_eq!(first_below([Path::new("/no/such/directory")]), None);
    }
}
