//! The model of a run: chosen from the operator's file, its key read here and handed on as a descriptor, and what the job is
//! given instead of it.
//!
//! Invariant: the key is in this process's memory only until it is in the pipe, and in no argument, file, variable or record.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use anyhow::{Context, bail};
use pond_policy::harness::{self, Agent, DUMMY_ENTROPY, Harness, Values, dummy_key};
use pond_policy::operator::{Credential, Model, Operator};
use pond_seal::Secret;
use pond_wire::gateway::broker::{self as wire, MAX_KEY_BYTES};
use pond_wire::gateway::doors::BROKER;
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use zeroize::Zeroizing;

use crate::settings;

/// The largest request any of the APIs takes.
const BODY_BYTES: u64 = 32 << 20;
const MICROCENTS: u64 = 1_000_000;
const READABLE_BY_OTHERS: u32 = 0o077;

/// A model a run was given.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) order: wire::Broker,
    pub(crate) key: OwnedFd,
    pub(crate) harness: Harness,
    /// The id the job asks for, and the key it has for that.
    id: String,
    dummy: String,
}

/// Which model a run wants, and what for.
pub(crate) struct Wish<'a> {
    /// `NAME` or `NAME:ID`.
    pub(crate) model: &'a str,
    pub(crate) money: Money,
    /// What the job will run.
    pub(crate) program: &'a str,
    /// Whose settings it gets; without it the program's name says.
    pub(crate) agent: Option<Agent>,
    pub(crate) key: Key<'a>,
}

/// What a run may spend on models.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Money {
    /// All of it.
    Cents(u64),
    /// A part, in millionths of a cent: more may be had by asking.
    Lent(u64),
}

/// Where a model's key comes from.
pub(crate) enum Key<'a> {
    /// From where the operator's file says.
    OfOperator,
    /// It was released for this job.
    Released(&'a Secret),
}

/// Finds the model that is wished for and prepares everything for it.
pub(crate) fn choose(operator: &Operator, wish: &Wish<'_>) -> anyhow::Result<Chosen> {
    let Wish { model: wished, money, program, agent, key } = wish;
    let agent = agent.or_else(|| Agent::of_program(program));
    let (name, id) = wished.split_once(':').map_or((*wished, None), |(name, id)| (name, Some(id)));
    let model = operator.model(name).with_context(|| unknown(operator, name))?;
    let id = match id {
        None => model.ids.first().map(|(id, _)| id.as_str()).context("the model lists no id")?,
        Some(id) if model.ids.iter().any(|(known, _)| known == id) => id,
        Some(id) => bail!("model {name} does not list {id:?} in pond.toml"),
    };
    let key = match key {
        Key::OfOperator => read_key(&model.credential),
        Key::Released(secret) => usable(Zeroizing::new(secret.expose().to_vec())),
    };
    let key = key.with_context(|| format!("reading the key of model {name}"))?;
    let mut entropy = [0; DUMMY_ENTROPY];
    rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty())?;
    let dummy = dummy_key(model.api, key.len(), &entropy);
    let harness = harness(model, id, &dummy, agent)?;
    let ca_pem = model.ca_file.as_deref().map(certificates).transpose()?;
    let served = wire::Model::new(model, ca_pem, dummy.clone());
    let (ceiling_microcents, lent) = match money {
        Money::Cents(cents) => {
            let all = cents.checked_mul(MICROCENTS);
            (all.context("--max-cost-cents is more than anybody has")?, false)
        }
        Money::Lent(microcents) => (*microcents, true),
    };
    let order = wire::Broker { models: vec![served], ceiling_microcents, lent, body_bytes: BODY_BYTES };
    Ok(Chosen { order, key: through_a_pipe(&key)?, harness, id: id.to_owned(), dummy })
}

/// Fills in a stage's own files for `$HOME`.
pub(super) fn fill(
    files: &[(String, String)],
    model: Option<&Chosen>,
    secret: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<Vec<(String, String)>> {
    let broker_url = format!("http://{BROKER}");
    let given = model.map(|model| (model.id.as_str(), model.dummy.as_str()));
    let (id, dummy) = given.unwrap_or_default();
    let values = Values { model: id, broker_url: &broker_url, dummy_key: dummy, secret };
    let filled = |(path, text): &(String, String)| {
        let of_a_model = ["{{MODEL}}", "{{BROKER_URL}}", "{{SECRET:MODEL_KEY}}"];
        if given.is_none() && of_a_model.iter().any(|name| text.contains(name)) {
            bail!("{path} is about a model, and the stage names none");
        }
        let text = harness::fill(text, &values).with_context(|| format!("filling in {path}"))?;
        Ok((path.clone(), text))
    };
    files.iter().map(filled).collect()
}

fn unknown(operator: &Operator, name: &str) -> String {
    let known: Vec<&str> = operator.models.iter().map(|model| model.name.as_str()).collect();
    match known.is_empty() {
        true => {
            let place = settings::operator_place();
            format!("there is no model {name:?}: {place} names none; write a [model.{name}] table into it")
        }
        false => format!("there is no model {name:?}; pond.toml names {}", known.join(", ")),
    }
}

fn harness(model: &Model, id: &str, dummy: &str, agent: Option<Agent>) -> anyhow::Result<Harness> {
    let broker_url = format!("http://{BROKER}");
    let values = Values { model: id, broker_url: &broker_url, dummy_key: dummy, secret: &|_| None };
    let filled = match agent {
        None => harness::for_sdk(model.api, &values),
        Some(agent) => harness::for_agent(agent, model.api, &values).with_context(|| {
            format!("{} does not speak the {} API of model {}", agent.name(), model.api.name(), model.name)
        })?,
    };
    Ok(filled?)
}

pub(super) fn read_key(credential: &Credential) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    usable(match credential {
        Credential::Env(variable) => {
            settings::secret(variable).with_context(|| format!("{} is not set", shown(variable)))?
        }
        Credential::File(path) => read_private(path)?,
    })
}

/// A key may have been pasted where the name of a variable belongs; most of them look like none.
fn shown(variable: &str) -> String {
    let is_name = variable.contains('_') && !variable.bytes().any(|byte| byte.is_ascii_lowercase());
    if is_name { format!("the variable {variable}") } else { "the variable its credential names".to_owned() }
}

fn usable(mut key: Zeroizing<Vec<u8>>) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    while key.last().is_some_and(u8::is_ascii_whitespace) {
        key.pop();
    }
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        bail!("the key is empty or longer than {MAX_KEY_BYTES} bytes");
    }
    Ok(key)
}

/// A key file is its owner's alone, and is no link to somewhere else.
fn read_private(path: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags.cast_signed()).open(path);
    // Its name is not repeated: a key may have been pasted there.
    let file = file.context("opening the file its credential names")?;
    let metadata = file.metadata()?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if !metadata.is_file() || !own || metadata.mode() & READABLE_BY_OTHERS != 0 {
        bail!("the file its credential names must be yours, and nobody else may read it: `chmod 600`");
    }
    // As large as a key can be, at once: growing would leave copies behind.
    let mut key = Zeroizing::new(Vec::with_capacity(MAX_KEY_BYTES + 1));
    file.take(MAX_KEY_BYTES as u64 + 1).read_to_end(&mut key)?;
    Ok(key)
}

pub(super) fn certificates(path: &str) -> anyhow::Result<String> {
    let bytes =
        crate::input::from_trusted_file(path.as_ref()).map_err(|refusal| anyhow::anyhow!(refusal.message))?;
    String::from_utf8(bytes).with_context(|| format!("{path} holds no PEM certificates"))
}

/// A key is shorter than what a pipe holds, so nobody has to read it for it to be written.
pub(super) fn through_a_pipe(key: &[u8]) -> anyhow::Result<OwnedFd> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    File::from(writer).write_all(key).context("handing the key over")?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    //! Whose settings a job gets, and what a fault says of the place of a key.
    use super::*;
    use pond_wire::decode::decode_toml;

    fn operator(credential: &str) -> Operator {
        let file = format!(
            "[model.main]\napi = \"anthropic\"\ncredential = \"{credential}\"\nmodels = [\"claude-sonnet-4-5\"]\n"
        );
        Operator::read(&decode_toml(file.as_bytes()).unwrap()).unwrap()
    }

    fn wish(program: &str, agent: Option<Agent>) -> Wish<'_> {
        Wish { model: "main", money: Money::Cents(1), program, agent, key: Key::OfOperator }
    }

    #[test]
    fn an_agent_that_is_named_gets_its_settings_whatever_the_command_begins_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .unwrap()
            .write_all(b"sk-x")
            .unwrap();
        let operator = operator(&format!("file:{}", path.display()));
        let files = |wish: &Wish<'_>| -> Vec<String> {
            choose(&operator, wish).unwrap().harness.files.into_iter().map(|(path, _)| path).collect()
        };
        let own = files(&wish("claude", None));
        assert_eq!((own.is_empty(), files(&wish("sh", None)).is_empty()), (false, true));
        assert_eq!(files(&wish("sh", Some(Agent::ClaudeCode))), own);
    }

    #[test]
    fn a_key_pasted_where_its_place_belongs_is_not_repeated() {
        for credential in ["file:/sk-PASTED", "env:sk_ant_PASTED", "env:SKANTPASTED"] {
            let fault = choose(&operator(credential), &wish("sh", None)).unwrap_err();
            assert!(!format!("{fault:#}").contains("PASTED"), "{fault:#}");
        }
        let fault = choose(&operator("env:POND_TEST_NO_SUCH_KEY"), &wish("sh", None)).unwrap_err();
        assert!(format!("{fault:#}").contains("the variable POND_TEST_NO_SUCH_KEY is not set"), "{fault:#}");
    }
}
