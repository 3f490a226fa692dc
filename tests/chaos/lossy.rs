//! A way between two processes on which requests get lost, come twice, come late, overtake each other, and come again much later;
//! and answers get lost or break off. It reads everything, and may never see a planted secret.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::dice::Dice;
use crate::http;

/// What somebody who reads everything looks for.
pub(crate) const PLANTED: &str = "planted-where-nobody-may-read-it";

/// Longer than a lease, and than it takes to give the job to somebody else.
const MUCH_TOO_LATE: Duration = Duration::from_millis(9000);

#[derive(Debug, Clone, Copy)]
enum Mishap {
    LoseRequest,
    LoseAnswer,
    CutAnswer,
    /// The same twice at once; the second one's answer counts.
    Twice,
    Late,
    /// The same again, much later.
    Again,
}

const MISHAPS: [Mishap; 6] =
    [Mishap::LoseRequest, Mishap::LoseAnswer, Mishap::CutAnswer, Mishap::Twice, Mishap::Late, Mishap::Again];

pub(crate) struct Lossy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    to: u16,
    dice: Mutex<Dice>,
    /// Mishaps in a hundred requests.
    weather: AtomicU64,
    mishaps: AtomicU64,
    saw_a_secret: AtomicBool,
    /// The next result is held back.
    holds_a_result: AtomicBool,
}

impl Lossy {
    pub(crate) fn to(to: u16, dice: Dice) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to,
            dice: Mutex::new(dice),
            weather: AtomicU64::new(0),
            mishaps: AtomicU64::new(0),
            saw_a_secret: AtomicBool::new(false),
            holds_a_result: AtomicBool::new(false),
        });
        let between = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let between = Arc::clone(&between);
                // A connection that breaks is what this is about.
                thread::spawn(move || between.serve(stream).unwrap_or_default());
            }
        });
        Self { port, shared }
    }

    pub(crate) fn weather(&self, percent: u64) {
        self.shared.weather.store(percent, Ordering::Relaxed);
    }

    pub(crate) fn mishaps(&self) -> u64 {
        self.shared.mishaps.load(Ordering::Relaxed)
    }

    /// The next result comes much too late, and its answer nowhere.
    pub(crate) fn hold_a_result(&self) {
        self.shared.holds_a_result.store(true, Ordering::SeqCst);
    }

    /// Whether that is still to come; if so, it will not.
    pub(crate) fn let_results_pass(&self) -> bool {
        self.shared.holds_a_result.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn waits_for_a_result(&self) -> bool {
        self.shared.holds_a_result.load(Ordering::SeqCst)
    }

    pub(crate) fn saw_a_secret(&self) -> bool {
        self.shared.saw_a_secret.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn mishap(&self) -> Option<(Mishap, Duration, usize)> {
        let mut dice = self.dice.lock().unwrap();
        if !dice.percent(self.weather.load(Ordering::Relaxed)) {
            return None;
        }
        self.mishaps.fetch_add(1, Ordering::Relaxed);
        let pause = Duration::from_millis(dice.between(20, 1500));
        Some((dice.one_of(&MISHAPS), pause, usize::try_from(dice.between(0, 400)).unwrap()))
    }

    fn look(&self, bytes: &[u8]) {
        if bytes.windows(PLANTED.len()).any(|window| window == PLANTED.as_bytes()) {
            self.saw_a_secret.store(true, Ordering::Relaxed);
        }
    }

    fn serve(self: &Arc<Self>, mut down: TcpStream) -> io::Result<()> {
        let Some(request) = request(&mut down)? else { return Ok(()) };
        self.look(&request);
        if request.starts_with(b"POST /orch/complete") && self.holds_a_result.swap(false, Ordering::SeqCst) {
            thread::sleep(MUCH_TOO_LATE);
            return self.pass(&request, &mut io::sink(), usize::MAX);
        }
        // An answer that never ends is neither waited for nor repeated.
        let goes_on = request.starts_with(b"GET /relay/feed");
        match self.mishap() {
            Some((Mishap::LoseAnswer | Mishap::Twice | Mishap::Again, ..)) if goes_on => Ok(()),
            None => self.pass(&request, &mut down, usize::MAX),
            Some((Mishap::LoseRequest, ..)) => Ok(()),
            Some((Mishap::LoseAnswer, ..)) => self.pass(&request, &mut io::sink(), usize::MAX),
            Some((Mishap::CutAnswer, _, most)) => self.pass(&request, &mut down, most),
            Some((Mishap::Twice, ..)) => {
                self.pass(&request, &mut io::sink(), usize::MAX)?;
                self.pass(&request, &mut down, usize::MAX)
            }
            Some((Mishap::Late, pause, _)) => {
                thread::sleep(pause);
                self.pass(&request, &mut down, usize::MAX)
            }
            Some((Mishap::Again, pause, _)) => {
                let passed = self.pass(&request, &mut down, usize::MAX);
                let this = Arc::clone(self);
                thread::spawn(move || {
                    thread::sleep(pause * 2);
                    this.pass(&request, &mut io::sink(), usize::MAX).unwrap_or_default();
                });
                passed
            }
        }
    }

    /// Sends the request on, and back as much of the answer as `most` says, while it comes.
    fn pass(&self, request: &[u8], down: &mut dyn Write, most: usize) -> io::Result<()> {
        let mut up = TcpStream::connect(("127.0.0.1", self.to))?;
        up.set_nodelay(true)?;
        up.write_all(request)?;
        let (mut buffer, mut left) = (vec![0; 64 << 10], most);
        loop {
            let read = up.read(&mut buffer)?;
            self.look(&buffer[..read]);
            let length = read.min(left);
            if length == 0 {
                up.shutdown(Shutdown::Both).unwrap_or_default();
                return Ok(());
            }
            down.write_all(&buffer[..length])?;
            down.flush()?;
            left -= length;
        }
    }
}

/// A whole request, changed so that its connection ends with the answer.
fn request(from: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let (mut raw, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let end = loop {
        if let Some(at) = raw.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(None);
        }
        raw.extend_from_slice(&buffer[..read]);
    };
    let head = String::from_utf8_lossy(&raw[..end]).into_owned();
    let whole = end + 4 + http::length(&head.to_ascii_lowercase()).unwrap_or(0);
    while raw.len() < whole {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(None);
        }
        raw.extend_from_slice(&buffer[..read]);
    }
    let kept = head.split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let mut request = kept.collect::<Vec<_>>().join("\r\n").into_bytes();
    request.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    request.extend_from_slice(&raw[end + 4..whole]);
    Ok(Some(request))
}
