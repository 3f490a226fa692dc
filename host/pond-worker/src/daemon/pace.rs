//! How long to wait before the next try: longer each time, and never the same for two workers that fail together.

use std::time::Duration;

use pond_seal::fresh;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// The shortest wait before a poll that comes after one in vain.
pub(super) const SHORTEST: Duration = Duration::from_millis(10);
/// What somebody says who expects work soon; who says more has a reason.
const SOON: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Pace(Duration);

/// Polls that were answered with nothing, since there was last a job. Often that only means that the job a poll was let through for had
/// gone with the answer to a result; who then waits as long as it is told is not there for the job that comes next. So the
/// first time it asks again almost at once, and that poll is held until there is something.
#[derive(Debug, Default)]
pub(super) struct InVain {
    before: bool,
}

impl InVain {
    pub(super) fn wait(&mut self, told: Duration) -> Duration {
        let before = std::mem::replace(&mut self.before, true);
        if before || told > SOON { told } else { SHORTEST }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Pace {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    fn next(&mut self) -> Duration {
        let whole = self.0;
        self.0 = (whole * 2).min(LONGEST);
        // Without randomness they wait together, which is no worse than being slow.
        let share = fresh::bytes::<1>().map_or(0, |bytes| u32::from(bytes.first().copied().unwrap_or(0)));
        whole / 2 + whole / 2 * share / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_poll_after_one_in_vain_comes_early_and_only_where_work_is_expected() {
        let later = Duration::from_secs(30);
        let mut in_vain = InVain::default();
        assert_eq!([SOON, SOON, later, SOON].map(|told| in_vain.wait(told)), [SHORTEST, SOON, later, SOON]);
        assert_eq!([later, SOON].map(|told| InVain::default().wait(told)), [later, SHORTEST]);
    }

    #[test]
    fn waits_grow_to_a_bound() {
        let mut pace = Pace::default();
        let waits: Vec<Duration> = (0..12).map(|_| pace.next()).collect();
        for (at, wait) in waits.iter().enumerate() {
            let whole = (FIRST * 2u32.pow(u32::try_from(at).unwrap())).min(LONGEST);
            assert!((whole / 2..=whole).contains(wait), "{at}: {wait:?}");
        }
    }
}
