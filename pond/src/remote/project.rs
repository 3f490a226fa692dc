//! `pond project`: the tenants of a control plane. A run belongs to one, and none is made by submitting to it.

use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use pond_wire::api::{ProjectView, Projects};

use super::{moment, named};
use crate::client::body::Content;
use crate::client::server::Call;
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum Project {
    /// Make a project. One that is there already stays as it is.
    Create {
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// The projects there are.
    Ls {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}

pub(crate) fn main(command: &Project) -> ExitCode {
    match command {
        Project::Create { name, json, server } => client::ask(server, *json, async |server| {
            named(name, "NAME")?;
            let target = Target::new(&["projects", name]);
            server.done(Call::new(Method::PUT, target, Content::Nothing)).await?;
            if *json {
                return Ok(output::json(&serde_json::json!({ "project": name })));
            }
            Ok(output::lines(&output::plain(&format!("project {name} is there"))))
        }),
        Project::Ls { json, server } => client::ask(server, *json, async |server| {
            let Projects { projects } = server.json(Call::get(Target::new(&["projects"]))).await?;
            if *json {
                return Ok(output::json(&projects));
            }
            if projects.is_empty() {
                return Ok(output::lines("no projects: make one with `pond project create NAME`"));
            }
            let row = |project: &ProjectView| [project.name.clone(), moment(project.created_at)];
            Ok(output::lines(&output::table(["PROJECT", "MADE (UTC)"], projects.iter().map(row))))
        }),
    }
}
