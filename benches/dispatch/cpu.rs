//! Processor time, as the kernel counts it: of this process, of those it started and saw end, and of a Postgres.

use std::time::Duration;

use crate::server::Server;

/// What was used up until a moment.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) own: Duration,
    pub(crate) children: Duration,
    pub(crate) database: Duration,
}

/// The kernel counts in hundredths of a second, whatever its clock.
const TICK: Duration = Duration::from_millis(10);

impl Cpu {
    pub(crate) fn now(server: &Server) -> Self {
        let leader = server.process.as_ref().unwrap().id();
        let others = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid = entry.unwrap().file_name().to_str()?.parse::<u32>().ok()?;
            let stat = Stat::of(pid)?;
            // What ended is in the account of the first process, which waits for all.
            let ended = if pid == leader { stat.children } else { Duration::ZERO };
            (pid == leader || stat.parent == leader).then_some(stat.own + ended)
        });
        let database = others.sum();
        let this = Stat::of(std::process::id()).unwrap();
        Self { own: this.own, children: this.children, database }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            own: self.own - before.own,
            children: self.children - before.children,
            database: self.database - before.database,
        }
    }
}

struct Stat {
    parent: u32,
    own: Duration,
    children: Duration,
}

impl Stat {
    /// Nothing for a process that has ended.
    fn of(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // A name may hold anything, also blanks and brackets.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
        let time = |at: usize| Some(TICK * (number(at)? + number(at + 1)?));
        Some(Self { parent: number(1)?, own: time(11)?, children: time(13)? })
    }
}
