//! Offers that are not what they should be. None is acknowledged, nothing runs.

use pond_policy::stage::State;
use pond_seal::Digest;
use pond_seal::key::SigningKey;
use pond_seal::offer::Offer;

use crate::control::{Control, copy, offer_in, reply_with};
use crate::ends::{LEASE, shell};
use crate::host::Host;

/// Every offer is changed and signed with this key; what the worker says to it.
fn refused(change: impl Fn(&mut Offer) + Send + Sync + 'static, key: Option<SigningKey>, line: &str) {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let own = copy(&control.key);
    control.between(move |_, bytes| {
        let Some(mut offer) = offer_in(&bytes, &own) else { return Some(bytes) };
        change(&mut offer);
        Some(reply_with(&offer, key.as_ref().unwrap_or(&own)))
    });
    let run = control.submit(&shell("echo ran"), None);
    host.wait_for_line(line);
    assert_eq!(control.calls("/orch/acknowledge"), 0);
    assert_eq!(host.commands(), 0, "{}", host.log());
    assert_ne!(control.stage(&run).state, State::Succeeded);
}

#[test]
fn an_offer_that_somebody_else_signed_is_refused() {
    refused(|_| {}, Some(SigningKey::generate().unwrap()), "not signed by the control plane");
}

#[test]
fn an_offer_for_another_worker_is_refused() {
    refused(|offer| offer.worker = "another".to_owned(), None, "the offer is for another worker");
}

#[test]
fn an_offer_with_another_policy_is_refused() {
    refused(|offer| offer.policy = Digest::of(b"looser"), None, "not what its block means on this worker");
}

#[test]
fn an_old_offer_is_refused() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let first = std::sync::Mutex::new(None);
    let own = copy(&control.key);
    control.between(move |path, bytes| {
        if path != "/orch/poll" {
            return Some(bytes);
        }
        let mut first = first.lock().unwrap();
        match (offer_in(&bytes, &own), &*first) {
            (_, Some(old)) => Some(Vec::clone(old)),
            (Some(_), None) => {
                *first = Some(bytes.clone());
                Some(bytes)
            }
            (None, None) => Some(bytes),
        }
    });
    let run = control.submit(&shell("true"), None);
    control.wait_for(&run, &[State::Succeeded], &|| host.log());
    host.wait_for_line("the offer answers another poll");
    assert_eq!(host.commands(), 1, "{}", host.log());
}

#[test]
fn a_source_that_is_not_the_offered_one_reaches_no_job() {
    let control = Control::start(LEASE);
    let host = Host::working(&control);
    let own = copy(&control.key);
    control.between(move |_, bytes| {
        let Some(mut offer) = offer_in(&bytes, &own) else { return Some(bytes) };
        offer.input = Digest::of(b"another tree");
        Some(reply_with(&offer, &own))
    });
    control.submit(&shell("echo ran"), None);
    host.wait_for_line("not the input that was offered");
    assert_eq!(host.commands(), 0, "{}", host.log());
    host.wait("everything to be gone", || host.residue().is_empty());
}

#[test]
fn a_bundle_that_was_changed_on_its_way_reaches_no_job() {
    let control = Control::start(LEASE);
    let project = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("file"), "content").unwrap();
    let source = control.source(project.path());
    let host = Host::working(&control);
    control.between(|path, mut bytes| {
        if path == "/orch/bundle/redeem"
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
        Some(bytes)
    });
    control.submit(&shell("echo ran"), Some(&source));
    host.wait_for_line("is not what was written there");
    assert_eq!(host.commands(), 0, "{}", host.log());
    host.wait("everything to be gone", || host.residue().is_empty());
}

#[test]
fn a_bundle_larger_than_the_jobs_disk_is_not_unpacked() {
    let control = Control::start(LEASE);
    let project = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("file"), "content").unwrap();
    let source = control.source(project.path());
    let host = Host::working(&control);
    control.between(|path, bytes| {
        if path != "/orch/bundle/redeem" {
            return Some(bytes);
        }
        let at = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let mut head: serde_json::Value = serde_json::from_slice(&bytes[..at]).unwrap();
        head["bytes"] = u64::MAX.into();
        Some([head.to_string().as_bytes(), &bytes[at..]].concat())
    });
    control.submit(&shell("echo ran"), Some(&source));
    host.wait_for_line("the job's disk has room for");
    assert_eq!(host.commands(), 0, "{}", host.log());
}
