//! Short spellings for tests: documents written as they look, faults as `code path`.

use crate::name::Project;
use crate::node::{Node, Number};
use crate::path::Path;
use crate::refusal::Refusals;

/// A document in the notation of JSON; anything else is a Rust expression that becomes a node.
macro_rules! node {
    (null) => { $crate::node::Node::Null };
    ({ $($key:literal : $value:tt),* $(,)? }) => {
        $crate::node::Node::Map(vec![$( ($key.to_owned(), node!($value)) ),*])
    };
    ([ $($value:tt),* $(,)? ]) => { $crate::node::Node::List(vec![$( node!($value) ),*]) };
    ($value:expr) => { $crate::node::Node::from($value) };
}

impl From<&str> for Node {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<bool> for Node {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Number> for Node {
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Node {
    fn from(value: u64) -> Self {
        Self::Number(value.into())
    }
}

pub(crate) fn number(literal: &str) -> Node {
    Node::Number(Number::from_literal(literal))
}

pub(crate) fn project(name: &str) -> Project {
    Project::parse(name, &Path::root()).expect("a test's project name")
}

/// Each fault as `code path`.
pub(crate) fn faults(refusals: &Refusals) -> Vec<String> {
    let line = |refusal: &crate::refusal::Refusal| format!("{} {}", refusal.code, refusal.path);
    refusals.clone().into_list().iter().map(line).collect()
}
