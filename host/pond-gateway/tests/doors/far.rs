//! The far side: a name server that says what it is told, and servers that do what they are told.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::world::world;

pub(crate) const DNS: &str = "93.184.216.53";

/// What the name server says about a name.
#[derive(Clone)]
pub(crate) enum Says {
    /// These addresses, each in its own record type.
    Addresses(Vec<IpAddr>),
    /// One list after the other, the last one for good: a name that is rebound. Not remembered by anyone who obeys.
    Flips(Vec<Vec<IpAddr>>),
    /// Another name.
    Alias(&'static str),
    ServerFailure,
    Silence,
}

#[derive(Default)]
struct Zone {
    says: HashMap<String, Says>,
    asked: HashMap<String, usize>,
}

static ZONE: LazyLock<Arc<Mutex<Zone>>> = LazyLock::new(|| {
    let zone = Arc::new(Mutex::new(Zone::default()));
    let socket = world().far.inside(|| UdpSocket::bind((DNS, 53)).unwrap());
    let shared = Arc::clone(&zone);
    std::thread::spawn(move || serve_names(&socket, &shared));
    zone
});

/// Makes the name server say something about `name`.
pub(crate) fn say(name: &str, says: Says) {
    ZONE.lock().unwrap().says.insert(name.to_owned(), says);
}

pub(crate) fn addresses(name: &str, texts: &[&str]) {
    say(name, Says::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect()));
}

/// How often the name server was asked for the addresses (A) of `name`.
pub(crate) fn asked(name: &str) -> usize {
    ZONE.lock().unwrap().asked.get(name).copied().unwrap_or(0)
}

fn serve_names(socket: &UdpSocket, zone: &Mutex<Zone>) {
    let mut packet = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut packet) {
        let Ok(query) = Message::from_vec(&packet[..length]) else { continue };
        if let Some(reply) = answer(&query, &mut zone.lock().unwrap()) {
            socket.send_to(&reply.to_vec().unwrap(), from).unwrap();
        }
    }
}

fn answer(query: &Message, zone: &mut Zone) -> Option<Message> {
    let question = query.queries.first()?;
    let kind = question.query_type();
    let text = question.name().to_ascii().trim_end_matches('.').to_lowercase();
    let count = zone.asked.entry(text.clone()).or_default();
    let round = *count;
    if kind == RecordType::A {
        *count += 1;
    }
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.recursion_desired = true;
    reply.metadata.recursion_available = true;
    reply.add_query(question.clone());
    let mut name = question.name().clone();
    let mut text = text;
    loop {
        let (ttl, addresses) = match zone.says.get(&text).cloned() {
            Some(Says::Silence) => return None,
            Some(Says::ServerFailure) => {
                reply.metadata.response_code = ResponseCode::ServFail;
                return Some(reply);
            }
            None => {
                reply.metadata.response_code = ResponseCode::NXDomain;
                return Some(reply);
            }
            Some(Says::Alias(other)) => {
                let target = Name::from_ascii(format!("{other}.")).unwrap();
                reply.add_answer(Record::from_rdata(name, 60, RData::CNAME(CNAME(target.clone()))));
                (name, text) = (target, other.to_owned());
                continue;
            }
            Some(Says::Addresses(addresses)) => (60, addresses),
            Some(Says::Flips(rounds)) => (0, rounds[round.min(rounds.len() - 1)].clone()),
        };
        for address in addresses {
            match (address, kind) {
                (IpAddr::V4(v4), RecordType::A) => {
                    reply.add_answer(Record::from_rdata(name.clone(), ttl, RData::A(A(v4))));
                }
                (IpAddr::V6(v6), RecordType::AAAA) => {
                    reply.add_answer(Record::from_rdata(name.clone(), ttl, RData::AAAA(AAAA(v6))));
                }
                (IpAddr::V4(_) | IpAddr::V6(_), _) => {}
            }
        }
        return Some(reply);
    }
}

/// A server on the far side; it accepts when it is asked to.
pub(crate) struct Server(TcpListener);

/// A server at an address of its own that `name` leads to.
pub(crate) fn host(name: &str) -> Server {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let address = format!("93.184.220.{}", NEXT.fetch_add(1, Ordering::Relaxed));
    addresses(name, &[&address]);
    Server::at(&format!("{address}:443"))
}

impl Server {
    pub(crate) fn at(address: &str) -> Self {
        let address: SocketAddr = address.parse().unwrap();
        Self(world().far.inside(|| TcpListener::bind(address).unwrap()))
    }

    pub(crate) fn accept(&self) -> TcpStream {
        let (stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(super::gate::PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.0.local_addr().unwrap().ip()
    }

    /// Whether anybody has connected.
    pub(crate) fn was_reached(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let reached = self.0.accept().is_ok();
        self.0.set_nonblocking(false).unwrap();
        reached
    }
}

/// Reads exactly as many bytes as `expected` has and compares.
#[track_caller]
pub(crate) fn expect(stream: &mut impl Read, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, expected);
}

pub(crate) fn send(stream: &mut impl Write, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}
