//! The repository as the rules see it: every text file git would track, every Rust file parsed,
//! every package cargo resolved. Loading is the only reading of the disk; the rules are pure.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ignore::WalkBuilder;
use proc_macro2::TokenStream;

use super::Finding;
use super::deny::Deny;
use super::functions::{self, Function};
use super::packages::{self, Package};

/// A UTF-8 file, its path relative to the root.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) path: String,
    pub(crate) body: String,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) body: String,
    pub(crate) tokens: TokenStream,
    pub(crate) syntax: syn::File,
    pub(crate) functions: Vec<Function>,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) texts: Vec<Text>,
    pub(crate) sources: Vec<Source>,
    pub(crate) packages: Vec<Package>,
    pub(crate) deny: Deny,
    /// Rust files that no rule can read.
    pub(crate) unparsed: Vec<Finding>,
}

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        for text in texts(root)? {
            tree.add(text);
        }
        let deny = tree.text("deny.toml").context("deny.toml is missing")?;
        tree.deny = toml::from_str(&deny.body).context("deny.toml: not a form that tidy enforces")?;
        tree.packages = packages::load(root, &tree.deny.graph.targets)?;
        Ok(tree)
    }

    fn add(&mut self, text: Text) {
        if text.path.ends_with(".rs") {
            match Source::parse(&text) {
                Ok(source) => self.sources.push(source),
                Err(error) => {
                    let line = error.span().start().line;
                    self.unparsed.push(Finding::new(
                        &text.path,
                        line,
                        "parse",
                        format!("fix this first: {error}"),
                    ));
                }
            }
        }
        self.texts.push(text);
    }

    pub(crate) fn text(&self, path: &str) -> Option<&Text> {
        self.texts.iter().find(|text| text.path == path)
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (&Package, &str)> {
        self.packages.iter().filter_map(|package| Some((package, package.dir.as_deref()?)))
    }

    /// The member whose folder holds this file.
    pub(crate) fn member_of(&self, path: &str) -> Option<&str> {
        self.members()
            .find(|(_, dir)| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/')))
            .map(|(package, _)| package.name.as_str())
    }

    /// Where a file first has a line that starts so; the first line of the file when none does.
    pub(crate) fn line_of(&self, path: &str, start: &str) -> usize {
        let lines = self.text(path).map(|text| text.body.lines()).into_iter().flatten();
        lines.zip(1..).find(|(line, _)| line.trim_start().starts_with(start)).map_or(1, |(_, number)| number)
    }
}

impl Source {
    pub(crate) fn parse(text: &Text) -> syn::Result<Self> {
        let tokens: TokenStream = text.body.parse()?;
        let syntax: syn::File = syn::parse2(tokens.clone())?;
        let functions = functions::of(&syntax);
        Ok(Self { path: text.path.clone(), body: text.body.clone(), tokens, syntax, functions })
    }
}

fn texts(root: &Path) -> Result<Vec<Text>> {
    // Without git: a fresh machine may not have it yet, and a source archive has no history.
    let walk = WalkBuilder::new(root)
        .hidden(false)
        .parents(false)
        .require_git(false)
        .git_global(false)
        .git_exclude(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_path(Path::cmp)
        .build();
    let mut texts = Vec::new();
    for entry in walk {
        let entry = entry?;
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path().strip_prefix(root)?.to_str().context("a path is not UTF-8")?.to_owned();
        if let Ok(body) = String::from_utf8(fs::read(entry.path())?) {
            texts.push(Text { path, body });
        }
    }
    Ok(texts)
}

#[cfg(test)]
impl Tree {
    /// A tree of these files and no packages.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, body) in files {
            tree.add(Text { path: (*path).to_owned(), body: (*body).to_owned() });
        }
        tree
    }

    pub(crate) fn with(mut self, packages: Vec<Package>) -> Self {
        self.packages = packages;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_files_are_no_part_of_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        for (path, body) in
            [(".gitignore", "target/\n"), ("a.md", "a"), (".ci/run", "b"), ("target/c.rs", "c")]
        {
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, body).unwrap();
        }
        let paths: Vec<String> = texts(dir.path()).unwrap().into_iter().map(|text| text.path).collect();
        assert_eq!(paths, [".ci/run", ".gitignore", "a.md"]);
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        let tree = Tree::of(&[("a.rs", "fn whole() {}\n"), ("b.rs", "fn whole() {}\nfn half( {}\n")]);
        let places: Vec<_> =
            tree.unparsed.iter().map(|finding| (finding.path.as_str(), finding.line)).collect();
        assert_eq!((places, tree.sources.len()), (vec![("b.rs", 2)], 1));
    }

    #[test]
    fn a_file_belongs_to_the_member_around_it() {
        let tree = Tree::of(&[]).with(vec![Package::member("pond", "pond"), Package::member("x", "pond-x")]);
        assert_eq!(tree.member_of("pond-x/src/lib.rs"), Some("x"));
        assert_eq!(tree.member_of("fuzz/a.rs"), None);
    }
}
