//! Only an attempt that fails inside and works outside counts, and no explanation turns a breach into anything else.

use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::super::case::{Probe, absent, denied};
use super::*;

const ROOT: Caller = Caller { is_root: true, capabilities: CapabilitySet::all() };
const USER: Caller = Caller { is_root: false, capabilities: CapabilitySet::empty() };

fn plain() -> Probe {
    denied("plain", |_| Ok(()))
}

fn failed(errno: Errno) -> Option<Outcome> {
    Some(Outcome::Failed { errno: errno.raw_os_error() })
}

fn met(outcome: Option<Outcome>) -> Met {
    Met { outcome, evidence: None }
}

const WORKED: Option<Outcome> = Some(Outcome::Succeeded);

/// The kind of a verdict, without its words.
fn kind(probe: &Probe, met: &Met, control: Option<Outcome>, caller: Caller) -> &'static str {
    match judge(probe, met, control, caller) {
        Verdict::Held => "held",
        Verdict::Breached(_) => "breached",
        Verdict::Broken(_) => "broken",
        Verdict::NoControl(_) => "no control",
        Verdict::Differs(_) => "differs",
    }
}

#[test]
fn inside_and_outside_decide_together() {
    let denial = met(failed(Errno::PERM));
    let cases = [
        ("denied inside, works outside", denial.clone(), WORKED, "held"),
        ("killed by the filter", met(Some(Outcome::Killed { signal: 31 })), WORKED, "held"),
        ("killed by something else", met(Some(Outcome::Killed { signal: 11 })), WORKED, "broken"),
        ("works inside", met(WORKED), WORKED, "breached"),
        ("works inside only", met(WORKED), failed(Errno::PERM), "breached"),
        ("fails inside for another reason", met(failed(Errno::INVAL)), WORKED, "broken"),
        ("silent inside", met(None), WORKED, "broken"),
        ("never comes back inside", met(Some(Outcome::Hung)), WORKED, "broken"),
        ("fails outside too", denial.clone(), failed(Errno::INVAL), "broken"),
        ("silent outside", denial.clone(), None, "broken"),
        ("killed outside", denial.clone(), Some(Outcome::Killed { signal: 9 }), "broken"),
        ("unknown to this kernel", denial, failed(Errno::NOSYS), "no control"),
    ];
    for (name, met, control, expected) in cases {
        assert_eq!(kind(&plain(), &met, control, ROOT), expected, "{name}");
    }
}

#[test]
fn an_excuse_needs_its_reason() {
    let denial = met(failed(Errno::PERM));
    let excused = plain().excused(&[(Errno::NODEV, "no such device")]);
    assert_eq!(
        judge(&excused, &denial, failed(Errno::NODEV), ROOT),
        Verdict::NoControl("no such device".to_owned())
    );
    assert_eq!(kind(&excused, &denial, failed(Errno::NXIO), ROOT), "broken");
    let needy = plain().needs("CAP_SYSLOG", CapabilitySet::SYSLOG);
    assert_eq!(kind(&needy, &denial, failed(Errno::PERM), ROOT), "broken");
    let without = Caller { capabilities: CapabilitySet::empty(), ..ROOT };
    assert_eq!(
        judge(&needy, &denial, failed(Errno::PERM), without),
        Verdict::NoControl("the caller has no CAP_SYSLOG".to_owned())
    );
    assert_eq!(kind(&plain(), &denial, failed(Errno::PERM), USER), "no control");
    assert_eq!(kind(&plain(), &denial, failed(Errno::PERM), ROOT), "broken");
    assert_eq!(kind(&plain().uncontrolled("nothing to compare"), &denial, None, ROOT), "no control");
    assert_eq!(kind(&plain().uncontrolled("nothing to compare"), &met(WORKED), None, ROOT), "breached");
    assert_eq!(kind(&plain().uncontrolled("nothing to compare"), &met(None), None, ROOT), "broken");
}

#[test]
fn absence_is_no_denial_and_the_other_way_round() {
    let gone = met(failed(Errno::NOENT));
    assert_eq!(kind(&plain(), &gone, WORKED, ROOT), "broken");
    assert_eq!(kind(&absent("absent", |_| Ok(())), &gone, WORKED, ROOT), "held");
}

#[test]
fn residue_is_a_breach() {
    let count = Count::of(&[], &["a process is left".to_owned()]);
    assert_eq!(count, Count { breached: 1, ..Count::default() });
    assert!(!count.passes());
    assert!(Count::default().passes());
}
