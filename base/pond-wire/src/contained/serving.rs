//! Frames between a keeper and pid 1 of a container that lasts: each begins with the number of the exec it is about.
//!
//! Many programs share two streams, so nobody may wait for one of them: what is on its way to a program, and what a program said
//! and nobody took yet, are bounded for each by a window, and whoever takes bytes says how many.

use super::{Kind, frame};

/// How much of one exec's input, and of its output, may be on its way and not yet taken.
pub const EXEC_WINDOW: usize = 256 << 10;

/// What precedes the bytes of every such frame.
pub const NUMBER: usize = size_of::<u64>();

/// A whole frame about one exec; nothing for bytes that no frame of this kind carries.
pub fn numbered(kind: Kind, exec: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    frame(kind, &[&exec.to_le_bytes(), bytes].concat())
}

/// Which exec a frame is about, and what it says.
pub fn of_exec(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (number, bytes) = payload.split_first_chunk::<NUMBER>()?;
    Some((u64::from_le_bytes(*number), bytes))
}

/// A count of bytes, as windows are told.
pub fn count(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    //! What is said of one exec is never taken for another's.
    use super::super::Header;
    use super::*;

    #[test]
    fn a_number_precedes_what_is_said() {
        let bytes = numbered(Kind::ExecStdout, 7, b"said").unwrap();
        assert_eq!(of_exec(&bytes[Header::BYTES..]), Some((7, &b"said"[..])));
        assert_eq!(of_exec(&[0; NUMBER - 1]), None);
        assert_eq!(numbered(Kind::ExecSignal, 7, &[9, 9]), None, "one signal at a time");
    }

    #[test]
    fn a_count_is_four_bytes() {
        assert_eq!(count(&[1, 2, 0, 0]), Some(513));
        assert_eq!((count(&[1, 2, 0]), count(&[0; 5])), (None, None));
    }
}
