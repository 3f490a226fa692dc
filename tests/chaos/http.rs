//! The plainest client, for servers that may be dead, asleep or cut off: one request, one connection, an answer or none.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than anybody sleeps here.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|fault| panic!("{fault}: {}", String::from_utf8_lossy(&self.body)))
    }
}

pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(crate) fn ask(
    port: u16,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Reply> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: pond\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    let mut stream = connect(port)?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw)?;
    parse(&raw).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// A whole answer; one that was cut is none.
fn parse(raw: &[u8]) -> Option<Reply> {
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let rest = &raw[end + 4..];
    if head.contains("transfer-encoding: chunked") {
        return Some(Reply { status, body: unchunked(rest)? });
    }
    let length = length(&head).unwrap_or(rest.len());
    (rest.len() == length).then(|| Reply { status, body: rest.to_vec() })
}

/// What a head says about the length of its body.
pub(crate) fn length(head: &str) -> Option<usize> {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    line.trim().parse().ok()
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + size)?);
        rest = rest.get(line + 2 + size + 2..)?;
    }
}
