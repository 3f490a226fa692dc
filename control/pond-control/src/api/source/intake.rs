//! One source while it arrives: taken apart to be judged and hashed, and at the same time encrypted as it came.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Sink, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use pond_seal::Digest;
use pond_seal::bundle::{BundleFault, DataKey, Encrypting};
use pond_seal::digest::Hashing;
use pond_seal::fresh::{self, NoRandomness};
use pond_seal::secret::Secret;
use pond_seal::tree::{Entry as Named, Listing, TreeFault};
use pond_wire::tree::{self, Decoder, Entry, Event, TreeCaps};

/// What a source may have: the entries are listed in memory, the bytes lie on disk.
const CAPS: TreeCaps = TreeCaps::SOURCE;
/// The whole stream: content, and a header of at most this for each entry.
pub(crate) const MOST_STREAM: u64 = CAPS.bytes + CAPS.entries * 1024;
/// Bytes of all paths together: they are held until the tree is whole.
const MOST_NAMES: usize = 32 << 20;
/// How the names of files begin that are not finished.
pub(crate) const UNFINISHED: &str = "incoming-";

#[derive(Debug, thiserror::Error)]
pub(crate) enum IntakeFault {
    #[error("writing the bundle")]
    File(#[from] io::Error),
    #[error("naming the bundle")]
    Random(#[from] NoRandomness),
    #[error("making a key for the bundle")]
    Key(#[source] BundleFault),
    #[error("more than {0} bytes")]
    TooLarge(u64),
    #[error("not a packed tree")]
    Stream(#[source] tree::TreeFault),
    #[error("not a tree a job can be given")]
    Tree(#[source] TreeFault),
    #[error("a source has files, directories and links, nothing else")]
    Kind,
    #[error("the paths of all entries have more than {MOST_NAMES} bytes")]
    Names,
    #[error("the stream ended before the tree was whole")]
    Cut,
}

pub(crate) struct Intake {
    decoder: Decoder,
    listing: Listing,
    /// The directory that is open, as its names' parts.
    within: Vec<Vec<u8>>,
    file: Option<Reading>,
    sealed: Encrypting<Hashing<BufWriter<File>>>,
    on_disk: File,
    kept: Unfinished,
    key: DataKey,
    bytes: u64,
    entries: u64,
    names: usize,
}

/// A file of the tree whose content is arriving.
struct Reading {
    path: Vec<u8>,
    executable: bool,
    size: u64,
    left: u64,
    content: Hashing<Sink>,
}

/// A source that is whole, encrypted and on disk; removed again unless it is kept.
pub(crate) struct Packed {
    pub(crate) input: Digest,
    pub(crate) ciphertext: Digest,
    pub(crate) size: u64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) key: Secret,
    name: String,
    file: Unfinished,
}

/// A file that goes when this value does.
struct Unfinished(Option<PathBuf>);

impl Intake {
    pub(crate) fn begin(files: &Path) -> Result<Self, IntakeFault> {
        let name: String = fresh::bytes::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = files.join(format!("{UNFINISHED}{name}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let kept = Unfinished(Some(path));
        let on_disk = file.try_clone()?;
        let key = DataKey::generate().map_err(IntakeFault::Key)?;
        let sealed = Encrypting::new(Hashing::new(BufWriter::new(file)), &key)?;
        let (decoder, listing) = (Decoder::new(CAPS), Listing::default());
        Ok(Self {
            decoder,
            listing,
            within: Vec::new(),
            file: None,
            sealed,
            on_disk,
            kept,
            key,
            bytes: 0,
            entries: 0,
            names: 0,
        })
    }

    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), IntakeFault> {
        self.bytes = self.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if self.bytes > MOST_STREAM {
            return Err(IntakeFault::TooLarge(MOST_STREAM));
        }
        self.decoder.push(piece);
        while let Some(event) = self.decoder.next_event().map_err(judged)? {
            match event {
                Event::Entry(entry) => self.entry(entry)?,
                Event::Content(content) => self.content(&content)?,
                Event::End => {}
            }
        }
        Ok(self.sealed.write_all(piece)?)
    }

    fn entry(&mut self, entry: Entry) -> Result<(), IntakeFault> {
        match entry {
            Entry::Leave { .. } => {
                self.within.pop();
                return Ok(());
            }
            Entry::Enter { name } => {
                let path = self.path(&name)?;
                self.within.push(name);
                self.listing.add(path, Named::Directory);
            }
            Entry::File { name, mode, size, .. } => {
                let (path, executable) = (self.path(&name)?, mode & 0o100 != 0);
                let content = Hashing::new(io::sink());
                self.file = Some(Reading { path, executable, size, left: size, content });
                self.content(&[])?;
            }
            Entry::Link { name, target } => {
                let path = self.path(&name)?;
                self.names += target.len();
                self.listing.add(path, Named::Link { target });
            }
            Entry::Fifo { .. } | Entry::Socket { .. } | Entry::Large { .. } => return Err(IntakeFault::Kind),
        }
        self.entries += 1;
        Ok(())
    }

    fn content(&mut self, piece: &[u8]) -> Result<(), IntakeFault> {
        let Some(mut file) = self.file.take() else { return Err(IntakeFault::Cut) };
        file.content.write_all(piece)?;
        file.left = file.left.saturating_sub(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if file.left > 0 {
            self.file = Some(file);
            return Ok(());
        }
        let sha256 = file.content.finish()?;
        self.listing.add(file.path, Named::File { executable: file.executable, size: file.size, sha256 });
        Ok(())
    }

    fn path(&mut self, name: &[u8]) -> Result<Vec<u8>, IntakeFault> {
        let parts = self.within.iter().map(Vec::as_slice).chain([name]);
        let path = parts.collect::<Vec<_>>().join(&b'/');
        self.names += path.len();
        if self.names > MOST_NAMES { Err(IntakeFault::Names) } else { Ok(path) }
    }

    /// The tree is whole: it gets its name, and is on disk before anybody hears of it.
    pub(crate) fn finish(mut self) -> Result<Packed, IntakeFault> {
        if !self.decoder.is_over() {
            return Err(IntakeFault::Cut);
        }
        let input = self.listing.finish().map_err(IntakeFault::Tree)?;
        let ciphertext = self.sealed.finish()?.finish()?;
        self.on_disk.sync_all()?;
        let size = self.on_disk.metadata()?.len();
        let name = self.kept.name()?;
        Ok(Packed {
            input,
            ciphertext,
            size,
            bytes: self.bytes,
            entries: self.entries,
            key: self.key.to_secret(),
            name,
            file: self.kept,
        })
    }
}

impl Packed {
    /// Where the ciphertext lies, below the files of the control plane.
    pub(crate) fn place(&self) -> &str {
        &self.name
    }

    pub(crate) fn keep(mut self) {
        self.file.0 = None;
    }
}

impl Unfinished {
    /// Gives the file the name it will be found by.
    fn name(&mut self) -> Result<String, io::Error> {
        let lost = || io::Error::from(io::ErrorKind::NotFound);
        let from = self.0.take().ok_or_else(lost)?;
        let directory = from.parent().ok_or_else(lost)?.to_owned();
        let tail =
            from.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(UNFINISHED));
        let name = format!("source-{}", tail.ok_or_else(lost)?);
        let to = directory.join(&name);
        let renamed = std::fs::rename(&from, &to);
        self.0 = Some(if renamed.is_ok() { to } else { from });
        renamed?;
        File::open(directory)?.sync_all()?;
        Ok(name)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take()
            && let Err(fault) = std::fs::remove_file(&path)
        {
            tracing::error!(fault = &fault as &dyn std::error::Error, path = %path.display(), "a file was left behind");
        }
    }
}

fn judged(fault: tree::TreeFault) -> IntakeFault {
    match fault {
        tree::TreeFault::Bytes(most) => IntakeFault::TooLarge(most),
        tree::TreeFault::Kind(_)
        | tree::TreeFault::Name
        | tree::TreeFault::Order
        | tree::TreeFault::Depth
        | tree::TreeFault::Size(_)
        | tree::TreeFault::Facts
        | tree::TreeFault::Target
        | tree::TreeFault::Entries(_)
        | tree::TreeFault::Trailing => IntakeFault::Stream(fault),
    }
}
