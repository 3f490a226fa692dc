//! The workload's table in the words of an engine: which calls it lets through, under which conditions on their arguments.
//!
//! Zone: trusted, pure. An engine's language has conditions for allowing and none for excepting, so what the table allows
//! "but for" is let through here. Invariant: nothing the table allows is missing, so that the engine's filter is never
//! stricter than pond's own, which is installed beneath it and has the last word.

use super::Profile;
use super::decision::{Argument, Decision, Question, Verdict};
use super::{names, table};

/// A call, and the cases in which it is let through: one case without conditions means always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    pub name: &'static str,
    pub cases: Vec<Vec<Condition>>,
}

/// This argument's low word, under a mask, is this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    pub argument: u32,
    pub mask: u32,
    pub value: u32,
}

/// Every call a job may make.
pub fn allowances() -> Vec<Allowance> {
    let rules = table::rules(Profile::Workload);
    let allowed = rules.into_iter().filter_map(|(number, decision)| {
        let cases = cases(decision);
        (!cases.is_empty()).then_some((number, cases))
    });
    allowed.filter_map(|(number, cases)| Some(Allowance { name: names::name(number)?, cases })).collect()
}

fn cases(decision: Decision) -> Vec<Vec<Condition>> {
    match decision {
        Decision::Settled(Verdict::Allow | Verdict::AskPidOne) => vec![Vec::new()],
        Decision::Settled(
            Verdict::PretendDone
            | Verdict::NotPermitted
            | Verdict::NotImplemented
            | Verdict::FamilyUnsupported
            | Verdict::Unsupported
            | Verdict::ProtocolUnsupported
            | Verdict::KillProcess,
        ) => Vec::new(),
        Decision::Asks(question) => asked(question),
    }
}

fn asked(question: &Question) -> Vec<Vec<Condition>> {
    let otherwise = cases(question.otherwise);
    let is_exception = otherwise.iter().any(Vec::is_empty);
    let Some(argument) = index(question.argument).filter(|_| !is_exception) else { return vec![Vec::new()] };
    let then = cases(question.then);
    let met = question.any_of.iter().flat_map(|value| {
        let condition = Condition { argument, mask: question.mask, value: *value };
        then.iter().map(move |case| [&[condition], case.as_slice()].concat())
    });
    met.chain(otherwise).collect()
}

/// The upper half of an argument has no condition of its own.
fn index(argument: Argument) -> Option<u32> {
    match argument {
        Argument::First => Some(0),
        Argument::Second => Some(1),
        Argument::Third => Some(2),
        Argument::ThirdHigh => None,
    }
}

#[cfg(test)]
mod tests {
    //! The engine's filter lets through what ours does, and of the rest only what it has no words for.
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::seccomp::arguments::{FS_IOC_FSSETXATTR, FS_IOC_SETFLAGS, TIOCLINUX, TIOCSETD, TIOCSTI};
    use crate::seccomp::compile;
    use crate::seccomp::interpret::{Call, run};

    type Exception = (&'static str, fn([u64; 3]) -> bool);

    /// What the engine is told to let through and pond's own filter then refuses: a call, and what must hold of its
    /// arguments for that.
    const EXCEPTIONS: [Exception; 9] = [
        ("ioctl", |[_, request, _]| TERMINAL_AND_INODE.map(u64::from).contains(&request)),
        ("kill", to_pid_one),
        ("prlimit64", |[_, limit, new]| limit == CORE && new != 0),
        ("rt_sigqueueinfo", to_pid_one),
        ("rt_tgsigqueueinfo", to_pid_one),
        ("setrlimit", |[limit, ..]| limit == CORE),
        ("setsockopt", |[_, level, option]| match level {
            1 => [8, 26, 50, 51, 52].contains(&option),
            6 => [14, 31, 32, 38, 39, 40].contains(&option),
            41 => option == 32,
            _ => false,
        }),
        ("tgkill", to_pid_one),
        ("tkill", to_pid_one),
    ];
    const TERMINAL_AND_INODE: [u32; 5] = [TIOCSTI, TIOCLINUX, TIOCSETD, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR];
    const CORE: u64 = 4;
    /// What arguments are tried with, besides what the exceptions are about.
    const WORDS: [u64; 20] =
        [0, 1, 2, 6, 8, 10, 14, 16, 17, 26, 31, 32, 40, 41, 51, 0x2180, 0x6180, 0x81A4, 0x1000_0001, CORE];

    fn to_pid_one([process, ..]: [u64; 3]) -> bool {
        process == 1
    }

    fn lets_through(cases: &[Vec<Condition>], arguments: [u64; 3]) -> bool {
        let word = |condition: &Condition| arguments[usize::try_from(condition.argument).unwrap()];
        let holds =
            |condition: &Condition| word(condition) & u64::from(condition.mask) == u64::from(condition.value);
        cases.iter().any(|case| case.iter().all(holds))
    }

    /// Every combination of the words.
    fn tried() -> Vec<[u64; 3]> {
        let words: Vec<u64> = WORDS.into_iter().chain(TERMINAL_AND_INODE.map(u64::from)).collect();
        let pairs = words.iter().flat_map(|first| words.iter().map(move |second| (*first, *second)));
        pairs.flat_map(|(first, second)| words.iter().map(move |third| [first, second, *third])).collect()
    }

    #[test]
    fn the_two_filters_agree() {
        let (filter, tried) = (compile(Profile::Workload), tried());
        let allowances: BTreeMap<_, _> = allowances().into_iter().map(|one| (one.name, one.cases)).collect();
        let mut met = BTreeSet::new();
        for number in table::rules(Profile::Workload).into_keys() {
            let name = names::name(number).unwrap_or_else(|| panic!("call {number} has no name"));
            let cases = allowances.get(name).map_or(&[][..], Vec::as_slice);
            let exception = EXCEPTIONS.iter().find(|(call, _)| *call == name);
            for arguments in &tried {
                let [first, second, third] = *arguments;
                let arguments = [first, second, third, 0, 0, 0];
                let call = Call { number, architecture: table::ARCHITECTURE, arguments };
                let ours = run(filter.instructions(), &call).code == Verdict::Allow.code();
                let theirs = lets_through(cases, [first, second, third]);
                let excepted = exception.filter(|(_, holds)| holds([first, second, third]));
                let expected = excepted.map_or((ours, ours), |_| (false, true));
                assert_eq!((ours, theirs), expected, "{name}{arguments:x?}: ours, the engine's");
                met.extend(excepted.map(|(call, _)| *call));
            }
        }
        assert_eq!(met, EXCEPTIONS.iter().map(|(call, _)| *call).collect(), "each exception is one");
    }

    #[test]
    fn no_case_asks_one_argument_twice() {
        for allowance in allowances() {
            for case in &allowance.cases {
                let mut asked: Vec<u32> = case.iter().map(|condition| condition.argument).collect();
                asked.sort_unstable();
                asked.dedup();
                assert_eq!(asked.len(), case.len(), "{}: {case:?}", allowance.name);
            }
        }
    }
}
