//! Order statistics of measured times.

use std::time::Duration;

/// At least one time, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample(Vec<Duration>);

impl Sample {
    /// Nothing from no times.
    pub(super) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        (!times.is_empty()).then_some(Self(times))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn min(&self) -> Duration {
        self.quantile(0)
    }

    pub(super) fn median(&self) -> Duration {
        self.quantile(50)
    }

    /// The smallest time that at least so many percent of all do not exceed.
    pub(super) fn quantile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).or(self.0.last()).copied().unwrap_or_default()
    }
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// How many times as long as `other`, by the medians.
pub(super) fn ratio(sample: &Sample, other: &Sample) -> f64 {
    sample.median().as_secs_f64() / other.median().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(milliseconds: &[u64]) -> Sample {
        Sample::of(milliseconds.iter().copied().map(Duration::from_millis).collect()).unwrap()
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let shown =
            |sample: &Sample| [0, 50, 95, 99, 100].map(|percent| sample.quantile(percent).as_millis());
        assert_eq!(shown(&sample(&hundred)), [1, 50, 95, 99, 100]);
        assert_eq!(shown(&sample(&[7, 3])), [3, 3, 7, 7, 7]);
        assert_eq!(shown(&sample(&[5])), [5; 5]);
        assert_eq!(Sample::of(Vec::new()), None);
    }

    #[test]
    fn a_ratio_compares_medians() {
        assert_eq!(ratio(&sample(&[9, 10, 99]), &sample(&[1, 4, 5])), 2.5);
    }
}
