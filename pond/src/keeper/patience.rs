//! How often a sandbox that dies is started again: at once, then after longer and longer pauses, and no more once it has not stayed up
//! for long within a few minutes.

use std::time::{Duration, Instant};

/// A sandbox that does not run for this long in all, between times when it did, is left stopped.
const CRASH_LOOP: Duration = Duration::from_secs(300);
/// One that ran for this long has not crashed because of how it was made.
pub(super) const STABLE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Patience {
    down_since: Option<Instant>,
    pause: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { down_since: None, pause: FIRST_PAUSE }
    }

    /// It was up, for this long.
    pub(super) fn stayed_up(&mut self, time: Duration) {
        if time >= STABLE {
            *self = Self::new();
        }
    }

    /// Whether it has died since it was last known to stay up.
    pub(super) fn is_tried(&self) -> bool {
        self.down_since.is_some()
    }

    /// How long to wait before it is started once more; nothing when that has been tried for long enough.
    pub(super) fn again(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.down_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= CRASH_LOOP {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts until it is given up, when each lasts as long as this; and how long that takes.
    fn starts(lasting: Duration) -> (u32, Duration) {
        let begun = Instant::now();
        let (mut patience, mut now, mut starts) = (Patience::new(), begun, 0);
        while let Some(pause) = patience.again(now) {
            now += pause + lasting;
            starts += 1;
            patience.stayed_up(lasting);
            if starts == 1000 {
                break;
            }
        }
        (starts, now - begun)
    }

    #[test]
    fn one_that_dies_at_once_is_given_up_after_five_minutes() {
        let (starts, took) = starts(Duration::ZERO);
        assert!(took >= CRASH_LOOP && took < CRASH_LOOP + LONGEST_PAUSE, "{took:?}");
        assert!((15..30).contains(&starts), "{starts}");
    }

    #[test]
    fn one_that_almost_stays_up_is_given_up_too() {
        let (starts, took) = starts(STABLE.saturating_sub(Duration::from_millis(1)));
        assert!(starts < 20 && took < CRASH_LOOP + STABLE + LONGEST_PAUSE, "{starts} {took:?}");
    }

    #[test]
    fn one_that_stays_up_begins_anew() {
        assert_eq!(starts(STABLE).0, 1000);
        let mut patience = Patience::new();
        let now = Instant::now();
        let pauses = [patience.again(now), patience.again(now)];
        assert_eq!(pauses, [Some(FIRST_PAUSE), Some(FIRST_PAUSE * 2)]);
        assert!(patience.is_tried());
        patience.stayed_up(STABLE);
        assert_eq!((patience.is_tried(), patience.again(now)), (false, Some(FIRST_PAUSE)));
    }
}
