//! The far side: a name server and hosts that take a hello and then do one simple thing each.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::world::{DNS, FLOW, HOSTS, HTTPS, Host, QUICK, QUIET};
use super::{hello, model};

/// More than are ever open at once at the host that answers.
const QUICK_THREADS: usize = 64;
const TTL: u32 = 300;

/// Serves until the input ends; every line lets go of what the quiet host holds.
pub(crate) fn serve(certificates: &Path) -> Result<()> {
    model::serve(certificates)?;
    let names = UdpSocket::bind((DNS, 53))?;
    std::thread::spawn(move || serve_names(&names));
    let quick = Arc::new(listener(QUICK)?);
    for _ in 0..QUICK_THREADS {
        let quick = Arc::clone(&quick);
        std::thread::spawn(move || quick.incoming().flatten().for_each(|stream| drop(reply(stream))));
    }
    let flow = listener(FLOW)?;
    std::thread::spawn(move || {
        for stream in flow.incoming().flatten() {
            std::thread::spawn(move || pour(stream));
        }
    });
    let held = Arc::new(Mutex::new(Vec::new()));
    let (quiet, keep) = (listener(QUIET)?, Arc::clone(&held));
    std::thread::spawn(move || {
        for stream in quiet.incoming().flatten() {
            keep.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        }
    });
    super::answer(|_| {
        let held = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(vec![u64::try_from(held.len())?])
    })
}

fn listener(host: Host) -> std::io::Result<TcpListener> {
    TcpListener::bind((host.address, HTTPS))
}

/// One byte for a hello, then patience until the client has left.
fn reply(mut stream: TcpStream) -> std::io::Result<()> {
    hello::take(&mut stream)?;
    stream.write_all(&[1])?;
    stream.read(&mut [0]).map(drop)
}

/// As many bytes as the client asks for.
fn pour(mut stream: TcpStream) -> std::io::Result<()> {
    let mut wanted = [0; 8];
    hello::take(&mut stream)?;
    stream.read_exact(&mut wanted)?;
    let bytes = vec![0; 256 << 10];
    let mut left = u64::from_be_bytes(wanted);
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let sent = stream.write(bytes.get(..part).unwrap_or_default())?;
        left -= u64::try_from(sent).unwrap_or(left);
    }
    Ok(())
}

fn serve_names(socket: &UdpSocket) {
    let mut packet = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut packet) {
        if let Some(reply) = packet.get(..length).and_then(answer) {
            // Whoever asked asks again.
            drop(socket.send_to(&reply, from));
        }
    }
}

/// The address of a host of ours to the question for one, and no records to any other.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    const ADDRESS: [u8; 2] = [0, 1];
    let (header, rest) = query.split_at_checked(HEADER)?;
    let end = rest.iter().position(|byte| *byte == 0)? + 1;
    let (name, kind) = (rest.get(..end)?, rest.get(end..end + 2)?);
    let question = rest.get(..end + 4)?;
    let host = HOSTS.iter().find(|host| labels(host.name).eq_ignore_ascii_case(name));
    let host = host.filter(|_| kind == ADDRESS);
    let counts = [0, 1, 0, u8::from(host.is_some()), 0, 0, 0, 0];
    let mut reply = [header.get(..2)?, &[0x81, 0x80], &counts, question].concat();
    if let Some(host) = host {
        let address: Ipv4Addr = host.address.parse().ok()?;
        let record = [&[0xC0, 12], &ADDRESS[..], &[0, 1], &TTL.to_be_bytes(), &[0, 4], &address.octets()];
        reply.extend(record.concat());
    }
    Some(reply)
}

/// A name as a question spells it.
fn labels(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[u8::try_from(label.len()).unwrap_or(0)], label.as_bytes()].concat();
    name.split('.').flat_map(label).chain([0]).collect()
}
