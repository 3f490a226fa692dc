//! A container that lasts, as whoever keeps native sandboxes knows one: the same reports first, then the same requests and
//! answers over the same kind of socket, so that a keeper need not know which it has.
//!
//! Zone: host. What is asked comes from pond itself; what is answered is what pid 1 said, bounded and understood by the relay.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pond_wire::contained::Kernel;
use pond_wire::jail::{
    self, Answer, Ask, Console, ExecOrder, MAX_PLAN_BYTES, Report, Start, Step, WORKSPACE,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrV4, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use super::super::launch::{Attended, Company, Container, ContainerFault};
use super::relay::{Ends, Request, Teller};
use super::{Finished, Gone, KeepFault, Kept};
use crate::native::{self, Death, Job, Running};

impl Container {
    /// As [`keep`](Container::keep), for whoever asks through [`crate::native::Serving`]; companions stand beside the other.
    pub fn serve(&self, job: &Job<'_>, company: &Company<'_>) -> Result<(Running, Arc<Kept>), KeepFault> {
        let mut kept = self.keep(job, company)?;
        let range = kept.range.take().ok_or(KeepFault::NotServing)?;
        let (report, theirs) = pond_sys::socket::pair()?;
        let (lifeline, held) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let root = Self::root_of(&kept)?;
        let prepared = [kept.layer.upper.as_fd(), kept.layer.view.as_fd(), root.as_fd()];
        pond_sys::socket::send(&theirs, &Report::Prepared.encode(), &prepared)?;
        let doors = kept.take_doors();
        let start = if doors.is_empty() { Start::AtOnce } else { Start::OnGo };
        if !doors.is_empty() {
            let doors: Vec<BorrowedFd<'_>> = doors.iter().map(AsFd::as_fd).collect();
            pond_sys::socket::send(&theirs, &Report::Doors.encode(), &doors)?;
        }
        let first = kept.process.try_clone()?;
        let kept = Arc::new(kept);
        let desk = Desk { kept: Arc::clone(&kept), socket: Arc::new(theirs), lifeline, start };
        let thread = std::thread::Builder::new().name("desk".to_owned());
        let thread = thread.spawn(move || {
            // This thread must not be the one that a signal for pond ends.
            drop(pond_sys::signal::interrupts());
            desk.run()
        })?;
        let ends = native::Ends { streams: None, lifeline: held, report };
        let mut running = Running::contained(ends, first, thread, Death::AtOnce, range, job.duty);
        running.root_at = match kept.isolation.kernel {
            Kernel::Host => "",
            Kernel::Gvisor | Kernel::Machine => WORKSPACE,
        };
        Ok((running, kept))
    }

    /// What programs see as their root. gVisor's is nowhere on this host; then it is their working directory, which is.
    fn root_of(kept: &Kept) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match kept.isolation.kernel {
            Kernel::Host => {
                let root = format!("/proc/{}/root", kept.first.as_raw_nonzero());
                Ok(rustix::fs::open(root, flags, Mode::empty())?)
            }
            Kernel::Gvisor | Kernel::Machine => kept.layer.view.as_fd().try_clone_to_owned(),
        }
    }
}

/// What somebody said at once, and the descriptors that came with it.
type Packet = (Vec<u8>, Vec<OwnedFd>);

/// Where requests come in.
struct Desk {
    kept: Arc<Kept>,
    socket: Arc<OwnedFd>,
    /// Ends with whoever keeps the container.
    lifeline: OwnedFd,
    start: Start,
}

impl Desk {
    /// Until the container or its keeper is gone.
    fn run(mut self) -> Result<Attended, ContainerFault> {
        let served = self.serve();
        let isolation = Some(self.kept.isolation.clone());
        let usage = self.kept.usage().unwrap_or_default();
        // Nobody hears of it any more, and everybody who waits sees it.
        drop(self.socket);
        let finished = self.kept.stop();
        served.and(finished).map_or_else(
            |fault| Err(fault.into_container()),
            |Finished { gone, left }| {
                let is_cut_off = gone == Gone::CutOff;
                Ok(Attended { usage, isolation, lost: None, left, is_cut_off })
            },
        )
    }

    fn serve(&mut self) -> Result<(), KeepFault> {
        match self.start {
            Start::AtOnce => {}
            // One word, which lets it begin.
            Start::OnGo => match self.next()? {
                Some(_) => {}
                None => return Ok(()),
            },
        }
        self.kept.begin()?;
        pond_sys::socket::send(&*self.socket, &Report::Serving.encode(), &[])?;
        while let Some((bytes, descriptors)) = self.next()? {
            let ask = Ask::decode(&bytes).map_err(|fault| io::Error::other(fault.to_string()))?;
            let answered = match ask {
                Ask::Start { exec } => self.begin(exec, descriptors),
                Ask::Signal { exec, signal } => {
                    self.kept.line.ask(Request::Signal { number: exec, signal })?;
                    Ok(())
                }
                Ask::Connect { call, port } => self.connect(call, port),
            };
            match answered {
                Ok(()) => {}
                Err(Refused { id, step, source }) => {
                    let errno = source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                    self.tell(id, Report::Failed { step, errno }, &[]);
                }
            }
        }
        Ok(())
    }

    /// The next packet; nothing once the keeper or the container is gone.
    fn next(&self) -> Result<Option<Packet>, KeepFault> {
        let mut ready = [
            PollFd::new(&*self.socket, PollFlags::IN),
            PollFd::new(&self.lifeline, PollFlags::empty()),
            PollFd::new(&self.kept.process, PollFlags::IN),
        ];
        loop {
            match poll(&mut ready, None) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
                Ok(_) => break,
            }
        }
        let [asked, life, dead] = ready.map(|fd| !fd.revents().is_empty());
        if life || dead || !asked {
            return Ok(None);
        }
        let mut bytes = [0; 64];
        let (length, descriptors) = pond_sys::socket::receive(&*self.socket, &mut bytes)?;
        Ok((length > 0).then(|| (bytes.get(..length).unwrap_or_default().to_vec(), descriptors)))
    }

    fn begin(&self, exec: u64, descriptors: Vec<OwnedFd>) -> Result<(), Refused> {
        let refused = |source: io::Error| Refused { id: exec, step: Step::CheckPlan, source };
        let invalid = || refused(io::ErrorKind::InvalidInput.into());
        let mut descriptors = descriptors.into_iter();
        let order = read(&File::from(descriptors.next().ok_or_else(invalid)?)).map_err(refused)?;
        let order: ExecOrder = jail::decode(&order).map_err(|_| invalid())?;
        let mut next = || descriptors.next().ok_or_else(invalid);
        let (ends, master) = match order.console {
            Console::Pipes => {
                (Ends { stdin: next()?, stdout: next()?, stderr: Some(next()?), size: None }, None)
            }
            Console::Terminal { rows, columns } => {
                let (ends, master) = terminal(rows, columns).map_err(|errno| Refused {
                    id: exec,
                    step: Step::Terminal,
                    source: errno.into(),
                })?;
                (ends, Some(master))
            }
        };
        for end in [&ends.stdin, &ends.stdout].into_iter().chain(&ends.stderr) {
            rustix::io::ioctl_fionbio(end, true).map_err(|errno| refused(errno.into()))?;
        }
        let told = Teller::Keeper { socket: Arc::clone(&self.socket), exec, master };
        let request = Request::Start { number: exec, exec: Box::new(order), ends, told };
        self.kept.line.ask(request).map_err(|_| refused(io::ErrorKind::NotConnected.into()))
    }

    /// In the container's network, which a thread enters that ends with this.
    fn connect(&self, call: u64, port: u16) -> Result<(), Refused> {
        let refused = |source: io::Error| Refused { id: call, step: Step::Connect, source };
        let process = self.kept.process.try_clone().map_err(refused)?;
        let thread = std::thread::Builder::new().name("caller".to_owned());
        let made = thread.spawn(move || dial(&process, port)).map_err(refused)?;
        let socket = made.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(refused)?;
        self.tell(call, Report::Connected, &[socket.as_fd()]);
        Ok(())
    }

    /// A keeper that is gone is noticed at the next wait.
    fn tell(&self, id: u64, report: Report, descriptors: &[BorrowedFd<'_>]) {
        if let Err(_gone) =
            pond_sys::socket::send(&*self.socket, &Answer { id, report }.encode(), descriptors)
        {}
    }
}

/// What could not be done of a request.
struct Refused {
    id: u64,
    step: Step,
    source: io::Error,
}

/// Never waits: whoever gets the socket sees whether the connection came to be.
fn dial(process: &OwnedFd, port: u16) -> io::Result<OwnedFd> {
    pond_sys::process::enter_network_of(process.as_fd())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

/// What a sealed memory file says.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > MAX_PLAN_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A terminal on this side that stands for the one inside: it changes no byte, and its size is the size of that one.
fn terminal(rows: u16, columns: u16) -> Result<(Ends, OwnedFd), Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let stdin = ioctl_tiocgptpeer(&master, flags)?;
    let mut modes = tcgetattr(&stdin)?;
    modes.make_raw();
    tcsetattr(&stdin, OptionalActions::Now, &modes)?;
    tcsetwinsize(&stdin, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    let stdout = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)?;
    Ok((Ends { stdin, stdout, stderr: None, size: Some((rows, columns)) }, master))
}
