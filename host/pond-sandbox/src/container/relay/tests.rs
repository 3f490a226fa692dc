//! The relay by itself, between an engine and a reader that are this test.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use pond_wire::contained::frame;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{PidfdFlags, pidfd_open};

use super::*;

/// Longer than a busy machine takes, and no longer than somebody waits for a test.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A relay at work, and everybody around it.
struct Scene {
    engine: UnixStream,
    stdout: OwnedFd,
    lifeline: OwnedFd,
    _report: OwnedFd,
    container: Child,
    relayed: JoinHandle<Result<Relayed, RelayFault>>,
}

fn nothing() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

impl Scene {
    /// The job's reader takes little at once.
    #[expect(clippy::disallowed_methods, reason = "something has to stand for pid 1, and to be killed")]
    fn set() -> Self {
        let (engine, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (stdout, to_stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        fcntl_setpipe_size(&to_stdout, 4096).unwrap();
        rustix::io::ioctl_fionbio(&to_stdout, true).unwrap();
        let (from_pond, lifeline) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (_report, theirs) = pond_sys::socket::pair().unwrap();
        let container = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&container);
        let relay = Relay {
            engine: ours,
            process: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
            pid,
            groups: Foreign::of(pid, "/").unwrap().unwrap(),
            report: Some(theirs),
            lifeline: Some(from_pond),
            stdin: None,
            stdout: Some(to_stdout),
            stderr: None,
            terminal: None,
            layer: Layer { upper: nothing(), view: nothing() },
            start: Start::AtOnce,
            kernel: Kernel::Host,
            program: FileId::of("/proc/self/exe").unwrap(),
            nonce: "none".to_owned(),
            first_user: 0,
            incoming: None,
        };
        let relayed = std::thread::spawn(move || relay.run(Transit::default()));
        Self { engine, stdout, lifeline, _report, container, relayed }
    }

    /// What came out, up to so many bytes; less when nothing more comes.
    fn take(&self, most: usize) -> Vec<u8> {
        let (mut taken, mut piece) = (Vec::new(), [0; 1024]);
        while taken.len() < most {
            let ready = poll(&mut [PollFd::new(&self.stdout, PollFlags::IN)], Some(&PATIENCE)).unwrap();
            let length = if ready == 0 { 0 } else { rustix::io::read(&self.stdout, &mut piece).unwrap() };
            if length == 0 {
                break;
            }
            taken.extend(&piece[..length]);
        }
        taken
    }

    /// Pond goes: the container is killed, and its engine lets go of it.
    fn end(self) {
        let Self { engine, lifeline, mut container, relayed, .. } = self;
        drop(lifeline);
        container.wait().unwrap();
        drop(engine);
        relayed.join().unwrap().unwrap();
    }
}

/// One piece of the engine's stream.
fn piece(frames: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frames.len()).unwrap().to_be_bytes();
    [&[1, 0, 0, 0], &length[..], frames].concat()
}

/// The engine has said all it has to say while the reader is slow: nothing but room in the pipe can wake the relay, and what
/// lies behind the frame that waited must come out as well.
#[test]
fn what_waits_behind_a_frame_without_room_comes_out_without_another_word() {
    let mut scene = Scene::set();
    let said: Vec<Vec<u8>> = (0..4_u8).map(|number| vec![b'a' + number; 12 << 10]).collect();
    let frames: Vec<u8> = said.iter().flat_map(|part| frame(Kind::Stdout, part).unwrap()).collect();
    scene.engine.write_all(&piece(&frames)).unwrap();
    let expected = said.concat();
    assert_eq!(scene.take(expected.len()), expected);
    scene.end();
}
