//! What a job is given so that its tools find the broker and the proxy: files in `$HOME` and environment variables, for
//! the popular agent command lines and for everything that reads proxy variables. Pure; the host side fills them in.
//!
//! Invariants: the only key that can appear is the dummy one; a template with a name nobody knows is a fault, never
//! left in place; nothing here is a control, a job that ignores all of it reaches exactly as much.

mod agent;
mod dummy;
mod files;
mod proxy;
mod template;

pub use agent::Agent;
pub use dummy::{DUMMY_ENTROPY, dummy_key};
pub use proxy::proxy_environment;
pub use template::{MODEL_KEY, TemplateFault, Values, check, fill};

use crate::model::Api;

/// Files by path below `$HOME`, and variables; all filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Harness {
    pub files: Vec<(String, String)>,
    pub env: Vec<(String, String)>,
}

/// What an agent needs to use a model of this API; `None` where it speaks no such API.
pub fn for_agent(agent: Agent, api: Api, values: &Values<'_>) -> Option<Result<Harness, TemplateFault>> {
    agent.speaks(api).then(|| {
        let env = files::environment(agent, api).into_iter().chain(files::sdk_environment(api, agent));
        filled(files::files(agent, api), env.collect(), values)
    })
}

/// What any program needs that uses the API's own libraries.
pub fn for_sdk(api: Api, values: &Values<'_>) -> Result<Harness, TemplateFault> {
    filled(Vec::new(), files::sdk_variables(api), values)
}

type Templates = Vec<(&'static str, String)>;

fn filled(files: Templates, env: Templates, values: &Values<'_>) -> Result<Harness, TemplateFault> {
    let all = |templates: Templates| {
        let one = |(name, text): (&str, String)| Ok((name.to_owned(), fill(&text, values)?));
        templates.into_iter().map(one).collect::<Result<Vec<_>, TemplateFault>>()
    };
    Ok(Harness { files: all(files)?, env: all(env)? })
}

#[cfg(test)]
mod tests;
