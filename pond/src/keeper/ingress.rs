//! What of this host a document lets in, looked at before anything is made, with every fault at once. Whoever brings the sandbox up
//! opens all of it again and judges again what it opened.

use std::path::Path;

use pond_policy::sandboxes::{self, Spec};
use pond_sandbox::checkout::Checkout;
use pond_sandbox::native::{Mount, SEARCH};
use pond_sandbox::state::StateDir;
use rustix::fs::{FileType, Mode, OFlags};

use super::protocol::Refusal;

#[derive(Debug, thiserror::Error)]
enum SourceFault {
    #[error("{0}")]
    Open(#[source] std::io::Error),
    #[error("a symbolic link enters no sandbox; name what it leads to")]
    Link,
    #[error("it is neither a file nor a directory")]
    Special,
}

/// Everything that cannot enter, each by its place in the document.
pub(super) fn check(spec: &Spec, state: &StateDir) -> Result<(), Refusal> {
    let mut faults: Vec<String> = Vec::new();
    let mut tell = |place: String, fault: anyhow::Error| faults.push(format!("{place}: {fault:#}"));
    if let Some(workspace) = &spec.workspace {
        let judged = Checkout::open(Path::new(workspace)).map_err(anyhow::Error::from);
        let judged = judged.and_then(|checkout| Ok(checkout.keep_apart(state)?));
        judged.unwrap_or_else(|fault| tell("workspace".to_owned(), fault));
    }
    for (index, mount) in spec.mounts.iter().enumerate() {
        let opened = Mount::open(Path::new(&mount.source), &mount.target, mount.writable, state);
        if let Err(fault) = opened {
            tell(format!("mounts[{index}].source"), fault.into());
        }
    }
    for (index, copy) in spec.copies.iter().enumerate() {
        if let Err(fault) = source(Path::new(&copy.source)) {
            let named = anyhow::Error::from(fault).context(copy.source.clone());
            tell(format!("copies[{index}].source"), named);
        }
    }
    for (index, tool) in spec.tools.iter().enumerate() {
        if let Err(fault) = program(spec, *tool) {
            tell(format!("builtin_tools[{index}]"), fault);
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Refusal::new("ingress_refused", faults.join("; "))) }
}

fn source(path: &Path) -> Result<(), SourceFault> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |errno: rustix::io::Errno| SourceFault::Open(errno.into());
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&opened).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory | FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(SourceFault::Link),
        FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Fifo
        | FileType::Socket
        | FileType::Unknown => Err(SourceFault::Special),
    }
}

/// What every sandbox sees of the host has this program; what an image has is its own affair.
pub(super) fn program(spec: &Spec, tool: sandboxes::Tool) -> anyhow::Result<()> {
    match tool {
        // These come from the home directory of whoever asks, and are looked for there.
        sandboxes::Tool::Cargo | sandboxes::Tool::Uv => return Ok(()),
        sandboxes::Tool::Pip
        | sandboxes::Tool::Npm
        | sandboxes::Tool::Go
        | sandboxes::Tool::Git
        | sandboxes::Tool::Claude
        | sandboxes::Tool::Codex
        | sandboxes::Tool::Gemini
        | sandboxes::Tool::Opencode
        | sandboxes::Tool::Aider => {}
    }
    let name = tool.name();
    if spec.policy.image().is_some() || SEARCH.iter().any(|place| Path::new(place).join(name).is_file()) {
        return Ok(());
    }
    anyhow::bail!(
        "{name} is not installed where a sandbox sees it: install it below /usr or /usr/local, or take it out of `builtin_tools`"
    )
}

#[cfg(test)]
mod tests {
    //! All faults are told, each where it is, and nothing is made.
    use super::*;
    use pond_policy::node::Node;
    use pond_policy::settings::Settings;

    #[test]
    fn every_source_that_cannot_enter_is_named() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(&place.path().join("state")).unwrap();
        let at = |name: &str| place.path().join(name).display().to_string();
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
        let entry = |source: &str, target: &str| {
            let text = |name: &str, value: &str| (name.to_owned(), Node::text(value));
            Node::Map(vec![text("source", source), text("target", target)])
        };
        let list = |name: &str, entries: Vec<Node>| (name.to_owned(), Node::List(entries));
        let profile = vec![("profile".to_owned(), Node::text("untrusted-code-internet"))];
        let document = Node::Map(vec![
            ("sandbox".to_owned(), Node::Map(profile)),
            list(
                "mounts",
                vec![entry(&at("file"), "/a"), entry(&at("link"), "/b"), entry(&at("socket"), "/c")],
            ),
            list(
                "copies",
                vec![entry(&at("link"), "/d/e"), entry(&at("socket"), "/f/g"), entry(&at("none"), "/h/i")],
            ),
        ]);
        let spec = sandboxes::read(&document, &Settings::default()).unwrap();
        let refused = check(&spec, &state).unwrap_err();
        let said = refused.message.split("; ").filter_map(|line| line.split(": ").next());
        let places: Vec<&str> = said.filter(|place| place.ends_with(".source")).collect();
        let expected = [
            "mounts[1].source",
            "mounts[2].source",
            "copies[0].source",
            "copies[1].source",
            "copies[2].source",
        ];
        assert_eq!((refused.code.as_str(), places), ("ingress_refused", expected.to_vec()), "{refused:?}");
    }
}
