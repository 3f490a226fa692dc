//! Just enough HTTP/1.1 for servers that clients of every kind accept: requests are read whole, replies are what a script
//! says, byte for byte where it matters.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::log::Request;

/// What a server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Whole {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// An event stream, each part sent by itself after a pause, ended by closing the connection.
    Events(Vec<(Duration, Vec<u8>)>),
    /// An event stream whose parts come from elsewhere, one by one, ended by closing the connection.
    Fed(Arc<Mutex<Receiver<Vec<u8>>>>),
    /// These bytes and no others, ended by closing the connection.
    Raw(Vec<u8>),
}

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
/// Nobody waits longer for a part that is to come.
const PATIENCE: Duration = Duration::from_secs(60);

impl Reply {
    pub(crate) fn ok(kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::Whole { status: 200, headers: vec![("content-type", kind.to_owned())], body: body.into() }
    }

    pub(crate) fn not_found() -> Self {
        Self::Whole { status: 404, headers: Vec::new(), body: b"not here\n".to_vec() }
    }
}

/// The next request of a connection; nothing at its end.
pub(crate) fn read(reader: &mut BufReader<impl Read>, host: &str) -> Option<Request> {
    let line = read_line(reader)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let body = read_body(reader, &headers)?;
    Some(Request { host: host.to_owned(), method, target, headers, body })
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    (line.pop()? == b'\n').then_some(())?;
    line.pop_if(|last| *last == b'\r');
    Some(String::from_utf8_lossy(&line).into_owned())
}

fn read_body(reader: &mut impl BufRead, headers: &[(String, String)]) -> Option<Vec<u8>> {
    let value = |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let mut body = Vec::new();
    if value("transfer-encoding").is_some() {
        loop {
            let length = u64::from_str_radix(read_line(reader)?.split(';').next()?.trim(), 16).ok()?;
            reader.take(length).read_to_end(&mut body).ok()?;
            read_line(reader)?;
            if length == 0 {
                return Some(body);
            }
        }
    }
    let length = value("content-length").map_or(Some(0), |(_, length)| length.parse().ok())?;
    reader.take(length).read_to_end(&mut body).ok()?;
    Some(body)
}

/// Sends a reply; whether the connection stays open.
pub(crate) fn write(writer: &mut impl Write, reply: &Reply) -> std::io::Result<bool> {
    match reply {
        Reply::Whole { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
            writer.write_all(&[head.as_bytes(), body].concat())?;
        }
        Reply::Events(events) => {
            writer.write_all(STREAM)?;
            for (pause, bytes) in events {
                writer.flush()?;
                std::thread::sleep(*pause);
                writer.write_all(bytes)?;
            }
        }
        Reply::Fed(parts) => {
            writer.write_all(STREAM)?;
            while let Ok(part) = parts.lock().unwrap().recv_timeout(PATIENCE) {
                let is_last = String::from_utf8_lossy(&part).contains("message_stop");
                writer.write_all(&part)?;
                writer.flush()?;
                if is_last {
                    break;
                }
            }
        }
        Reply::Raw(bytes) => writer.write_all(bytes)?,
    }
    writer.flush()?;
    Ok(matches!(reply, Reply::Whole { .. }))
}
