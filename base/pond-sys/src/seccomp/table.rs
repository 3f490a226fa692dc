//! A profile's groups of calls, as the ranges of numbers the compiler works on.
//!
//! Zone: trusted, pure. Invariants: the ranges cover every number there is; a number no group names gets the profile's
//! answer for the unknown; a call stands in one group only.

use std::collections::BTreeMap;

use libc::c_long;

use super::Profile;
use super::decision::{ABSENT, Decision, KILL, REFUSE};
use super::gateway::{GATEWAY, GATEWAY_HERITAGE};
use super::init::{INIT, INIT_HERITAGE};
use super::workload::{COUNTED_SOCKETS, HERITAGE, NO_TRACING, SOCKETS, TRACING, WORKLOAD};

#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_00B7;

pub(super) struct Group {
    pub(super) decision: Decision,
    pub(super) calls: &'static [c_long],
}

/// The policy as ascending ranges: each decision holds from its number up to the next one's.
pub(super) fn ranges(profile: Profile) -> Vec<(u32, Decision)> {
    let unlisted = unlisted(profile);
    let mut ranges: Vec<(u32, Decision)> = Vec::new();
    let mut begin = |number, decision| {
        if ranges.last().is_none_or(|(_, current)| *current != decision) {
            ranges.push((number, decision));
        }
    };
    let mut next = 0;
    for (number, decision) in rules(profile) {
        if next < number {
            begin(next, unlisted);
        }
        begin(number, decision);
        next = number.saturating_add(1);
    }
    begin(next, unlisted);
    ranges
}

/// The calls a workload is refused whatever it passes, for those who want to see it happen.
pub fn always_refused() -> impl Iterator<Item = u32> {
    let refused = |(number, decision)| (decision == REFUSE).then_some(number);
    rules(Profile::Workload).into_iter().filter_map(refused)
}

/// Every call the profile names.
pub(super) fn rules(profile: Profile) -> BTreeMap<u32, Decision> {
    let listed = |group: &'static Group| group.calls.iter().map(|call| (*call, group.decision));
    // A number that fits no register is a call nobody can make.
    let callable = |(call, decision)| u32::try_from(call).ok().map(|number| (number, decision));
    groups(profile).flat_map(listed).filter_map(callable).collect()
}

pub(super) fn groups(profile: Profile) -> impl Iterator<Item = &'static Group> {
    let lists: [&'static [Group]; 4] = match profile {
        Profile::Workload => [WORKLOAD, HERITAGE, SOCKETS, &[NO_TRACING]],
        Profile::WorkloadCounted => [WORKLOAD, HERITAGE, COUNTED_SOCKETS, &[NO_TRACING]],
        Profile::WorkloadDebug => [WORKLOAD, HERITAGE, SOCKETS, &[TRACING]],
        Profile::Init => [INIT, INIT_HERITAGE, &[], &[]],
        Profile::Gateway => [GATEWAY, GATEWAY_HERITAGE, &[], &[]],
    };
    lists.into_iter().flatten()
}

pub(super) const fn unlisted(profile: Profile) -> Decision {
    match profile {
        Profile::Workload | Profile::WorkloadCounted | Profile::WorkloadDebug => ABSENT,
        Profile::Init | Profile::Gateway => KILL,
    }
}
