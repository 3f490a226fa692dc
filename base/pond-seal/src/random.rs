//! [`crate::fresh`] with the kernel's bare reason, which each module's own fault names the step for.

use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::fresh::{self, NoRandomness};

pub(crate) fn bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, Errno> {
    fresh::bytes().map_err(|NoRandomness(errno)| errno)
}
