//! Random bytes from the kernel, all of them or none.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

pub(crate) fn bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, Errno> {
    let mut bytes = Zeroizing::new([0; N]);
    let filled = getrandom(bytes.as_mut_slice(), GetRandomFlags::empty())?;
    if filled == N { Ok(bytes) } else { Err(Errno::AGAIN) }
}
