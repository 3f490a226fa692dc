//! A document and what was said on top of it, as one document. What comes later wins where there is one place, and joins where there
//! are many:
//!
//! - a scalar replaces;
//! - an object with fields (`sandbox`, `sandbox.overrides`) is merged field by field;
//! - an object with free keys (`labels`, `env`, `credentials`, `companions`) is merged key by key, and a key's value replaces: a
//!   companion is one value;
//! - a list (`mounts`, `copies`, `builtin_tools`, `ports`, `allow_hosts`) is appended to.
//!
//! Invariant: nothing is judged here and nothing is repaired. Unknown and doubled fields and values of the wrong type are kept, so that
//! whoever reads the result refuses them.

use super::SPEC_SHAPE;
use crate::node::Node;
use crate::shape::{Kind, Shape};

/// `over` on top of `base`.
#[must_use]
pub fn merge(base: Node, over: Node) -> Node {
    match (base, over) {
        (Node::Map(entries), Node::Map(later)) => merge_fields(&SPEC_SHAPE, entries, later),
        (base, Node::Map(_)) if base != Node::Null => base,
        (_, over) => over,
    }
}

fn merge_fields(shape: &'static Shape, mut entries: Vec<(String, Node)>, later: Vec<(String, Node)>) -> Node {
    for (key, value) in doubled_last(later) {
        let kind = shape.fields.iter().find(|field| field.name == key).map(|field| &field.kind);
        put(&mut entries, key, value, kind);
    }
    Node::Map(entries)
}

fn put(entries: &mut Vec<(String, Node)>, key: String, value: Entry, kind: Option<&'static Kind>) {
    let value = match value {
        Entry::Again(value) => return entries.push((key, value)),
        Entry::First(value) => value,
    };
    match entries.iter_mut().find(|(known, _)| *known == key) {
        None => entries.push((key, value)),
        Some((_, held)) => {
            let before = std::mem::replace(held, Node::Null);
            *held = merge_value(kind, before, value);
        }
    }
}

fn merge_value(kind: Option<&'static Kind>, base: Node, over: Node) -> Node {
    match (kind, base, over) {
        (Some(Kind::Object(shape)), Node::Map(entries), Node::Map(later)) => {
            merge_fields(shape, entries, later)
        }
        (Some(Kind::List { .. }), Node::List(mut members), Node::List(more)) => {
            members.extend(more);
            Node::List(members)
        }
        (Some(Kind::Map { .. }), Node::Map(mut entries), Node::Map(later)) => {
            doubled_last(later).into_iter().for_each(|(key, value)| put(&mut entries, key, value, None));
            Node::Map(entries)
        }
        // A value of the wrong type is no place to put anything into, and stays the fault that it is.
        (Some(Kind::Object(_) | Kind::Map { .. }), base, Node::Map(_)) if base != Node::Null => base,
        (Some(Kind::List { .. }), base, Node::List(_)) if base != Node::Null => base,
        (_, _, over) => over,
    }
}

/// A key's first value in its own document, or one more, which is a fault of that document and must stay one.
enum Entry {
    First(Node),
    Again(Node),
}

fn doubled_last(entries: Vec<(String, Node)>) -> Vec<(String, Entry)> {
    let mut seen: Vec<(String, Entry)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let again = seen.iter().any(|(known, _)| *known == key);
        seen.push((key, if again { Entry::Again(value) } else { Entry::First(value) }));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_wins_in_one_place_and_joins_in_many() {
        let base = node!({
            "id": "a", "idle_ttl": "5m", "labels": {"team": "x", "tier": "1"},
            "sandbox": {"profile": "box", "backend": "docker", "overrides": {"memory": "1g", "cpus": "1"}},
            "mounts": [{"source": "/a", "target": "/data/a"}],
            "companions": {"db": {"image": "pg", "env": {"A": "1"}}, "cache": {"image": "redis"}}
        });
        let over = node!({
            "id": "b", "labels": {"tier": "2", "who": "me"},
            "sandbox": {"backend": "gvisor", "overrides": {"memory": "2g"}},
            "mounts": [{"source": "/b", "target": "/data/b"}],
            "companions": {"db": {"image": "pg17"}},
            "env": {"K": "v"}
        });
        let merged = node!({
            "id": "b", "idle_ttl": "5m", "labels": {"team": "x", "tier": "2", "who": "me"},
            "sandbox": {"profile": "box", "backend": "gvisor", "overrides": {"memory": "2g", "cpus": "1"}},
            "mounts": [{"source": "/a", "target": "/data/a"}, {"source": "/b", "target": "/data/b"}],
            "companions": {"db": {"image": "pg17"}, "cache": {"image": "redis"}},
            "env": {"K": "v"}
        });
        assert_eq!(merge(base, over), merged);
    }

    #[test]
    fn faults_survive_a_merge() {
        let doubled = || Node::Map(vec![("id".into(), Node::text("a")), ("id".into(), Node::text("b"))]);
        let count = |node: Node| match node {
            Node::Map(entries) => entries.iter().filter(|(key, _)| key == "id").count(),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::List(_) => 0,
        };
        assert_eq!(count(merge(doubled(), node!({"id": "c"}))), 2);
        assert_eq!(count(merge(node!({"id": "c"}), doubled())), 2);
        assert_eq!(merge(node!({"network": "host"}), node!({})), node!({"network": "host"}));
        assert_eq!(merge(node!({}), node!({"network": "host"})), node!({"network": "host"}));
        assert_eq!(merge(node!({"mounts": "x"}), node!({"mounts": []})), node!({"mounts": "x"}));
        assert_eq!(merge(node!({"mounts": []}), node!({"mounts": "x"})), node!({"mounts": "x"}));
        for (base, over) in [
            (node!({"sandbox": "7"}), node!({"sandbox": {"backend": "native"}})),
            (node!({"sandbox": {"overrides": "x"}}), node!({"sandbox": {"overrides": {"memory": "1g"}}})),
            (node!({"labels": ["x"]}), node!({"labels": {"a": "b"}})),
        ] {
            assert_eq!(merge(base.clone(), over), base, "nothing is repaired by what is said on top");
        }
        assert_eq!(merge(node!([]), node!({"id": "a"})), node!([]));
        assert_eq!(merge(node!({"id": "a"}), node!([])), node!([]));
    }
}
