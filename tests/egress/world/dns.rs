//! The far side's name server, UDP and TCP. It shares no code with pond's, so that a misreading has to happen twice to pass.
//! It hears questions to any address; replies come from [`super::sides::RESOLVER`], so only who asked there believes them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use super::log::{Event, Log, Wire};
use super::zone::{A, AAAA, Answer, Record, Zone};

const QR_RD_RA: u16 = 0x8180;
const TRUNCATED: u16 = 0x0200;
const NO_SUCH_NAME: u16 = 3;
const SERVER_FAILURE: u16 = 2;
const CNAME: u16 = 5;

/// Serves until the process ends; must be called on the far side.
pub(crate) fn serve(zone: &Arc<Zone>, log: &Log) {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 53)).unwrap();
    let (names, seen) = (Arc::clone(zone), log.clone());
    std::thread::spawn(move || over_udp(&Arc::new(socket), &names, &seen));
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 53)).unwrap();
    let (zone, log) = (Arc::clone(zone), log.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (zone, log) = (Arc::clone(&zone), log.clone());
            std::thread::spawn(move || over_tcp(stream, &zone, &log));
        }
    });
}

fn over_udp(socket: &Arc<UdpSocket>, zone: &Arc<Zone>, log: &Log) {
    let mut buffer = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let message = buffer[..length].to_vec();
        let (socket, zone, log) = (Arc::clone(socket), Arc::clone(zone), log.clone());
        // Some answers take their time, and others must not wait for them.
        std::thread::spawn(move || {
            if let Some(reply) = reply(&message, Wire::Udp, &zone, &log) {
                // The client may be gone already.
                drop(socket.send_to(&reply, from));
            }
        });
    }
}

fn over_tcp(mut stream: TcpStream, zone: &Zone, log: &Log) -> Option<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length).ok()?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message).ok()?;
        let reply = reply(&message, Wire::Tcp, zone, log)?;
        let length = u16::try_from(reply.len()).ok()?;
        stream.write_all(&[&length.to_be_bytes()[..], &reply].concat()).ok()?;
    }
}

/// The answer to a message, if it gets one.
fn reply(message: &[u8], over: Wire, zone: &Zone, log: &Log) -> Option<Vec<u8>> {
    let (name, after) = read_name(message.get(12..)?)?;
    let question = message.get(12..12 + after + 4)?;
    let kind = u16::from_be_bytes([question[after], question[after + 1]]);
    log.note(Event::Query { name: name.to_ascii_lowercase(), kind, over });
    let (code, records) = match zone.answer(&name, kind) {
        Answer::Records(records) => (0, records),
        Answer::Truncated(_) if over == Wire::Udp => (TRUNCATED, Vec::new()),
        Answer::Truncated(records) => (0, records),
        Answer::NoSuchName => (NO_SUCH_NAME, Vec::new()),
        Answer::ServerFailure => (SERVER_FAILURE, Vec::new()),
        Answer::Silence => return None,
    };
    let records: Vec<Vec<u8>> = records.iter().map(encode).collect();
    let too_long = over == Wire::Udp && records.iter().map(Vec::len).sum::<usize>() > 1100;
    let (code, records) = if too_long { (TRUNCATED, Vec::new()) } else { (code, records) };
    let count = u16::try_from(records.len()).ok()?;
    let mut reply = message[..2].to_vec();
    for word in [QR_RD_RA | code, 1, count, 0, 0] {
        reply.extend(word.to_be_bytes());
    }
    reply.extend(question);
    reply.extend(records.concat());
    Some(reply)
}

/// A name without compression, as questions have it, and where it ends.
fn read_name(bytes: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(bytes.get(at..at + length)?).into_owned());
        at += length;
    }
}

fn write_name(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat();
    let mut bytes: Vec<u8> = name.split('.').filter(|part| !part.is_empty()).flat_map(label).collect();
    bytes.push(0);
    bytes
}

fn encode(record: &Record) -> Vec<u8> {
    let (owner, kind, seconds, data) = match record {
        Record::Address { owner, address: IpAddr::V4(v4), seconds } => {
            (owner, A, *seconds, v4.octets().to_vec())
        }
        Record::Address { owner, address: IpAddr::V6(v6), seconds } => {
            (owner, AAAA, *seconds, v6.octets().to_vec())
        }
        Record::Alias { owner, target } => (owner, CNAME, 300, write_name(target)),
    };
    let length = u16::try_from(data.len()).unwrap();
    let head = [&kind.to_be_bytes()[..], &1_u16.to_be_bytes(), &seconds.to_be_bytes(), &length.to_be_bytes()];
    [write_name(owner), head.concat(), data].concat()
}

/// A question as a client inside sends it.
pub(crate) fn question(name: &str, kind: u16) -> Vec<u8> {
    let head = [0xBEEF_u16, 0x0100, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [head, write_name(name), [kind, 1].map(u16::to_be_bytes).concat()].concat()
}
