//! The known name closest to a mistyped one, for the hint in a refusal. Cost is bounded by the length of the names, not
//! of the input.

/// The first name within a third of its length of `given`, nearest first.
pub(crate) fn nearest<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    let given: Vec<char> = given.chars().take(64).collect();
    names
        .iter()
        .map(|name| (distance(&given, name), *name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Levenshtein distance, one row at a time.
fn distance(given: &[char], name: &str) -> usize {
    let mut row: Vec<usize> = (0..=given.len()).collect();
    for (line, wanted) in name.chars().enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        for (above, c) in row.iter_mut().skip(1).zip(given) {
            let changed = diagonal + usize::from(*c != wanted);
            diagonal = *above;
            left = changed.min(left + 1).min(*above + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_edits() {
        let distance = |a: &str, b| super::distance(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[test]
    fn only_close_names_are_offered() {
        let names = ["memory", "cpus", "pids_limit"];
        assert_eq!(nearest("memroy", &names), Some("memory"));
        assert_eq!(nearest("pid_limit", &names), Some("pids_limit"));
        assert_eq!(nearest("network", &names), None);
    }
}
