//! Judges a symbolic link by its text alone: nothing is resolved, because resolving is what a hostile link wants.

use crate::path::{RelPath, is_git_name};

/// Where a link says it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    Inside,
    IntoGitMetadata,
    Outside,
}

/// `path` is where the link stands.
pub(crate) fn leads(path: &RelPath, target: &[u8]) -> Leads {
    if target.is_empty() || target.starts_with(b"/") {
        return Leads::Outside;
    }
    let mut depth = path.ancestors().count();
    let mut verdict = Leads::Inside;
    for component in target.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return Leads::Outside,
            },
            name => {
                depth += 1;
                if is_git_name(name) {
                    verdict = Leads::IntoGitMetadata;
                }
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_by_text() {
        let cases = [
            ("l", "a/b", Leads::Inside),
            ("d/l", "../a", Leads::Inside),
            ("d/l", "../../a", Leads::Outside),
            ("l", "..", Leads::Outside),
            ("l", "a/../../b", Leads::Outside),
            ("l", "/etc/shadow", Leads::Outside),
            ("l", "/proc/self/root", Leads::Outside),
            ("l", ".GIT/hooks", Leads::IntoGitMetadata),
            ("d/l", "./../.git/config", Leads::IntoGitMetadata),
            ("l", "", Leads::Outside),
        ];
        for (path, target, expected) in cases {
            let path = RelPath::from_bytes(path.as_bytes()).unwrap();
            assert_eq!(leads(&path, target.as_bytes()), expected, "{path} -> {target}");
        }
    }
}
