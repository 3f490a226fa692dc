//! The far side's TCP servers: every address answers on a few ports, and notes who came.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::http::{self, Reply};
use super::log::{Event, Log, Request};

pub(crate) const TLS_PORTS: [u16; 3] = [443, 8443, 853];
const CLEAR_PORTS: [u16; 3] = [80, 22, 25];
/// Longer than any pause a test makes before it speaks.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Handler = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// What is served under which name: a folder per host, and handlers that come before it.
#[derive(Clone)]
pub(crate) struct Sites {
    pub(crate) folder: PathBuf,
    pub(crate) handlers: HashMap<String, Handler>,
}

impl Sites {
    fn reply(&self, request: &Request) -> Reply {
        if let Some(handler) = self.handlers.get(&request.host) {
            return handler(request);
        }
        let path = request.target.split(['?', '#']).next().unwrap_or_default();
        let index = if path.ends_with('/') { "index.html" } else { "" };
        let file = self.folder.join(format!("{}{path}{index}", request.host));
        if let Ok(body) = std::fs::read(file) {
            let kind = if path.ends_with('/') { "text/html" } else { "application/octet-stream" };
            return Reply::ok(kind, body);
        }
        let known = self.folder.join(&request.host).is_dir();
        if known {
            Reply::not_found()
        } else {
            Reply::ok("text/plain", format!("far side: {}\n", request.host))
        }
    }
}

/// Serves until the process ends; must be called on the far side.
pub(crate) fn serve(sites: &Sites, tls: &Arc<ServerConfig>, log: &Log) {
    for port in TLS_PORTS {
        let (sites, tls, seen) = (sites.clone(), Arc::clone(tls), log.clone());
        listen(port, log, move |stream, to| drop(over_tls(stream, to, &sites, &tls, &seen)));
    }
    for port in CLEAR_PORTS {
        let (sites, seen) = (sites.clone(), log.clone());
        listen(port, log, move |stream, to| drop(in_clear(stream, to, &sites, &seen)));
    }
}

fn listen(port: u16, log: &Log, work: impl Fn(TcpStream, SocketAddr) + Send + Sync + 'static) {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    let (work, log) = (Arc::new(work), log.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(to) = stream.local_addr() else { continue };
            let to = SocketAddr::new(to.ip().to_canonical(), to.port());
            log.note(Event::Dial { to });
            let (work, log) = (Arc::clone(&work), log.clone());
            std::thread::spawn(move || {
                work(stream, to);
                log.note(Event::End { to });
            });
        }
    });
}

fn note_first_bytes(stream: &TcpStream, to: SocketAddr, log: &Log) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut bytes = [0; 64];
    let length = stream.peek(&mut bytes)?;
    if length > 0 {
        log.note(Event::First { to, bytes: bytes[..length].to_vec() });
    }
    Ok(())
}

fn over_tls(
    stream: TcpStream,
    to: SocketAddr,
    sites: &Sites,
    tls: &Arc<ServerConfig>,
    log: &Log,
) -> std::io::Result<()> {
    note_first_bytes(&stream, to, log)?;
    let connection = ServerConnection::new(Arc::clone(tls)).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let host = stream.conn.server_name().unwrap_or_default().to_owned();
    let mut reader = BufReader::new(stream);
    while let Some(request) = http::read(&mut reader, &host) {
        let reply = sites.reply(&request);
        let is_last = request.headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close")
        });
        log.note(Event::Request(request));
        if !http::write(reader.get_mut(), &reply)? || is_last {
            break;
        }
    }
    let stream = reader.get_mut();
    stream.conn.send_close_notify();
    stream.flush()
}

/// Servers that speak first (mail, ssh) greet; on port 80 the request decides.
fn in_clear(mut stream: TcpStream, to: SocketAddr, sites: &Sites, log: &Log) -> std::io::Result<()> {
    if to.port() != 80 {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"SSH-2.0-far_side\r\n")?;
        return stream.read(&mut [0; 64]).map(drop);
    }
    note_first_bytes(&stream, to, log)?;
    let mut reader = BufReader::new(stream);
    while let Some(mut request) = http::read(&mut reader, "") {
        let host = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        request.host = host.map(|(_, value)| value.clone()).unwrap_or_default();
        let reply = sites.reply(&request);
        log.note(Event::Request(request));
        if !http::write(reader.get_mut(), &reply)? {
            break;
        }
    }
    Ok(())
}
