//! Whether workers agree on a stage that several of them ran: asked again after every result, by whoever takes results in.
//!
//! Invariants: a verdict rests on that many equal ballots of different workers, or there is none; the number of runs is bounded
//! by twice the quorum less one, so that one liar among a quorum's worth of honest workers is outvoted, and noise ends.

/// What is to be done after another result came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Another worker is to run it.
    Again,
    /// Enough agree. Those at these places do not.
    Agreed { odd: Vec<usize> },
    /// They cannot agree any more.
    Split,
}

/// The most runs that a quorum is waited for.
pub const fn most_runs(quorum: u64) -> u64 {
    quorum.saturating_mul(2).saturating_sub(1)
}

/// `ballots` are of different workers, in the order they came.
pub fn judge<T: Eq>(ballots: &[T], quorum: u64) -> Verdict {
    let count = |one: &T| ballots.iter().filter(|other| *other == one).count();
    let Some(leading) = ballots.iter().max_by_key(|one| count(one)) else { return Verdict::Again };
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let (most, runs) = (number(count(leading)), number(ballots.len()));
    if most >= quorum {
        let odd = ballots.iter().enumerate().filter(|(_, one)| *one != leading).map(|(at, _)| at).collect();
        return Verdict::Agreed { odd };
    }
    let left = most_runs(quorum).saturating_sub(runs);
    if most.saturating_add(left) >= quorum { Verdict::Again } else { Verdict::Split }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, judge, most_runs};

    #[test]
    fn verdicts_are_as_written() {
        let odd = |places: &[usize]| Verdict::Agreed { odd: places.to_vec() };
        for (ballots, quorum, expected) in [
            ("", 1, Verdict::Again),
            ("a", 1, odd(&[])),
            ("a", 2, Verdict::Again),
            ("aa", 2, odd(&[])),
            ("ab", 2, Verdict::Again),
            ("aba", 2, odd(&[1])),
            ("abb", 2, odd(&[0])),
            ("abc", 2, Verdict::Split),
            ("abc", 3, Verdict::Again),
            ("abca", 3, Verdict::Again),
            ("abcd", 3, Verdict::Split),
            ("abcaa", 3, odd(&[1, 2])),
        ] {
            let ballots: Vec<char> = ballots.chars().collect();
            assert_eq!(judge(&ballots, quorum), expected, "{ballots:?} of {quorum}");
        }
    }

    proptest::proptest! {
        #[test]
        fn it_ends_and_nobody_is_convicted_by_a_minority(
            quorum in 1..=9_u64,
            ballots in proptest::collection::vec(0..4_u8, 0..20),
        ) {
            let number = |count: usize| u64::try_from(count).unwrap();
            for runs in 1..=ballots.len() {
                let so_far = &ballots[..runs];
                match judge(so_far, quorum) {
                    Verdict::Again => proptest::prop_assert!(number(runs) < most_runs(quorum)),
                    Verdict::Agreed { odd } => {
                        proptest::prop_assert!(number(runs - odd.len()) >= quorum);
                        break;
                    }
                    Verdict::Split => break,
                }
            }
        }
    }
}
