//! Figures for Prometheus, as text. docs/metrics.md lists their names; a test compares.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;

use super::route::Route;
use crate::store::Counts;

#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Both come from us: their number is bounded.
    served: Mutex<BTreeMap<(Route, u16), u64>>,
    unwritten: AtomicU64,
}

/// Name, type and meaning of every figure.
pub(crate) const FIGURES: [(&str, &str, &str); 5] = [
    ("pond_requests_total", "counter", "Calls answered, by route and status."),
    (
        "pond_refusals_unwritten_total",
        "counter",
        "Refused calls that the audit log has no entry for: too many at once.",
    ),
    ("pond_jobs", "gauge", "Jobs that wait or are worked on, by state."),
    ("pond_needs_unmet", "gauge", "Kinds of work that wait and that no active worker may take."),
    ("pond_workers", "gauge", "Workers, by state."),
];

impl Metrics {
    pub(super) fn served(&self, route: Route, status: StatusCode) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        *served.entry((route, status.as_u16())).or_default() += 1;
    }

    pub(super) fn unwritten(&self) {
        self.unwritten.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn render(&self, counts: &Counts, unmet: usize) -> String {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let labelled = |((route, status), count): (&(Route, u16), &u64)| {
            (
                format!(
                    "{{method=\"{}\",path=\"{}\",status=\"{status}\"}}",
                    route.method_name(),
                    route.path()
                ),
                *count,
            )
        };
        let by_state = |map: &BTreeMap<String, u64>| {
            map.iter().map(|(state, count)| (format!("{{state=\"{state}\"}}"), *count)).collect::<Vec<_>>()
        };
        let plain = |count: u64| vec![(String::new(), count)];
        let values = [
            served.iter().map(labelled).collect(),
            plain(self.unwritten.load(Ordering::Relaxed)),
            by_state(&counts.jobs),
            plain(u64::try_from(unmet).unwrap_or(u64::MAX)),
            by_state(&counts.workers),
        ];
        let mut text = String::new();
        for ((name, kind, help), values) in FIGURES.iter().zip(values) {
            text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in values {
                text += &format!("{name}{labels} {value}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_as_prometheus_reads_them() {
        let metrics = Metrics::default();
        metrics.served(Route::Runs, StatusCode::OK);
        metrics.served(Route::Runs, StatusCode::OK);
        metrics.unwritten();
        let counts = Counts { jobs: [("queued".to_owned(), 7)].into(), workers: BTreeMap::new() };
        let text = metrics.render(&counts, 1);
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "pond_requests_total{method=\"GET\",path=\"/v1/runs\",status=\"200\"} 2",
                "pond_refusals_unwritten_total 1",
                "pond_jobs{state=\"queued\"} 7",
                "pond_needs_unmet 1",
            ]
        );
    }

    #[test]
    fn the_document_lists_every_figure() {
        let document = include_str!("../../../../docs/metrics.md");
        for (name, kind, help) in FIGURES {
            let row = format!("| `{name}` | {kind} | {help} |");
            assert!(document.contains(&row), "docs/metrics.md lacks: {row}");
        }
    }
}
