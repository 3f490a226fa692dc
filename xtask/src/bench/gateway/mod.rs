//! `cargo xtask bench gateway`: the gateway measured beside other proxies, and `pond run` with it beside another sandbox.
//! Everything happens in two network namespaces made for it; nothing here judges a time, and a tunnel that fails is an error.

mod figures;
mod first_byte;
mod page;
mod proxies;
#[path = "../../../../benches/gateway/world.rs"]
mod world;
mod worlds;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::stand::{self, Stand};
use super::{Only, chart, report, write};
use page::Page;
use proxies::Proxies;
use worlds::Worlds;

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// How many turns each contender gets
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    only: Only<What>,
    /// Where the table and the chart are written
    #[arg(long, value_name = "DIR", default_value = "docs/bench")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// From CONNECT to the status line
    Verdict,
    /// Tunnels opened, used and closed per second
    Tunnels,
    /// Throughput and processor time, on 1 and on 64 streams
    Streams,
    /// Memory of 10,000 idle tunnels
    Idle,
    /// A model's answers and events, directly and through the broker
    Broker,
    /// `pond run` of curl to its first byte
    FirstByte,
}

impl GatewayArgs {
    /// The command that repeats this.
    fn command(&self) -> String {
        let command = format!("cargo xtask bench gateway --rounds {}", self.rounds);
        self.only.repeat(command)
    }
}

pub(super) fn run(root: &Path, args: &GatewayArgs) -> Result<()> {
    let stand = Stand::set_up(root, "gateway", &stand::FOR_GATEWAY)?;
    stand.add("pond", "gateway")?;
    let facts = report::Facts::of(&stand, args.command())?;
    let mut worlds = Worlds::make(&stand)?;
    let proxies = Proxies::start(&mut worlds)?;
    let measure = |what: What| args.only.asks_for(&what);
    let verdicts =
        measure(What::Verdict).map(|()| figures::verdicts(&mut worlds, &proxies, args.rounds)).transpose()?;
    let tunnels =
        measure(What::Tunnels).map(|()| figures::tunnels(&mut worlds, &proxies, args.rounds)).transpose()?;
    let streams =
        measure(What::Streams).map(|()| figures::streams(&mut worlds, &proxies, args.rounds)).transpose()?;
    let idle = measure(What::Idle).map(|()| figures::idle(&mut worlds, &proxies)).transpose()?;
    let brokered = measure(What::Broker).map(|()| figures::brokered(&mut worlds, args.rounds)).transpose()?;
    // The proxies end here: whatever they hold is nothing to what comes next.
    drop(proxies);
    let first_byte =
        measure(What::FirstByte).map(|()| first_byte::measure(&worlds, args.rounds)).transpose()?;
    let page = Page { facts, verdicts, tunnels, streams, idle, brokered, first_byte };
    let text = page.markdown();
    println!("\n{text}");
    write(&root.join(&args.out), "gateway.md", &text)?;
    let rows = page.timed();
    if rows.is_empty() {
        return Ok(());
    }
    write(&root.join(&args.out), "gateway.svg", &chart::svg("Verdicts and first bytes", &rows))
}
