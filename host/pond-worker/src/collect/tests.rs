//! Hostile acts inside a real overlay, and what the result says about them. Case names are those of the catalogue.

mod above;
mod acts;
mod hostile;
mod ignored;
mod patches;
mod stopped;

use super::*;
use crate::testkit::{Overlay, file, script, tree};
