//! One row of the catalogue, and how it is judged.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::world::log::Log;
use crate::world::sides::RESOLVER;
use crate::world::zone::{DOMAIN, Script, public};

/// Where the bytes are sent from inside.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Door {
    Proxy,
    /// The address listed names resolve to, at the same port; without a control, the address given.
    Front(SocketAddr),
    DnsUdp,
    DnsTcp,
    /// No door at all.
    Tcp(SocketAddr),
    Udp(SocketAddr),
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// One byte per segment.
    Bytewise(Vec<u8>),
    Pause(u64),
    /// Wait for something to come back.
    Reply,
    /// Say that nothing more follows.
    Finish,
}

/// What comes back from the gateway.
#[derive(Debug, Clone)]
pub(crate) enum Expect {
    /// One refusal with one of these statuses, then the end.
    Refused(&'static [u16]),
    /// No refusal worth reading, but the end, or a 400.
    NotServed,
    /// A tunnel through which the far side answered.
    Tunnel,
    /// What was sent reached the far side, whatever it thought of it.
    Delivered,
    /// A tunnel that ended before the far side saw a byte of it.
    TunnelRefused,
    /// A tunnel in which a request was refused with 403 before the far side saw a byte of it.
    RefusedInside,
    /// Nothing but perhaps an alert, then the end.
    Silence,
    /// A DNS answer with this code and these addresses.
    Answer(u8, Vec<[u8; 4]>),
    /// The connection cannot even be made.
    NoRoute,
}

/// What the same bytes do where nothing holds them.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    /// The far side is dialled at one of these.
    Reaches(Vec<SocketAddr>),
    /// The far side is asked for this name.
    Asks(String),
    /// The far side sees what was sent.
    Delivers(SocketAddr),
    /// A tunnel opens, wherever it leads.
    Opens,
    /// Nobody ends the connection.
    StaysOpen,
    /// Nothing to see without the control, for this reason.
    Moot(&'static str),
}

pub(crate) struct Row {
    pub(crate) case: u8,
    pub(crate) what: String,
    pub(crate) door: Door,
    pub(crate) steps: Vec<Step>,
    pub(crate) expect: Expect,
    pub(crate) control: Control,
    /// What the far side has to see of it, and may.
    pub(crate) dials: Vec<SocketAddr>,
    pub(crate) queries: Vec<String>,
    /// Names that are allowed for it.
    pub(crate) listed: Vec<String>,
    pub(crate) zone: Vec<(String, Script)>,
    /// Names the host's own hosts file lies about.
    pub(crate) hosts_file: Vec<String>,
}

/// A name of a row's own.
pub(crate) fn own(case: u8, tag: &str) -> String {
    format!("c{case}{tag}.{DOMAIN}")
}

/// Where an unscripted name is.
pub(crate) fn at(name: &str, port: u16) -> SocketAddr {
    SocketAddr::from((public(name), port))
}

impl Row {
    pub(crate) fn new(
        case: u8,
        what: impl Into<String>,
        door: Door,
        expect: Expect,
        control: Control,
    ) -> Self {
        let (steps, dials, queries, listed, zone) = Default::default();
        let (what, hosts_file) = (what.into(), Vec::new());
        Self { case, what, door, steps, expect, control, dials, queries, listed, zone, hosts_file }
    }

    /// Bytes to the proxy that it refuses before it does anything.
    pub(crate) fn refused(
        case: u8,
        what: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
        statuses: &'static [u16],
        control: Control,
    ) -> Self {
        let row = Self::new(case, what, Door::Proxy, Expect::Refused(statuses), control);
        row.send(bytes)
    }

    /// A listed name of its own, unscripted, whose tunnel is opened with `head` and used with `hello`.
    pub(crate) fn tunnel(
        case: u8,
        what: impl Into<String>,
        name: &str,
        head: impl Into<Vec<u8>>,
        hello: impl Into<Vec<u8>>,
    ) -> Self {
        let control = Control::Delivers(at(name, 443));
        let row = Self::new(case, what, Door::Proxy, Expect::Tunnel, control).listing(name).resolving(name);
        row.send(head).step(Step::Reply).send(hello).dialling(at(name, 443))
    }

    pub(crate) fn send(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Send(bytes.into()))
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn listing(mut self, rule: &str) -> Self {
        self.listed.push(rule.to_owned());
        self
    }

    pub(crate) fn resolving(mut self, name: &str) -> Self {
        self.queries.push(name.to_owned());
        self
    }

    pub(crate) fn dialling(mut self, address: SocketAddr) -> Self {
        self.dials.push(address);
        self
    }

    pub(crate) fn scripted(mut self, name: &str, script: Script) -> Self {
        self.zone.push((name.to_owned(), script));
        self
    }

    pub(crate) fn expecting(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    pub(crate) fn controlled(mut self, control: Control) -> Self {
        self.control = control;
        self
    }

    /// For the attacker in the sandbox.
    pub(crate) fn inside(&self) -> Value {
        let door = match self.door {
            Door::Proxy => json!(["tcp", "127.0.0.1", 3128]),
            Door::Front(address) => json!(["tcp", "127.0.0.2", address.port()]),
            Door::DnsUdp => json!(["udp", "127.0.0.1", 53]),
            Door::DnsTcp => json!(["tcp", "127.0.0.1", 53]),
            Door::Tcp(address) => json!(["tcp", address.ip(), address.port()]),
            Door::Udp(address) => json!(["udp", address.ip(), address.port()]),
        };
        self.order(&door)
    }

    /// For the attacker on the host side.
    pub(crate) fn outside(&self) -> Value {
        let door = match self.door {
            Door::Proxy => json!(["tcp", "127.0.0.1", 3128]),
            Door::DnsUdp => json!(["udp", RESOLVER, 53]),
            Door::DnsTcp => json!(["tcp", RESOLVER, 53]),
            Door::Front(address) | Door::Tcp(address) => json!(["tcp", address.ip(), address.port()]),
            Door::Udp(address) => json!(["udp", address.ip(), address.port()]),
        };
        self.order(&door)
    }

    fn order(&self, door: &Value) -> Value {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let step = |step: &Step| match step {
            Step::Send(bytes) => json!(["send", hex(bytes)]),
            Step::Bytewise(bytes) => json!(["bytewise", hex(bytes)]),
            Step::Pause(milliseconds) => json!(["pause", milliseconds]),
            Step::Reply => json!(["reply", 0]),
            Step::Finish => json!(["finish", 0]),
        };
        json!({ "door": door, "steps": self.steps.iter().map(step).collect::<Vec<_>>(), "patience": 0 })
    }

    pub(crate) fn judge(&self, reply: &Reply, log: &Log) -> Result<(), String> {
        self.expect.judge(reply).map_err(|why| format!("{why}; {reply}"))?;
        let dialled = log.dials();
        for address in &self.dials {
            if !dialled.contains(address) {
                return Err(format!("{address} was never dialled; {reply}"));
            }
            let seen = !log.first_bytes(*address).is_empty();
            if seen && matches!(self.expect, Expect::TunnelRefused | Expect::RefusedInside) {
                return Err("the far side saw what was sent".to_owned());
            }
            if !seen && matches!(self.expect, Expect::Tunnel | Expect::Delivered) {
                return Err(format!("the far side saw nothing; {reply}"));
            }
        }
        let asked = log.queries();
        for name in &self.queries {
            // One resolution is one question per family.
            let times = asked.iter().filter(|other| *other == name).count();
            if times == 0 || (times > 2 && matches!(self.expect, Expect::Tunnel)) {
                return Err(format!("{name} was asked for {times} times"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "case {} ({})", self.case, self.what)
    }
}

impl Expect {
    fn judge(&self, reply: &Reply) -> Result<(), String> {
        let closed = reply.end == "closed";
        let alert_at_most = |bytes: &[u8]| bytes.first().is_none_or(|first| *first == 0x15);
        let good = match self {
            Self::Refused(statuses) => {
                closed
                    && reply.is_one_refusal()
                    && reply.status().is_some_and(|status| statuses.contains(&status))
            }
            Self::NotServed => closed && (reply.bytes.is_empty() || reply.status() == Some(400)),
            Self::Tunnel => reply.tunnelled().is_some_and(|bytes| bytes.first() == Some(&0x16)),
            Self::Delivered => reply.tunnelled().is_some(),
            Self::TunnelRefused => closed && reply.tunnelled().is_some_and(alert_at_most),
            Self::RefusedInside => {
                let refusal = |bytes: &[u8]| bytes.starts_with(b"HTTP/1.1 403 pond: https only: ");
                closed && reply.tunnelled().is_some_and(refusal)
            }
            Self::Silence => closed && alert_at_most(&reply.bytes),
            Self::Answer(code, addresses) => reply.dns() == Some((*code, addresses.clone())),
            Self::NoRoute => {
                matches!(reply.end.as_str(), "ENETUNREACH" | "ECONNREFUSED" | "EACCES" | "EPERM")
            }
        };
        if good { Ok(()) } else { Err(format!("expected {self:?}")) }
    }
}

impl Control {
    pub(crate) fn reaches(name: &str) -> Self {
        Self::Reaches(vec![at(name, 443)])
    }

    /// Why there is nothing to see, where that is so.
    pub(crate) fn moot(&self) -> Option<&'static str> {
        if let Self::Moot(why) = self { Some(why) } else { None }
    }

    pub(crate) fn reaches_address(address: impl Into<IpAddr>) -> Self {
        Self::Reaches(vec![SocketAddr::new(address.into(), 443)])
    }

    pub(crate) fn judge(&self, reply: &Reply, log: &Log) -> Result<(), String> {
        let good = match self {
            Self::Reaches(any) => log.dials().iter().any(|address| any.contains(address)),
            Self::Asks(name) => log.queries().contains(name),
            Self::Delivers(address) => !log.first_bytes(*address).is_empty(),
            Self::Opens => reply.status() == Some(200),
            Self::StaysOpen => reply.end == "open",
            Self::Moot(_) => true,
        };
        if good { Ok(()) } else { Err(format!("expected {self:?}")) }
    }
}

/// What an attacker got.
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: String,
}

impl Reply {
    pub(crate) fn parse(value: &Value) -> Self {
        let text = value["reply"].as_str().unwrap();
        let byte = |index| u8::from_str_radix(&text[index..index + 2], 16).unwrap();
        let bytes = (0..text.len()).step_by(2).map(byte).collect();
        Self { bytes, end: value["end"].as_str().unwrap().to_owned() }
    }

    fn status(&self) -> Option<u16> {
        let line = self.bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
        std::str::from_utf8(line).ok()?.parse().ok()
    }

    /// One head, and in its reason phrase who refused.
    fn is_one_refusal(&self) -> bool {
        let text = String::from_utf8_lossy(&self.bytes);
        let line = text.lines().next().unwrap_or_default();
        line.contains("pond") && text.matches("HTTP/1.").count() == 1
    }

    /// What came through a tunnel, if there is one: a reply to CONNECT has no body and says so by silence.
    fn tunnelled(&self) -> Option<&[u8]> {
        if self.status() != Some(200) {
            // The transparent door has no head.
            return (self.bytes.first() == Some(&0x16)).then_some(self.bytes.as_slice());
        }
        let end = self.bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&self.bytes[..end]).to_lowercase();
        let framed = head.contains("content-length") || head.contains("transfer-encoding");
        (!framed).then_some(&self.bytes[end + 4..])
    }

    /// The code and the addresses of a DNS answer, with or without the length before it.
    fn dns(&self) -> Option<(u8, Vec<[u8; 4]>)> {
        let message =
            if self.bytes.get(..2)? == [0xBE, 0xEF] { &self.bytes[..] } else { self.bytes.get(2..)? };
        let count = usize::from(u16::from_be_bytes([*message.get(6)?, *message.get(7)?]));
        // An address record's data is its last four bytes, and nothing of ours follows it.
        let addresses = match count {
            0 => Vec::new(),
            1 if message.ends_with(&[127, 0, 0, 2]) => vec![[127, 0, 0, 2]],
            _ => return None,
        };
        Some((message.get(3)? & 0x0F, addresses))
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.bytes[..self.bytes.len().min(160)];
        write!(f, "got {:?}, {}", String::from_utf8_lossy(shown), self.end)
    }
}
