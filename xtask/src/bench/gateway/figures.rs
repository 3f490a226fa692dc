//! What is measured at a proxy. Contenders take turns, so that whatever else the machine does meets all of them alike.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::race::Row;
use super::super::stand::read;
use super::super::stats::Sample;
use super::proxies::{BROKER, BROKER_PORT, DIRECT, Proxies, Proxy};
use super::worlds::Worlds;

const VERDICTS: u32 = 400;
const TUNNELS: u32 = 1_600;
const CALLS: u32 = 200;
const EVENTS: u32 = 200;
/// As far as descriptors reach: each takes two of its proxy.
const IDLE: u64 = 10_000;
const SPARE_DESCRIPTORS: u64 = 200;
/// In a hundredth of a second, which the kernel counts processor time in.
const MICROSECONDS: f64 = 10_000.0;
/// All streams together, per turn.
const BYTES: u64 = 1 << 30;

/// A contender's figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: f64,
}

#[derive(Debug)]
pub(super) struct Tunnels {
    pub(super) per_second: Vec<Figure>,
    /// Microseconds of processor time for each.
    pub(super) processor: Vec<Figure>,
}

/// One number of streams.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) streams: u32,
    /// GB/s, of everybody.
    pub(super) throughput: Vec<Figure>,
    /// Seconds of processor time per GB, of the proxies.
    pub(super) processor: Vec<Figure>,
}

#[derive(Debug)]
pub(super) struct Idle {
    pub(super) tunnels: u64,
    pub(super) kib: Vec<Figure>,
}

/// From CONNECT to the status line.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// Of a host that is not listed.
    pub(super) refused: Vec<Row>,
    /// Of a listed one, which is dialled meanwhile; and what the dial takes without a proxy.
    pub(super) opened: Vec<Row>,
}

pub(super) fn verdicts(worlds: &mut Worlds<'_>, proxies: &Proxies, rounds: u32) -> Result<Verdicts> {
    let count = proxies.each().count();
    let (mut refused, mut opened, mut dialled) =
        (vec![Vec::new(); count], vec![Vec::new(); count], Vec::new());
    let durations = |took: Vec<u64>| took.into_iter().map(Duration::from_nanos);
    for _ in 0..rounds {
        for ((proxy, refused), opened) in proxies.each().zip(&mut refused).zip(&mut opened) {
            refused.extend(durations(ask(worlds, proxy, &format!("refusals {} {VERDICTS}", proxy.port))?));
            opened.extend(durations(ask(worlds, proxy, &format!("verdicts {} {VERDICTS}", proxy.port))?));
        }
        dialled.extend(durations(worlds.ask(&format!("dials {VERDICTS}"))?));
    }
    let row = |(proxy, times): (&Proxy, _)| Some(Row { name: proxy.name, times: Sample::of(times)? });
    let rows = |times: Vec<_>| proxies.each().zip(times).map(row).collect::<Option<Vec<Row>>>();
    let direct = Sample::of(dialled).map(|times| Row { name: DIRECT, times });
    let opened = rows(opened).zip(direct).map(|(rows, direct)| rows.into_iter().chain([direct]).collect());
    let both = rows(refused).zip(opened).map(|(refused, opened)| Verdicts { refused, opened });
    both.context("a race of no rounds")
}

/// Tunnels opened, used and closed by clients at once.
pub(super) fn tunnels(worlds: &mut Worlds<'_>, proxies: &Proxies, rounds: u32) -> Result<Tunnels> {
    let count = proxies.each().count();
    let (mut seconds, mut ticks) = (vec![0.0; count], vec![0; count]);
    for _ in 0..rounds {
        for ((proxy, seconds), ticks) in proxies.each().zip(&mut seconds).zip(&mut ticks) {
            let before = proxy.ticks()?;
            *seconds += took(&ask(worlds, proxy, &format!("tunnels {} {TUNNELS}", proxy.port))?)?;
            *ticks += proxy.ticks()?.saturating_sub(before);
        }
    }
    let made = f64::from(TUNNELS) * f64::from(rounds);
    let per_second = named(proxies, seconds.into_iter().map(|seconds| made / seconds));
    let processor = named(proxies, ticks.into_iter().map(|ticks| as_float(ticks) * MICROSECONDS / made));
    Ok(Tunnels { per_second, processor })
}

pub(super) fn streams(worlds: &mut Worlds<'_>, proxies: &Proxies, rounds: u32) -> Result<Vec<Streams>> {
    [1, 64].into_iter().map(|streams| pour(worlds, proxies, rounds, streams)).collect()
}

fn pour(worlds: &mut Worlds<'_>, proxies: &Proxies, rounds: u32, streams: u32) -> Result<Streams> {
    let count = proxies.each().count();
    let (mut seconds, mut ticks, mut direct) = (vec![0.0; count], vec![0; count], 0.0);
    let each = BYTES / u64::from(streams);
    for _ in 0..rounds {
        for ((proxy, seconds), ticks) in proxies.each().zip(&mut seconds).zip(&mut ticks) {
            let before = proxy.ticks()?;
            *seconds += took(&ask(worlds, proxy, &format!("streams {} {streams} {each}", proxy.port))?)?;
            *ticks += proxy.ticks()?.saturating_sub(before);
        }
        direct += took(&worlds.ask(&format!("streams 0 {streams} {each}"))?)?;
    }
    let gigabytes = as_float(BYTES) / 1e9 * f64::from(rounds);
    let mut throughput = named(proxies, seconds.into_iter().map(|seconds| gigabytes / seconds));
    throughput.push(Figure { name: DIRECT, value: gigabytes / direct });
    let processor = named(proxies, ticks.into_iter().map(|ticks| as_float(ticks) / 100.0 / gigabytes));
    Ok(Streams { streams, throughput, processor })
}

/// KiB of a proxy's memory per idle tunnel, what it holds without any included.
pub(super) fn idle(worlds: &mut Worlds<'_>, proxies: &Proxies) -> Result<Idle> {
    let tunnels = IDLE.min((descriptors()? - SPARE_DESCRIPTORS) / 2);
    let mut kib = Vec::new();
    for proxy in proxies.each() {
        ask(worlds, proxy, &format!("hold {} {tunnels}", proxy.port))?;
        let value = as_float(proxy.resident_kib()?) / as_float(tunnels);
        worlds.ask("release")?;
        let held = worlds.let_go()?;
        ensure!(held == tunnels, "{} had only {held} tunnels", proxy.name);
        kib.push(Figure { name: proxy.name, value });
    }
    Ok(Idle { tunnels, kib })
}

/// How many descriptors a process may have; not even root may raise it everywhere.
fn descriptors() -> Result<u64> {
    let limits = read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok());
    hard.filter(|hard| *hard > SPARE_DESCRIPTORS).context("no limit of descriptors to go by")
}

/// What a model's client waits for, directly and through the broker.
#[derive(Debug)]
pub(super) struct Brokered {
    /// From a request to the first byte of its answer.
    pub(super) calls: Vec<Row>,
    /// From when an event left to when it was here.
    pub(super) events: Vec<Row>,
}

pub(super) fn brokered(worlds: &mut Worlds<'_>, rounds: u32) -> Result<Brokered> {
    let calls = in_turns(worlds, rounds, &format!("calls {{}} {CALLS}"))?;
    Ok(Brokered { calls, events: in_turns(worlds, rounds, &format!("events {{}} {EVENTS}"))? })
}

/// The same question to the model itself and to the broker.
fn in_turns(worlds: &mut Worlds<'_>, rounds: u32, question: &str) -> Result<Vec<Row>> {
    let mut contenders = [(DIRECT, 0, Vec::new()), (BROKER, BROKER_PORT, Vec::new())];
    for _ in 0..rounds {
        for (name, port, times) in &mut contenders {
            let took = worlds.ask(&question.replace("{}", &port.to_string())).with_context(|| *name)?;
            times.extend(took.into_iter().map(Duration::from_nanos));
        }
    }
    let row = |(name, _, times)| Some(Row { name, times: Sample::of(times)? });
    contenders.into_iter().map(row).collect::<Option<_>>().context("a race of no rounds")
}

fn ask(worlds: &mut Worlds<'_>, proxy: &Proxy, question: &str) -> Result<Vec<u64>> {
    worlds.ask(question).with_context(|| proxy.name)
}

fn took(answer: &[u64]) -> Result<f64> {
    let nanoseconds = answer.first().copied().context("no time came back")?;
    Ok(Duration::from_nanos(nanoseconds).as_secs_f64())
}

fn named(proxies: &Proxies, values: impl Iterator<Item = f64>) -> Vec<Figure> {
    proxies.each().zip(values).map(|(proxy, value)| Figure { name: proxy.name, value }).collect()
}

#[expect(clippy::cast_precision_loss, reason = "far less than a float can count")]
fn as_float(count: u64) -> f64 {
    count as f64
}
