//! Random bytes from the kernel, all of them or an error.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("getting random bytes from the kernel")]
pub struct NoRandomness(#[source] pub Errno);

/// `N` bytes that nobody can guess, zeroed when they are dropped.
pub fn bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, NoRandomness> {
    let mut buffer = Zeroizing::new([0; N]);
    match getrandom(buffer.as_mut_slice(), GetRandomFlags::empty()) {
        Ok(filled) if filled == N => Ok(buffer),
        Ok(_) => Err(NoRandomness(Errno::AGAIN)),
        Err(errno) => Err(NoRandomness(errno)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_draws_differ() {
        let (one, two) = (super::bytes::<32>().unwrap(), super::bytes::<32>().unwrap());
        assert!(*one != *two && *one != [0; 32]);
    }
}
