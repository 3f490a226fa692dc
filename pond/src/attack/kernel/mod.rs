//! K: the kernel's surface. Everything a shared kernel offers that a job has no business with.

mod files;
mod interfaces;
mod mounts;
mod processes;
mod surroundings;

use super::case::Case;

pub(super) use interfaces::{open, socket};

pub(super) const CASES: [&[Case]; 5] =
    [mounts::CASES, interfaces::CASES, processes::CASES, files::CASES, surroundings::CASES];
