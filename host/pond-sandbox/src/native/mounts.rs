//! Which file systems are mounted where: below a directory, after a launch failed because of one; and anywhere a directory's content
//! depends on, to see whether it changed.

use std::io;
use std::path::{Path, PathBuf};

pub(super) const TABLE: &str = "/proc/self/mountinfo";

/// The first mount below one of these directories, in the order of the kernel's table; none where it cannot be read.
pub(super) fn first_below<'a>(directories: impl IntoIterator<Item = &'a Path> + Clone) -> Option<PathBuf> {
    let table = std::fs::read_to_string(TABLE).ok()?;
    points(&table).find(|point| is_below(point, directories.clone()))
}

/// The kernel's lines about every mount at, above or below one of these places, none of which leads through a link.
pub(super) fn around(places: &[PathBuf]) -> io::Result<Vec<String>> {
    Ok(lines_around(&std::fs::read_to_string(TABLE)?, places))
}

fn lines_around(table: &str, places: &[PathBuf]) -> Vec<String> {
    let touches =
        |point: &Path| places.iter().any(|place| place.starts_with(point) || point.starts_with(place));
    let lines = table.lines().zip(points(table));
    lines.filter(|(_, point)| touches(point)).map(|(line, _)| line.to_owned()).collect()
}

fn is_below<'a>(point: &Path, directories: impl IntoIterator<Item = &'a Path>) -> bool {
    directories.into_iter().any(|directory| point != directory && point.starts_with(directory))
}

fn points(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().map(|line| unescaped(line.split(' ').nth(4).unwrap_or_default()).into())
}

/// The kernel writes blanks, line ends and backslashes as a backslash and three octal digits.
pub(crate) fn unescaped(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(point.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "\
21 1 254:0 / / rw - ext4 /dev/vda rw
22 21 0:5 / /srv/project rw - tmpfs tmpfs rw
23 22 0:6 / /srv/project/a\\040b rw - tmpfs tmpfs rw
24 21 0:7 / /srv/project2/x rw - tmpfs tmpfs rw
";

    #[test]
    fn what_lies_below_is_found_and_nothing_beside_it() {
        let found = |directory: &str| {
            points(SOME).filter(|point| is_below(point, [Path::new(directory)])).collect::<Vec<_>>()
        };
        assert_eq!(found("/srv/project"), [PathBuf::from("/srv/project/a b")]);
        assert_eq!(found("/srv/project/a b"), Vec::<PathBuf>::new());
        assert_eq!(found("/srv/pro"), Vec::<PathBuf>::new());
        assert_eq!(first_below([Path::new("/no/such/directory")]), None);
    }

    #[test]
    fn what_a_place_depends_on_is_above_at_or_below_it() {
        let numbers = |place: &str| {
            let lines = lines_around(SOME, &[PathBuf::from(place)]);
            lines.iter().filter_map(|line| line.get(..2)?.parse().ok()).collect::<Vec<u8>>()
        };
        assert_eq!(numbers("/usr"), [21]);
        assert_eq!(numbers("/srv/project/a b/c"), [21, 22, 23]);
        assert_eq!(numbers("/srv/project2"), [21, 24]);
        assert_eq!(numbers("/"), [21, 22, 23, 24]);
    }
}
