//! The host's half of the stage: a hostile repository to attack from, and landmarks that nothing inside may find.
//!
//! Zone: host. Everything is made in one directory of its own and goes away with the value; nothing of the user is touched.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pond_sandbox::native::Provided;
use pond_sys::attempt::{Segment, make_segment};
use pond_wire::jail::{HOME, WORKSPACE};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, Uid, XattrFlags, flock, makedev};
use rustix::io::{Errno, FdFlags};

use super::probe::{BYSTANDER, NAME};
use super::scene::{Landmarks, Place, Scene};
use super::shown::Shown;

/// Where the probe stands inside.
pub(crate) const PROBE: &str = "/pond-probe";
/// Where everything of an attack is kept. Not the state directory: the controls need a place that others may walk through.
const PLACE: &str = "/tmp";
const PREFIX: &str = "pond-attack-";
const LOCK: &str = "lock";
const NOBODY: u32 = 65_534;
/// A file capability of the second format: effective, CAP_NET_RAW permitted.
const CAPABLE: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[derive(Debug)]
pub(crate) struct Props {
    landmarks: Landmarks,
    _bystander: Bystander,
    _listeners: (UnixListener, UnixListener, TcpListener),
    shown: Shown,
    _segment: Option<Segment>,
    /// A descriptor that anything started carelessly inherits.
    _leak: OwnedFd,
    // Last, so that it goes when nothing uses it any more.
    directory: Directory,
}

impl Props {
    pub(crate) fn set(executable: &Path) -> io::Result<Self> {
        let marker = random_word()?;
        let directory = Directory::make()?;
        let secret = directory.path.join("secret");
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&secret)?
            .write_all(marker.as_bytes())?;
        plant(&directory.path.join("checkout/planted"), &secret)?;
        let (leak, _) = rustix::pipe::pipe()?;
        rustix::io::fcntl_setfd(&leak, FdFlags::empty())?;
        let bystander = Bystander::start(executable, &marker)?;
        let abstract_name = format!("pond-attack-{}", random_word()?);
        let socket = directory.path.join("socket");
        let shown = Shown::open(&directory.path.join("tools"))?;
        let tcp = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let segment = i32::from_le_bytes(random()?) | 1;
        Ok(Self {
            landmarks: Landmarks {
                pid: bystander.0.id().try_into().map_err(|_| Errno::OVERFLOW)?,
                directory: directory.path.clone(),
                tripwire: directory.path.join("tripwire"),
                secret,
                port: tcp.local_addr()?.port(),
                segment,
                name: String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned(),
                marker_backwards: marker.chars().rev().collect(),
                abstract_name: abstract_name.clone(),
                socket: socket.clone(),
            },
            _bystander: bystander,
            _listeners: (
                UnixListener::bind(&socket)?,
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name.as_bytes())?)?,
                tcp,
            ),
            shown,
            _segment: make_segment(segment).ok(),
            _leak: leak,
            directory,
        })
    }

    /// Whether something that a job left was run on the host.
    pub(crate) fn is_tripped(&self) -> bool {
        self.landmarks.tripwire.exists()
    }

    /// The repository the jobs work on.
    pub(crate) fn checkout(&self) -> PathBuf {
        self.directory.path.join("checkout")
    }

    /// What the jobs are shown besides the system's own directories.
    pub(crate) fn tools(&self) -> &[Provided] {
        &self.shown.tools
    }

    /// An empty directory for the result of one run.
    pub(crate) fn result(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.directory.path.join(format!("result-{name}"));
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// The names of things for attempts inside.
    pub(crate) fn inside(&self) -> Scene {
        Scene {
            place: Place::Inside,
            workspace: WORKSPACE.into(),
            temporary: "/tmp".into(),
            shared_memory: "/dev/shm".into(),
            home: HOME.into(),
            planted: Path::new(WORKSPACE).join("planted"),
            shown: Shown::INSIDE.into(),
            executable: PROBE.into(),
            host: self.landmarks.clone(),
            inherited: Vec::new(),
        }
    }

    /// The names of the same things for unconfined attempts, in directories nobody has used yet.
    pub(crate) fn outside(&self) -> io::Result<Scene> {
        let room = self.directory.path.join(format!("outside-{}", random_word()?));
        let scene = Scene {
            place: Place::Outside,
            workspace: room.join("workspace"),
            temporary: room.join("tmp"),
            shared_memory: room.join("shm"),
            home: room.join("home"),
            planted: self.checkout().join("planted"),
            shown: self.shown.directory.clone(),
            executable: room.join("executable"),
            host: self.landmarks.clone(),
            inherited: Vec::new(),
        };
        for directory in [&scene.workspace, &scene.temporary, &scene.shared_memory, &scene.home] {
            std::fs::create_dir_all(directory)?;
        }
        copy(&scene.executable)?;
        Ok(scene)
    }
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    fn make() -> io::Result<Self> {
        sweep()?;
        let path = Path::new(PLACE).join(format!("{PREFIX}{}", random_word()?));
        std::fs::DirBuilder::new().mode(0o755).create(&path)?;
        let unlocked = path.join("new-lock");
        let lock = File::create_new(&unlocked);
        let directory = Self { path, lock: lock? };
        flock(&directory.lock, FlockOperation::NonBlockingLockExclusive)?;
        // Under its name it is locked from the first: another attack's sweep takes a free lock for one that was killed.
        std::fs::rename(unlocked, directory.path.join(LOCK))?;
        std::fs::create_dir_all(directory.path.join("checkout/planted"))?;
        Ok(directory)
    }
}

/// Removes what an attack that was killed left: directories of this user whose lock is free.
fn sweep() -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(PLACE)?.filter_map(Result::ok) {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own);
        if !ours {
            continue;
        }
        // One without a lock is being made, or was removed meanwhile.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(lock) = rustix::fs::open(entry.path().join(LOCK), flags, Mode::empty()) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(fault) = std::fs::remove_dir_all(&self.path) {
            crate::output::say(&format!("pond: {} is left behind: {fault}", self.path.display()));
        }
    }
}

/// A process of the host with a secret in its environment.
#[derive(Debug)]
struct Bystander(Child);

impl Bystander {
    #[expect(clippy::disallowed_methods, reason = "the attack needs a process of the host to aim at")]
    fn start(executable: &Path, marker: &str) -> io::Result<Self> {
        let child = Command::new(executable)
            .arg0(NAME)
            .arg(BYSTANDER)
            .env_clear()
            .env("POND_ATTACK_MARKER", marker)
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // It ends with its input; waiting keeps it from staying behind as a zombie.
        drop(self.0.stdin.take());
        if let Err(_reaped_elsewhere) = self.0.wait() {}
    }
}

/// What a hostile repository can bring: links out of it, and, where root planted them, device nodes and powerful programs.
fn plant(planted: &Path, secret: &Path) -> io::Result<()> {
    std::fs::write(planted.join("canary"), "a canary, read-only to everybody inside\n")?;
    symlink(secret, planted.join("link-to-secret"))?;
    for (name, text) in
        [("broken-elf", "\u{7f}ELF no program"), ("no-interpreter", "#!/no/such/interpreter\n")]
    {
        std::fs::write(planted.join(name), text)?;
        std::fs::set_permissions(planted.join(name), Permissions::from_mode(0o755))?;
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    rustix::fs::mknodat(
        CWD,
        planted.join("null"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(1, 3),
    )?;
    let (setuid, capable) = (planted.join("setuid-cat"), planted.join("capable-cat"));
    copy(&setuid)?;
    rustix::fs::chown(&setuid, Some(Uid::from_raw(NOBODY)), None)?;
    std::fs::set_permissions(&setuid, Permissions::from_mode(0o4755))?;
    copy(&capable)?;
    Ok(rustix::fs::setxattr(&capable, "security.capability", &CAPABLE, XattrFlags::empty())?)
}

/// A small program under another name.
fn copy(to: &Path) -> io::Result<()> {
    let mut program = File::open("/bin/cat")?;
    let mut copy = File::options().write(true).create_new(true).mode(0o755).open(to)?;
    io::copy(&mut program, &mut copy).map(drop)
}

fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

pub(crate) fn random_word() -> io::Result<String> {
    Ok(format!("{:016x}", u64::from_le_bytes(random()?)))
}
