//! Which kernel a container really runs on, by what pid 1 sees from inside and what this host sees from outside. Pure.
//!
//! A runtime's name proves nothing: runc may be registered under any. Evidence is taken in every container before the job's first
//! instruction, and one that does not fit the backend ends the launch. What the host sees decides first; pid 1 is pond's own
//! file, and nothing hostile has run when it looks.

use pond_wire::contained::{Evidence, Kernel, Landlock};
use serde::Serialize;

/// What gVisor calls its kernel: the old way, fixed to the last letter, and the new one.
const GVISOR_FIXED: &str = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016";
const GVISOR_MARK: &str = "-gvisor";

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the engine ran the container under another runtime than it was asked for")]
    Runtime,
    #[error("the engine's number for the container's first process means another process on this host")]
    Process,
    #[error("the runtime gave the container a network that leads somewhere")]
    Network,
    #[error("the runtime that should be gVisor runs containers on the host's own kernel")]
    HostKernel,
    #[error("the runtime that should be gVisor runs containers on a kernel that is not gVisor's")]
    NotGvisor,
    #[error("the container does not run on the host's kernel, as the docker backend promises")]
    NotTheHost,
}

/// What this host sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) boot_id: String,
    pub(super) version: String,
    /// What the process runs that the engine says is the container's first.
    pub(super) program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Pond's own file: pid 1 is a process of this host.
    PidOne,
    /// Something that stands for it.
    Another,
}

/// What was seen, for the run's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Isolation {
    pub runtime: String,
    /// The container's id, which its control groups bear.
    pub container: String,
    /// The image's id, which is a digest.
    pub image: String,
    pub kernel: Kernel,
    pub inside: Evidence,
    pub host_boot_id: String,
    pub host_sees: Program,
}

pub(super) fn judge(kernel: Kernel, inside: &Evidence, outside: &Outside) -> Result<(), Mismatch> {
    let same_boot = inside.boot_id == outside.boot_id;
    match kernel {
        Kernel::Host => {
            let fits = same_boot
                && outside.program == Program::PidOne
                && inside.version == outside.version
                && inside.landlock == Landlock::Present;
            if fits { Ok(()) } else { Err(Mismatch::NotTheHost) }
        }
        Kernel::Gvisor if same_boot || outside.program == Program::PidOne => Err(Mismatch::HostKernel),
        Kernel::Gvisor => {
            let named = inside.version == GVISOR_FIXED || inside.version.contains(GVISOR_MARK);
            let fits = named && !inside.boot_id.is_empty() && inside.landlock == Landlock::Absent;
            if fits { Ok(()) } else { Err(Mismatch::NotGvisor) }
        }
    }
}

#[cfg(test)]
mod tests {
    //! On evidence recorded from runc and runsc: one lie is enough.
    use super::*;

    const HOST: &str = "Linux version 6.18.44 (build@host) #1 SMP PREEMPT_DYNAMIC";

    fn evidence(version: &str, boot_id: &str, landlock: Landlock) -> Evidence {
        Evidence { version: version.to_owned(), boot_id: boot_id.to_owned(), landlock }
    }

    fn outside(program: Program) -> Outside {
        Outside { boot_id: "998f4bda".to_owned(), version: HOST.to_owned(), program }
    }

    #[test]
    fn the_truth_passes() {
        let runc = evidence(HOST, "998f4bda", Landlock::Present);
        assert_eq!(judge(Kernel::Host, &runc, &outside(Program::PidOne)), Ok(()));
        for version in [GVISOR_FIXED, "Linux version 4.19.0-gvisor #1 SMP"] {
            let runsc = evidence(version, "038805dd", Landlock::Absent);
            assert_eq!(judge(Kernel::Gvisor, &runsc, &outside(Program::Another)), Ok(()));
        }
    }

    #[test]
    fn runc_under_another_name_is_found_out() {
        let runc = evidence(HOST, "998f4bda", Landlock::Present);
        for program in [Program::PidOne, Program::Another] {
            assert_eq!(judge(Kernel::Gvisor, &runc, &outside(program)), Err(Mismatch::HostKernel));
        }
        // Whatever it says inside, the host sees its process.
        let faked = evidence(GVISOR_FIXED, "038805dd", Landlock::Absent);
        assert_eq!(judge(Kernel::Gvisor, &faked, &outside(Program::PidOne)), Err(Mismatch::HostKernel));
    }

    #[test]
    fn another_kernel_is_neither() {
        let machine = evidence("Linux version 6.1.0", "5a5a5a5a", Landlock::Present);
        assert_eq!(judge(Kernel::Gvisor, &machine, &outside(Program::Another)), Err(Mismatch::NotGvisor));
        assert_eq!(judge(Kernel::Host, &machine, &outside(Program::Another)), Err(Mismatch::NotTheHost));
        let silent = evidence("", "", Landlock::Absent);
        assert_eq!(judge(Kernel::Gvisor, &silent, &outside(Program::Another)), Err(Mismatch::NotGvisor));
        let no_landlock = evidence(HOST, "998f4bda", Landlock::Absent);
        assert_eq!(judge(Kernel::Host, &no_landlock, &outside(Program::PidOne)), Err(Mismatch::NotTheHost));
    }
}
