//! Paths a job chose: those of `pond_wire::path`.

pub(crate) use pond_wire::path::join;
pub use pond_wire::path::{PathFault, RelPath, is_git_name, quoted};
