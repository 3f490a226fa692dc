//! Numbers the C library's table does not have yet. Calls this recent share one number on every architecture.
//!
//! Zone: trusted, pure data.

use libc::c_long;

pub(super) const CACHESTAT: c_long = 451;
pub(super) const FCHMODAT2: c_long = 452;
pub(super) const MAP_SHADOW_STACK: c_long = 453;
pub(super) const FUTEX_WAKE: c_long = 454;
pub(super) const FUTEX_WAIT: c_long = 455;
pub(super) const FUTEX_REQUEUE: c_long = 456;
pub(super) const STATMOUNT: c_long = 457;
pub(super) const LISTMOUNT: c_long = 458;
pub(super) const LSM_GET_SELF_ATTR: c_long = 459;
pub(super) const LSM_SET_SELF_ATTR: c_long = 460;
pub(super) const LSM_LIST_MODULES: c_long = 461;
pub(super) const MSEAL: c_long = 462;
pub(super) const SETXATTRAT: c_long = 463;
pub(super) const GETXATTRAT: c_long = 464;
pub(super) const LISTXATTRAT: c_long = 465;
pub(super) const REMOVEXATTRAT: c_long = 466;
pub(super) const OPEN_TREE_ATTR: c_long = 467;
pub(super) const FILE_GETATTR: c_long = 468;
pub(super) const FILE_SETATTR: c_long = 469;
