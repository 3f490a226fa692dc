//! A control plane that says what a test wants it to say, truth or not: what a client does with a server it cannot trust, or that
//! goes away in the middle, is tried here. What pond's own server answers is tried elsewhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// The bytes of an answer, after which the connection ends.
pub(crate) type Answer = Vec<u8>;

pub(crate) fn answer(status: u16, kind: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn json(body: &serde_json::Value) -> Answer {
    answer(200, "application/json", body.to_string())
}

pub(crate) fn problem(status: u16, body: &serde_json::Value) -> Answer {
    answer(status, "application/problem+json", body.to_string())
}

/// Chunks of a body that has no end: the connection breaks instead.
pub(crate) fn broken_off(kind: &str, pieces: &[&str]) -> Answer {
    let mut text = format!("HTTP/1.1 200 X\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    for piece in pieces {
        text += &format!("{:x}\r\n{piece}\r\n", piece.len());
    }
    text.into_bytes()
}

pub(crate) struct Scripted {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    /// Answers each request as `script` says, until the test is over.
    pub(crate) fn new(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let (script, seen) = (Arc::new(script), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                // A client that goes away is none of our business.
                std::thread::spawn(move || stream.ok().and_then(|stream| serve(stream, &*script, &seen)));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, script: &dyn Fn(&Asked) -> Answer, seen: &Mutex<Vec<Asked>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut asked = Asked { line: line.trim_end().to_owned(), headers, body: Vec::new() };
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    if asked.header("transfer-encoding").is_some() {
        asked.body = chunks(&mut reader)?;
    } else {
        asked.body = vec![0; length];
        reader.read_exact(&mut asked.body).ok()?;
    }
    let answer = script(&asked);
    seen.lock().unwrap().push(asked);
    (&stream).write_all(&answer).ok()
}

fn chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut piece = vec![0; size + 2];
        reader.read_exact(&mut piece).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend(piece.get(..size)?);
    }
}
