//! The job's disk before it is mounted: a sparse ext4 image whose size is the quota.
//!
//! Formatting costs milliseconds and gives the same bytes every time, so it is done once per size: a template keeps the few
//! blocks a fresh filesystem consists of, and every job gets a new sparse file with those blocks written to it. The file has no
//! name; it vanishes with the last descriptor.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, SeekFrom as Sparse};

const FORMATTERS: [&str; 3] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4"];
/// A fresh filesystem of any size pond offers has far fewer blocks than this; more means the template is not ours.
const MAX_TEMPLATE_BYTES: u64 = 64 << 20;

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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// A formatted image of `quota`, in the directory's filesystem but in no directory. What has a name until then has it in the
/// job's own `workshop`, where a sweep looks.
pub(super) fn image(directory: &Path, workshop: &Path, quota: Quota) -> Result<OwnedFd, ScratchFault> {
    let template = open_template(directory, workshop, quota)?;
    let failed = |source| ScratchFault::Image { path: directory.to_owned(), source };
    let image = unnamed_file(directory, workshop).map_err(failed)?;
    image.set_len(quota.bytes).map_err(failed)?;
    copy_blocks(template, &image).map_err(failed)?;
    Ok(image.into())
}

fn unnamed_file(directory: &Path, workshop: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600)) {
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

/// Template file: repeated (offset, length, bytes), little endian, until the end.
fn copy_blocks(mut template: File, image: &File) -> io::Result<()> {
    let mut bytes = Vec::new();
    let length = template.seek(SeekFrom::End(0))?;
    if length > MAX_TEMPLATE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the template is too large to be one"));
    }
    template.seek(SeekFrom::Start(0))?;
    template.read_to_end(&mut bytes)?;
    let mut rest = bytes.as_slice();
    while let Some((header, after)) = rest.split_first_chunk::<16>() {
        let [o0, o1, o2, o3, o4, o5, o6, o7, length @ ..] = *header;
        let offset = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        let block = after.get(..length).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        image.write_all_at(block, offset)?;
        rest = after.get(length..).unwrap_or_default();
    }
    Ok(())
}

fn open_template(directory: &Path, workshop: &Path, quota: Quota) -> Result<File, ScratchFault> {
    let path = directory.join(format!("ext4-{}-{}.template", quota.bytes, quota.inodes));
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

/// Copies what the formatter wrote, skipping holes and blocks of zeros; neighbouring blocks are kept together.
fn pack(raw: &Path, packed: &Path) -> io::Result<()> {
    const BLOCK: u64 = 4096;
    let raw = File::open(raw)?;
    let mut packed = io::BufWriter::new(File::create(packed)?);
    let mut run = Vec::new();
    let mut offset = 0;
    while let Ok(start) = rustix::fs::seek(&raw, Sparse::Data(offset)) {
        let end = rustix::fs::seek(&raw, Sparse::Hole(start))?;
        offset = start;
        while offset < end {
            let mut block = vec![0; usize::try_from(BLOCK.min(end - offset)).unwrap_or(0)];
            raw.read_exact_at(&mut block, offset)?;
            if block.iter().all(|byte| *byte == 0) {
                write_run(&mut packed, offset, &mut run)?;
            } else {
                run.extend_from_slice(&block);
            }
            offset += block.len() as u64;
        }
        write_run(&mut packed, offset, &mut run)?;
    }
    packed.into_inner()?.sync_all()
}

/// Writes the blocks gathered up to `end`, if any.
fn write_run(packed: &mut impl Write, end: u64, run: &mut Vec<u8>) -> io::Result<()> {
    if !run.is_empty() {
        let length = run.len() as u64;
        packed.write_all(&(end - length).to_le_bytes())?;
        packed.write_all(&length.to_le_bytes())?;
        packed.write_all(run)?;
        run.clear();
    }
    Ok(())
}
