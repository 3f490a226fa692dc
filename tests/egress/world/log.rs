//! What the far side saw, in order: the only witness a test believes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Query {
        name: String,
        kind: u16,
        over: Wire,
    },
    /// Somebody connected to this address of the far side.
    Dial {
        to: SocketAddr,
    },
    /// The first bytes somebody sent on a connection.
    First {
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    Request(Request),
    /// A connection ended, by whichever side.
    End {
        to: SocketAddr,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Udp,
    Tcp,
}

/// One HTTP request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The name the client asked for in the TLS handshake, or in clear text in `Host`.
    pub(crate) host: String,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    pub(crate) fn note(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// Names asked for, each as often as it was asked.
    pub(crate) fn queries(&self) -> Vec<String> {
        let name = |event| match event {
            Event::Query { name, .. } => Some(name),
            Event::Dial { .. } | Event::First { .. } | Event::Request(_) | Event::End { .. } => None,
        };
        self.all().into_iter().filter_map(name).collect()
    }

    pub(crate) fn dials(&self) -> Vec<SocketAddr> {
        let address = |event| match event {
            Event::Dial { to } => Some(to),
            Event::Query { .. } | Event::First { .. } | Event::Request(_) | Event::End { .. } => None,
        };
        self.all().into_iter().filter_map(address).collect()
    }

    /// First bytes of every connection to this address.
    pub(crate) fn first_bytes(&self, address: SocketAddr) -> Vec<Vec<u8>> {
        let bytes = |event| match event {
            Event::First { to, bytes } if to == address => Some(bytes),
            Event::First { .. }
            | Event::Dial { .. }
            | Event::Query { .. }
            | Event::Request(_)
            | Event::End { .. } => None,
        };
        self.all().into_iter().filter_map(bytes).collect()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        let request = |event| match event {
            Event::Request(request) => Some(request),
            Event::Dial { .. } | Event::First { .. } | Event::Query { .. } | Event::End { .. } => None,
        };
        self.all().into_iter().filter_map(request).collect()
    }
}
