//! Which installed node nvm means by its default, found as nvm finds it, from its files and without running any of its code.
//!
//! An alias is a file that names a version, a part of one, a word such as `node`, or another alias. All of it is text of a
//! person's: it becomes a file name only after it was looked at, and a chain of aliases is followed a few steps and no further.

use std::io::{self, Read};
use std::path::Path;

/// nvm's own chains have three.
const MOST_STEPS: usize = 16;
const MOST_BYTES: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum NvmFault {
    #[error("nvm has no default; `nvm alias default node` sets one")]
    NoDefault,
    #[error("reading nvm's alias {name:?}")]
    Read { name: String, source: io::Error },
    #[error("nvm's alias {name:?} is a symbolic link, which could lead anywhere")]
    Link { name: String },
    #[error("nvm's default leads to {name:?}, which no version and no alias of nvm is called")]
    Name { name: String },
    #[error("nvm's aliases lead in a circle at {name:?}")]
    Circle { name: String },
    #[error("nvm's default is the system's own node, which a job sees without --tool if it lies below /usr")]
    System,
    #[error("nvm's default is {name:?}, and no such version is installed; `nvm install {name}` installs one")]
    NotInstalled { name: String },
    #[error("listing the versions that nvm has installed")]
    Versions(#[source] io::Error),
}

/// The name of a directory below `versions/node`.
pub(super) fn default_version(nvm: &Path) -> Result<String, NvmFault> {
    let mut name = alias(nvm, "default")?.ok_or(NvmFault::NoDefault)?;
    let installed = installed(&nvm.join("versions/node")).map_err(NvmFault::Versions)?;
    for _ in 0..MOST_STEPS {
        if !is_plain(&name) {
            return Err(NvmFault::Name { name });
        }
        match alias(nvm, &name)? {
            Some(next) => name = next,
            None => match earlier_lts(nvm, &name)? {
                Some(next) => name = next,
                None => return version(&installed, name),
            },
        }
    }
    Err(NvmFault::Circle { name })
}

/// Letters and what nvm uses between them; no component leads up.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/*".contains(&byte);
    !name.is_empty()
        && name.bytes().all(plain)
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
}

/// What an alias says, without a comment; nothing when there is none of this name.
fn alias(nvm: &Path, name: &str) -> Result<Option<String>, NvmFault> {
    let path = nvm.join("alias").join(name);
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => return Err(NvmFault::Link { name: name.to_owned() }),
        Ok(found) if found.is_file() => {}
        Ok(_) | Err(_) => return Ok(None),
    }
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    read.map_err(|source| NvmFault::Read { name: name.to_owned(), source })?;
    let said = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(Some(said.into_iter().find(|line| !line.is_empty()).unwrap_or_default().to_owned()))
}

/// `lts/-1` is the line before the latest: their names are in the order of the alphabet.
fn earlier_lts(nvm: &Path, name: &str) -> Result<Option<String>, NvmFault> {
    let Some(back) = name.strip_prefix("lts/-").and_then(|back| back.parse::<usize>().ok()) else {
        return Ok(None);
    };
    let unread = |source| NvmFault::Read { name: name.to_owned(), source };
    let mut lines: Vec<String> = std::fs::read_dir(nvm.join("alias/lts"))
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>())
        .map_err(unread)?
        .into_iter()
        .filter_map(|line| line.into_string().ok())
        .filter(|line| line != "*")
        .collect();
    lines.sort_unstable();
    let line = lines.iter().rev().nth(back).ok_or(NvmFault::NotInstalled { name: name.to_owned() })?;
    Ok(Some(format!("lts/{line}")))
}

/// What is installed under this name, which no alias has: all of it, the newest that begins with it, or the newest.
fn version(installed: &[String], name: String) -> Result<String, NvmFault> {
    if installed.contains(&name) {
        return Ok(name);
    }
    let wanted = match name.as_str() {
        "system" => return Err(NvmFault::System),
        "node" | "stable" => Some(Vec::new()),
        part => numbers(part.strip_prefix('v').unwrap_or(part)),
    };
    let wanted = wanted.ok_or_else(|| NvmFault::Name { name: name.clone() })?;
    let of = |directory: &&String| numbers(directory.strip_prefix('v')?);
    let fitting =
        installed.iter().filter(|directory| of(directory).is_some_and(|has| has.starts_with(&wanted)));
    fitting.max_by_key(of).cloned().ok_or(NvmFault::NotInstalled { name })
}

fn installed(versions: &Path) -> io::Result<Vec<String>> {
    let names = std::fs::read_dir(versions)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
}

/// `20.11` as its numbers, of which there are three at most.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let numbers: Vec<u32> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    (numbers.len() <= 3).then_some(numbers)
}

#[cfg(test)]
mod tests {
    //! Every way nvm names a version, and chains that lead nowhere.
    use super::*;

    fn nvm(aliases: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for version in ["v18.20.4", "v20.9.0", "v20.11.1", "v22.1.0", "v100.0.0-rc.1"] {
            std::fs::create_dir_all(home.path().join("versions/node").join(version)).unwrap();
        }
        let lines = [("lts/*", "lts/jod"), ("lts/hydrogen", "v18.20.4"), ("lts/iron", "v20.11.1")];
        let lines = [&lines[..], &[("lts/jod", "v22.1.0")], aliases].concat();
        for (name, text) in lines {
            let path = home.path().join("alias").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        home
    }

    fn found(aliases: &[(&str, &str)]) -> Result<String, String> {
        default_version(nvm(aliases).path()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_default_is_what_nvm_takes_it_for() {
        for (default, version) in [
            ("v20.9.0", "v20.9.0"),
            ("20.9.0", "v20.9.0"),
            ("20", "v20.11.1"),
            ("v20.9", "v20.9.0"),
            ("node", "v22.1.0"),
            ("stable", "v22.1.0"),
            ("lts/*", "v22.1.0"),
            ("lts/iron", "v20.11.1"),
            ("lts/-1", "v20.11.1"),
            ("lts/-2", "v18.20.4"),
            ("20 # what the team uses", "v20.11.1"),
        ] {
            assert_eq!(found(&[("default", default)]).as_deref(), Ok(version), "{default}");
        }
        let chain = [("default", "work"), ("work", "my/older"), ("my/older", "18")];
        assert_eq!(found(&chain).as_deref(), Ok("v18.20.4"));
        // An alias comes before what its name would mean otherwise.
        assert_eq!(found(&[("default", "20"), ("20", "node"), ("node", "18")]).as_deref(), Ok("v18.20.4"));
    }

    #[test]
    fn what_leads_nowhere_or_elsewhere_is_refused_with_its_name() {
        for (aliases, says) in [
            (&[][..], "nvm has no default"),
            (&[("default", "21")], "\"21\", and no such version is installed"),
            (&[("default", "lts/-9")], "\"lts/-9\", and no such version"),
            (&[("default", "system")], "the system's own node"),
            (&[("default", "../../.ssh")], "\"../../.ssh\", which no version"),
            (&[("default", "/etc/passwd")], "\"/etc/passwd\", which no version"),
            (&[("default", "")], "\"\", which no version"),
            (&[("default", "$(id)")], "\"$(id)\", which no version"),
            (&[("default", "iojs")], "\"iojs\", which no version"),
            (&[("default", "a"), ("a", "b"), ("b", "a")], "circle"),
            (&[("default", "default")], "circle"),
        ] {
            let refused = found(aliases).unwrap_err();
            assert!(refused.contains(says), "{aliases:?}: {refused}");
        }
        let home = nvm(&[("default", "elsewhere")]);
        std::os::unix::fs::symlink("/etc/hostname", home.path().join("alias/elsewhere")).unwrap();
        assert!(default_version(home.path()).unwrap_err().to_string().contains("symbolic link"));
    }
}
