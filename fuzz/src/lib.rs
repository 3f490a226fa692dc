//! What the fuzz targets share: the promises every decoded tree and every refusal must keep, and the
//! operator settings each document is tried under.
#![forbid(unsafe_code)]

use pond_policy::backend::Backend;
use pond_policy::node::Node;
use pond_policy::refusal::Refusals;
use pond_policy::settings::Settings;
use pond_wire::decode::MOST_DEPTH;

/// A decoded document is never deeper than promised.
pub fn assert_bounded(node: &Node) {
    assert!(depth(node) <= MOST_DEPTH, "depth {}", depth(node));
}

fn depth(node: &Node) -> usize {
    match node {
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => 0,
        Node::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Node::Map(entries) => 1 + entries.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
    }
}

/// A refusal says something, says it on one line, and the list stays bounded.
pub fn assert_safe(refusals: Refusals) {
    let list = refusals.into_list();
    assert!(!list.is_empty() && list.len() <= Refusals::MOST + 1);
    for refusal in list {
        assert!(!refusal.to_string().contains(char::is_control), "{refusal:?}");
    }
}

/// Every combination of the operator's settings.
pub fn demands() -> impl Iterator<Item = Settings> {
    let floors = || [None].into_iter().chain(Backend::ALL.iter().copied().map(Some));
    [false, true].into_iter().flat_map(move |require_sandbox| {
        floors().map(move |min_backend| Settings { require_sandbox, min_backend, ..Settings::default() })
    })
}
