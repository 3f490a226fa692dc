//! A bucket of permissions for calls that cost nothing: free is not unlimited.

use std::sync::{Mutex, PoisonError};

use tokio::time::{Duration, Instant};

const BURST: u32 = 60;
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pace(Mutex<(u32, Instant)>);

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new((BURST, Instant::now())))
    }
}

impl Pace {
    /// Whether one more call may go now.
    pub(super) fn allows(&self) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = &mut *held;
        while *left < BURST && since.elapsed() >= EVERY {
            (*left, *since) = (*left + 1, *since + EVERY);
        }
        if *left == BURST {
            *since = Instant::now();
        }
        let allowed = *left > 0;
        *left = left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c132_free_calls_are_paced() {
        let pace = Pace::default();
        assert_eq!((0..100).filter(|_| pace.allows()).count(), 60);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!((0..100).filter(|_| pace.allows()).count(), 3);
        tokio::time::advance(Duration::from_secs(10_000)).await;
        assert_eq!((0..100).filter(|_| pace.allows()).count(), 60);
    }
}
