//! A model that answers at once, and its client: directly over TLS, or through the broker, which adds the key.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::world::{HTTPS, MODEL};

/// What the client presents; the broker puts the real one in its place.
pub(crate) const DUMMY_KEY: &str = "sk-ant-api03-not-a-key-but-shaped-like-one";
pub(crate) const ID: &str = "bench-model";
const EVENT_PAUSE: Duration = Duration::from_millis(2);
/// What an event says before the time it left.
const SENT: &str = "\"text\":\"";
const BODY_END: &[u8] = b"\r\n\r\n";

/// Serves the model for as long as the process lives.
pub(crate) fn serve(directory: &Path) -> Result<()> {
    let chain = CertificateDer::from_pem_file(directory.join("leaf.pem"))?;
    let key = PrivateKeyDer::from_pem_file(directory.join("leaf.key"))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![chain], key)?;
    let (config, listener) = (Arc::new(config), TcpListener::bind((MODEL.address, HTTPS))?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || converse(stream, config));
        }
    });
    Ok(())
}

fn converse(stream: TcpStream, config: Arc<ServerConfig>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = StreamOwned::new(ServerConnection::new(config)?, stream);
    loop {
        let request = message(&mut stream)?.text;
        if !request.contains("\"stream\":true") {
            stream.write_all(answer().as_bytes())?;
            continue;
        }
        let events = request.split("\"max_tokens\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
        let events: u32 = events.context("a request without max_tokens")?.parse()?;
        let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#;
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )?;
        stream.write_all(chunk(start).as_bytes())?;
        for _ in 0..events {
            std::thread::sleep(EVENT_PAUSE);
            let delta = format!("{{\"type\":\"text_delta\",{SENT}{}\"}}", now()?);
            let event = format!("{{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{delta}}}");
            stream.write_all(chunk(&event).as_bytes())?;
        }
        let usage =
            format!("{{\"type\":\"message_delta\",\"delta\":{{}},\"usage\":{{\"output_tokens\":{events}}}}}");
        let end = chunk(&usage) + &chunk(r#"{"type":"message_stop"}"#) + "0\r\n\r\n";
        stream.write_all(end.as_bytes())?;
    }
}

fn answer() -> String {
    let body = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}"#;
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn chunk(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// A time that every process of this machine tells alike.
fn now() -> Result<u64> {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic))?;
    Ok(u64::try_from(time.as_nanos())?)
}

/// A connection straight to the model.
pub(crate) fn direct(stream: TcpStream, directory: &Path) -> Result<impl Read + Write> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(directory.join("ca.pem"))?)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(MODEL.name)?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, stream))
}

/// From a request to the first byte of its answer, again and again; the first one is nobody's figure.
pub(crate) fn calls(mut stream: impl Read + Write, count: u64) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    for _ in 0..=count {
        let sent = now()?;
        stream.write_all(request(1, "").as_bytes())?;
        let answer = message(&mut stream)?;
        ensure!(answer.text.starts_with("HTTP/1.1 200"), "the model said {}", answer.text);
        times.push(answer.began.saturating_sub(sent));
    }
    Ok(times.split_off(1))
}

/// How long each event of one stream was on its way.
pub(crate) fn events(mut stream: impl Read + Write, count: u64) -> Result<Vec<u64>> {
    stream.write_all(request(count, ",\"stream\":true").as_bytes())?;
    let (mut text, mut read, mut delays) = (String::new(), 0, Vec::new());
    let mut buffer = vec![0; 64 << 10];
    while delays.len() < usize::try_from(count)? {
        let length = stream.read(&mut buffer)?;
        let arrived = now()?;
        ensure!(length > 0, "the stream ended early: {text}");
        text.push_str(std::str::from_utf8(buffer.get(..length).unwrap_or_default())?);
        while let Some(event) = text.get(read..).and_then(|rest| rest.get(..rest.find("\n\n")? + 2)) {
            read += event.len();
            if let Some((_, sent)) = event.split_once(SENT) {
                let sent: u64 = sent.split('"').next().unwrap_or_default().parse()?;
                delays.push(arrived.saturating_sub(sent));
            }
        }
    }
    Ok(delays)
}

fn request(tokens: u64, more: &str) -> String {
    let body = format!(
        "{{\"model\":\"{ID}\",\"max_tokens\":{tokens},\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]{more}}}"
    );
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {}\r\nx-api-key: {DUMMY_KEY}\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        MODEL.name,
        body.len()
    )
}

/// A whole request or answer, and when its first byte was here.
struct Message {
    text: String,
    began: u64,
}

fn message(stream: &mut impl Read) -> Result<Message> {
    let (mut bytes, mut began) = (Vec::new(), None);
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        began = began.or(Some(now()?));
        ensure!(count > 0, "the other side is gone");
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if is_whole(&bytes) {
            return Ok(Message { text: String::from_utf8(bytes)?, began: began.unwrap_or_default() });
        }
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = bytes.windows(BODY_END.len()).position(|window| window == BODY_END) else {
        return false;
    };
    let text = String::from_utf8_lossy(bytes.get(..head).unwrap_or_default()).to_ascii_lowercase();
    let length =
        text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
    match length {
        Some(length) => bytes.len() >= head + BODY_END.len() + length,
        None => bytes.ends_with(b"\r\n0\r\n\r\n"),
    }
}
