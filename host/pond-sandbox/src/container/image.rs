//! The image a container stands on: one that the run names and the engine has, or one of pond's own, of directories, links and
//! small files, and of programs none.
//!
//! Nothing is pulled. Into pond's own the host's toolchain is bound as a native job sees it. It is an archive of fixed bytes for a given host, named by their digest; an image is ours only if the engine's own digest of its layer says so.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use http::Method;
use pond_policy::image::Image;
use pond_policy::sandbox::SandboxPolicy;
use pond_wire::jail::{BindKind, HOME, JailPlan, RootEntry, WORKSPACE};
use sha2::{Digest, Sha256};

use super::engine::{Ask, Body, Engine, EngineFault};
use super::plan::is_staged;
use super::request;
use crate::native;

/// What local images of pond's own are called, before the digest.
const NAME: &str = "pond-root";
const BLOCK: usize = 512;
/// Where services put their sockets.
const SERVICES: &str = "/run";

#[derive(Debug, thiserror::Error)]
pub enum ImageFault {
    #[error(transparent)]
    Engine(#[from] EngineFault),
    #[error("{0} is too long a name for the container's root")]
    Path(String),
    #[error(
        "the image {0} is not the one pond made under that name; remove it with `docker image rm {0}` and run again"
    )]
    Foreign(String),
    #[error(
        "the engine has no image {0}, and pond pulls none; get it yourself with `docker pull {0}`, or make it with \
         `docker import` or `docker load`"
    )]
    Missing(String),
    #[error(
        "{0} is a file; the container backends take images that the engine has, so give it to the engine first with \
         `docker load --input {0}`"
    )]
    File(String),
    #[error("the image {image} is for {os}; pond needs a Linux one")]
    System { image: String, os: String },
    #[error(
        "the image {image} declares VOLUME {volume}, which would give the job a directory of this host beyond its quota; make \
         one without it, such as by `docker export` and `docker import`"
    )]
    Volume { image: String, volume: String },
    #[error(
        "in the image {image} {path} is {found}, and pond mounts {place}: the job would not see what it is given, or leave behind \
         what it never wrote; make an image without it"
    )]
    Ground { image: String, path: String, found: String, place: String },
    #[error("the image {0} says nothing to run, and no command is given")]
    NoCommand(String),
    #[error("the image {0} has no digest that could be one")]
    NoDigest(String),
}

/// An image that the run names.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) id: String,
    /// What it would set for every process.
    pub(super) env: Vec<(String, String)>,
    /// What it wants to write to: refused of a job's, on the disk of one that lasts.
    pub(super) volumes: Vec<String>,
    /// What it runs, where nobody says otherwise: the part that stays, and the part that gives way.
    pub(super) entry: Vec<String>,
    pub(super) command: Vec<String>,
    pub(super) directory: String,
    /// Where it listens, by its own word: `5432/tcp`.
    pub(super) ports: Vec<String>,
}

/// What becomes of the volumes that an image declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Volumes {
    Refused,
    /// They are directories of the container's own disk.
    OnDisk,
}

/// Where the image of this policy listens, by its own word.
pub(super) fn ports(engine: &Engine, policy: &SandboxPolicy) -> Result<Vec<String>, ImageFault> {
    let given = policy.image().map(|image| given(engine, image, Volumes::OnDisk)).transpose()?;
    Ok(given.map(|given| given.ports).unwrap_or_default())
}

/// Looks at the image that a run names. What it says of how it wants to be run is overruled; what cannot be, is refused here.
pub(super) fn given(engine: &Engine, image: &Image, volumes: Volumes) -> Result<Given, ImageFault> {
    let name = match image {
        Image::Reference(name) => name,
        Image::File(path) => return Err(ImageFault::File(path.clone())),
    };
    let found = find(engine, name)?.ok_or_else(|| ImageFault::Missing(name.clone()))?;
    if found.os != "linux" {
        return Err(ImageFault::System { image: name.clone(), os: found.os });
    }
    let config = found.config.unwrap_or_default();
    let declared: Vec<String> = config.volumes.unwrap_or_default().into_keys().collect();
    let unfit = |volume: &&String| volumes == Volumes::Refused || !is_plain(volume);
    if let Some(volume) = declared.iter().find(unfit) {
        return Err(ImageFault::Volume { image: name.clone(), volume: volume.clone() });
    }
    let digest = found.id.strip_prefix("sha256:");
    if digest.is_none_or(|hex| hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return Err(ImageFault::NoDigest(name.clone()));
    }
    let env = config.env.unwrap_or_default();
    let pairs = env.iter().filter_map(|pair| pair.split_once('='));
    let env = pairs.filter(|(name, value)| !name.is_empty() && !value.contains('\0'));
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(Given {
        id: found.id,
        env,
        volumes: declared,
        entry: config.entrypoint.unwrap_or_default(),
        command: config.cmd.unwrap_or_default(),
        directory: config.working_dir,
        ports: config.exposed_ports.unwrap_or_default().into_keys().collect(),
    })
}

impl Given {
    /// Lets the job have the image's variables, beneath pond's own, the tools' and the caller's; its way to programs comes after
    /// the tools'. Nobody else in the container has them.
    pub(super) fn dress(&self, plan: &mut JailPlan) {
        let usual = plan.program.search.join(":");
        let path = self.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        let own = path.split(':').filter(|directory| is_plain(directory)).map(str::to_owned);
        let (usual_places, tools): (Vec<String>, Vec<String>) =
            std::mem::take(&mut plan.program.search).into_iter().partition(|place| native::is_usual(place));
        plan.program.search = tools.into_iter().chain(own).collect();
        for place in usual_places {
            if !plan.program.search.contains(&place) {
                plan.program.search.push(place);
            }
        }
        let search = plan.program.search.join(":");
        for (_, value) in
            plan.program.env.iter_mut().filter(|(name, value)| name == "PATH" && *value == usual)
        {
            value.clone_from(&search);
        }
        for (name, value) in &self.env {
            if plan.program.env.iter().all(|(known, _)| known != name) {
                plan.program.env.push((name.clone(), value.clone()));
            }
        }
    }

    /// As [`dress`](Self::dress), for a container that lasts: what the image declares as volumes is on its disk.
    pub(super) fn furnish(&self, plan: &mut JailPlan) {
        let data = self.volumes.iter();
        plan.root.extend(data.map(|path| RootEntry::Throwaway { path: path.clone(), source: None }));
    }

    /// Its own program, for a companion: what the image begins with, then what was asked for, or else what the image says. Sockets
    /// and locks of services have their usual place.
    pub(super) fn take_over(&self, plan: &mut JailPlan) -> Result<(), ImageFault> {
        let own = || self.command.clone();
        let asked = std::mem::take(&mut plan.program.argv);
        let rest = if asked.is_empty() { own() } else { asked };
        plan.program.argv = self.entry.iter().cloned().chain(rest).collect();
        if plan.program.argv.is_empty() {
            return Err(ImageFault::NoCommand(self.id.clone()));
        }
        plan.program.cwd = if is_plain(&self.directory) { self.directory.clone() } else { "/".to_owned() };
        if !self.volumes.iter().any(|volume| volume == SERVICES) {
            plan.root.push(RootEntry::Throwaway { path: SERVICES.to_owned(), source: None });
        }
        Ok(())
    }

    /// The names of its variables, for an engine to take away again.
    pub(super) fn names(&self) -> Vec<String> {
        self.env.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// As the launcher demands of a place to look for programs.
fn is_plain(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'))
    })
}

/// Makes sure that the engine has the image for this root. Returns its id.
pub(super) fn ensure(engine: &Engine, root: &[RootEntry]) -> Result<String, ImageFault> {
    let archive = archive(root)?;
    let digest = Sha256::digest(&archive).iter().fold(String::new(), |mut text, byte| {
        if let Err(_never) = write!(text, "{byte:02x}") {}
        text
    });
    let name = format!("{NAME}:{digest}");
    let layer = format!("sha256:{digest}");
    if let Some(found) = find(engine, &name)? {
        return checked(found, &layer, name);
    }
    let path = format!("/images/create?fromSrc=-&repo={NAME}&tag={digest}");
    engine.done(Ask {
        what: "giving the engine an image",
        method: Method::POST,
        path: &path,
        body: Body::Tar(archive),
    })?;
    match find(engine, &name)? {
        Some(made) => checked(made, &layer, name),
        None => Err(ImageFault::Foreign(name)),
    }
}

fn find(engine: &Engine, name: &str) -> Result<Option<request::Image>, EngineFault> {
    let path = format!("/images/{name}/json");
    engine.find(Ask { what: "looking for the image", method: Method::GET, path: &path, body: Body::Nothing })
}

fn checked(image: request::Image, layer: &str, name: String) -> Result<String, ImageFault> {
    let request::ImageConfig { env, volumes, .. } = image.config.unwrap_or_default();
    let adds_nothing = env.unwrap_or_default().is_empty() && volumes.unwrap_or_default().is_empty();
    let is_ours = image.root.layers == [layer] && adds_nothing;
    if is_ours { Ok(image.id) } else { Err(ImageFault::Foreign(name)) }
}

/// Where something will be mounted, besides what the plan binds.
const MOUNT_POINTS: [&str; 6] = ["/.pond", "/dev", "/home", HOME, "/proc", "/sys"];

/// A tar archive of the root, the same bytes for the same root. A directory that several tools share is in it once: an engine
/// refuses a name that comes twice.
fn archive(root: &[RootEntry]) -> Result<Vec<u8>, ImageFault> {
    let mut tar = Vec::new();
    let mut known = BTreeSet::from(MOUNT_POINTS);
    let root = root.iter().filter(|entry| match entry {
        RootEntry::Directory { path } => known.insert(path),
        RootEntry::Symlink { .. }
        | RootEntry::File { .. }
        | RootEntry::Bind { .. }
        | RootEntry::Throwaway { .. }
        | RootEntry::Mount { .. }
        | RootEntry::Device { .. } => true,
    });
    for path in MOUNT_POINTS.into_iter().chain([WORKSPACE]) {
        add(&mut tar, path, Kind::Directory, "")?;
    }
    add(&mut tar, "/tmp", Kind::Shared, "")?;
    for entry in root {
        match entry {
            RootEntry::Directory { path }
            | RootEntry::Throwaway { path, .. }
            | RootEntry::Mount { path, kind: BindKind::Directory, .. }
            | RootEntry::Bind { path, kind: BindKind::Directory, .. } => {
                add(&mut tar, path, Kind::Directory, "")?;
            }
            RootEntry::Symlink { path, target } if !path.starts_with("/dev/") => {
                add(&mut tar, path, Kind::Link, target)?;
            }
            RootEntry::File { path, content } if !is_staged(path) => {
                add(&mut tar, path, Kind::File, content)?;
            }
            RootEntry::Bind { path, kind: BindKind::File, .. }
            | RootEntry::Mount { path, kind: BindKind::File, .. }
            | RootEntry::File { path, .. } => {
                add(&mut tar, path, Kind::File, "")?;
            }
            // The engine's own, the same ones.
            RootEntry::Symlink { .. } | RootEntry::Device { .. } => {}
        }
    }
    tar.extend([0; 2 * BLOCK]);
    Ok(tar)
}

#[derive(Clone, Copy)]
enum Kind {
    Directory,
    /// Everybody's: runc gives what it mounts there the mode of what was there before.
    Shared,
    File,
    Link,
}

/// One entry: what it says is a file's content or a link's target. No owner, no time: only what is seen is in it.
fn add(tar: &mut Vec<u8>, path: &str, kind: Kind, says: &str) -> Result<(), ImageFault> {
    let (flag, mode, content, target) = match kind {
        Kind::Directory => (b'5', 0o755, "", ""),
        Kind::Shared => (b'5', 0o1777, "", ""),
        Kind::File => (b'0', 0o644, says, ""),
        Kind::Link => (b'2', 0o777, "", says),
    };
    let name = path.trim_start_matches('/');
    let mut header = [0; BLOCK];
    let mut put = |at: usize, field: usize, bytes: &[u8]| match header.get_mut(at..at + field) {
        Some(slot) if bytes.len() <= field => {
            slot.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = *byte);
            Ok(())
        }
        Some(_) | None => Err(ImageFault::Path(path.to_owned())),
    };
    put(0, 100, name.as_bytes())?;
    put(100, 8, format!("{mode:07o}").as_bytes())?;
    put(108, 8, b"0000000")?;
    put(116, 8, b"0000000")?;
    put(124, 12, format!("{:011o}", content.len()).as_bytes())?;
    put(136, 12, b"00000000000")?;
    put(148, 8, b"        ")?;
    put(156, 1, &[flag])?;
    put(157, 100, target.as_bytes())?;
    put(257, 8, b"ustar\x0000")?;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let checksum = format!("{sum:06o}\0 ");
    if let Some(slot) = header.get_mut(148..156) {
        slot.copy_from_slice(checksum.as_bytes());
    }
    tar.extend(header);
    tar.extend(content.as_bytes());
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    //! The archive is one that others can read, and holds no program.
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tar is the judge of an archive")]
    fn tar_lists_what_was_put_in() {
        let text = |text: &str| text.to_owned();
        let root = [
            super::super::plan::program("/opt/pond"),
            RootEntry::Directory { path: text("/etc") },
            RootEntry::Directory { path: text("/etc") },
            RootEntry::Directory { path: text("/home") },
            RootEntry::Bind { path: text("/usr"), source: text("/usr"), kind: BindKind::Directory },
            RootEntry::Symlink { path: text("/bin"), target: text("usr/bin") },
            RootEntry::Symlink { path: text("/dev/fd"), target: text("/proc/self/fd") },
            RootEntry::File { path: text("/etc/nsswitch.conf"), content: text("hosts: files dns\n") },
            RootEntry::File { path: text("/etc/passwd"), content: text("pond:x:1879049192\n") },
            RootEntry::Device { path: text("/dev/null"), source: text("/dev/null") },
        ];
        let bytes = archive(&root).unwrap();
        assert_eq!(bytes, archive(&root).unwrap());
        let mut tar = Command::new("tar");
        let mut child = tar
            .args(["--list", "--verbose", "--numeric-owner", "--utc", "--full-time"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), &bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        let entry = |line: &str| {
            line.replace("1970-01-01 00:00:00", "").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let directory = |name: &str| format!("drwxr-xr-x 0/0 0 {name}");
        let expected = [
            directory(".pond"),
            directory("dev"),
            directory("home"),
            directory("home/pond"),
            directory("proc"),
            directory("sys"),
            directory("workspace"),
            text("drwxrwxrwt 0/0 0 tmp"),
            text("-rw-r--r-- 0/0 0 .pond/init"),
            directory("etc"),
            directory("usr"),
            text("lrwxrwxrwx 0/0 0 bin -> usr/bin"),
            text("-rw-r--r-- 0/0 17 etc/nsswitch.conf"),
            text("-rw-r--r-- 0/0 0 etc/passwd"),
        ];
        let listed: Vec<String> = listed.lines().map(|line| entry(line).replace("/ ", " ")).collect();
        let listed: Vec<&str> = listed.iter().map(|line| line.trim_end_matches('/')).collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn an_images_variables_are_the_jobs_beneath_all_others() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let env =
            vec![pair("PATH", "/opt/bin:relative:/usr/bin:/a/../b:"), pair("HOME", "/evil"), pair("K", "v")];
        let given = Given {
            id: String::new(),
            env,
            volumes: Vec::new(),
            entry: Vec::new(),
            command: Vec::new(),
            directory: String::new(),
            ports: Vec::new(),
        };
        let mut plan = super::super::plan::tests::jail_plan();
        plan.program.search = ["/tools/bin", "/usr/bin", "/bin"].map(str::to_owned).to_vec();
        plan.program.env = vec![pair("HOME", "/home/pond"), pair("PATH", "/tools/bin:/usr/bin:/bin")];
        given.dress(&mut plan);
        assert_eq!(plan.program.search, ["/tools/bin", "/opt/bin", "/usr/bin", "/bin"]);
        let path = pair("PATH", "/tools/bin:/opt/bin:/usr/bin:/bin");
        assert_eq!(plan.program.env, [pair("HOME", "/home/pond"), path, pair("K", "v")]);
        // Who says otherwise is left alone.
        plan.program.env = vec![pair("PATH", "/mine")];
        given.dress(&mut plan);
        assert_eq!(plan.program.env[0], pair("PATH", "/mine"));
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let root = [RootEntry::Directory { path: format!("/{}", "x".repeat(101)) }];
        assert!(matches!(archive(&root), Err(ImageFault::Path(_))));
    }
}
