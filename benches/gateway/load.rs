//! The clients: each tunnel is a CONNECT, a hello and what the far host does then. Port 0 means no proxy at all.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::world::{FLOW, HTTPS, Host, MODEL, QUICK, QUIET};
use super::{hello, model};

/// On one machine nothing honest takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
const MAX_HEAD: usize = 4 << 10;
/// On nobody's list.
const DENIED: Host = Host { name: "denied.example.org", address: "93.184.220.6" };
/// What a proxy answers.
const OPENED: &str = "200";
const REFUSED: &str = "403";
/// Clients at once that open tunnel after tunnel.
const CALLERS: u64 = 16;

pub(crate) fn serve(certificates: &Path) -> Result<()> {
    let mut held = Vec::new();
    super::answer(|words| {
        let (what, numbers) = words.split_first().context("an empty question")?;
        let numbers = numbers.iter().map(|word| Ok(word.parse()?)).collect::<Result<Vec<u64>>>()?;
        match (*what, &numbers[..]) {
            ("await", [port]) => awaited(port_of(*port)?).map(|()| vec![0]),
            ("verdicts", [port, count]) => verdicts(port_of(*port)?, *count),
            ("refusals", [port, count]) => refusals(port_of(*port)?, *count),
            ("dials", [count]) => dials(*count),
            ("tunnels", [port, count]) => timed(|| tunnels(port_of(*port)?, *count)),
            ("streams", [port, streams, bytes]) => timed(|| pour(port_of(*port)?, *streams, *bytes)),
            ("hold", [port, count]) => timed(|| {
                let port = port_of(*port)?;
                held = (0..*count).map(|_| quiet(port)).collect::<Result<_>>()?;
                Ok(())
            }),
            ("release", []) => timed(|| {
                held.clear();
                Ok(())
            }),
            ("calls", [port, count]) => match port_of(*port)? {
                0 => model::calls(model::direct(connect(0, MODEL)?, certificates)?, *count),
                port => model::calls(connect(port, MODEL)?, *count),
            },
            ("events", [port, count]) => match port_of(*port)? {
                0 => model::events(model::direct(connect(0, MODEL)?, certificates)?, *count),
                port => model::events(connect(port, MODEL)?, *count),
            },
            _ => bail!("no such question"),
        }
    })
}

fn port_of(number: u64) -> Result<u16> {
    Ok(u16::try_from(number)?)
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Vec<u64>> {
    let started = Instant::now();
    work()?;
    nanoseconds(started).map(|took| vec![took])
}

fn nanoseconds(since: Instant) -> Result<u64> {
    Ok(u64::try_from(since.elapsed().as_nanos())?)
}

/// Waits until somebody serves the port.
fn awaited(port: u16) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while dial((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(Instant::now() < until, "nobody serves port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the client of a proxy has to reach it")]
fn dial(address: (Ipv4Addr, u16)) -> std::io::Result<TcpStream> {
    TcpStream::connect(address)
}

/// A connection to the proxy, or to the host itself.
fn connect(port: u16, host: Host) -> Result<TcpStream> {
    let stream = match port {
        0 => dial((host.address.parse()?, HTTPS)),
        port => dial((Ipv4Addr::LOCALHOST, port)),
    }?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Asks the proxy for a tunnel, and waits for this answer.
fn ask(stream: &mut TcpStream, host: Host, answer: &str) -> Result<()> {
    let target = format!("{}:{HTTPS}", host.name);
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())?;
    let mut head = [0; MAX_HEAD];
    let mut length = 0;
    loop {
        let count = stream.read(head.get_mut(length..).unwrap_or_default())?;
        ensure!(count > 0, "the proxy said nothing");
        length += count;
        let said = head.get(..length).unwrap_or_default();
        // A refusal has a body, which nobody waits for.
        if said.windows(4).any(|window| window == b"\r\n\r\n") {
            let status = String::from_utf8_lossy(said);
            ensure!(status.split(' ').nth(1) == Some(answer), "the proxy said {status}");
            return Ok(());
        }
    }
}

/// A tunnel whose hello is on its way.
fn tunnel(port: u16, host: Host) -> Result<TcpStream> {
    let mut stream = connect(port, host)?;
    if port != 0 {
        ask(&mut stream, host, OPENED)?;
    }
    stream.write_all(&hello::of(host.name))?;
    Ok(stream)
}

/// From the request to the verdict, one tunnel after the other; each is used and closed before the next.
fn verdicts(port: u16, count: u64) -> Result<Vec<u64>> {
    (0..count)
        .map(|_| {
            let mut stream = connect(port, QUICK)?;
            let started = Instant::now();
            ask(&mut stream, QUICK, OPENED)?;
            let took = nanoseconds(started)?;
            stream.write_all(&hello::of(QUICK.name))?;
            use_up(stream)?;
            Ok(took)
        })
        .collect()
}

/// From the request to the refusal, one connection after the other.
fn refusals(port: u16, count: u64) -> Result<Vec<u64>> {
    let refusal = |_| {
        let mut stream = connect(port, DENIED)?;
        let started = Instant::now();
        ask(&mut stream, DENIED, REFUSED)?;
        nanoseconds(started)
    };
    (0..count).map(refusal).collect()
}

/// How long the host itself takes to be connected to; nothing a proxy does is faster.
fn dials(count: u64) -> Result<Vec<u64>> {
    let dial = |_| {
        let started = Instant::now();
        let mut stream = connect(0, QUICK)?;
        let took = nanoseconds(started)?;
        stream.write_all(&hello::of(QUICK.name))?;
        use_up(stream)?;
        Ok(took)
    };
    (0..count).map(dial).collect()
}

/// Takes the far host's byte, and closes in order.
fn use_up(mut stream: TcpStream) -> Result<()> {
    stream.read_exact(&mut [0])?;
    stream.shutdown(Shutdown::Write)?;
    ensure!(stream.read(&mut [0])? == 0, "the far host said more than it should");
    Ok(())
}

/// So many tunnels, opened, used and closed by several clients at once.
fn tunnels(port: u16, count: u64) -> Result<()> {
    at_once(CALLERS, || (0..count / CALLERS).try_for_each(|_| use_up(tunnel(port, QUICK)?)))
}

/// Streams of so many bytes each, all at once.
fn pour(port: u16, streams: u64, bytes: u64) -> Result<()> {
    at_once(streams, || {
        let mut stream = tunnel(port, FLOW)?;
        stream.write_all(&bytes.to_be_bytes())?;
        let mut buffer = vec![0; 256 << 10];
        let mut left = bytes;
        while left > 0 {
            let count = stream.read(&mut buffer)?;
            ensure!(count > 0, "{left} bytes are missing");
            left = left.checked_sub(u64::try_from(count)?).context("more bytes than were asked for")?;
        }
        Ok(())
    })
}

fn quiet(port: u16) -> Result<TcpStream> {
    tunnel(port, QUIET)
}

/// The same work on so many threads.
fn at_once(threads: u64, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_panicked) => bail!("a client panicked"),
        })
    })
}
