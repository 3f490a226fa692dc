//! `pond secret`: credentials of the control plane. They go in and never come out; what is listed is their names.

use std::process::ExitCode;

use clap::Subcommand;
use http::Method;
use pond_wire::api::{CredentialView, Credentials, Hidden, Rotated, SetCredential};

use super::import::{self, ImportArgs};
use super::{age, named, typed};
use crate::client::body::Content;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::client::{self, ServerArgs};
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum Secret {
    /// Store a secret, in place of one that has the name. Its value is read from standard input, or typed without echo.
    Set {
        /// What run documents and models call it.
        name: String,
        /// Only for this project; without it, for every project that has none of this name.
        #[arg(long, value_name = "P")]
        project: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    Import(ImportArgs),
    /// The names of secrets. Values are never shown.
    Ls {
        /// Those of this project, and those for every project; without it all there are.
        #[arg(long, value_name = "P")]
        project: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Remove a secret.
    Rm {
        name: String,
        /// The project's own, not everybody's.
        #[arg(long, value_name = "P")]
        project: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Make a new key for the vault and put every secret under it.
    Rotate {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}

pub(crate) fn main(command: &Secret) -> ExitCode {
    match command {
        Secret::Set { name, project, json, server } => {
            client::ask(server, *json, async |server| set(server, name, project.as_deref(), *json).await)
        }
        Secret::Import(args) => import::main(args),
        Secret::Ls { project, json, server } => {
            client::ask(server, *json, async |server| ls(server, project.as_deref(), *json).await)
        }
        Secret::Rm { name, project, json, server } => client::ask(server, *json, async |server| {
            named(name, "NAME")?;
            let target = Target::new(&["credentials", name]).maybe("project", project.as_deref());
            server.done(Call::new(Method::DELETE, target, Content::Nothing)).await?;
            Ok(said(name, project.as_deref(), "removed", *json))
        }),
        Secret::Rotate { json, server } => {
            client::ask(server, *json, async |server| rotate(server, *json).await)
        }
    }
}

async fn set(server: &Server, name: &str, project: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    named(name, "NAME")?;
    let value = typed::secret(&format!("value of {}", output::plain(name)))?;
    server.done(put(name, project, &value)?).await?;
    Ok(said(name, project, "stored", json))
}

/// The one call that takes a value; none gives one back.
pub(super) fn put(name: &str, project: Option<&str>, value: &str) -> anyhow::Result<Call> {
    let body = Content::json(&SetCredential { value: Hidden::new(value.to_owned()) })?;
    let target = Target::new(&["credentials", name]).maybe("project", project);
    Ok(Call::new(Method::PUT, target, body))
}

fn said(name: &str, project: Option<&str>, what: &str, json: bool) -> ExitCode {
    if json {
        return output::json(&serde_json::json!({ "name": name, "project": project, "done": what }));
    }
    output::lines(&sentence(name, project, what))
}

pub(super) fn sentence(name: &str, project: Option<&str>, what: &str) -> String {
    let whose =
        project.map_or_else(|| "for every project".to_owned(), |project| format!("for project {project}"));
    output::plain(&format!("{name} is {what} {whose}"))
}

async fn ls(server: &Server, project: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let target = Target::new(&["credentials"]).maybe("project", project);
    let Credentials { credentials } = server.json(Call::get(target)).await?;
    if json {
        return Ok(output::json(&credentials));
    }
    if credentials.is_empty() {
        return Ok(output::lines("no secrets"));
    }
    let row = |credential: &CredentialView| {
        let project = credential.project.clone().unwrap_or_else(|| "(every project)".to_owned());
        [credential.name.clone(), project, age(credential.changed_at), credential.kid.clone()]
    };
    let header = ["SECRET", "PROJECT", "CHANGED", "VAULT KEY"];
    Ok(output::lines(&output::table(header, credentials.iter().map(row))))
}

async fn rotate(server: &Server, json: bool) -> anyhow::Result<ExitCode> {
    let target = Target::new(&["credentials", "rotate"]);
    let rotated: Rotated = server.json(Call::new(Method::POST, target, Content::Nothing)).await?;
    if json {
        return Ok(output::json(&rotated));
    }
    let line = format!("the vault's key is {} now; {} secrets are under it", rotated.kid, rotated.rewrapped);
    Ok(output::lines(&output::plain(&line)))
}
