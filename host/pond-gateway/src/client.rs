//! A client of the job at a door: what it sent ahead, its hello, and whether it is still there. Zone: host, reading hostile
//! bytes. Invariant: at most 64 KiB of a client are held before its tunnel runs.

use std::time::Duration;

use pond_policy::egress::{Denial, DenialCode, HostName};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::connect;
use crate::hello::{self, HelloFault};
use crate::http::{self, Refusal};
use crate::relay::write_all;

/// A client that opened a tunnel speaks first, within this time.
const HELLO_TIME: Duration = Duration::from_secs(10);
const MAX_EARLY: usize = hello::MAX_RAW;
/// `access_denied`, fatal: clients show it at once instead of waiting for a server that never answers.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// What a request in clear text begins with.
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"TRACE ", b"CONNECT "];
const RETRY_AFTER_SECONDS: &str = "5";

/// A connection and the bytes read from it so far.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) early: Vec<u8>,
}

/// Why a client's first bytes led nowhere.
#[derive(Debug)]
pub(crate) enum NoHello {
    /// It left before it said anything.
    Left,
    Fault(HelloFault),
    Late,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, early: Vec::new() }
    }

    /// Runs `work`, unless the client leaves first; `None` then.
    pub(crate) async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.leaves() => None,
            done = work => Some(done),
        }
    }

    /// Resolves when the client has closed its side; bytes it sends meanwhile are kept.
    async fn leaves(&mut self) {
        while self.early.len() < MAX_EARLY {
            if !self.more().await {
                return;
            }
        }
        std::future::pending().await
    }

    /// Waits until the client has said something; false when it left without a word.
    pub(crate) async fn speaks(&mut self) -> bool {
        !self.early.is_empty() || self.more().await
    }

    /// Whether what it said so far can be TLS.
    pub(crate) fn begins_tls(&self) -> bool {
        self.early.first() == Some(&hello::HANDSHAKE)
    }

    /// Reads once; false when there is no more to come.
    async fn more(&mut self) -> bool {
        let room = MAX_EARLY.saturating_sub(self.early.len()).min(4 << 10);
        self.early.reserve(room);
        matches!((&mut self.stream).take(as_u64(room)).read_buf(&mut self.early).await, Ok(1..))
    }

    /// The host the client's TLS hello names. The bytes stay in `early`.
    pub(crate) async fn hello(&mut self) -> Result<HostName, NoHello> {
        tokio::time::timeout(HELLO_TIME, self.whole_hello()).await.unwrap_or(Err(NoHello::Late))
    }

    async fn whole_hello(&mut self) -> Result<HostName, NoHello> {
        loop {
            if let Some(name) = hello::read(&self.early).map_err(NoHello::Fault)? {
                return Ok(name);
            }
            if !self.more().await {
                return Err(NoHello::Left);
            }
        }
    }

    /// The refusal of a client that speaks HTTP where only HTTPS passes, if it does so; `target` is what it came for,
    /// unless it says better.
    pub(crate) async fn clear_text(&mut self, target: &str) -> Option<Denial> {
        if !METHODS.iter().any(|method| self.early.starts_with(method)) {
            return None;
        }
        let head = http::read_head(&mut self.stream, &mut self.early).await.ok()?;
        Some(connect::in_clear_text(&head, target))
    }

    /// Answers a client that speaks HTTP. It may be gone, or may not care; the record is made either way.
    pub(crate) async fn answer(mut self, denial: &Denial) {
        let code = denial.code();
        let mut refusal = Refusal::new(code.status(), code.name(), denial.reason_phrase());
        if code == DenialCode::TooManyTunnels {
            refusal = refusal.with_header("Retry-After", RETRY_AFTER_SECONDS);
        }
        drop(http::refuse(&mut self.stream, &refusal).await);
    }

    /// Ends a TLS client's attempt so that it knows.
    pub(crate) async fn alert(self) {
        let told = write_all(&self.stream, &ALERT);
        // A client that does not take seven bytes is not waited for.
        drop(tokio::time::timeout(Duration::from_secs(1), told).await);
    }
}

impl NoHello {
    /// The refusal to record; none for a client that merely left.
    pub(crate) fn denial(&self, target: &str) -> Option<Denial> {
        match self {
            Self::Left => None,
            Self::Fault(fault) => Some(Denial::at_door(fault.code(), target, fault.to_string())),
            Self::Late => {
                let hint = "only HTTPS passes, and its client speaks first";
                Some(Denial::at_door(DenialCode::HelloTimeout, target, hint))
            }
        }
    }
}

fn as_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
