//! Credentials for git that a sandbox is lent: read here from where the operator's file says, handed on as descriptors, and what leads
//! git inside to the gateway's door in their place.
//!
//! Invariant: a secret is in this process's memory only until it is in the pipe, and in no argument, file, variable or record; it is for
//! the host that the operator names, and a document that names another is refused.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use pond_policy::operator::{Git, Operator};
use pond_policy::sandboxes::GitCredential;
use pond_wire::gateway::GitHost;
use pond_wire::gateway::doors::GIT;

use super::model::{certificates, read_key, through_a_pipe};
use crate::settings;

/// Hosts and their secrets, in one order.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    pub(super) hosts: Vec<GitHost>,
    pub(super) keys: Vec<OwnedFd>,
}

impl Lent {
    pub(crate) fn read(operator: &Operator, asked: &[GitCredential]) -> anyhow::Result<Self> {
        let mut lent = Self::default();
        for credential in asked {
            let git = named(operator, credential)?;
            let reading = || format!("reading the credential [git.{}]", git.name);
            let key = read_key(&git.credential).with_context(reading)?;
            let ca_pem = git.ca_file.as_deref().map(certificates).transpose()?;
            let (host, username) = (git.host.to_string(), credential.username.clone());
            lent.hosts.push(GitHost { host, username, ca_pem });
            lent.keys.push(through_a_pipe(&key)?);
        }
        Ok(lent)
    }

    /// The variables that make git ask the gateway where it would ask one of the hosts.
    pub(super) fn env(&self) -> Vec<(String, String)> {
        let mut env = vec![("GIT_CONFIG_COUNT".to_owned(), self.hosts.len().to_string())];
        for (number, GitHost { host, .. }) in self.hosts.iter().enumerate() {
            let key = format!("url.http://{GIT}/{host}/.insteadOf");
            env.push((format!("GIT_CONFIG_KEY_{number}"), key));
            env.push((format!("GIT_CONFIG_VALUE_{number}"), format!("https://{host}/")));
        }
        env
    }
}

fn named<'o>(operator: &'o Operator, asked: &GitCredential) -> anyhow::Result<&'o Git> {
    let GitCredential { host, secret, .. } = asked;
    let Some(git) = operator.git.iter().find(|git| git.name == *secret) else {
        let known: Vec<&str> = operator.git.iter().map(|git| git.name.as_str()).collect();
        match known.is_empty() {
            true => {
                let place = settings::operator_place();
                bail!(
                    "there is no credential {secret}: {place} names none; write a [git.{secret}] table into it"
                )
            }
            false => bail!("there is no credential {secret}; pond.toml names {}", known.join(", ")),
        }
    };
    if git.host != *host {
        bail!("the credential {secret} is for {}, not for {host}", git.host);
    }
    Ok(git)
}
