//! What keeps a command from its answer, each with a stable code and, where there is one, what to do next.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::address::Address;
use crate::output::plain;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientFault {
    #[error("{text:?} is no address of a control plane: write http://HOST:PORT or https://HOST:PORT")]
    Address { text: String },
    #[error(
        "{0} is not this machine, and over plain http anybody on the way reads your token: use https, or --plain-http if the way is safe"
    )]
    PlainHttp(Address),
    #[error("no token for {0}: set POND_TOKEN, or keep one with `pond token save`")]
    NoToken(Address),
    #[error("the token is no token of pond's: it begins with pond_api_")]
    Token,
    #[error("the file of tokens {}", path.display())]
    Tokens { path: PathBuf, source: TokensFault },
    #[error("--ca-file {}: {reason}", path.display())]
    Certificates { path: PathBuf, reason: String },
    #[error("preparing to connect")]
    Prepare(#[source] io::Error),
    #[error("preparing TLS")]
    Tls(#[source] rustls::Error),
    #[error(
        "nothing answers at {0}: start a control plane with `pond up` or `pond serve`, or set POND_URL to the address of one"
    )]
    Nobody(Address),
    #[error("connecting to {address}")]
    Connect { address: Address, source: io::Error },
    #[error("asking {address}")]
    Talk { address: Address, source: hyper::Error },
    #[error("writing a request")]
    Request(#[source] http::Error),
    #[error("{address} did not answer within {seconds} s")]
    Late { address: Address, seconds: u64 },
    #[error("an answer of {address} cannot be read: {reason}")]
    Answer { address: Address, reason: String },
    #[error("{}", .0.message())]
    Problem(Problem),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensFault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("belongs to somebody else, or others may read it; `chmod 600` it")]
    Open,
    #[error("is not JSON that maps addresses to tokens")]
    Form,
}

/// What the server says about a request it did not carry out. Of what it says only these are read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) detail: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) faults: Vec<ProblemFault>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProblemFault {
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) path: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) allowed: Vec<String>,
}

impl Problem {
    /// For an answer that is no problem document: a proxy's, or of something that is no pond.
    pub(super) fn of_status(status: u16) -> Self {
        let title = format!("the server answered with status {status}");
        Self { status, code: "unexpected_status".to_owned(), title, ..Self::default() }
    }

    /// For a machine: what every failure has, and what this one has besides.
    pub(super) fn shown(&self) -> serde_json::Value {
        let Self { status, code, faults, .. } = self;
        serde_json::json!({ "code": code, "message": self.message(), "status": status, "faults": faults })
    }

    pub(super) fn message(&self) -> String {
        let said = self.detail.as_deref().filter(|detail| !detail.is_empty()).unwrap_or(&self.title);
        match self.status {
            401 => format!("{said}: POND_TOKEN, or the token kept with `pond token save`, is not good here"),
            _ => said.to_owned(),
        }
    }
}

impl ProblemFault {
    /// For a person; the words are the server's.
    pub(super) fn lines(&self) -> String {
        let Self { code, path, message, allowed } = self;
        let mut text = format!("fault    {}  [{}]\n         {}", plain(path), plain(code), plain(message));
        if !allowed.is_empty() {
            text += &format!("\n         allowed: {}", plain(&allowed.join(", ")));
        }
        text
    }
}

impl ClientFault {
    /// Stable.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Address { .. } => "server_address",
            Self::PlainHttp(_) => "plain_http",
            Self::NoToken(_) => "no_token",
            Self::Token => "token_malformed",
            Self::Tokens { .. } => "token_file",
            Self::Certificates { .. } => "ca_file",
            Self::Prepare(_) | Self::Tls(_) | Self::Request(_) => "client",
            Self::Nobody(_) | Self::Connect { .. } => "server_unreachable",
            Self::Talk { .. } => "server_gone",
            Self::Late { .. } => "server_late",
            Self::Answer { .. } => "answer_unreadable",
            Self::Problem(problem) => &problem.code,
        }
    }

    /// Whether the same request can come to something later: the server is gone, busy or ill.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Nobody(_) | Self::Connect { .. } | Self::Talk { .. } | Self::Late { .. } => true,
            Self::Problem(problem) => problem.status == 429 || problem.status >= 500,
            Self::Address { .. }
            | Self::PlainHttp(_)
            | Self::NoToken(_)
            | Self::Token
            | Self::Tokens { .. }
            | Self::Certificates { .. }
            | Self::Prepare(_)
            | Self::Tls(_)
            | Self::Request(_)
            | Self::Answer { .. } => false,
        }
    }
}
