//! The job's disk before it is mounted: an empty sparse file whose size is the quota, and the ext4 filesystem to put there.
//!
//! Formatting costs milliseconds and gives the same bytes every time, so it is done once per size: a template is a sparse
//! file with the few blocks a fresh filesystem consists of. Every job gets a new file, and the launcher copies those blocks
//! into it. The file has no name; it vanishes with the last descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pond_wire::jail::word;
use rustix::fs::{Mode, OFlags, SeekFrom as Sparse};

use super::mount::kernel_name;

const FORMATTERS: [&str; 3] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4"];

const CHECKERS: [&str; 3] = ["/usr/sbin/e2fsck", "/sbin/e2fsck", "/usr/bin/e2fsck"];

#[derive(Debug, thiserror::Error)]
pub enum ScratchFault {
    #[error("no mkfs.ext4 on this host; install the package e2fsprogs")]
    NoFormatter,
    #[error("formatting a scratch image")]
    Format(#[source] io::Error),
    #[error("formatting a scratch image: {0}; make room in the state directory, or set POND_STATE_DIR")]
    Formatter(String),
    #[error("keeping the formatted template in {path}")]
    Template { path: PathBuf, source: io::Error },
    #[error("making a scratch image in {path}")]
    Image { path: PathBuf, source: io::Error },
    #[error("the file system in {path} is broken beyond what e2fsck mends")]
    Broken { path: PathBuf },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// What the launcher makes a disk from.
#[derive(Debug)]
pub(crate) struct Disk {
    /// As large as the quota, empty, in the directory's filesystem but in no directory.
    pub(super) image: OwnedFd,
    /// As large as the image, formatted; only read. Absent when the image has its filesystem already.
    pub(super) template: Option<OwnedFd>,
}

impl Disk {
    /// As they travel to the launcher.
    pub(super) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(&self.image), self.template.as_ref()].into_iter().flatten().map(AsFd::as_fd)
    }

    /// What goes with the word that announces them.
    pub(super) fn word(&self) -> u8 {
        if self.template.is_some() { word::DISK } else { word::DISK | word::KEPT }
    }
}

/// What has a name while it is made has it in the job's own `workshop`, where a sweep looks.
pub(crate) fn disk(directory: &Path, workshop: &Path, quota: Quota) -> Result<Disk, ScratchFault> {
    let template = Some(open_template(directory, workshop, quota)?.into());
    let failed = |source| ScratchFault::Image { path: directory.to_owned(), source };
    let image = unnamed_file(directory, workshop).map_err(failed)?;
    image.set_len(quota.bytes).map_err(failed)?;
    Ok(Disk { image: image.into(), template })
}

/// A disk for which nothing has to have a name, not even for a moment; nothing where that cannot be.
pub(super) fn nameless_disk(directory: &Path, quota: Quota) -> Result<Option<Disk>, ScratchFault> {
    let failed = |source| ScratchFault::Image { path: directory.to_owned(), source };
    let Ok(template) = File::open(template_path(directory, quota)) else { return Ok(None) };
    let Ok(image) = rustix::fs::open(directory, UNNAMED, Mode::from_raw_mode(0o600)) else { return Ok(None) };
    let image = File::from(image);
    image.set_len(quota.bytes).map_err(failed)?;
    Ok(Some(Disk { image: image.into(), template: Some(template.into()) }))
}

const UNNAMED: OFlags = OFlags::RDWR.union(OFlags::TMPFILE).union(OFlags::CLOEXEC);

fn template_path(directory: &Path, quota: Quota) -> PathBuf {
    directory.join(format!("ext4-{}-{}.image", quota.bytes, quota.inodes))
}

/// A disk that stays: a new file, or one that was made this way before.
pub(crate) fn kept(
    directory: &Path,
    workshop: &Path,
    path: &Path,
    quota: Quota,
    is_new: bool,
) -> Result<Disk, ScratchFault> {
    let failed = |source| ScratchFault::Image { path: path.to_owned(), source };
    let template = if is_new { Some(open_template(directory, workshop, quota)?.into()) } else { None };
    let image = File::options().read(true).write(true).create_new(is_new).open(path).map_err(failed)?;
    if is_new {
        image.set_len(quota.bytes).map_err(failed)?;
    }
    Ok(Disk { image: image.into(), template })
}

/// Whether a loop device still stands on this image: the kernel takes a mount apart after its last process has gone.
pub fn is_attached(path: &Path) -> io::Result<bool> {
    let path = kernel_name(&File::open(path)?)?;
    for device in std::fs::read_dir("/sys/block")? {
        let backing = device?.path().join("loop/backing_file");
        if let Ok(name) = std::fs::read(backing)
            && name.trim_ascii_end() == path.as_os_str().as_encoded_bytes()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the superblock lies, the field in it that says whether the filesystem was taken down in order, and its value then.
const STATE_OFFSET: u64 = 1024 + 58;
const TAKEN_DOWN: u16 = 1;

/// Makes a filesystem whole again that a host left behind when it stopped without a word. Nothing to do after an unmount.
#[expect(clippy::disallowed_methods, reason = "e2fsck comes with mkfs.ext4 and runs only after a power cut")]
pub fn repair(path: &Path) -> Result<(), ScratchFault> {
    let failed = |source| ScratchFault::Image { path: path.to_owned(), source };
    let mut state = [0; 2];
    File::open(path).and_then(|image| image.read_exact_at(&mut state, STATE_OFFSET)).map_err(failed)?;
    if u16::from_le_bytes(state) == TAKEN_DOWN {
        return Ok(());
    }
    let checker = CHECKERS.iter().find(|path| Path::new(path).exists()).ok_or(ScratchFault::NoFormatter)?;
    let output = Command::new(checker).env_clear().args(["-f", "-y"]).arg(path).stdin(Stdio::null()).output();
    // 0: nothing found; 1 and 2: found and mended.
    match output.map_err(failed)?.status.code() {
        Some(0..=3) => Ok(()),
        Some(_) | None => Err(ScratchFault::Broken { path: path.to_owned() }),
    }
}

fn unnamed_file(directory: &Path, workshop: &Path) -> io::Result<File> {
    match rustix::fs::open(directory, UNNAMED, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok(file.into()),
        // Some filesystems cannot make a file without a name: make one and take the name away.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            std::fs::create_dir(workshop)?;
            let image = workshop.join("image");
            let made = File::options().read(true).write(true).create_new(true).open(image);
            std::fs::remove_dir_all(workshop)?;
            made
        }
        Err(errno) => Err(errno.into()),
    }
}

fn open_template(directory: &Path, workshop: &Path, quota: Quota) -> Result<File, ScratchFault> {
    let path = template_path(directory, quota);
    match File::open(&path) {
        Ok(file) => Ok(file),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => {
            let made = make_template(workshop, &path, quota);
            let removed = std::fs::remove_dir_all(workshop)
                .map_err(|source| ScratchFault::Template { path: workshop.to_owned(), source });
            made.and(removed)?;
            File::open(&path).map_err(|source| ScratchFault::Template { path, source })
        }
        Err(source) => Err(ScratchFault::Template { path, source }),
    }
}

/// The directories every scratch consists of; made with the filesystem they cost nothing at launch.
const ROOMS: [&str; 3] = ["u", "w", "h"];

/// Formats an image and keeps its non-empty blocks. Written under another name and renamed, so a template is whole or absent.
fn make_template(workshop: &Path, path: &Path, quota: Quota) -> Result<(), ScratchFault> {
    let (raw, packed) = (workshop.join("raw"), workshop.join("packed"));
    let rooms = workshop.join("rooms");
    for room in ROOMS {
        std::fs::create_dir_all(rooms.join(room)).map_err(ScratchFault::Format)?;
    }
    format(&raw, &rooms, quota)?;
    pack(&raw, &packed)
        .and_then(|()| std::fs::rename(&packed, path))
        .map_err(|source| ScratchFault::Template { path: path.to_owned(), source })
}

#[expect(
    clippy::disallowed_methods,
    reason = "mkfs.ext4 is the one foreign program the native backend runs, once per quota"
)]
fn format(raw: &Path, rooms: &Path, quota: Quota) -> Result<(), ScratchFault> {
    let formatter =
        FORMATTERS.iter().find(|path| Path::new(path).exists()).ok_or(ScratchFault::NoFormatter)?;
    File::create(raw).and_then(|file| file.set_len(quota.bytes)).map_err(ScratchFault::Format)?;
    let output = Command::new(formatter)
        .env_clear()
        .args(["-q", "-F", "-b", "4096", "-m", "0", "-N", &quota.inodes.to_string()])
        .args(["-O", "^has_journal,^resize_inode,^metadata_csum,uninit_bg,sparse_super2"])
        .args(["-E", "nodiscard,lazy_itable_init=1"])
        .arg("-d")
        .arg(rooms)
        .arg(raw)
        .stdin(Stdio::null())
        .output()
        .map_err(ScratchFault::Format)?;
    if output.status.success() {
        return Ok(());
    }
    // Warnings come first; what ended it comes last.
    let said = String::from_utf8_lossy(&output.stderr);
    Err(ScratchFault::Formatter(said.trim().lines().next_back().unwrap_or_default().to_owned()))
}

/// Copies what the formatter wrote, leaving holes and blocks of zeros out.
fn pack(raw: &Path, packed: &Path) -> io::Result<()> {
    const BLOCK: u64 = 4096;
    let (raw, packed) = (File::open(raw)?, File::create(packed)?);
    packed.set_len(raw.metadata()?.len())?;
    let mut offset = 0;
    while let Ok(start) = rustix::fs::seek(&raw, Sparse::Data(offset)) {
        let end = rustix::fs::seek(&raw, Sparse::Hole(start))?;
        offset = start;
        while offset < end {
            let mut block = vec![0; usize::try_from(BLOCK.min(end - offset)).unwrap_or(0)];
            raw.read_exact_at(&mut block, offset)?;
            if block.iter().any(|byte| *byte != 0) {
                packed.write_all_at(&block, offset)?;
            }
            offset += block.len() as u64;
        }
    }
    packed.sync_all()
}
