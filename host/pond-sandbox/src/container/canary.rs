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
    #[error("the runtime that should be {0} runs containers on the host's own kernel")]
    HostKernel(&'static str),
    #[error("the runtime that should be gVisor runs containers on a kernel that is not gVisor's")]
    NotGvisor,
    #[error(
        "the runtime that should be a virtual machine says nothing of its kernel, or names one that no machine boots"
    )]
    NotAMachine,
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
    pub(super) nonce: Nonce,
}

/// Whether this host's own list of processes has one with the arguments that only pid 1 of this container was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Nonce {
    Visible,
    Hidden,
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
    pub nonce: Nonce,
}

pub(super) fn judge(kernel: Kernel, inside: &Evidence, outside: &Outside) -> Result<(), Mismatch> {
    let same_boot = inside.boot_id == outside.boot_id;
    let on_the_host = same_boot || outside.program == Program::PidOne || outside.nonce == Nonce::Visible;
    let is_gvisor = inside.version == GVISOR_FIXED || inside.version.contains(GVISOR_MARK);
    match kernel {
        Kernel::Host => {
            let fits = same_boot
                && outside.program == Program::PidOne
                && outside.nonce == Nonce::Visible
                && inside.version == outside.version
                && inside.landlock == Landlock::Present;
            if fits { Ok(()) } else { Err(Mismatch::NotTheHost) }
        }
        Kernel::Gvisor if on_the_host => Err(Mismatch::HostKernel("gVisor")),
        Kernel::Gvisor => {
            let fits = is_gvisor && is_boot_id(&inside.boot_id) && inside.landlock == Landlock::Absent;
            if fits { Ok(()) } else { Err(Mismatch::NotGvisor) }
        }
        Kernel::Machine if on_the_host => Err(Mismatch::HostKernel("a virtual machine")),
        Kernel::Machine => {
            let booted = inside.version.starts_with("Linux version ") && is_boot_id(&inside.boot_id);
            if booted && !is_gvisor { Ok(()) } else { Err(Mismatch::NotAMachine) }
        }
    }
}

/// As the kernel spells it.
fn is_boot_id(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[cfg(test)]
mod tests;
