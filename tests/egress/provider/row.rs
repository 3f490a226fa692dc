//! One row of the broker's catalogue: a request from inside, what the scripted provider does with it, what comes back through
//! the broker, what the call is billed, and what the same bytes get from the same provider without a broker.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::world::http::Reply;
use crate::world::log::Request;
use crate::world::servers::Handler;

/// What whoever sent the request sees.
#[derive(Debug, Clone)]
pub(crate) enum Sees {
    /// A refusal of the broker's own; the provider heard nothing.
    Refused(u16),
    /// An answer with this status, these texts in it and none of those.
    Answer(u16, Vec<String>, Vec<String>),
    /// A success with this body, byte for byte.
    Body(Vec<u8>),
    /// Nothing to see without the control, for this reason.
    Moot(&'static str),
}

/// What a call is billed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bill {
    Nothing,
    /// So many tokens of output, by the provider's own report.
    Output(u64),
    /// By the broker's bound, because there is no report to go by.
    Estimate,
    /// Not what the row is about.
    Any,
}

pub(crate) struct Row {
    pub(crate) case: u8,
    pub(crate) what: String,
    pub(crate) call: String,
    pub(crate) provider: Handler,
    pub(crate) held: Sees,
    pub(crate) control: Sees,
    pub(crate) bill: Bill,
}

impl Row {
    /// A request that never leaves, and that the provider would have carried out.
    pub(crate) fn refused(case: u8, what: impl Into<String>, status: u16, call: String) -> Self {
        let carried_out = Reply::ok("application/json", r#"{"carried":"out"}"#);
        let control = Sees::Answer(200, vec![r#"{"carried":"out"}"#.to_owned()], Vec::new());
        let (what, bill) = (what.into(), Bill::Nothing);
        Self { case, what, call, provider: always(carried_out), held: Sees::Refused(status), control, bill }
    }

    /// A request that is answered with `reply`.
    pub(crate) fn answered(case: u8, what: impl Into<String>, call: String, reply: Reply) -> Self {
        let what = what.into();
        let (held, control) = (Sees::Answer(200, Vec::new(), Vec::new()), Sees::Moot("it is no attack"));
        Self { case, what, call, provider: always(reply), held, control, bill: Bill::Any }
    }

    pub(crate) fn by(mut self, provider: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        self.provider = Arc::new(provider);
        self
    }

    pub(crate) fn sees(mut self, status: u16, with: &[&str], without: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        self.held = Sees::Answer(status, owned(with), owned(without));
        self
    }

    pub(crate) fn sees_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.held = Sees::Body(body.into());
        self
    }

    pub(crate) fn control(mut self, status: u16, with: &[&str]) -> Self {
        let with = with.iter().map(|text| (*text).to_owned()).collect();
        self.control = Sees::Answer(status, with, Vec::new());
        self
    }

    /// Without the control the same comes back, and nobody can tell what it cost.
    pub(crate) fn control_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.control = Sees::Body(body.into());
        self
    }

    pub(crate) fn moot(mut self, why: &'static str) -> Self {
        self.control = Sees::Moot(why);
        self
    }

    pub(crate) fn billed(mut self, bill: Bill) -> Self {
        self.bill = bill;
        self
    }

    /// How often the provider should have heard of it.
    pub(crate) fn goes_up(&self) -> usize {
        usize::from(!matches!(self.held, Sees::Refused(_)))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "case {} ({})", self.case, self.what)
    }
}

fn always(reply: Reply) -> Handler {
    Arc::new(move |_: &Request| reply.clone())
}

impl Sees {
    /// `reply` is what came back, each byte a character.
    pub(crate) fn judge(&self, reply: &str) -> Result<(), String> {
        let good = match self {
            Self::Refused(status) => {
                status_of(reply) == *status
                    && reply.lines().next().is_some_and(|line| line.contains(" pond: "))
            }
            Self::Answer(status, with, without) => {
                status_of(reply) == *status
                    && with.iter().all(|text| reply.contains(text))
                    && !without.iter().any(|text| reply.contains(text))
            }
            Self::Body(body) => status_of(reply) == 200 && body_of(reply) == Some(body.clone()),
            Self::Moot(_) => true,
        };
        let shown: String = reply.chars().take(400).collect();
        if good { Ok(()) } else { Err(format!("expected {:.300}, got {shown:?}", format!("{self:?}"))) }
    }
}

impl Bill {
    /// `call` is what the run's record says.
    pub(crate) fn judge(self, call: &Value) -> Result<(), String> {
        let paid = call["cost_microcents"].as_u64().unwrap_or_default() > 0;
        let good = match self {
            Self::Nothing => !paid,
            Self::Output(tokens) => paid && call["output_tokens"] == tokens && call["estimated"] == false,
            Self::Estimate => paid,
            Self::Any => true,
        };
        if good { Ok(()) } else { Err(format!("billed {call}, expected {self:?}")) }
    }
}

fn status_of(reply: &str) -> u16 {
    reply.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// The body, out of its chunks where it came in some.
fn body_of(reply: &str) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = reply.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, mut rest) = (reply.get(..end)?.to_lowercase(), &bytes[end + 4..]);
    if !head.contains("transfer-encoding: chunked") {
        return Some(rest.to_vec());
    }
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        body.extend(rest.get(line + 2..line + 2 + length)?);
        rest = rest.get(line + 2 + length + 2..)?;
        if length == 0 {
            return Some(body);
        }
    }
}
