//! A request head as a value: what the client said, byte for byte, and nothing it did not say. Names are compared without
//! case; a field given twice stays visible as such, because taking the first is how two readers come to disagree.

use super::MAX_HEADERS;
use super::fault::HeadFault;
use super::scan::Scan;

#[derive(Clone, PartialEq, Eq)]
pub struct RequestHead {
    pub method: Vec<u8>,
    /// The target as sent: no decoding, no normalising.
    pub target: Vec<u8>,
    pub version: Version,
    pub headers: Headers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
}

/// Fields in the order they came; names in lower case.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

/// A field that may stand once was given more often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a header that may stand once is repeated")]
pub struct Repeated;

/// Heads carry credentials: they are never printed, only counted.
impl std::fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestHead({} headers)", self.headers.0.len())
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Headers({})", self.0.len())
    }
}

impl Headers {
    /// Every value of `name` (lower case), in order.
    pub fn all<'h, 'n>(&'h self, name: &'n str) -> impl Iterator<Item = &'h [u8]> + use<'h, 'n> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_slice())
    }

    /// The value of a field that may stand once.
    pub fn one(&self, name: &str) -> Result<Option<&[u8]>, Repeated> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(Repeated),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Whether a comma-separated list field holds `token`, in any case.
    pub fn lists(&self, name: &str, token: &str) -> bool {
        let holds = |value: &[u8]| {
            value
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
        };
        self.all(name).any(holds)
    }
}

/// Reads one whole head at the start of `bytes`, if it is there: the head and its length.
pub fn parse_head(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, HeadFault> {
    let Some(length) = Scan::default().advance(bytes)? else { return Ok(None) };
    let head = bytes.get(..length).unwrap_or_default();
    Ok(Some((tokenize(head)?, length)))
}

/// Splits a head that the scan has accepted.
pub(super) fn tokenize(head: &[u8]) -> Result<RequestHead, HeadFault> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head).map_err(|error| fault(&error))? {
        httparse::Status::Complete(length) if length == head.len() => {}
        httparse::Status::Complete(_) | httparse::Status::Partial => return Err(HeadFault::HeaderLine),
    }
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(HeadFault::RequestLine);
    };
    let version = match request.version {
        Some(0) => Version::Http10,
        Some(1) => Version::Http11,
        Some(_) | None => return Err(HeadFault::Version),
    };
    let headers = request.headers.iter().map(field).collect::<Result<_, _>>()?;
    Ok(RequestHead { method: method.into(), target: target.into(), version, headers: Headers(headers) })
}

fn field(field: &httparse::Header<'_>) -> Result<(String, Vec<u8>), HeadFault> {
    if field.name.is_empty() {
        return Err(HeadFault::HeaderLine);
    }
    Ok((field.name.to_ascii_lowercase(), field.value.to_vec()))
}

fn fault(error: &httparse::Error) -> HeadFault {
    match error {
        httparse::Error::HeaderName | httparse::Error::HeaderValue => HeadFault::HeaderLine,
        httparse::Error::NewLine => HeadFault::LineEnding,
        httparse::Error::TooManyHeaders => HeadFault::TooManyHeaders,
        httparse::Error::Version => HeadFault::Version,
        httparse::Error::Status | httparse::Error::Token => HeadFault::RequestLine,
    }
}
