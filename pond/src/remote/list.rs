//! `pond runs` of a server: pages of runs, newest first.

use std::process::ExitCode;

use pond_wire::api::{RunPage, RunSummary};

use super::{age, state_of_run};
use crate::client::fault::ClientFault;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::output;

/// Rows of one page, at most.
const PAGE: u32 = 100;

/// Which of them.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) project: Option<&'a str>,
    pub(crate) state: Option<&'a str>,
    pub(crate) limit: u32,
}

pub(crate) async fn list(server: &Server, wanted: &Wanted<'_>, json: bool) -> anyhow::Result<ExitCode> {
    let runs = fetched(server, wanted).await?;
    if json {
        return Ok(output::json(&runs));
    }
    if runs.is_empty() {
        return Ok(output::lines("no runs"));
    }
    let header = ["RUN", "AGE", "STATE", "PROJECT", ""];
    Ok(output::lines(&output::table(header, runs.iter().map(row))))
}

async fn fetched(server: &Server, wanted: &Wanted<'_>) -> Result<Vec<RunSummary>, ClientFault> {
    let mut runs: Vec<RunSummary> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let left = wanted.limit.saturating_sub(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        if left == 0 {
            return Ok(runs);
        }
        let target = Target::new(&["runs"])
            .maybe("project", wanted.project)
            .maybe("state", wanted.state)
            .maybe("cursor", cursor.as_deref())
            .with("limit", &left.min(PAGE).to_string());
        let page: RunPage = server.json(Call::get(target)).await?;
        runs.extend(page.runs);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(runs),
        }
    }
}

fn row(run: &RunSummary) -> [String; 5] {
    let note = match (&run.cancel, run.ended_at) {
        (Some(why), _) => why.clone(),
        (None, None) => format!("{} open", run.open_stages),
        (None, Some(_)) => String::new(),
    };
    [run.id.clone(), age(run.created_at), state_of_run(run.state).to_owned(), run.project.clone(), note]
}
