//! A classic-BPF machine for what a seccomp filter sees, strict enough to catch a malformed program. Tests only.

use super::compile::{AND, Instruction, JUMP, JUMP_EQUAL, JUMP_GREATER_EQUAL, LOAD, RETURN};

pub(super) const JUMP_GREATER: u16 = 0x25;
pub(super) const JUMP_SET: u16 = 0x45;

/// `struct seccomp_data`, without the instruction pointer no rule looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) architecture: u32,
    pub(super) arguments: [u64; 6],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) code: u32,
    pub(super) steps: usize,
}

/// Runs the program as the kernel would; panics where the kernel's checker would refuse it.
pub(super) fn run(program: &[Instruction], call: &Call) -> Outcome {
    let mut accumulator = 0u32;
    let mut next = 0usize;
    for steps in 1.. {
        let Instruction { code, jt, jf, k } = program[next];
        next += 1;
        let jump = |taken: bool| usize::from(if taken { jt } else { jf });
        match code {
            LOAD => accumulator = word(call, k),
            AND => accumulator &= k,
            JUMP => next += usize::try_from(k).unwrap(),
            JUMP_EQUAL => next += jump(accumulator == k),
            JUMP_GREATER => next += jump(accumulator > k),
            JUMP_GREATER_EQUAL => next += jump(accumulator >= k),
            JUMP_SET => next += jump(accumulator & k != 0),
            RETURN => return Outcome { code: k, steps },
            unknown => panic!("instruction {unknown:#x}"),
        }
    }
    unreachable!("a program only runs forward")
}

fn word(call: &Call, offset: u32) -> u32 {
    let mut data = [0u8; 64];
    data[0..4].copy_from_slice(&call.number.to_le_bytes());
    data[4..8].copy_from_slice(&call.architecture.to_le_bytes());
    for (slot, argument) in data[16..].chunks_exact_mut(8).zip(call.arguments) {
        slot.copy_from_slice(&argument.to_le_bytes());
    }
    let start = usize::try_from(offset).unwrap();
    assert!(start.is_multiple_of(4), "unaligned load at {offset}");
    u32::from_le_bytes(data[start..start + 4].try_into().unwrap())
}
