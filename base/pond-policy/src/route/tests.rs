//! Every tier against every kind of worker, and the words for a job that waits.

use super::*;
use crate::testing::project;

fn tags(texts: &[&str]) -> Vec<Tag> {
    texts.iter().map(|text| Tag::parse(text).unwrap()).collect()
}

fn have(tag_texts: &[&str], capabilities: &[&str]) -> Have {
    let capabilities = capabilities.iter().map(|text| Capability::parse(text).unwrap()).collect();
    Have { tags: tags(tag_texts), capabilities }
}

fn need(tier: Tier, capability: &str) -> Need {
    let acme = project("acme");
    Need::new(Requirement::parse(capability), tier.required_tags(Some(&acme)).unwrap(), acme)
}

#[test]
fn every_tier_meets_its_own_workers_only() {
    let workers: [(&str, &[&str]); 6] = [
        ("trusted", &["pool:trusted"]),
        ("own byo", &["pool:byo", "tenant:acme"]),
        ("foreign byo", &["pool:byo", "tenant:other"]),
        ("byo of nobody", &["pool:byo"]),
        ("both pools, foreign", &["pool:byo", "pool:trusted", "tenant:other"]),
        ("in no pool", &["gpu"]),
    ];
    let expected = [
        (Tier::Trusted, [true, false, false, false, false, false]),
        (Tier::Byo, [false, true, false, false, false, false]),
        (Tier::Any, [true, true, false, false, false, true]),
    ];
    for (tier, row) in expected {
        let met =
            workers.map(|(_, tags)| need(tier, "sandbox.*").met_by(&have(tags, &["sandbox.native"])).is_ok());
        assert_eq!(met, row, "{tier}: {:?}", workers.map(|(name, _)| name));
    }
}

#[test]
fn a_capability_is_needed_beside_the_tags() {
    let trusted = |capabilities: &[&str]| have(&["pool:trusted"], capabilities);
    let gvisor = need(Tier::Trusted, "sandbox.gvisor");
    let wanted = Requirement::parse("sandbox.gvisor").unwrap();
    assert_eq!(gvisor.met_by(&trusted(&["sandbox.native", "sandbox.gvisor"])), Ok(()));
    assert_eq!(gvisor.met_by(&trusted(&["sandbox.firecracker"])), Err(Mismatch::Capability(wanted)));
    assert_eq!(gvisor.met_by(&trusted(&[])), Err(Mismatch::Capability(wanted)));
    let unconfined = Need::new(None, Vec::new(), project("acme"));
    assert_eq!(unconfined.met_by(&trusted(&[])), Ok(()));
}

#[test]
fn a_waiting_job_says_what_is_missing() {
    let native = have(&["pool:trusted"], &["sandbox.native"]);
    let foreign = have(&["pool:byo", "tenant:other"], &["sandbox.gvisor"]);
    let gvisor = need(Tier::Trusted, "sandbox.gvisor");
    assert_eq!(
        gvisor.unmet([&native, &foreign]).as_deref(),
        Some("no worker offers sandbox.gvisor in pool:trusted")
    );
    assert_eq!(
        gvisor.unmet([&foreign]).as_deref(),
        Some("no worker is in pool:trusted; one that offers sandbox.gvisor is needed")
    );
    assert_eq!(
        need(Tier::Byo, "sandbox.*").unmet([&native, &foreign]).as_deref(),
        Some("no worker is in pool:byo and tenant:acme; one that offers sandbox.* is needed")
    );
    assert_eq!(
        Need::new(None, Vec::new(), project("acme")).unmet([&foreign]).as_deref(),
        Some("no worker is open to acme")
    );
    assert_eq!(gvisor.unmet([&foreign, &have(&["pool:trusted"], &["sandbox.gvisor"])]), None);
    assert!(gvisor.unmet([]).is_some());
}

#[test]
fn a_need_has_one_spelling() {
    let both = Need::new(
        Requirement::parse("sandbox.gvisor+"),
        tags(&["tenant:acme", "gpu", "pool:byo", "gpu"]),
        project("acme"),
    );
    assert_eq!(both.to_string(), "sandbox.gvisor+ acme gpu pool:byo tenant:acme");
    for need in [both, need(Tier::Any, "sandbox.*"), Need::new(None, Vec::new(), project("a"))] {
        assert_eq!(Need::parse(&need.to_string()), Some(need));
    }
    for text in [
        "",
        "sandbox.gvisor",
        "sandbox.kata acme",
        "sandbox.* acme gpu gpu",
        "sandbox.* acme pool:x gpu",
        "sandbox.*  acme",
        " sandbox.* acme",
        "sandbox.* acme ",
        "sandbox.* a:b",
    ] {
        assert_eq!(Need::parse(text), None, "{text:?}");
    }
}

#[test]
fn tags_come_from_the_control_plane() {
    let acme = project("acme");
    let gpu = tags(&["gpu"]);
    assert_eq!(granted(Tier::Trusted, None, &gpu), Some(tags(&["pool:trusted", "gpu"])));
    assert_eq!(granted(Tier::Byo, Some(&acme), &[]), Some(tags(&["pool:byo", "tenant:acme"])));
    assert_eq!(granted(Tier::Byo, None, &gpu), None);
    assert_eq!(granted(Tier::Trusted, Some(&acme), &gpu), None);
    assert_eq!(granted(Tier::Any, Some(&acme), &gpu), None);
    assert_eq!(granted(Tier::Byo, Some(&acme), &tags(&["tenant:other"])), None);
    assert_eq!(refuse_reserved(&gpu), Ok(()));
    for reserved in ["pool:trusted", "tenant:acme", "tier:c"] {
        let tag = Tag::parse(reserved).unwrap();
        assert_eq!(refuse_reserved(&tags(&["gpu", reserved])), Err(ReservedTag(tag)));
    }
}
