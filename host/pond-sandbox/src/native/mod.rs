//! The native backend: no daemon, no image, no service to install; namespaces, control groups and filters of this kernel.
//!
//! A shared-kernel tier: it holds a hostile job on a host that is trusted and patched, and says so. `plan` is pure; `launch` asks
//! the privileged launcher and acts on nothing else; `reap` needs only a job's name.

pub mod cgroup;
mod footing;
mod ids;
mod launch;
mod launcher;
mod mount;
mod mounts;
mod plan;
mod reap;
mod remedy;
mod running;
mod scratch;
mod serving;
mod spare;
mod toolchain;
mod tools;
mod upper;

pub use footing::{FootingFault, Owner};
pub(crate) use ids::{IdRange, IdsFault, take_range};
pub(crate) use launch::Ends;
pub use launch::{Begun, Job, KeptImage, LaunchFault, Native, NativeFault};
pub use launcher::{Forked, Launcher, LauncherFault};
pub(crate) use launcher::{Scenery, next_report};
pub use mount::{Mount, MountFault};
pub(crate) use mounts::unescaped;
pub use plan::{Exhibit, PlanFault};
pub(crate) use plan::{Facts, plan};
pub use reap::{SweepFault, Swept, abandon, sweep};
pub use remedy::{AFTER_KILL, KILLED, in_the_way, remedy};
pub(crate) use running::{Death, word};
pub use running::{Ending, Over, Remains, Running, RunningFault, Streams};
pub(crate) use scratch::{Disk, Quota, ScratchFault, disk, kept};
pub use scratch::{is_attached, repair};
pub use serving::{Serving, ServingFault};
pub use toolchain::SEARCH;
pub(crate) use toolchain::{Place, is_usual, probe as places};
pub use tools::{Provided, Tool, ToolFault};
pub use upper::{Leaving, Room, Upper};
