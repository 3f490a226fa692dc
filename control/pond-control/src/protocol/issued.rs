//! Whether a statement is about what was given out: this job, this lease, this input, this command, on nothing weaker and under
//! nothing wider. HOSTILE: every field is compared with what the store has, and none is taken for granted.

use pond_policy::capability::Capability;
use pond_policy::image::Image;
use pond_policy::limits::{Cpus, Limits};
use pond_policy::route::Need;
use pond_policy::sandbox::SandboxPolicy;
use pond_seal::Digest;
use pond_seal::result::{InputKind, RunResult};

use super::grant::Granted;
use super::intake::Rejected;
use crate::store::{Held, Lease};

pub(super) fn as_issued(
    said: &RunResult,
    lease: &Lease,
    held: &Held,
    granted: &Granted,
) -> Result<(), Rejected> {
    if said.job.id != lease.job.as_str() || u64::from(said.job.attempt) != held.attempt {
        return Err(Rejected::Job);
    }
    let own =
        |one: &pond_seal::result::Lease| one.worker == lease.worker.as_str() && one.epoch == lease.epoch;
    if !said.job.lease.as_ref().is_some_and(own) {
        return Err(Rejected::Lease);
    }
    if said.input.kind != InputKind::Bundle || said.input.tree_sha256 != Some(granted.input) {
        return Err(Rejected::Input);
    }
    if said.command_sha256 != granted.command {
        return Err(Rejected::Command);
    }
    if !is_strong_enough(&said.backend.name, &granted.need) {
        return Err(Rejected::Backend(said.backend.name.clone()));
    }
    if said.policy.offered_sha256 != Some(granted.policy) || !is_held(said, &granted.sandbox) {
        return Err(Rejected::Policy);
    }
    if !is_image(said.image, granted.sandbox.image()) {
        return Err(Rejected::Image);
    }
    Ok(())
}

/// Whether what is said of the sandbox is the policy that was given out, its limits no wider.
fn is_held(said: &RunResult, policy: &SandboxPolicy) -> bool {
    let (told, timeout) = (&said.limits, policy.timeout().duration().as_secs());
    let within = |limits: Limits| {
        told.memory_bytes <= limits.memory.bytes()
            && Cpus::parse(&told.cpus).is_ok_and(|cpus| cpus <= limits.cpus)
            && told.pids <= limits.pids.get()
            && told.tmpfs_bytes <= limits.tmpfs.bytes()
            && told.disk_bytes <= limits.disk.bytes
            && told.disk_inodes <= limits.disk.inodes
            && told.timeout_seconds <= timeout
    };
    said.policy.profile == policy.profile().name() && policy.limits().is_some_and(within)
}

/// Whether the image is the one that was asked for. By its name alone nobody here knows which that is.
fn is_image(said: Option<Digest>, asked: Option<&Image>) -> bool {
    let Some(asked) = asked else { return true };
    let by_digest = asked.as_str().strip_prefix("sha256:");
    said.is_some_and(|said| by_digest.is_none_or(|asked| asked == said.to_string()))
}

/// Whether the backend that is named is one the stage may run on.
fn is_strong_enough(backend: &str, need: &Need) -> bool {
    let ran_on = Capability::parse(&format!("sandbox.{backend}"));
    need.capability().is_none_or(|wanted| ran_on.is_some_and(|ran_on| wanted.satisfied_by(&[ran_on])))
}
