//! Pure: when a companion is checked, and what a row of checks says of it. What time it is, somebody else knows.

use std::time::Duration;

/// How it is told that a companion serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkup {
    /// A program and its arguments, run in the companion; it passes when it ends with 0.
    pub test: Vec<String>,
    /// From the end of one check to the next.
    pub interval: Duration,
    /// When a check counts as failed.
    pub timeout: Duration,
    /// Checks that must fail in a row.
    pub retries: u32,
    /// In this time from its start failed checks do not count.
    pub start_period: Duration,
    /// From check to check in that time.
    pub start_interval: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It has not passed yet, and may still be starting.
    Starting,
    Healthy,
    Unhealthy,
}

/// What is known of a companion's health.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    checkup: &'a Checkup,
    health: Health,
    failures: u32,
}

impl<'a> Chart<'a> {
    pub(super) fn new(checkup: &'a Checkup) -> Self {
        Self { checkup, health: Health::Starting, failures: 0 }
    }

    /// How long after the last check the next one is due, for a companion of this age.
    pub(super) fn pause(&self, age: Duration) -> Duration {
        if self.is_excused(age) { self.checkup.start_interval } else { self.checkup.interval }
    }

    /// Takes a check down. Returns its health if that has changed.
    pub(super) fn note(&mut self, has_passed: bool, age: Duration) -> Option<Health> {
        let before = self.health;
        if has_passed {
            (self.health, self.failures) = (Health::Healthy, 0);
        } else if !self.is_excused(age) {
            self.failures += 1;
            if self.failures >= self.checkup.retries {
                self.health = Health::Unhealthy;
            }
        }
        (self.health != before).then_some(self.health)
    }

    fn is_excused(&self, age: Duration) -> bool {
        self.health == Health::Starting && age < self.checkup.start_period
    }
}

#[cfg(test)]
mod tests {
    //! By the second.
    use super::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn checkup() -> Checkup {
        Checkup {
            test: vec!["true".to_owned()],
            interval: seconds(30),
            timeout: seconds(5),
            retries: 3,
            start_period: seconds(60),
            start_interval: seconds(2),
        }
    }

    #[test]
    fn failures_while_it_starts_do_not_count() {
        let checkup = checkup();
        let mut chart = Chart::new(&checkup);
        for age in 0..60 {
            assert_eq!((chart.pause(seconds(age)), chart.note(false, seconds(age))), (seconds(2), None));
        }
        assert_eq!(chart.pause(seconds(60)), seconds(30));
        let after = [60, 90, 120].map(|age| chart.note(false, seconds(age)));
        assert_eq!(after, [None, None, Some(Health::Unhealthy)]);
    }

    #[test]
    fn one_that_has_passed_is_not_starting_any_more() {
        let checkup = checkup();
        let mut chart = Chart::new(&checkup);
        assert_eq!(chart.note(true, seconds(1)), Some(Health::Healthy));
        assert_eq!(chart.pause(seconds(2)), seconds(30));
        let failed = [3, 4, 5, 6].map(|age| chart.note(false, seconds(age)));
        assert_eq!(failed, [None, None, Some(Health::Unhealthy), None]);
    }

    #[test]
    fn only_failures_in_a_row_count_and_the_sick_recover() {
        let checkup = checkup();
        let mut chart = Chart::new(&checkup);
        let at = seconds(100);
        let rows = [true, false, false, true, false, false, false, true].map(|passed| chart.note(passed, at));
        let (well, ill) = (Some(Health::Healthy), Some(Health::Unhealthy));
        assert_eq!(rows, [well, None, None, None, None, None, ill, well]);
    }
}
