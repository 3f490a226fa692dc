//! `[egress.caps]`: how much and how long connections of a job may carry. An operator can ask for less than pond's own
//! figures, which are the bounds of these types, and never for more.

use crate::limits::{Count, GIB, Size};
use crate::refusal::{Code, Refusals};
use crate::shape::{Echo, Field, Item, Kind, Need, Shape};

/// Bytes of one tunnel, both ways.
pub type TunnelBytes = Size<1, { 16 * GIB }>;
/// Bytes of all tunnels of a job.
pub type JobBytes = Size<1, { 64 * GIB }>;
/// Seconds a tunnel may be quiet.
pub type IdleSeconds = Count<1, 600>;
/// Seconds a tunnel may live.
pub type LifetimeSeconds = Count<1, 86_400>;

const TUNNEL_BYTES: Field =
    cap("tunnel_bytes", TunnelBytes::kind(Code::BudgetInvalid), "Bytes one connection may carry, both ways.");
const JOB_BYTES: Field =
    cap("job_bytes", JobBytes::kind(Code::BudgetInvalid), "Bytes all connections of a job may carry.");
const IDLE_SECONDS: Field =
    cap("idle_seconds", IdleSeconds::kind(Code::BudgetInvalid), "How long a connection may be quiet.");
const LIFETIME_SECONDS: Field =
    cap("lifetime_seconds", LifetimeSeconds::kind(Code::BudgetInvalid), "How long a connection may live.");

pub(super) static SHAPE: Shape = Shape {
    name: "caps",
    doc: "What connections of a job may carry, and for how long.",
    fields: &[TUNNEL_BYTES, JOB_BYTES, IDLE_SECONDS, LIFETIME_SECONDS],
    unknown: Code::UnknownField,
    echo: Echo::Given,
};

/// Without a word of the operator, pond's own figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    pub tunnel_bytes: TunnelBytes,
    pub job_bytes: JobBytes,
    pub idle_seconds: IdleSeconds,
    pub lifetime_seconds: LifetimeSeconds,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            tunnel_bytes: TunnelBytes::MOST,
            job_bytes: JobBytes::MOST,
            idle_seconds: IdleSeconds::MOST,
            lifetime_seconds: LifetimeSeconds::MOST,
        }
    }
}

pub(super) fn read(item: &Item<'_>, refusals: &mut Refusals) -> Option<Caps> {
    let object = item.object(refusals)?;
    let most = Caps::default();
    let tunnel_bytes = match object.item(&TUNNEL_BYTES) {
        Some(item) => item.quantity(TunnelBytes::parse, refusals),
        None => Some(most.tunnel_bytes),
    };
    let job_bytes = match object.item(&JOB_BYTES) {
        Some(item) => item.quantity(JobBytes::parse, refusals),
        None => Some(most.job_bytes),
    };
    let idle_seconds = match object.item(&IDLE_SECONDS) {
        Some(item) => item.quantity(IdleSeconds::parse, refusals),
        None => Some(most.idle_seconds),
    };
    let lifetime_seconds = match object.item(&LIFETIME_SECONDS) {
        Some(item) => item.quantity(LifetimeSeconds::parse, refusals),
        None => Some(most.lifetime_seconds),
    };
    Some(Caps {
        tunnel_bytes: tunnel_bytes?,
        job_bytes: job_bytes?,
        idle_seconds: idle_seconds?,
        lifetime_seconds: lifetime_seconds?,
    })
}

const fn cap(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field { name, need: Need::Optional, kind, doc }
}
