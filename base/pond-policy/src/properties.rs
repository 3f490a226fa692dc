//! Properties of the contract over arbitrary and over plausible documents.

use proptest::prelude::*;

use crate::backend::Backend;
use crate::block::{OverrideKey, SANDBOX_SHAPE};
use crate::capability::{Capability, Requirement};
use crate::dispatch;
use crate::duration::Timeout;
use crate::limits::{Cpus, Memory, Pids, TmpfsSize};
use crate::node::{Node, Number};
use crate::profile::Profile;
use crate::run;
use crate::sandbox;
use crate::settings::Settings;
use crate::testing::project;
use crate::tier::Tier;

fn any_scalar() -> impl Strategy<Value = Node> {
    prop_oneof![
        Just(Node::Null),
        any::<bool>().prop_map(Node::Bool),
        any_quantity().prop_map(|literal| Node::Number(Number::from_literal(literal))),
        ".{0,12}".prop_map(Node::Text),
        any_quantity().prop_map(Node::Text),
        any_word().prop_map(Node::Text),
    ]
}

fn any_quantity() -> impl Strategy<Value = String> {
    prop_oneof![
        "[-+]?[0-9]{0,22}(\\.[0-9]{0,4})?[bkmgtBKMGT]?",
        any::<f64>().prop_map(|number| number.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
    ]
}

/// A word of the contract.
fn any_word() -> impl Strategy<Value = String> {
    let fields = SANDBOX_SHAPE.fields.iter().map(|field| field.name);
    let words: Vec<&str> =
        [Profile::SPELLINGS, Tier::NAMES, Backend::NAMES, OverrideKey::NAMES, &RUN_WORDS[..]]
            .concat()
            .into_iter()
            .chain(fields)
            .collect();
    proptest::sample::select(words).prop_map(str::to_owned)
}

const RUN_WORDS: [&str; 15] = [
    "project",
    "stages",
    "budgets",
    "name",
    "needs",
    "executor",
    "verify",
    "kind",
    "command",
    "env",
    "sandbox",
    "swarm",
    "timeout",
    "artifacts",
    "git.acme.com",
];

fn any_node() -> impl Strategy<Value = Node> {
    any_scalar().prop_recursive(5, 48, 6, |inner| {
        let key = prop_oneof![4 => any_word(), 1 => ".{0,6}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Node::List),
            proptest::collection::vec((key, inner), 0..6).prop_map(Node::Map),
        ]
    })
}

/// Any of the five overrides, each acceptable.
fn good_overrides() -> impl Strategy<Value = Node> {
    (
        optional("image", "[a-z]{1,8}(:[0-9]{1,2})?".prop_map(Node::Text)),
        optional("memory", "[1-9][0-9]{0,2}[gG]".prop_map(Node::Text)),
        optional("cpus", "[1-9][0-9]?(\\.[0-9]{1,3})?".prop_map(Node::Text)),
        optional("pids_limit", (8_u64..=32_768).prop_map(|pids| Node::Number(pids.into()))),
        optional("tmpfs_size", "[1-9][0-9]{0,3}m".prop_map(Node::Text)),
    )
        .prop_map(|(a, b, c, d, e)| Node::Map([a, b, c, d, e].into_iter().flatten().collect()))
}

fn any_overrides() -> impl Strategy<Value = Node> {
    let key = prop_oneof![proptest::sample::select(OverrideKey::NAMES).prop_map(str::to_owned), any_word()];
    let doubtful = proptest::collection::vec((key, any_scalar()), 0..3).prop_map(Node::Map);
    prop_oneof![3 => good_overrides(), 1 => doubtful]
}

fn optional(
    key: &'static str,
    value: impl Strategy<Value = Node>,
) -> impl Strategy<Value = Option<(String, Node)>> {
    proptest::option::of(value.prop_map(move |value| (key.to_owned(), value)))
}

/// A block that often means something and sometimes almost does.
fn any_block() -> impl Strategy<Value = Node> {
    let name = |names| proptest::sample::select(names).prop_map(Node::text);
    let hosts = proptest::collection::vec("[a-c]\\.acme\\.com", 0..3);
    (
        name(Profile::SPELLINGS),
        optional("tier", name(Tier::NAMES)),
        optional("backend", name(Backend::NAMES)),
        optional(
            "allow_hosts",
            hosts.prop_map(|hosts| Node::List(hosts.into_iter().map(Node::Text).collect())),
        ),
        optional("overrides", any_overrides()),
        proptest::option::weighted(0.1, (any_word(), any_scalar())),
    )
        .prop_map(|(profile, tier, backend, hosts, overrides, extra)| {
            let fields = [Some(("profile".to_owned(), profile)), tier, backend, hosts, overrides, extra];
            Node::Map(fields.into_iter().flatten().collect())
        })
}

fn any_settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), proptest::option::of(proptest::sample::select(Backend::ALL))).prop_map(
        |(require_sandbox, min_backend)| Settings { require_sandbox, min_backend, ..Settings::default() },
    )
}

/// Every combination of offered backends that meets a requirement.
fn satisfying(requirement: Option<Requirement>) -> Vec<Option<Backend>> {
    let meets = |backend: Option<Backend>| {
        let offered: Vec<Capability> = backend.map(Capability::Backend).into_iter().collect();
        requirement.is_none_or(|requirement| requirement.satisfied_by(&offered))
    };
    [None]
        .into_iter()
        .chain(Backend::ALL.iter().copied().map(Some))
        .filter(|backend| meets(*backend))
        .collect()
}

proptest! {
    #[test]
    fn resolution_is_total_and_deterministic(node in any_node(), settings in any_settings()) {
        let project = project("acme");
        let first = dispatch::resolve(Some(&node), Some(&project), &settings);
        prop_assert_eq!(&first, &dispatch::resolve(Some(&node), Some(&project), &settings));
        prop_assert_eq!(run::preflight(&node, &settings), run::preflight(&node, &settings));
        if let Err(refusals) = first {
            let list = refusals.into_list();
            prop_assert!(!list.is_empty() && list.len() <= 101);
            prop_assert!(list.is_sorted_by_key(|refusal| &refusal.path));
            prop_assert!(list.iter().all(|refusal| !refusal.to_string().contains(char::is_control)));
        }
    }

    #[test]
    fn both_sides_accept_the_same_blocks(
        node in prop_oneof![any_block(), any_node()],
        settings in any_settings(),
    ) {
        let dispatched = dispatch::resolve(Some(&node), Some(&project("acme")), &settings);
        let launched = sandbox::resolve(Some(&node), &settings);
        match (dispatched, launched) {
            (Ok(dispatch), Ok(policy)) => {
                prop_assert_eq!(dispatch.required_capability, policy.requirement());
                prop_assert_eq!(dispatch.block.profile(), policy.profile());
                let stored = sandbox::resolve(Some(&dispatch.block.to_node()), &settings);
                prop_assert_eq!(stored, Ok(policy));
            }
            (Err(dispatch), Err(policy)) => prop_assert_eq!(dispatch, policy),
            (dispatch, policy) => prop_assert!(false, "{dispatch:?} but {policy:?}"),
        }
    }

    #[test]
    fn printing_then_parsing_is_identity(node in any_block()) {
        let project = project("acme");
        if let Ok(dispatch) = dispatch::resolve(Some(&node), Some(&project), &Settings::default()) {
            let printed = dispatch.block.to_node();
            let again = dispatch::resolve(Some(&printed), Some(&project), &Settings::default());
            prop_assert_eq!(again.as_ref().map(|again| again.block.to_node()), Ok(printed));
            prop_assert_eq!(again, Ok(dispatch));
        }
    }

    #[test]
    fn no_override_changes_a_posture(
        profile in proptest::sample::select(&Profile::ALL[1..]),
        overrides in good_overrides(),
    ) {
        let plain = Node::Map(vec![("profile".into(), Node::text(profile.name()))]);
        let mut changed = plain.clone();
        if let Node::Map(entries) = &mut changed {
            entries.push(("overrides".into(), overrides));
        }
        let plain = sandbox::resolve(Some(&plain), &Settings::default()).unwrap();
        let changed = sandbox::resolve(Some(&changed), &Settings::default()).unwrap();
        prop_assert_eq!(changed.posture(), plain.posture());
        prop_assert_eq!(changed.allow(), plain.allow());
        prop_assert_eq!(changed.timeout(), plain.timeout());
        prop_assert_eq!(changed.requirement(), plain.requirement());
        let fixed = |policy: &sandbox::SandboxPolicy| policy.limits().map(|limits| (limits.disk, limits.ulimits));
        prop_assert_eq!(fixed(&changed), fixed(&plain));
    }

    #[test]
    fn narrowing_never_permits_more(
        node in any_block(),
        settings in any_settings(),
        floor in proptest::sample::select(Backend::ALL),
    ) {
        let wide = Settings::default();
        let stronger = settings.min_backend.is_none_or(|least| floor.strength() >= least.strength());
        let min_backend = if stronger { Some(floor) } else { settings.min_backend };
        let narrower = Settings { require_sandbox: true, min_backend, ..Settings::default() };
        let project = project("acme");
        let resolve = |settings: &Settings| dispatch::resolve(Some(&node), Some(&project), settings);
        for (more, less) in [(&wide, &settings), (&settings, &narrower), (&wide, &narrower)] {
            if let Ok(narrow) = resolve(less) {
                let open = resolve(more);
                prop_assert_eq!(open.as_ref().map(|open| &open.block), Ok(&narrow.block));
                let permitted = satisfying(open.unwrap().required_capability);
                prop_assert!(satisfying(narrow.required_capability).iter().all(|backend| permitted.contains(backend)));
            }
        }
    }

    #[test]
    fn quantities_parse_as_they_print(text in any_quantity()) {
        if let Ok(value) = Memory::parse(&text) { prop_assert_eq!(Memory::parse(&value.to_string()), Ok(value)); }
        if let Ok(value) = TmpfsSize::parse(&text) { prop_assert_eq!(TmpfsSize::parse(&value.to_string()), Ok(value)); }
        if let Ok(value) = Cpus::parse(&text) { prop_assert_eq!(Cpus::parse(&value.to_string()), Ok(value)); }
        if let Ok(value) = Pids::parse(&text) { prop_assert_eq!(Pids::parse(&value.to_string()), Ok(value)); }
        if let Ok(value) = Timeout::parse(&text) { prop_assert_eq!(Timeout::parse(&value.to_string()), Ok(value)); }
    }
}
