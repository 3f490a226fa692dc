//! Turns the table into classic BPF: one balanced tree over ranges of call numbers.
//!
//! Zone: trusted, pure. The kernel runs every new filter once per known call number, so what an install costs
//! follows the depth of this program; neighbours with equal rules share a range and every verdict is emitted once.
//! The program is assembled from its end: each jump leads to code that already exists, which settles its distance.

use super::Profile;
use super::decision::{Decision, KILL, Question};
use super::table;

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// A compiled filter, ready to install any number of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Box<[Instruction]>);

impl Filter {
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }
}

/// Compiles a profile's filter. Do this before the clone: it allocates.
pub fn compile(profile: Profile) -> Filter {
    assemble(&table::ranges(profile))
}

pub(super) const LOAD: u16 = 0x20;
pub(super) const AND: u16 = 0x54;
pub(super) const JUMP: u16 = 0x05;
pub(super) const JUMP_EQUAL: u16 = 0x15;
pub(super) const JUMP_GREATER_EQUAL: u16 = 0x35;
pub(super) const RETURN: u16 = 0x06;

const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// `ranges` ascend; each holds from its number up to the next one's.
pub(super) fn assemble(ranges: &[(u32, Decision)]) -> Filter {
    let mut program = Assembler::default();
    let kill = program.decision(KILL);
    let tree = program.tree(ranges);
    program.fall_into(tree);
    let known_architecture = program.push(LOAD, 0, 0, NUMBER_OFFSET);
    program.branch(JUMP_EQUAL, table::ARCHITECTURE, known_architecture, kill);
    program.push(LOAD, 0, 0, ARCHITECTURE_OFFSET);
    program.reversed.reverse();
    Filter(program.reversed.into_boxed_slice())
}

/// Counts from the end of the program.
type Label = u32;

#[derive(Default)]
struct Assembler {
    reversed: Vec<Instruction>,
    length: u32,
    emitted: Vec<(Decision, Label)>,
}

impl Assembler {
    fn tree(&mut self, ranges: &[(u32, Decision)]) -> Label {
        let (below, above) = ranges.split_at(ranges.len() / 2);
        match (below, above) {
            (_, []) => self.decision(KILL),
            ([], [(_, only), ..]) => self.decision(*only),
            (_, [(first, _), ..]) => {
                let then = self.tree(above);
                let otherwise = self.tree(below);
                self.branch(JUMP_GREATER_EQUAL, *first, then, otherwise)
            }
        }
    }

    fn decision(&mut self, decision: Decision) -> Label {
        if let Some((_, label)) = self.emitted.iter().find(|(known, _)| *known == decision) {
            return *label;
        }
        let label = match decision {
            Decision::Settled(verdict) => self.push(RETURN, 0, 0, verdict.code()),
            Decision::Asks(question) => self.question(question),
        };
        self.emitted.push((decision, label));
        label
    }

    fn question(&mut self, question: &Question) -> Label {
        let then = self.decision(question.then);
        let otherwise = self.decision(question.otherwise);
        let test = question
            .any_of
            .iter()
            .rev()
            .fold(otherwise, |next, value| self.branch(JUMP_EQUAL, *value, then, next));
        self.fall_into(test);
        if question.mask != u32::MAX {
            self.push(AND, 0, 0, question.mask);
        }
        self.push(LOAD, 0, 0, question.argument.offset())
    }

    /// A conditional jump reaches 255 instructions; beyond that it hops over two unconditional ones.
    fn branch(&mut self, test: u16, value: u32, then: Label, otherwise: Label) -> Label {
        let near = |target| u8::try_from(self.length - target - 1);
        if let (Ok(jt), Ok(jf)) = (near(then), near(otherwise)) {
            return self.push(test, jt, jf, value);
        }
        self.hop(then);
        self.hop(otherwise);
        self.push(test, 1, 0, value)
    }

    fn hop(&mut self, target: Label) -> Label {
        self.push(JUMP, 0, 0, self.length - target - 1)
    }

    /// Makes `target` what runs next.
    fn fall_into(&mut self, target: Label) {
        if target + 1 != self.length {
            self.hop(target);
        }
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Label {
        self.reversed.push(Instruction { code, jt, jf, k });
        self.length += 1;
        self.length - 1
    }
}
