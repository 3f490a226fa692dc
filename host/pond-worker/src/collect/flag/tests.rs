//! What is flagged, and as what.

use std::convert::Infallible;

use super::*;
use crate::collect::change::{Delta, Leaf};
use crate::digest::Digest;

fn added(path: &[u8], mode: Mode) -> Change {
    let new = Leaf { mode, size: 0, sha256: Digest::of(b"") };
    Change { path: RelPath::from_bytes(path).unwrap(), delta: Delta::Added { new } }
}

fn categories(changes: &[Change], leads: Leads) -> Vec<(String, Category)> {
    categories_on(&[], changes, leads)
}

fn categories_on(base: &[&str], changes: &[Change], leads: Leads) -> Vec<(String, Category)> {
    let in_base = |path: &[u8]| base.iter().any(|there| there.as_bytes() == path);
    let flags = flags(changes, |_| Ok::<_, Infallible>(leads), in_base).unwrap();
    flags.into_iter().map(|flag| (flag.path.to_string(), flag.category)).collect()
}

#[test]
fn files_host_tools_act_on_are_flagged() {
    let cases = [
        (".gitattributes", Category::Git),
        ("sub/.GitModules", Category::Git),
        (".husky/pre-commit", Category::Hook),
        ("tools/hooks/post-checkout", Category::Hook),
        (".pre-commit-config.yaml", Category::Hook),
        (".vscode/tasks.json", Category::Editor),
        ("a/b/.IDEA/workspace.xml", Category::Editor),
        (".clangd", Category::Editor),
        ("build/compile_commands.json", Category::Editor),
        (".helix/config.toml", Category::Editor),
        (".envrc", Category::Shell),
        (".env.local", Category::Shell),
        (".Rprofile", Category::Interpreter),
        (".irbrc", Category::Interpreter),
        ("lib/.pryrc", Category::Interpreter),
        (".gdbinit", Category::Interpreter),
        (".lldbinit", Category::Interpreter),
        (".claude/settings.json", Category::Agent),
        (".codex/config.toml", Category::Agent),
        (".cursor/rules/x.mdc", Category::Agent),
        (".gemini/settings.json", Category::Agent),
        ("docs/AGENTS.md", Category::Agent),
        ("CLAUDE.md", Category::Agent),
        (".mcp.json", Category::Agent),
        (".github/workflows/ci.yml", Category::Ci),
        (".gitlab-ci.yml", Category::Ci),
        ("Jenkinsfile", Category::Ci),
        (".circleci/config.yml", Category::Ci),
        ("azure-pipelines.yml", Category::Ci),
        ("crate/build.rs", Category::Build),
        (".cargo/config.toml", Category::Build),
        ("rust-toolchain.toml", Category::Build),
        ("Makefile", Category::Build),
        ("tests/conftest.py", Category::Build),
        (".pylintrc", Category::Build),
        ("dodo.py", Category::Build),
        (".prettierrc.js", Category::Build),
        (".prettierrc.cjs", Category::Build),
        ("web/.prettierrc.mjs", Category::Build),
        ("web/package.json", Category::PackageManager),
        (".bundle/config", Category::PackageManager),
        (".npmrc", Category::PackageManager),
        (".pypirc", Category::PackageManager),
        ("pyproject.toml", Category::PackageManager),
        ("setup.py", Category::PackageManager),
        ("Dockerfile.dev", Category::Container),
        (".devcontainer/devcontainer.json", Category::Container),
    ];
    for (path, category) in cases {
        let found = categories(&[added(path.as_bytes(), Mode::Regular)], Leads::Inside);
        assert_eq!(found, [(path.to_owned(), category)]);
    }
}

#[test]
fn ordinary_files_are_not_flagged() {
    for path in [
        "src/main.rs",
        "README.md",
        "docs/hooks.md",
        "src/build_rs.txt",
        "lib/github/x.rb",
        "environment.ts",
        "Rprofile.md",
        "src/clangd.rs",
        "bundle/config",
    ] {
        assert_eq!(categories(&[added(path.as_bytes(), Mode::Regular)], Leads::Inside), []);
    }
}

#[test]
fn deceptive_names_are_flagged() {
    let names: [&[u8]; 11] = [
        b"a\nb",
        b"a\x1b[2J",
        b"\xff",
        b"-rf",
        b"x ",
        b"x.",
        b"d/NUL.txt",
        b"com1",
        b"a\\b",
        b"caf\xc2\x9b",
        "in\u{202e}txt.exe".as_bytes(),
    ];
    for name in names {
        let change = added(name, Mode::Regular);
        let expected = [(change.path.to_string(), Category::DeceptiveName)];
        assert_eq!(categories(&[change], Leads::Inside), expected);
    }
}

#[test]
fn names_that_collide_are_flagged_on_both_sides() {
    let changes =
        [added(b"Readme", Mode::Regular), added(b"readme", Mode::Regular), added(b"x", Mode::Regular)];
    let expected = ["Readme", "readme"].map(|name| (name.to_owned(), Category::DeceptiveName));
    assert_eq!(categories(&changes, Leads::Inside), expected);
}

#[test]
fn executables_and_escaping_links_are_flagged() {
    let link = categories(&[added(b"l", Mode::Link)], Leads::Outside);
    assert_eq!(link, [("l".to_owned(), Category::LinkOutside)]);
    let git = categories(&[added(b"l", Mode::Link)], Leads::IntoGitMetadata);
    assert_eq!(git, [("l".to_owned(), Category::LinkIntoGit)]);
    let run = categories(&[added(b"run", Mode::Executable)], Leads::Inside);
    assert_eq!(run, [("run".to_owned(), Category::NewlyExecutable)]);
}

#[test]
fn a_repository_without_its_usual_name_is_flagged() {
    let flagged = |base: &[&str], paths: &[&str]| -> Vec<String> {
        let changes: Vec<Change> = paths.iter().map(|path| added(path.as_bytes(), Mode::Regular)).collect();
        let found = categories_on(base, &changes, Leads::Inside);
        assert!(found.iter().all(|(_, category)| *category == Category::Repository), "{found:?}");
        found.into_iter().map(|(path, _)| path).collect()
    };
    let planted = ["docs/HEAD", "docs/config", "docs/objects/x", "docs/refs/x"];
    assert_eq!(flagged(&[], &planted), planted);
    assert_eq!(flagged(&[], &["a/b/Head", "a/b/commondir"]), ["a/b/Head", "a/b/commondir"]);
    // One part of it is enough where the base has the others.
    let base = ["docs/HEAD", "docs/objects"];
    assert_eq!(flagged(&base, &["docs/config", "other/config"]), ["docs/config"]);
    assert_eq!(flagged(&["docs/HEAD", "docs/config"], &["docs/refs/x"]), ["docs/refs/x"]);
    // The checkout itself is one.
    assert_eq!(flagged(&["HEAD", "refs"], &["config", "info/attributes"]), ["config", "info/attributes"]);
    assert_eq!(flagged(&["HEAD"], &["config"]), Vec::<String>::new());
    assert_eq!(flagged(&[], &["docs/config", "docs/objects/x", "docs/refs/x"]), Vec::<String>::new());
}
