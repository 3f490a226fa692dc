//! The base's own ignore rules: what git would not list as new, read from the checkout the job started from.
//!
//! Rules come from every `.gitignore` of the base between its root and the directory in question and from its
//! `.git/info/exclude`, also from those above a base that is only a part of its repository; never from the job's versions of them, and never from the settings of whoever runs pond.
//! The base may be hostile, too: rule files are read by descriptor, regular files only, within a budget. A file or a line
//! that cannot be used leaves nothing out, so the failure shows more, never less.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::above::Above;
use crate::beneath;
use crate::path::quoted;

const PER_DIRECTORY: &[u8] = b".gitignore";
const OF_REPOSITORY: &[u8] = b".git/info/exclude";
const FILE_BYTES: u64 = 64 << 10;
const TOTAL_BYTES: u64 = 1 << 20;

/// What happens to paths that the base's ignore rules match and git does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    LeaveOut,
    Keep,
}

/// How many paths one rule file left out. A directory counts once, whatever it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    pub rules: String,
    pub paths: u64,
}

/// What the rules say about the entries of one directory.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    Open,
    Ruled(Rc<Rules>),
    /// The directory itself is ignored, and with it all below that git does not know; no deeper rule can take that back.
    Ignored(RuleFile),
}

/// The printable name of the file that had the last word.
pub(super) type RuleFile = Rc<str>;

#[derive(Debug)]
pub(super) struct Rules {
    matcher: Gitignore,
    /// Leads from the top of the repository to the base, for rules that lie above it; otherwise empty.
    way: Rc<[u8]>,
    /// How much of the way and a path is the directory that the patterns are relative to.
    depth: usize,
    file: RuleFile,
    above: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Leaf,
    Directory,
}

/// Reads rule files of one base as the walk comes by.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    lower: BorrowedFd<'a>,
    room: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(lower: BorrowedFd<'a>, ignored: Ignored) -> Self {
        let room = match ignored {
            Ignored::LeaveOut => TOTAL_BYTES,
            Ignored::Keep => 0,
        };
        Self { lower, room }
    }

    /// The scope above the root directory.
    pub(super) fn repository(&mut self, above: Option<&Above>) -> Scope {
        let outer = above.and_then(|above| self.around(above)).unwrap_or(Scope::Open);
        self.with(OF_REPOSITORY, 0, outer)
    }

    /// The rules above a base that is a part of a repository. Nothing if they ignore the base itself: whoever works on it does
    /// not mean them. A home directory kept in git ignores everything.
    fn around(&mut self, above: &Above) -> Option<Scope> {
        let levels = above.directories().count();
        let mut found: Vec<(Gitignore, usize, RuleFile)> = Vec::new();
        for (level, directory) in above.directories().enumerate() {
            if is_ignored(&found, directory) {
                return None;
            }
            let inner = if directory.is_empty() { Vec::new() } else { [directory, b"/"].concat() };
            let files = [OF_REPOSITORY, PER_DIRECTORY].into_iter().skip(usize::from(level > 0));
            for file in files {
                let text = self.read(above.top(), &[inner.as_slice(), file].concat());
                if let Some(matcher) = text.and_then(|text| matcher(&text)) {
                    let name = format!("{}{}", "../".repeat(levels - level), quoted("", file));
                    found.push((matcher, inner.len(), name.into()));
                }
            }
        }
        if is_ignored(&found, above.prefix()) {
            return None;
        }
        let way: Rc<[u8]> = [above.prefix(), b"/"].concat().into();
        let stack = |above, (matcher, depth, file)| {
            Scope::Ruled(Rc::new(Rules { matcher, way: Rc::clone(&way), depth, file, above }))
        };
        Some(found.into_iter().fold(Scope::Open, stack))
    }

    /// The scope of the entries of `dir`, which lies in `outer`.
    pub(super) fn enter(&mut self, dir: &[u8], outer: Scope) -> Scope {
        if let Scope::Ignored(_) = outer {
            return outer;
        }
        let (depth, mut path) =
            if dir.is_empty() { (0, Vec::new()) } else { (dir.len() + 1, [dir, b"/"].concat()) };
        path.extend_from_slice(PER_DIRECTORY);
        self.with(&path, depth, outer)
    }

    fn with(&mut self, path: &[u8], depth: usize, above: Scope) -> Scope {
        let matcher = self.read(self.lower, path).and_then(|text| matcher(&text));
        match matcher {
            Some(matcher) => {
                let (way, file) = (Rc::default(), quoted("", path).into());
                Scope::Ruled(Rc::new(Rules { matcher, way, depth, file, above }))
            }
            None => above,
        }
    }

    fn read(&mut self, root: BorrowedFd<'_>, path: &[u8]) -> Option<Vec<u8>> {
        let limit = FILE_BYTES.min(self.room);
        if limit == 0 {
            return None;
        }
        let stat = rustix::fs::fstat(beneath::open_handle(root, path).ok()?).ok()?;
        if beneath::kind(&stat) != FileType::RegularFile || beneath::size(&stat) > limit {
            return None;
        }
        let mut text = Vec::new();
        let file = File::from(beneath::open_file(root, path).ok()?);
        let read = file.take(limit).read_to_end(&mut text).ok()?;
        self.room -= u64::try_from(read).unwrap_or(u64::MAX).min(self.room);
        Some(text)
    }
}

/// What rules that lie above each other, the topmost first, say of a directory; all paths are from the top.
fn is_ignored(rules: &[(Gitignore, usize, RuleFile)], directory: &[u8]) -> bool {
    let word = |(matcher, depth, _): &(Gitignore, usize, RuleFile)| match matcher
        .matched(relative(directory, *depth), true)
    {
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
        Match::None => None,
    };
    !directory.is_empty() && rules.iter().rev().find_map(word).unwrap_or(false)
}

fn relative(path: &[u8], depth: usize) -> &Path {
    Path::new(OsStr::from_bytes(path.get(depth..).unwrap_or_default()))
}

fn matcher(text: &[u8]) -> Option<Gitignore> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let mut builder = GitignoreBuilder::new("");
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Ok(line) = std::str::from_utf8(line)
            && let Some(line) = literal_braces(line)
            && builder.add_line(None, &line).is_err()
        {
            continue;
        }
    }
    builder.build().ok().filter(|matcher| !matcher.is_empty())
}

/// Braces mean themselves in git's patterns and alternatives in those of the matcher. Within a class they mean themselves in
/// both, and a backslash would be one more member. Nothing when a class is not closed: to git that matches nothing.
fn literal_braces(line: &str) -> Option<String> {
    let mut literal = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if matches!(c, '{' | '}') {
            literal.push('\\');
        }
        literal.push(c);
        let untouched = match c {
            '\\' => 1,
            '[' => class_length(rest.as_str())?,
            _ => 0,
        };
        literal.extend(rest.by_ref().take(untouched));
    }
    Some(literal)
}

/// How many characters after its bracket belong to a class that is closed. The first member may be the bracket.
fn class_length(rest: &str) -> Option<usize> {
    let negated = usize::from(rest.starts_with(['!', '^']));
    let closing = rest.chars().enumerate().skip(negated + 1).find(|(_, c)| *c == ']');
    closing.map(|(at, _)| at + 1)
}

impl Scope {
    /// The file whose rule ignores `path`, an entry of the directory this scope is for.
    pub(super) fn ignores(&self, path: &[u8], shape: Shape) -> Option<RuleFile> {
        let mut scope = self;
        loop {
            let rules = match scope {
                Self::Open => return None,
                Self::Ignored(file) => return Some(Rc::clone(file)),
                Self::Ruled(rules) => rules,
            };
            let whole = [&rules.way, path].concat();
            match rules.matcher.matched(relative(&whole, rules.depth), shape == Shape::Directory) {
                Match::Ignore(_) => return Some(Rc::clone(&rules.file)),
                Match::Whitelist(_) => return None,
                Match::None => scope = &rules.above,
            }
        }
    }
}
