//! Saying no: one complete response that closes the connection, with the reason where tools show it (the status line),
//! where programs look for it (`X-Pond-Denied`) and where people read it (the body).

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::fault::HeadFault;

const LONGEST_PHRASE: usize = 400;
/// What is still read of a refused request, so that closing does not reset the answer away.
const LINGER_BYTES: usize = 256 << 10;
const LINGER_TIME: Duration = Duration::from_millis(500);

/// A refusal as it will be sent. Texts are made printable when it is written, whatever they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The stable code of the reason.
    pub code: &'static str,
    /// The reason in words.
    pub phrase: String,
    /// Further fields, such as `Retry-After`.
    pub headers: Vec<(&'static str, String)>,
    /// A body of another type than one line of text.
    pub json: Option<String>,
}

impl Refusal {
    pub fn new(status: u16, code: &'static str, phrase: impl Into<String>) -> Self {
        Self { status, code, phrase: phrase.into(), headers: Vec::new(), json: None }
    }

    /// The answer to a head that could not be read; none where nobody is left to read it.
    pub fn of_head(fault: &HeadFault) -> Option<Self> {
        fault.status().map(|status| Self::new(status, fault.code(), format!("pond: {fault}")))
    }

    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let phrase = printable(&self.phrase, LONGEST_PHRASE);
        let (kind, body) = match &self.json {
            Some(json) => ("application/json", json.clone()),
            None => ("text/plain; charset=us-ascii", format!("{phrase}\n")),
        };
        let mut response = format!(
            "HTTP/1.1 {:03} {phrase}\r\nConnection: close\r\nX-Pond-Denied: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n",
            self.status.clamp(100, 999),
            printable(self.code, LONGEST_PHRASE),
            body.len(),
        );
        for (name, value) in &self.headers {
            response.push_str(&format!("{name}: {}\r\n", printable(value, LONGEST_PHRASE)));
        }
        response.push_str("\r\n");
        response.push_str(&body);
        response.into_bytes()
    }
}

/// At most `longest` characters of `text`, without any that is not printable ASCII.
pub fn printable(text: &str, longest: usize) -> String {
    text.chars().filter(|c| (' '..='~').contains(c)).take(longest).collect()
}

/// Sends a refusal and ends the connection so that the client can read it.
pub async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    refusal: &Refusal,
) -> std::io::Result<()> {
    stream.write_all(&refusal.to_bytes()).await?;
    stream.shutdown().await?;
    // A client that keeps sending, or stops reading, has had its answer.
    match tokio::time::timeout(LINGER_TIME, drain(stream)).await {
        Ok(drained) => drained,
        Err(_) => Ok(()),
    }
}

async fn drain<R: AsyncRead + Unpin>(stream: &mut R) -> std::io::Result<()> {
    let (mut left, mut scrap) = (LINGER_BYTES, [0; 4 << 10]);
    while left > 0 {
        match stream.read(&mut scrap).await? {
            0 => return Ok(()),
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}
