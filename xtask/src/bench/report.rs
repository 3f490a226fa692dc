//! The findings as one Markdown page: what was measured, where, when and with which command.

use anyhow::Result;

use super::backends::residue::Residue;
use super::census::Thing;
use super::crowd::Crowd;
use super::growth::Growth;
use super::idle::Idle;
use super::race::Row;
use super::stand::{Stand, read};
use super::stats::{Sample, milliseconds, ratio};
use super::{peers, tree};

#[derive(Debug)]
pub(super) struct Findings {
    pub(super) facts: Facts,
    pub(super) launch: Option<Vec<Row>>,
    pub(super) tree: Option<Vec<Row>>,
    pub(super) idle: Option<Idle>,
    pub(super) crowd: Option<Crowd>,
    pub(super) growth: Option<Vec<Growth>>,
}

/// The circumstances.
#[derive(Debug)]
pub(super) struct Facts {
    command: String,
    date: String,
    kernel: String,
    processor: String,
    load: String,
}

impl Facts {
    pub(super) fn of(stand: &Stand, command: String) -> Result<Self> {
        let line = |words: &[&str]| Ok::<_, anyhow::Error>(stand.capture(words)?.trim().to_owned());
        let processors = read("/proc/cpuinfo")?;
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg")?;
        Ok(Self {
            command,
            date: line(&["date", "--utc", "+%Y-%m-%d %H:%M UTC"])?,
            kernel: line(&["uname", "--kernel-release"])?,
            processor: format!("{} × {}", line(&["nproc"])?, model.map_or("unknown", |(_, name)| name)),
            load: load.split_ascii_whitespace().next().unwrap_or("unknown").to_owned(),
        })
    }
}

impl Findings {
    /// Whether what must be zero is zero.
    pub(super) fn hold(&self) -> bool {
        let crowd = self.crowd.as_ref().is_none_or(|crowd| crowd.failures == 0);
        crowd && self.growth.iter().flatten().all(Growth::is_none)
    }

    pub(super) fn markdown(&self) -> String {
        let sections = [
            Some(self.facts.markdown("The native sandbox, measured")),
            self.launch.as_deref().map(launch),
            self.tree.as_deref().map(stage),
            self.idle.as_ref().map(idle),
            self.crowd.as_ref().map(crowd),
            self.growth.as_deref().map(growth),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
impl Facts {
    pub(super) fn example() -> Self {
        let text = || "x".to_owned();
        Self { command: text(), date: text(), kernel: text(), processor: text(), load: text() }
    }
}

impl Facts {
    /// The head of a page with this title.
    pub(super) fn markdown(&self, title: &str) -> String {
        format!(
            "# {title}\n\n```sh\n{}\n```\n\n{} · Linux {} · {} · load {} at the start. \
             The figures compare contenders of one run on one machine; they say nothing across machines.\n",
            self.command, self.date, self.kernel, self.processor, self.load
        )
    }
}

pub(super) fn find<'a>(rows: &'a [Row], name: &str) -> Option<&'a Sample> {
    rows.iter().find(|row| row.name == name).map(|row| &row.times)
}

/// The time columns of a row.
pub(super) fn cells(row: &Row) -> String {
    let [p50, p95, p99] = [50, 95, 99].map(|percent| milliseconds(row.times.quantile(percent)));
    format!(
        "| {} | {} | {:.2} | {p50:.2} | {p95:.2} | {p99:.2} |",
        row.name,
        row.times.count(),
        milliseconds(row.times.min())
    )
}

fn launch(rows: &[Row]) -> String {
    let against = [peers::BUBBLEWRAP, peers::RUNC, peers::DOCKER].map(|name| find(rows, name));
    let mut text = "## Launch to exit of `true`\n\n![p50 and p95 of each contender](native.svg)\n\n\
        Times in milliseconds; the last three columns are p50 over the p50 of that contender. pond runs its whole \
        policy (control groups, overlay on a capped disk, Landlock, seccomp, collection in `pond run`), without a network \
        like its peers (`untrusted-code-test` running `echo`), except where a gateway is named; bubblewrap has the \
        same namespaces and none of that, crun and runc also limits, docker also its filter.\n\n\
        There are two ways to launch, and both are held to the same goals. `pond run` starts everything anew, and its time \
        also has the reading of the settings, the collection of the result, its signature and its record in it. A resident \
        launcher is started once and asked again and again: its time is from the request to the verdict, when everything \
        inside is dead and its control groups are gone (and with \"disk released\" also its disk and its mounts). Between requests it makes \
        ready what the next job gets whatever it is, for one job and never for two; that costs a launch nothing only \
        where there is a pause between two, as there is between all contenders here (20 ms).\n\n\
        | contender | n | min | p50 | p95 | p99 | ÷ bubblewrap | ÷ runc | ÷ docker |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for row in rows {
        let ratios = against
            .map(|other| other.map_or("–".to_owned(), |other| format!("{:.3}", ratio(&row.times, other))));
        text.push_str(&format!("{} {} |\n", cells(row), ratios.join(" | ")));
    }
    text + "\n" + &goals(&launch_goals(rows))
}

/// A figure, its bound and whether it is within.
pub(super) type Goal = (String, f64, f64);

fn launch_goals(rows: &[Row]) -> Vec<Goal> {
    let bounds = [
        (peers::POND, peers::BUBBLEWRAP, 1.0),
        (peers::POND_RESIDENT, peers::BUBBLEWRAP, 1.0),
        (peers::POND_USER, peers::BUBBLEWRAP_USER, 1.0),
        (peers::POND_RESIDENT_USER, peers::BUBBLEWRAP_USER, 1.0),
        (peers::POND, peers::RUNC, 1.0 / 8.0),
        (peers::POND_RESIDENT, peers::RUNC, 1.0 / 8.0),
        (peers::POND, peers::DOCKER, 1.0 / 50.0),
        (peers::POND_RESIDENT, peers::DOCKER, 1.0 / 50.0),
    ];
    let goal = |(ours, theirs, bound)| {
        Some((format!("{ours} ÷ {theirs}"), ratio(find(rows, ours)?, find(rows, theirs)?), bound))
    };
    bounds.into_iter().filter_map(goal).collect()
}

pub(super) fn goals(goals: &[Goal]) -> String {
    let row = |(what, figure, bound): &Goal| {
        let verdict = if figure <= bound { "reached" } else { "not reached" };
        format!("| {what} | {figure:.3} | {bound:.3} | {verdict} |\n")
    };
    format!(
        "| goal | measured | at most | |\n|---|--:|--:|---|\n{}",
        goals.iter().map(row).collect::<String>()
    )
}

fn stage(rows: &[Row]) -> String {
    let mut text = "## Stage and collect\n\nA tree of 50,000 files of 4 KiB in 500 directories; milliseconds. `pond run` makes the \
        throwaway copy, runs the command, collects what changed and takes everything away again; `cp -a` only copies.\n\n\
        | what | n | min | p50 | p95 | p99 |\n|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for row in rows {
        text.push_str(&cells(row));
        text.push('\n');
    }
    let flat = find(rows, tree::LARGE).zip(find(rows, tree::EMPTY));
    let goal =
        flat.map(|(large, empty)| (format!("{} ÷ {}", tree::LARGE, tree::EMPTY), ratio(large, empty), 2.0));
    text + "\n" + &goals(&goal.into_iter().collect::<Vec<_>>())
}

fn idle(idle: &Idle) -> String {
    let each = |kib: i64| format!("{:.1}", kib_each(kib, idle.sandboxes));
    let rows: String =
        idle.parts.iter().map(|(name, kib)| format!("| {name} | {} |\n", each(*kib))).collect();
    format!(
        "## {} idle sandboxes\n\nFrom one resident launcher, each with an init and a sleeping command; the command's own memory \
         is counted too.\n\n| part | KiB each |\n|---|--:|\n{rows}| together | {} |\n\n{}",
        idle.sandboxes,
        each(idle.total()),
        goals(&[("KiB per idle sandbox".to_owned(), kib_each(idle.total(), idle.sandboxes), 1024.0)])
    )
}

/// What was counted before the first launch and after the last.
pub(super) fn left_behind(before: &Residue, after: &Residue) -> String {
    let row = |((name, before), (_, after)): (&(&str, usize), &(&str, usize))| {
        format!("| {name} | {before} | {after} |\n")
    };
    format!(
        "## What is left\n\n| thing | before | after |\n|---|--:|--:|\n{}",
        before.iter().zip(after).map(row).collect::<String>()
    )
}

#[expect(clippy::cast_precision_loss, reason = "far fewer KiB than a float can count")]
pub(super) fn kib_each(kib: i64, sandboxes: u32) -> f64 {
    kib as f64 / f64::from(sandboxes)
}

fn crowd(crowd: &Crowd) -> String {
    format!(
        "## {} launches at once\n\n{} failed; all were over after {:.1} s.\n",
        crowd.launches,
        crowd.failures,
        crowd.took.as_secs_f64()
    )
}

fn growth(ways: &[Growth]) -> String {
    let mut text = "## What launches leave behind\n".to_owned();
    for growth in ways {
        text.push_str(&format!(
            "\n{} launches in sequence, {}:\n\n| thing | before | after | growth |\n|---|--:|--:|--:|\n",
            growth.launches, growth.way
        ));
        for thing in Thing::ALL {
            let at = |census: &super::census::Census| census.get(&thing).copied().unwrap_or(0);
            let (before, after) = (at(&growth.before), at(&growth.after));
            text.push_str(&format!("| {} | {before} | {after} | {} |\n", thing.name(), growth.of(thing)));
        }
    }
    text + "\nThe last three rows are the kernel's own, whole-machine figures and move by themselves.\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(name: &'static str, milliseconds: u64) -> Row {
        Row { name, times: Sample::of(vec![Duration::from_millis(milliseconds)]).unwrap() }
    }

    fn findings(failures: usize) -> Findings {
        let crowd = Crowd { launches: 200, failures, took: Duration::from_secs(3) };
        Findings {
            facts: Facts::example(),
            launch: None,
            tree: None,
            idle: None,
            crowd: Some(crowd),
            growth: None,
        }
    }

    #[test]
    fn a_row_shows_its_times_and_its_ratios() {
        let table = launch(&[row(peers::POND, 4), row(peers::BUBBLEWRAP, 8), row(peers::RUNC, 40)]);
        assert!(
            table.contains("| pond run | 1 | 4.00 | 4.00 | 4.00 | 4.00 | 0.500 | 0.100 | – |\n"),
            "{table}"
        );
        assert!(table.contains("| pond run ÷ bubblewrap | 0.500 | 1.000 | reached |\n"), "{table}");
        assert!(table.contains("| pond run ÷ runc | 0.100 | 0.125 | reached |\n"), "{table}");
        assert!(!table.contains("÷ docker run"), "no goal without its contender: {table}");
    }

    #[test]
    fn a_failed_launch_fails_the_bench() {
        assert!(findings(0).hold() && !findings(1).hold());
        assert!(
            findings(1)
                .markdown()
                .ends_with("## 200 launches at once\n\n1 failed; all were over after 3.0 s.\n")
        );
    }
}
