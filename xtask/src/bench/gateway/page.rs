//! The findings as one Markdown page.

use super::super::race::Row;
use super::super::report::{Facts, Goal, cells, find, goals};
use super::super::stats::{milliseconds, ratio};
use super::figures::{Brokered, Figure, Idle, Streams, Tunnels, Verdicts};
use super::first_byte;
use super::proxies::{BROKER, DIRECT, POND};

#[derive(Debug)]
pub(super) struct Page {
    pub(super) facts: Facts,
    pub(super) verdicts: Option<Verdicts>,
    pub(super) tunnels: Option<Tunnels>,
    pub(super) streams: Option<Vec<Streams>>,
    pub(super) idle: Option<Idle>,
    pub(super) brokered: Option<Brokered>,
    pub(super) first_byte: Option<Vec<Row>>,
}

const TIMES: &str = "| contender | n | min | p50 | p95 | p99 |\n|---|--:|--:|--:|--:|--:|\n";

/// Which of two figures is ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Smaller,
    Larger,
}

/// A line of the table of figures.
struct Line<'a> {
    what: String,
    better: Better,
    figures: &'a [Figure],
}

impl Page {
    pub(super) fn markdown(&self) -> String {
        let lines = self.lines();
        let sections = [
            Some(self.facts.markdown("The gateway, measured")),
            self.verdicts.as_ref().map(verdicts),
            (!lines.is_empty()).then(|| table(&lines)),
            self.brokered.as_ref().map(brokered),
            self.first_byte.as_deref().map(first_bytes),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// Everything that is a time, for the chart.
    pub(super) fn timed(&self) -> Vec<Row> {
        let verdicts = self.verdicts.iter().flat_map(|verdicts| &verdicts.opened);
        verdicts.chain(self.first_byte.iter().flatten()).cloned().collect()
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let line = |what: String, better, figures| Line { what, better, figures };
        let tunnels = self.tunnels.iter().flat_map(|tunnels| {
            [
                line("new tunnels per second".to_owned(), Better::Larger, &tunnels.per_second),
                line("processor µs per tunnel".to_owned(), Better::Smaller, &tunnels.processor),
            ]
        });
        let streams = self.streams.iter().flatten().flat_map(|streams| {
            let label = |what: &str| format!("{what}, {}", plural(streams.streams));
            [
                line(label("GB/s"), Better::Larger, &streams.throughput),
                line(label("processor seconds per GB"), Better::Smaller, &streams.processor),
            ]
        });
        let idle = self
            .idle
            .iter()
            .map(|idle| line(format!("KiB per idle tunnel of {}", idle.tunnels), Better::Smaller, &idle.kib));
        tunnels.chain(streams).chain(idle).collect()
    }
}

fn plural(streams: u32) -> String {
    if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") }
}

fn verdicts(found: &Verdicts) -> String {
    let table = |rows: &[Row]| rows.iter().map(fine).collect::<String>();
    format!(
        "## From CONNECT to the status line\n\n![p50 and p95 of each contender](gateway.svg)\n\n\
         Milliseconds, one connection after the other, each made before the clock starts: from the first byte of the request to \
         the last of the answer's head.\n\nOf a host that is not listed, which nobody looks up or dials:\n\n{TIMES}{}\n\
         Of a listed host. Its address is known (pond's cache, `/etc/hosts` for the others), and it is dialled before the \
         answer: {DIRECT} is that dial alone, without a proxy. pond also has the tunnel's record in its journal by then; the \
         others keep none here.\n\n{TIMES}{}\nThe goal of 0.1 ms is about the verdict. A refusal is nothing else, so the first table has \
         it whole; an opened tunnel also waits for a connection that every proxy has to make, so of the second it is what is \
         left without the dial. The strictest reading, with the dial, stands below them.\n\n{}",
        table(&found.refused),
        table(&found.opened),
        goals(&verdict_goals(found))
    )
}

/// The time columns of a row, to the microsecond.
fn fine(row: &Row) -> String {
    let [min, p50, p95, p99] = [0, 50, 95, 99].map(|percent| milliseconds(row.times.quantile(percent)));
    format!("| {} | {} | {min:.3} | {p50:.3} | {p95:.3} | {p99:.3} |\n", row.name, row.times.count())
}

fn brokered(found: &Brokered) -> String {
    let table = |rows: &[Row]| rows.iter().map(fine).collect::<String>();
    let over = |what: &str, rows: &[Row], bound: f64| {
        let (ours, theirs) = find(rows, BROKER).zip(find(rows, DIRECT))?;
        Some((
            format!("{what}, p50 over direct, ms"),
            milliseconds(ours.median()) - milliseconds(theirs.median()),
            bound,
        ))
    };
    let first = over("first byte", &found.calls, 0.3);
    format!(
        "## A model, through the broker\n\nMilliseconds, on connections that are open already; direct is TLS to the model, the \
         broker is plain HTTP to it and TLS to the model.\n\nFrom a request to the first byte of its answer:\n\n{TIMES}{}\n\
         From when an event of a stream left to when it was here:\n\n{TIMES}{}\n{}",
        table(&found.calls),
        table(&found.events),
        goals(&first.into_iter().collect::<Vec<_>>())
    )
}

fn verdict_goals(found: &Verdicts) -> Vec<Goal> {
    let dial = find(&found.opened, DIRECT).map_or(0.0, |dial| milliseconds(dial.median()));
    let of = |what: &str, rows: &[Row]| {
        let Some(ours) = find(rows, POND) else { return Vec::new() };
        let at = |percent| milliseconds(ours.quantile(percent));
        let others = rows.iter().filter(|row| ![POND, DIRECT].contains(&row.name));
        let against = others.flat_map(|row| {
            [50, 95, 99].map(|percent| {
                let ratio = at(percent) / milliseconds(row.times.quantile(percent));
                (format!("{what}, p{percent}: {POND} ÷ {}", row.name), ratio, 1.0)
            })
        });
        let own = [(format!("{what}, p50 in ms"), at(50), 0.1), (format!("{what}, p99 in ms"), at(99), 1.0)];
        own.into_iter().chain(against).collect()
    };
    let ours = find(&found.opened, POND).map(|ours| milliseconds(ours.median()) - dial);
    let undialled = ours.map(|ours| ("listed, p50 in ms without the dial".to_owned(), ours, 0.1));
    of("not listed", &found.refused).into_iter().chain(undialled).chain(of("listed", &found.opened)).collect()
}

fn table(lines: &[Line<'_>]) -> String {
    // Whoever has every line has the most figures.
    let names: Vec<&str> = lines
        .iter()
        .map(|line| line.figures)
        .max_by_key(|figures| figures.len())
        .map_or_else(Vec::new, |figures| figures.iter().map(|figure| figure.name).collect());
    let mut text = format!(
        "## Tunnels, bytes and memory\n\nAll with the same list of allowed hosts. Streams go from the far host to the client; \
         processor time is the proxy's own, with pond's keeper of records; memory is what the proxy's processes hold \
         divided by the tunnels, without the kernel's part.\n\n| | {} |\n|---|{}\n",
        names.join(" | "),
        "--:|".repeat(names.len())
    );
    for line in lines {
        let cell = |name: &&str| {
            let found = line.figures.iter().find(|figure| figure.name == *name);
            found.map_or("–".to_owned(), |figure| shown(figure.value))
        };
        let cells: Vec<String> = names.iter().map(cell).collect();
        text.push_str(&format!("| {} | {} |\n", line.what, cells.join(" | ")));
    }
    text + "\n" + &goals(&lines.iter().flat_map(Line::goals).collect::<Vec<_>>())
}

fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

impl Line<'_> {
    /// Ahead of every other proxy.
    fn goals(&self) -> Vec<Goal> {
        let Some(ours) = self.figures.iter().find(|figure| figure.name == POND) else { return Vec::new() };
        let others = self.figures.iter().filter(|figure| ![POND, DIRECT].contains(&figure.name));
        let goal = |theirs: &Figure| match self.better {
            Better::Smaller => {
                (format!("{}: {POND} ÷ {}", self.what, theirs.name), ours.value / theirs.value, 1.0)
            }
            Better::Larger => {
                (format!("{}: {} ÷ {POND}", self.what, theirs.name), theirs.value / ours.value, 1.0)
            }
        };
        others.map(goal).collect()
    }
}

fn first_bytes(rows: &[Row]) -> String {
    let mut text = "## `curl` of an allowed host, to its first byte\n\nFrom the launch of the whole command, in milliseconds. \
        `pond run` starts its gateway, makes the sandbox and resolves the name anew each time.\n\n"
        .to_owned()
        + TIMES;
    for row in rows {
        text.push_str(&cells(row));
        text.push('\n');
    }
    let pair = find(rows, first_byte::POND).zip(find(rows, first_byte::SANDBOX_RUNTIME));
    let goal = pair.map(|(ours, theirs)| {
        (format!("{} ÷ {}", first_byte::POND, first_byte::SANDBOX_RUNTIME), ratio(ours, theirs), 0.1)
    });
    text + "\n" + &goals(&goal.into_iter().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ahead_means_smaller_or_larger_as_the_line_says_and_no_proxy_is_no_rival() {
        let figure = |name, value| Figure { name, value };
        let figures = [figure(POND, 4.0), figure("squid", 2.0), figure(DIRECT, 8.0)];
        let goals = |better| Line { what: "x".to_owned(), better, figures: &figures }.goals();
        assert_eq!(goals(Better::Larger), [("x: squid ÷ pond".to_owned(), 0.5, 1.0)]);
        assert_eq!(goals(Better::Smaller), [("x: pond ÷ squid".to_owned(), 2.0, 1.0)]);
    }

    #[test]
    fn a_contender_without_a_figure_has_a_dash() {
        let figure = |name, value| Figure { name, value };
        let both = [figure(POND, 1.0), figure(DIRECT, 250.0)];
        let line = |what: &str, figures| Line { what: what.to_owned(), better: Better::Larger, figures };
        let text = table(&[line("a", &both[..1]), line("b", &both)]);
        assert!(text.contains("| a | 1.00 | – |\n| b | 1.00 | 250 |\n"), "{text}");
    }
}
