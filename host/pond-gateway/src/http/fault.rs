//! Why a head was refused: each fault has a status and a stable code, and none repeats what the client sent.

use thiserror::Error;

/// A fault in the first bytes of a connection.
#[derive(Debug, Error)]
pub enum HeadFault {
    #[error("the connection ended before the head did")]
    Closed,
    #[error("reading the head failed")]
    Read(#[source] std::io::Error),
    #[error("the head did not arrive in time")]
    Late,
    #[error("the request line is too long")]
    LineTooLong,
    #[error("the head is too long")]
    HeadTooLong,
    #[error("the head has too many fields")]
    TooManyHeaders,
    #[error("{0} is not spoken here")]
    Stranger(Stranger),
    #[error("this version of HTTP is not spoken here")]
    Version,
    #[error("a line does not end in CR LF")]
    LineEnding,
    #[error("an empty line stands before the request line")]
    EmptyLine,
    #[error("a control byte stands in the head")]
    ControlByte,
    #[error("a byte outside ASCII stands in the request line; write a host in its xn-- form")]
    NotAscii,
    #[error("a header is folded over two lines")]
    Folded,
    #[error("the request line is not `method target version`")]
    RequestLine,
    #[error("a header is not `name: value`")]
    HeaderLine,
}

/// Another protocol, recognised by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Stranger {
    #[error("SOCKS")]
    Socks,
    #[error("TLS")]
    Tls,
    #[error("the PROXY protocol")]
    ProxyProtocol,
    #[error("HTTP/2")]
    Http2,
}

impl HeadFault {
    /// The status to refuse with; none where nobody is left to read it.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Closed | Self::Read(_) => None,
            Self::Late => Some(408),
            Self::LineTooLong | Self::HeadTooLong | Self::TooManyHeaders => Some(431),
            Self::Version => Some(505),
            Self::Stranger(_)
            | Self::LineEnding
            | Self::EmptyLine
            | Self::ControlByte
            | Self::NotAscii
            | Self::Folded
            | Self::RequestLine
            | Self::HeaderLine => Some(400),
        }
    }

    pub const fn code(&self) -> &'static str {
        match self {
            Self::Closed => "head_closed",
            Self::Read(_) => "head_unreadable",
            Self::Late => "head_late",
            Self::LineTooLong => "line_too_long",
            Self::HeadTooLong => "head_too_long",
            Self::TooManyHeaders => "too_many_headers",
            Self::Stranger(Stranger::Socks) => "socks",
            Self::Stranger(Stranger::Tls) => "tls",
            Self::Stranger(Stranger::ProxyProtocol) => "proxy_protocol",
            Self::Stranger(Stranger::Http2) => "http2",
            Self::Version => "http_version",
            Self::LineEnding => "line_ending",
            Self::EmptyLine => "empty_line",
            Self::ControlByte => "control_byte",
            Self::NotAscii => "not_ascii",
            Self::Folded => "folded_header",
            Self::RequestLine => "request_line",
            Self::HeaderLine => "header_line",
        }
    }
}
