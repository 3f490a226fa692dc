//! `pond egress`: hosts that the operator allows a project, beside those of each stage. For a job that runs on this machine there
//! are `pond allow` and `pond deny`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use pond_wire::api::EgressRules;

use crate::client::body::Content;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum Egress {
    /// Let the jobs of a project reach hosts.
    Allow(Hosts),
    /// Take hosts off a project's list again.
    Deny(Hosts),
    /// The hosts a project's jobs may reach beside those of their stages.
    Ls {
        /// The project.
        #[arg(long, value_name = "P")]
        project: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Hosts {
    /// Hosts: a name, or *.name for the names below it, with :PORT for another than 443.
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
    /// The project.
    #[arg(long, value_name = "P")]
    project: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn main(command: &Egress) -> ExitCode {
    match command {
        Egress::Allow(hosts) => change(hosts, Method::PUT),
        Egress::Deny(hosts) => change(hosts, Method::DELETE),
        Egress::Ls { project, json, server } => {
            client::ask(server, *json, async |server| ls(server, project, *json).await)
        }
    }
}

fn change(wanted: &Hosts, method: Method) -> ExitCode {
    client::ask(&wanted.server, wanted.json, async |server| {
        for host in &wanted.hosts {
            let target = Target::new(&["projects", &wanted.project, "egress", host]);
            server.done(Call::new(method.clone(), target, Content::Nothing)).await?;
        }
        ls(server, &wanted.project, wanted.json).await
    })
}

async fn ls(server: &Server, project: &str, json: bool) -> anyhow::Result<ExitCode> {
    let rules: EgressRules = server.json(Call::get(Target::new(&["projects", project, "egress"]))).await?;
    if json {
        return Ok(output::json(&rules));
    }
    if rules.rules.is_empty() {
        return Ok(output::lines(&output::plain(&format!("project {project} has no hosts of its own"))));
    }
    let rows = rules.rules.into_iter().map(|rule| [rule]);
    Ok(output::lines(&output::table(["HOST"], rows)))
}
