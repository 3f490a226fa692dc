//! One job with its gateway: the process, its control socket, its doors and a client inside.

use std::collections::VecDeque;
use std::io::{Read, Seek, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use pond_wire::gateway::{
    Caps, Command, Door, Doors, Event, Identity, MAX_EVENT_BYTES, Order, Reach, Refused, Tunnel, doors,
    events, journal,
};
use rustix::fs::{MemfdFlags, SealFlags};

use super::far::{self, Server};
use super::world::{Net, world};

pub(crate) const ROLE: &str = "POND_TEST_GATEWAY";
/// Nothing on one machine takes longer; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const CAPS: Caps = Caps {
    tunnels: 64,
    tunnel_bytes: 1 << 40,
    total_bytes: 1 << 40,
    lent_bytes: None,
    idle_seconds: 600,
    lifetime_seconds: 3600,
};

pub(crate) struct Gate {
    pub(crate) job: Net,
    pub(crate) control: Option<OwnedFd>,
    pub(crate) process: Child,
    /// What the gateway has decided, sent or not.
    pub(crate) journal: std::fs::File,
    /// Events that came in one packet with an earlier one.
    heard: Mutex<VecDeque<Event>>,
}

pub(crate) fn order(reach: Reach, caps: Caps) -> Order {
    Order {
        job: "job-1".into(),
        reach,
        resolvers: vec![format!("{}:53", far::DNS).parse().unwrap()],
        nat64: None,
        caps,
        broker: None,
        git: Vec::new(),
        identity: Some(Identity { uid: 54321, gid: 54321 }),
    }
}

pub(crate) fn allow(rules: &[&str]) -> Reach {
    Reach::Allowlist { allow: rules.iter().map(|rule| (*rule).to_owned()).collect(), deny: vec![] }
}

impl Gate {
    /// A job that may reach these hosts.
    pub(crate) fn to(rules: &[&str]) -> Self {
        Self::new(&order(allow(rules), CAPS))
    }

    pub(crate) fn new(order: &Order) -> Self {
        let job = Net::new();
        let gate = Self::start(order, job);
        let listeners = gate.job.inside(listeners);
        gate.give_doors(&listeners);
        assert_eq!(gate.event(), Event::Serving);
        gate
    }

    /// A gateway that has its order and no doors yet.
    pub(crate) fn start(order: &Order, job: Net) -> Self {
        let (control, theirs) = pond_sys::socket::pair().unwrap();
        // A few packets wait for a host that does not listen, and no more: the rest waits in the gateway.
        rustix::net::sockopt::set_socket_send_buffer_size(&theirs, MAX_EVENT_BYTES + 4096).unwrap();
        rustix::net::sockopt::set_socket_timeout(
            &control,
            rustix::net::sockopt::Timeout::Recv,
            Some(PATIENCE),
        )
        .unwrap();
        let process = world().near.inside(|| {
            Process::new(std::env::current_exe().unwrap())
                .args(["gateway_process", "--exact", "--test-threads=1"])
                .env(ROLE, "1")
                .stdin(theirs)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        });
        let mut file = tempfile::tempfile().unwrap();
        serde_json::to_writer(&mut file, order).unwrap();
        file.rewind().unwrap();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = std::fs::File::from(rustix::fs::memfd_create("journal", flags).unwrap());
        memory.set_len(u64::try_from(journal::JOURNAL_BYTES).unwrap()).unwrap();
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
        pond_sys::socket::send(&control, b"order", &[file.as_fd(), memory.as_fd()]).unwrap();
        Self { job, control: Some(control), process, journal: memory, heard: Mutex::default() }
    }

    /// Lowers the number of descriptors the gateway may have.
    pub(crate) fn limit_files(&self, files: u64) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let limit = rustix::process::Rlimit { current: Some(files), maximum: Some(files) };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limit).unwrap();
    }

    pub(crate) fn give_doors(&self, listeners: &[(Door, OwnedFd)]) {
        let doors = Doors { doors: listeners.iter().map(|(door, _)| *door).collect() };
        let descriptors: Vec<_> = listeners.iter().map(|(_, listener)| listener.as_fd()).collect();
        pond_sys::socket::send(self.socket(), &serde_json::to_vec(&doors).unwrap(), &descriptors).unwrap();
    }

    fn socket(&self) -> &OwnedFd {
        self.control.as_ref().unwrap()
    }

    pub(crate) fn event(&self) -> Event {
        let mut heard = self.heard.lock().unwrap();
        if heard.is_empty() {
            let mut packet = [0; MAX_EVENT_BYTES];
            let (length, _) = pond_sys::socket::receive(self.socket(), &mut packet).unwrap();
            heard.extend(events(&packet[..length]).map(Result::unwrap));
        }
        heard.pop_front().unwrap_or_else(|| panic!("the gateway is gone"))
    }

    #[track_caller]
    pub(crate) fn refused(&self) -> Refused {
        match self.event() {
            Event::Refused(refused) => refused,
            other => panic!("not a refusal: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn closed(&self) -> Tunnel {
        match self.event() {
            Event::Closed(tunnel) => tunnel,
            other => panic!("not an end: {other:?}"),
        }
    }

    pub(crate) fn command(&self, command: &Command) {
        pond_sys::socket::send(self.socket(), &serde_json::to_vec(command).unwrap(), &[]).unwrap();
    }

    /// A client at one of the doors.
    pub(crate) fn client(&self, door: impl Into<std::net::SocketAddr>) -> TcpStream {
        let address = door.into();
        let stream = self.job.inside(|| TcpStream::connect(address).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Says `request` at the proxy and gives back all it answers.
    pub(crate) fn ask(&self, request: &[u8]) -> String {
        let mut client = self.client(doors::PROXY);
        client.write_all(request).unwrap();
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).unwrap();
        String::from_utf8(reply).unwrap()
    }

    /// The status and stable code of the proxy's refusal.
    pub(crate) fn refusal(&self, request: &[u8]) -> (String, String) {
        let reply = self.ask(request);
        let status = reply.split(' ').nth(1).unwrap_or_default().to_owned();
        let code = reply.lines().find_map(|line| line.strip_prefix("X-Pond-Denied: "));
        (status, code.unwrap_or_default().to_owned())
    }

    /// The stable code a CONNECT to `target` is refused with.
    pub(crate) fn code(&self, target: &str) -> String {
        self.refusal(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).1
    }

    /// A tunnel through the proxy, its hello sent and received on the far side.
    pub(crate) fn tunnel(&self, name: &str, server: &Server) -> (TcpStream, TcpStream) {
        let mut client = self.connect(&format!("{name}:443"));
        client.write_all(&hello(name)).unwrap();
        let mut upstream = server.accept();
        far::expect(&mut upstream, &hello(name));
        assert!(matches!(self.event(), Event::Opened(_)));
        (client, upstream)
    }

    /// A tunnel through the proxy, up to the 200.
    pub(crate) fn connect(&self, target: &str) -> TcpStream {
        let mut client = self.client(doors::PROXY);
        client.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).unwrap();
        far::expect(&mut client, b"HTTP/1.1 200 Connection established\r\n\r\n");
        client
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        drop(self.control.take());
        self.process.wait().unwrap();
    }
}

/// The job's listeners, as its set-up makes them.
pub(crate) fn listeners() -> Vec<(Door, OwnedFd)> {
    vec![
        (Door::Proxy, TcpListener::bind(doors::PROXY).unwrap().into()),
        (Door::DnsUdp, UdpSocket::bind(doors::DNS).unwrap().into()),
        (Door::DnsTcp, TcpListener::bind(doors::DNS).unwrap().into()),
        (Door::Tls, TcpListener::bind(doors::TLS).unwrap().into()),
    ]
}

/// A TLS hello for `name`, in one record.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let name = name.as_bytes();
    let entry = [&[0][..], &u16be(name.len()), name].concat();
    let list = [&u16be(entry.len())[..], &entry].concat();
    let sni = [&[0, 0][..], &u16be(list.len()), &list].concat();
    let versions = [0, 43, 0, 3, 2, 3, 4];
    let extensions = [&sni[..], &versions].concat();
    let body =
        [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &u16be(extensions.len()), &extensions]
            .concat();
    let message = [&[1, 0][..], &u16be(body.len()), &body].concat();
    [&[22, 3, 1][..], &u16be(message.len()), &message].concat()
}

fn u16be(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap().to_be_bytes()
}

/// Everything until the other side closes.
pub(crate) fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(fault) if fault.kind() == std::io::ErrorKind::ConnectionReset => bytes,
        Err(fault) => panic!("{fault}"),
    }
}

pub(crate) fn half_close(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}
