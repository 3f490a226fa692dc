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
        Decision::Settled(Verdict::Allow) => vec![Vec::new()],
        Decision::Settled(
            Verdict::PretendDone
            | Verdict::NotPermitted
            | Verdict::NotImplemented
            | Verdict::FamilyUnsupported
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
    use super::*;
    use crate::seccomp::compile;
    use crate::seccomp::interpret::{Call, run};

    /// Calls the engine is told to let through and pond's own filter then looks at.
    const EXCEPTIONS: [&str; 8] = [
        "ioctl",
        "kill",
        "prlimit64",
        "rt_sigqueueinfo",
        "rt_tgsigqueueinfo",
        "setrlimit",
        "tgkill",
        "tkill",
    ];

    fn lets_through(allowances: &[Allowance], name: &str, arguments: [u64; 3]) -> bool {
        let word = |condition: &Condition| arguments[usize::try_from(condition.argument).unwrap()];
        let holds =
            |condition: &Condition| word(condition) & u64::from(condition.mask) == u64::from(condition.value);
        let case = |case: &Vec<Condition>| case.iter().all(holds);
        allowances.iter().any(|allowance| allowance.name == name && allowance.cases.iter().any(case))
    }

    #[test]
    fn the_two_filters_agree() {
        let (filter, allowances) = (compile(Profile::Workload), allowances());
        let words = [0, 1, 2, 6, 10, 16, 17, 40, 0x2180, 0x5412, 0x6180, 0x81A4, 0x1000_0001];
        for number in table::rules(Profile::Workload).into_keys() {
            let name = names::name(number).unwrap_or_else(|| panic!("call {number} has no name"));
            for first in words {
                for second in words {
                    for third in words {
                        let arguments = [first, second, third];
                        let [first, second, third] = arguments;
                        let call = Call {
                            number,
                            architecture: table::ARCHITECTURE,
                            arguments: [first, second, third, 0, 0, 0],
                        };
                        let ours = run(filter.instructions(), &call).code == Verdict::Allow.code();
                        let theirs = lets_through(&allowances, name, arguments);
                        let agree = ours == theirs || theirs && EXCEPTIONS.contains(&name);
                        assert!(agree, "{name}{arguments:?}: ours {ours}, the engine's {theirs}");
                    }
                }
            }
        }
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
