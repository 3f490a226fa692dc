//! `pond worker rotate`: new keys for this worker, which the control plane pins on the word of the old ones.
//!
//! The new keys are on disk before anybody hears of them and take the old ones' place when it is known that they are pinned: killed at
//! any moment, the worker has the keys the control plane believes, or can find out which those are by being asked again.

use std::process::ExitCode;

use anyhow::Context;
use pond_seal::enroll::{Identity, Rotation};
use pond_seal::key::SigningKey;
use pond_seal::seal::OpenKey;
use pond_wire::orch::{Blob, Heartbeat, HeartbeatReply, Id, Lease, Rotate, RotateReply, Route, Version};
use pond_worker::daemon::{CallFault, Place, Session};
use zeroize::Zeroizing;

use super::membership::{Membership, replace};
use super::runtime;
use crate::proof::store::{self, make_text};
use crate::{output, settings};

const MOST_BYTES: usize = 16 << 10;
const END: &str = "-----END PRIVATE KEY-----\n";
/// A job that nobody has: who asks for it in vain has been believed.
const NO_JOB: &str = "job_00000000000000000000000000000000";

/// Keys on their way to be pinned. As a file: the number in a line of its own, then both keys.
struct Next {
    /// How often the keys will have changed.
    generation: u64,
    signing: Zeroizing<String>,
    seal: Zeroizing<String>,
}

pub(super) fn rotate() -> anyhow::Result<ExitCode> {
    let state = settings::state_dir().context("no place for pond's state; set HOME or POND_STATE_DIR")?;
    let place = Place::open(&state)?;
    let _alone = place.take().context("stop this worker first: its daemon signs with the old keys")?;
    let membership = Membership::open(&place)?;
    let next = Next::find_or_make(&place, membership.generation)?;
    let identity = next.identity()?;
    let session = Membership::open(&place)?.session_with_keys(&place)?;
    if let Err(fault) = runtime()?.block_on(pin(&session, &identity, next.generation)) {
        if matches!(fault.downcast_ref(), Some(CallFault::Refused { .. })) {
            // They are pinned nowhere, and the old ones stay what they are.
            std::fs::remove_file(place.next_keys()).context("removing the new keys")?;
        }
        return Err(fault);
    }
    next.adopt(&place, membership)?;
    Ok(output::lines(&format!(
        "new keys; {} signs with {} now",
        session.worker,
        identity.keys().signing.to_hex()
    )))
}

/// Has the new keys pinned, or finds that they are.
async fn pin(session: &Session, new: &Identity, generation: u64) -> anyhow::Result<()> {
    let rotation = Rotation::sign(&session.identity.signing, new, &session.worker, generation)?;
    let body = Rotate { version: Version, rotation: Blob::new(rotation.0)? };
    let nothing = Lease { job: Id::try_from(NO_JOB.to_owned())?, epoch: 0 };
    match session.call::<RotateReply>(Route::Rotate, &body).await {
        Ok(_) => Ok(()),
        // An answer may have got lost, and the old keys be worth nothing since.
        Err(fault @ CallFault::Refused { .. }) => match is_believed(session, new, nothing).await {
            Ok(()) => Ok(()),
            Err(CallFault::Refused { .. }) => Err(fault).context("the control plane does not take new keys"),
            Err(unknown) => Err(unknown_outcome(unknown)),
        },
        Err(fault) => Err(unknown_outcome(fault)),
    }
}

fn unknown_outcome(fault: CallFault) -> anyhow::Error {
    // Not the fault itself: whoever sees a refusal takes the new keys away.
    anyhow::anyhow!(
        "{:#}; whether the new keys are pinned is not known: run `pond worker rotate` again",
        anyhow::Error::from(fault)
    )
}

/// Whether the control plane takes a call that is signed with these keys.
async fn is_believed(session: &Session, new: &Identity, lease: Lease) -> Result<(), CallFault> {
    let beat = Heartbeat {
        version: Version,
        lease,
        cost_microcents: 0,
        egress_bytes: 0,
        output_bytes: 0,
        wanted: None,
        wanted_egress_bytes: None,
    };
    session.call_as::<HeartbeatReply>(&new.signing, Route::Heartbeat, &beat).await.map(drop)
}

impl Next {
    /// Those of a change that was begun, or new ones, kept before they are used.
    fn find_or_make(place: &Place, generation: u64) -> anyhow::Result<Self> {
        let path = place.next_keys();
        if let Some(text) = store::private("the new keys", &path, MOST_BYTES)? {
            return Self::parse(&text).with_context(|| format!("{} is not what was written", path.display()));
        }
        let identity = Identity::generate()?;
        let (signing, seal) = (identity.signing.to_pem(), identity.opening.to_pem());
        let next = Self { generation: generation + 1, signing, seal };
        make_text(&path, "the new keys", &next.to_text())?;
        Ok(next)
    }

    fn to_text(&self) -> Zeroizing<String> {
        let Self { generation, signing, seal } = self;
        Zeroizing::new(format!("{generation}\n{}{}", signing.as_str(), seal.as_str()))
    }

    fn parse(text: &str) -> Option<Self> {
        let (generation, keys) = text.split_once('\n')?;
        let first = keys.find(END)? + END.len();
        let (signing, seal) = keys.split_at_checked(first)?;
        let [signing, seal] = [signing, seal].map(|pem| Zeroizing::new(pem.to_owned()));
        Some(Self { generation: generation.parse().ok()?, signing, seal })
    }

    fn identity(&self) -> anyhow::Result<Identity> {
        Ok(Identity {
            signing: SigningKey::from_pem(&self.signing)?,
            opening: OpenKey::from_pem(&self.seal)?,
        })
    }

    /// Puts them in the old ones' place. Each step may be repeated; the last one ends it.
    fn adopt(&self, place: &Place, mut membership: Membership) -> anyhow::Result<()> {
        replace(&place.seal_key(), self.seal.as_bytes())?;
        replace(&place.signing_key(), self.signing.as_bytes())?;
        membership.generation = self.generation;
        membership.replace(place)?;
        std::fs::remove_file(place.next_keys()).context("removing the copy of the new keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_on_their_way_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(directory.path()).unwrap();
        let made = Next::find_or_make(&place, 4).unwrap();
        let again = Next::find_or_make(&place, 9).unwrap();
        assert_eq!((made.generation, again.generation), (5, 5), "one that was begun goes on");
        assert_eq!(made.identity().unwrap().keys(), again.identity().unwrap().keys());
        for bad in ["", "5", "5\n", "x\n-----END PRIVATE KEY-----\n"] {
            assert!(Next::parse(bad).is_none(), "{bad:?}");
        }
    }
}
