//! The container backends: one Docker Engine client with a runtime value. `docker` runs on the host's kernel, `gvisor` on one
//! in user space, `firecracker` on that of a virtual machine.
//!
//! A job's plan, storage, user ids, collector and gateway are the native backend's; the engine makes the namespaces, the root and
//! the limits that the launcher makes there. Objects pond makes bear its labels, and it touches no others.

mod canary;
pub mod companion;
mod engine;
mod frames;
mod ground;
mod image;
mod keep;
mod launch;
mod mounts;
mod network;
mod plan;
mod probe;
mod reap;
mod relay;
mod request;
mod seccomp;
mod stage;
mod transfer;

pub use canary::{Isolation, Mismatch, Nonce, Program};
pub use engine::EngineFault;
pub use image::ImageFault;
pub use keep::{Finished, Gone, KeepFault, Kept, Process};
pub(crate) use launch::Attended;
pub use launch::{Company, Contained, Container, ContainerFault};
pub use mounts::MountsFault;
pub use probe::{Answering, EngineSettings, ProbeFault, answering};
pub use reap::ReclaimFault;
pub(crate) use reap::reclaim;
pub use relay::RelayFault;
pub use transfer::TransferFault;
