//! Landlock with every other layer off: each act it denies works on the same files without it, and where it allows.
//!
//! The rules hold for one thread, so each trial is a thread; the process stays as it was.

use std::fs::{self, File};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use tempfile::TempDir;

use super::{Places, Rules};

fn enforce(places: &Places<'_>) {
    Rules(places.rules().unwrap()).enforce().unwrap();
}

/// Two directories with the same in them, of which a rule names one.
struct Ground {
    directory: TempDir,
}

impl Ground {
    const OPEN: &str = "open";
    const SHUT: &str = "shut";

    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for place in [Self::OPEN, Self::SHUT] {
            let place = directory.path().join(place);
            fs::create_dir_all(place.join("empty")).unwrap();
            fs::write(place.join("file"), "text").unwrap();
            fs::set_permissions(place.join("file"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
        }
        Self { directory }
    }

    /// Runs `act` on one of the places in a thread of its own, under the rules or not.
    fn try_act(&self, layer: Layer, place: &str, act: fn(&Path) -> io::Result<()>) -> io::Result<()> {
        let (open, place) = (self.directory.path().join(Self::OPEN), self.directory.path().join(place));
        let trial = move || {
            if layer == Layer::On {
                let places = Places { storage: vec![&open], devices: vec![Path::new("/dev/null")] };
                enforce(&places);
            }
            act(&place)
        };
        std::thread::spawn(trial).join().unwrap()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    On,
    Off,
}

type Act = (&'static str, fn(&Path) -> io::Result<()>);

fn node(place: &Path, kind: FileType) -> io::Result<()> {
    // Device 0:0 is what an overlay marks a removed file with; anybody may make one.
    Ok(rustix::fs::mknodat(CWD, place.join("new"), kind, Mode::from_raw_mode(0o600), 0)?)
}

/// Every way to change a tree, by the right that Landlock has for it.
const CHANGES: [Act; 15] = [
    ("write", |place| File::options().write(true).open(place.join("file")).map(drop)),
    ("append", |place| File::options().append(true).open(place.join("file")).map(drop)),
    ("truncate", |place| {
        Ok(rustix::fs::ftruncate(
            rustix::fs::open(place.join("file"), OFlags::WRONLY | OFlags::TRUNC, Mode::empty())?,
            0,
        )?)
    }),
    ("create", |place| File::create_new(place.join("new")).map(drop)),
    ("directory", |place| fs::create_dir(place.join("new"))),
    ("remove file", |place| fs::remove_file(place.join("file"))),
    ("remove directory", |place| fs::remove_dir(place.join("empty"))),
    ("symbolic link", |place| symlink("file", place.join("new"))),
    ("hard link", |place| fs::hard_link(place.join("file"), place.join("new"))),
    ("rename", |place| fs::rename(place.join("file"), place.join("new"))),
    ("move", |place| fs::rename(place.join("file"), place.join("empty/new"))),
    ("fifo", |place| node(place, FileType::Fifo)),
    ("socket", |place| UnixListener::bind(place.join("new")).map(drop)),
    ("character device", |place| node(place, FileType::CharacterDevice)),
    ("temporary file", |place| {
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        Ok(rustix::fs::open(place, flags, Mode::from_raw_mode(0o600)).map(drop)?)
    }),
];

fn errno(result: &io::Result<()>) -> Option<Errno> {
    result.as_ref().err().and_then(Errno::from_io_error)
}

#[test]
fn nothing_changes_where_no_rule_says_so() {
    for (name, act) in CHANGES {
        let told = [(Layer::Off, Ground::SHUT), (Layer::On, Ground::OPEN), (Layer::On, Ground::SHUT)]
            .map(|(layer, place)| errno(&Ground::new().try_act(layer, place, act)));
        assert_eq!(told, [None, None, Some(Errno::ACCESS)], "{name}");
    }
}

#[test]
fn nothing_is_moved_between_the_places() {
    let out = |place: &Path| fs::rename(place.join("../open/file"), place.join("out"));
    let out_by_link = |place: &Path| fs::hard_link(place.join("../open/file"), place.join("out"));
    let into = |place: &Path| fs::rename(place.join("file"), place.join("../open/in"));
    let acts: [Act; 3] = [("out", out), ("out by link", out_by_link), ("in", into)];
    for (name, act) in acts {
        let told = [Layer::Off, Layer::On].map(|layer| Ground::new().try_act(layer, Ground::SHUT, act));
        assert_eq!(errno(&told[0]), None, "{name}");
        assert!(matches!(errno(&told[1]), Some(Errno::ACCESS | Errno::XDEV)), "{name}: {told:?}");
    }
}

#[test]
fn reading_and_executing_go_on_everywhere() {
    let acts: [Act; 3] = [
        ("read", |place| fs::read(place.join("file")).map(drop)),
        ("list", |place| fs::read_dir(place).map(drop)),
        ("execute", |place| Ok(rustix::fs::access(place.join("file"), rustix::fs::Access::EXEC_OK)?)),
    ];
    for (name, act) in acts {
        assert_eq!(errno(&Ground::new().try_act(Layer::On, Ground::SHUT, act)), None, "{name}");
    }
}

fn write_to(path: &str) -> io::Result<()> {
    File::options().write(true).open(path).map(drop)
}

#[test]
fn only_the_named_devices_are_written_to_and_controlled() {
    let named: Act = ("a named device", |_| write_to("/dev/null"));
    let another: Act = ("another device", |_| write_to("/dev/zero"));
    let control: Act = ("control of another device", |_| {
        let terminals = rustix::fs::open("/dev/ptmx", OFlags::RDONLY | OFlags::NOCTTY, Mode::empty())?;
        Ok(rustix::termios::tcgetwinsize(terminals).map(drop)?)
    });
    let refused = Some(Errno::ACCESS);
    for ((name, act), expected) in [(named, None), (another, refused), (control, refused)] {
        let told =
            [Layer::Off, Layer::On].map(|layer| errno(&Ground::new().try_act(layer, Ground::SHUT, act)));
        assert_eq!(told, [None, expected], "{name}");
    }
}

/// A process that nobody of these rules started; gone with the value.
struct Stranger(Child);

impl Stranger {
    #[expect(clippy::disallowed_methods, reason = "a process outside is what a signal is sent to")]
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn no_signal_leaves() {
    let stranger = Stranger::start();
    let pid = Pid::from_child(&stranger.0);
    let signal = move |layer: Layer| {
        let trial = move || {
            if layer == Layer::On {
                enforce(&Places { storage: vec![], devices: vec![] });
            }
            rustix::process::test_kill_process(pid)
        };
        std::thread::spawn(trial).join().unwrap()
    };
    assert_eq!((signal(Layer::Off), signal(Layer::On)), (Ok(()), Err(Errno::PERM)));
}

#[test]
fn no_abstract_socket_outside_is_reached() {
    let name = format!("pond-writable-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let connect = |layer: Layer| {
        let address = address.clone();
        let trial = move || {
            if layer == Layer::On {
                enforce(&Places { storage: vec![], devices: vec![] });
            }
            UnixStream::connect_addr(&address).map(drop)
        };
        errno(&std::thread::spawn(trial).join().unwrap())
    };
    assert_eq!((connect(Layer::Off), connect(Layer::On)), (None, Some(Errno::PERM)));
}
