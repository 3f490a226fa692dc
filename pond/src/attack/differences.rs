//! Where a backend is known to answer a probe otherwise than `native`, and why that is no breach of what it promises. Data.
//!
//! A difference is listed with what it meets there. One that meets anything else is judged like any other probe, and one that
//! is met no longer is told, so that nothing stays in this list out of habit.

use pond_policy::backend::Backend;
use pond_wire::contained::Transfer;
use serde::Serialize;

use super::score::Verdict;

#[derive(Debug)]
pub(super) struct Difference {
    pub(super) backend: Backend,
    pub(super) case: &'static str,
    pub(super) probe: &'static str,
    /// Only where the job's copy travels so.
    pub(super) transfer: Option<Transfer>,
    pub(super) meets: Meets,
    pub(super) why: &'static str,
}

/// What the probe meets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Meets {
    /// It works.
    Success,
    /// It fails, and not by a refusal.
    OddFailure,
}

const fn on(
    backend: Backend,
    case: &'static str,
    probe: &'static str,
    meets: Meets,
    why: &'static str,
) -> Difference {
    Difference { backend, case, probe, transfer: None, meets, why }
}

/// Where the copy is sent into the container and the tree comes back, instead of a mount.
const fn streamed(known: Difference) -> Difference {
    Difference { transfer: Some(Transfer::Stream), ..known }
}

const UNCOUNTED: &str = "gVisor's kernel has no such limit; what it takes is gVisor's own memory, which the job's memory limit \
                         holds";
const UNHEEDED: &str = "gVisor keeps the number and heeds it nowhere; the host sees gVisor's threads, which nobody inside can favour";
const NO_LANDLOCK: &str =
    "only Landlock forbids this, which gVisor's kernel does not have; both files are that kernel's own";
const NO_NOSUID: &str = "an engine marks neither the root nor what it binds; no-new-privileges is what holds, as the other probe shows";

const NO_DEVICE_TRAVELS: &str =
    "a stream carries directories, files and links; the device of the repository is not there to be opened";

pub(super) const DIFFERENCES: &[Difference] = &[
    on(
        Backend::Docker,
        "K34",
        "securebits",
        Meets::Success,
        "setting them takes a capability, and pid 1 of a container never has one; they would only bind root, which nobody inside \
         can become",
    ),
    on(
        Backend::Docker,
        "E04",
        "routing messages",
        Meets::Success,
        "pid 1 of a container does not count them, and no control group does; THREAT-MODEL.md says what that costs the host",
    ),
    on(Backend::Gvisor, "E04", "descriptors", Meets::Success, UNCOUNTED),
    on(Backend::Gvisor, "E04", "routing messages", Meets::Success, UNCOUNTED),
    on(Backend::Gvisor, "E07", "timers", Meets::Success, UNCOUNTED),
    on(Backend::Gvisor, "E11", "/tmp", Meets::Success, UNCOUNTED),
    on(Backend::Gvisor, "E11", "/dev/shm", Meets::Success, UNCOUNTED),
    on(Backend::Gvisor, "K29", "nice", Meets::Success, UNHEEDED),
    on(Backend::Gvisor, "K29", "oom score", Meets::Success, UNHEEDED),
    on(Backend::Gvisor, "K30", "mounts that honour it", Meets::Success, NO_NOSUID),
    on(
        Backend::Gvisor,
        "K33",
        "environ",
        Meets::Success,
        "gVisor shows it to everybody; pid 1 has the engine's environment, which is a path, a host name and a home",
    ),
    on(
        Backend::Gvisor,
        "K33",
        "maps",
        Meets::Success,
        "gVisor shows it to everybody; neither reading nor writing that memory is possible, as \"mem\" and K10 show",
    ),
    on(
        Backend::Gvisor,
        "K33",
        "fd",
        Meets::Success,
        "gVisor lists them to everybody; none but the job's own pipes opens, as \"open descriptors\" shows",
    ),
    on(
        Backend::Gvisor,
        "K34",
        "securebits",
        Meets::OddFailure,
        "gVisor's kernel has no such bits; they would only bind root, which nobody inside can become",
    ),
    on(Backend::Gvisor, "K41", "own name", Meets::Success, NO_LANDLOCK),
    on(Backend::Gvisor, "K41", "device", Meets::Success, NO_LANDLOCK),
    streamed(on(Backend::Docker, "K06", "null", Meets::OddFailure, NO_DEVICE_TRAVELS)),
    streamed(on(Backend::Gvisor, "K06", "null", Meets::OddFailure, NO_DEVICE_TRAVELS)),
    streamed(on(Backend::Gvisor, "E11", "disk", Meets::Success, UNCOUNTED)),
];

pub(super) fn listed(
    backend: Backend,
    transfer: Transfer,
    case: &str,
    probe: &str,
) -> Option<&'static Difference> {
    let is_it = |one: &&Difference| {
        (one.backend, one.case, one.probe) == (backend, case, probe)
            && one.transfer.is_none_or(|only| only == transfer)
    };
    DIFFERENCES.iter().find(is_it)
}

impl Difference {
    /// The verdict on a probe that met this one: a difference if it is what the list says, else what it was.
    pub(super) fn explains(&self, verdict: Verdict) -> Verdict {
        match (&verdict, self.meets) {
            (Verdict::Breached(_), Meets::Success) | (Verdict::Broken(_), Meets::OddFailure) => {
                Verdict::Differs(self.why)
            }
            (
                Verdict::Held
                | Verdict::Breached(_)
                | Verdict::Broken(_)
                | Verdict::NoControl(_)
                | Verdict::Differs(_),
                Meets::Success | Meets::OddFailure,
            ) => verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack::catalogue;

    #[test]
    fn every_listed_difference_is_of_a_probe_and_listed_once() {
        for (at, one) in DIFFERENCES.iter().enumerate() {
            let is_of = |case: &&crate::attack::case::Case| case.id == one.case;
            let case = catalogue().find(is_of).unwrap_or_else(|| panic!("there is no case {}", one.case));
            assert!(case.probes.iter().any(|probe| probe.name == one.probe), "{} {}", one.case, one.probe);
            assert_ne!(one.backend, Backend::Native, "native is what the others are compared with");
            let twice = DIFFERENCES
                .iter()
                .skip(at + 1)
                .any(|other| (other.backend, other.case, other.probe) == (one.backend, one.case, one.probe));
            assert!(!twice, "{one:?}");
        }
    }

    #[test]
    fn a_reason_explains_only_what_it_was_given_for() {
        let works = listed(Backend::Gvisor, Transfer::Bind, "K41", "device").unwrap();
        let breach = Verdict::Breached("it worked".to_owned());
        assert_eq!(works.explains(breach.clone()), Verdict::Differs(NO_LANDLOCK));
        for other in [Verdict::Held, Verdict::Broken("hung".to_owned()), Verdict::NoControl(String::new())] {
            assert_eq!(works.explains(other.clone()), other);
        }
        let fails = listed(Backend::Gvisor, Transfer::Stream, "K34", "securebits").unwrap();
        assert_eq!(fails.explains(breach.clone()), breach);
        assert!(listed(Backend::Docker, Transfer::Bind, "K41", "device").is_none());
        // One of a stream is none of a mount.
        assert!(listed(Backend::Docker, Transfer::Stream, "K06", "null").is_some());
        assert!(listed(Backend::Docker, Transfer::Bind, "K06", "null").is_none());
    }
}
