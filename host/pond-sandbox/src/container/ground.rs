//! What an image has where a container of pond's has mounts. An engine follows an image's links: a mount could land in another
//! one, hide it, or leave something behind in the job's result. What is not plainly a directory or a file is refused.
//!
//! Looked at in a container of the image alone, which is never started: with the mounts in it, looking would already follow
//! the links.

use std::collections::BTreeMap;

use pond_wire::jail::BindKind;

use super::engine::{Engine, EngineFault};
use super::image::ImageFault;

/// Bits of a file's mode as Go has them.
const DIRECTORY: u32 = 1 << 31;
const LINK: u32 = 1 << 27;
const SPECIAL: u32 = (1 << 26) | (1 << 25) | (1 << 24) | (1 << 21) | (1 << 19);

/// What an image has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Directory,
    File,
    /// Where it leads in the end.
    Link(String),
    Special,
}

impl Found {
    pub(super) fn of(mode: u32, target: String) -> Self {
        match mode {
            mode if mode & LINK != 0 => Self::Link(target),
            mode if mode & DIRECTORY != 0 => Self::Directory,
            mode if mode & SPECIAL != 0 => Self::Special,
            _ => Self::File,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Directory => "a directory".to_owned(),
            Self::File => "a file".to_owned(),
            Self::Link(target) => format!("a link to {target}"),
            Self::Special => "a special file".to_owned(),
        }
    }
}

/// Looks at every place and everything above it.
pub(super) fn check(
    engine: &Engine,
    container: &str,
    image: &str,
    places: &BTreeMap<String, BindKind>,
) -> Result<(), ImageFault> {
    judge(image, places, |path| engine.stat(container, path))
}

fn judge(
    image: &str,
    places: &BTreeMap<String, BindKind>,
    look: impl Fn(&str) -> Result<Found, EngineFault>,
) -> Result<(), ImageFault> {
    let mut seen: BTreeMap<&str, Found> = BTreeMap::new();
    for (place, kind) in places {
        let above = place.match_indices('/').skip(1).filter_map(|(at, _)| place.get(..at));
        let above = above.map(|path| (path, BindKind::Directory));
        for (path, kind) in above.chain([(place.as_str(), *kind)]) {
            let found = match seen.get(path) {
                Some(found) => found.clone(),
                None => look(path)?,
            };
            let fits = match (kind, &found) {
                (_, Found::Nothing)
                | (BindKind::Directory, Found::Directory)
                | (BindKind::File, Found::File) => true,
                // As images have them whose files all lie in one store.
                (BindKind::File, Found::Link(target)) => is_apart(target, places),
                (BindKind::Directory, Found::File | Found::Link(_) | Found::Special)
                | (BindKind::File, Found::Directory | Found::Special) => false,
            };
            if !fits {
                let (image, path) = (image.to_owned(), path.to_owned());
                return Err(ImageFault::Ground { image, path, found: found.words(), place: place.clone() });
            }
            let is_absent = found == Found::Nothing;
            seen.insert(path, found);
            if is_absent {
                // The engine makes it, and whatever lies below.
                break;
            }
        }
    }
    Ok(())
}

/// Whether a path leads into none of the directories that are mounted.
fn is_apart(path: &str, places: &BTreeMap<String, BindKind>) -> bool {
    let below =
        |place: &str| path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path.starts_with('/') && !places.iter().any(|(place, kind)| *kind == BindKind::Directory && below(place))
}

#[cfg(test)]
mod tests {
    //! Every kind of thing at every kind of place.
    use super::*;

    fn verdict(image: &[(&str, Found)]) -> Result<(), String> {
        let places = [
            ("/workspace", BindKind::Directory),
            ("/home/pond", BindKind::Directory),
            ("/tmp", BindKind::Directory),
            ("/etc/passwd", BindKind::File),
        ];
        let places = places.map(|(path, kind)| (path.to_owned(), kind)).into();
        let look = |path: &str| {
            let found = image.iter().find(|(at, _)| *at == path);
            Ok(found.map_or(Found::Nothing, |(_, found)| found.clone()))
        };
        judge("agent:1", &places, look).map_err(|fault| fault.to_string())
    }

    #[test]
    fn only_plain_directories_and_files_are_mounted_on() {
        let link = |target: &str| Found::Link(target.to_owned());
        let etc = ("/etc", Found::Directory);
        let fine: [&[(&str, Found)]; 4] = [
            &[],
            &[("/workspace", Found::Directory), ("/tmp", Found::Directory), etc.clone()],
            &[etc.clone(), ("/etc/passwd", Found::File)],
            &[etc.clone(), ("/etc/passwd", link("/nix/store/abc/passwd"))],
        ];
        for image in fine {
            assert_eq!(verdict(image), Ok(()), "{image:?}");
        }
        let faults: [(&[(&str, Found)], &str); 8] = [
            (&[("/workspace", link("/etc"))], "/workspace is a link to /etc"),
            (&[("/workspace", Found::File)], "/workspace is a file"),
            (&[("/tmp", link("/workspace"))], "/tmp is a link to /workspace"),
            (&[("/home", Found::Directory), ("/home/pond", link("/workspace"))], "/home/pond is a link to"),
            (&[("/home", link("/workspace"))], "/home is a link to /workspace"),
            (
                &[etc.clone(), ("/etc/passwd", link("/workspace/pw"))],
                "/etc/passwd is a link to /workspace/pw",
            ),
            (&[etc.clone(), ("/etc/passwd", Found::Directory)], "/etc/passwd is a directory"),
            (&[etc, ("/etc/passwd", Found::Special)], "/etc/passwd is a special file"),
        ];
        for (image, why) in faults {
            let said = verdict(image).unwrap_err();
            assert!(said.contains("image agent:1") && said.contains(why), "{why}: {said}");
        }
    }

    #[test]
    fn modes_are_read_as_the_engine_writes_them() {
        let read = |mode| Found::of(mode, "/workspace".to_owned());
        assert_eq!(read(2_147_484_141), Found::Directory);
        assert_eq!(read(134_218_239), Found::Link("/workspace".to_owned()));
        assert_eq!(read(420), Found::File);
        // A device, a pipe and a socket.
        assert_eq!(
            [1 << 26 | 0o600, 1 << 25 | 0o600, 1 << 24 | 0o600].map(read),
            [const { Found::Special }; 3]
        );
    }
}
