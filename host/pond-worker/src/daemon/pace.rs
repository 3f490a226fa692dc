//! How long to wait before the next try: longer each time, and never the same for two workers that fail together.

use std::time::Duration;

use pond_seal::fresh;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Pace(Duration);

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
    fn waits_grow_to_a_bound() {
        let mut pace = Pace::default();
        let waits: Vec<Duration> = (0..12).map(|_| pace.next()).collect();
        for (at, wait) in waits.iter().enumerate() {
            let whole = (FIRST * 2u32.pow(u32::try_from(at).unwrap())).min(LONGEST);
            assert!((whole / 2..=whole).contains(wait), "{at}: {wait:?}");
        }
    }
}
