//! Packages of another Debian release than this machine's: fetched and unpacked, never installed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Shop;

/// Its package lists, in a place of their own. Nothing of this machine's own package database is read or written.
pub(super) struct Release {
    options: Vec<String>,
}

impl Release {
    /// `suite` as the archive names it.
    pub(super) fn open(shop: &Shop, place: &Path, suite: &str) -> Result<Self> {
        let apt = place.join("apt");
        remove(&apt)?;
        fs::create_dir_all(apt.join("lists/partial"))?;
        fs::create_dir_all(apt.join("cache/archives/partial"))?;
        let targets = shop.command(&["apt-get", "indextargets", "--format", TARGET]).capture()?;
        let mirror = mirror(&targets)
            .context("apt knows no mirror of Debian; run `apt-get update`, or add one to its sources")?;
        let keys = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
        fs::write(apt.join("sources.list"), format!("deb [{keys}] {mirror} {suite} main\n"))?;
        let own = |setting: &str, name: &str| format!("--option=Dir::{setting}={}", apt.join(name).display());
        let options = vec![
            own("Etc::sourcelist", "sources.list"),
            "--option=Dir::Etc::sourceparts=/dev/null".to_owned(),
            "--option=Dir::State::status=/dev/null".to_owned(),
            "--option=APT::Sandbox::User=".to_owned(),
            own("State::lists", "lists"),
            own("Cache", "cache"),
        ];
        let release = Self { options };
        shop.step(shop.command(&release.words("apt-get", &["update"])))?;
        Ok(release)
    }

    /// What `apt-cache` says of this release.
    pub(super) fn ask(&self, shop: &Shop, words: &[&str]) -> Result<String> {
        shop.command(&self.words("apt-cache", words)).capture()
    }

    /// Fetches these packages and unpacks them into a folder.
    pub(super) fn unpack(&self, shop: &Shop, packages: &[&str], into: &Path) -> Result<()> {
        let download = self.words("apt-get", &[&["download"], packages].concat());
        shop.step(shop.command(&download).within(into))?;
        let unpack = "for file in *.deb; do dpkg-deb --extract \"$file\" . || exit 1; done";
        shop.step(shop.command(&["sh", "-c", unpack]).within(into))
    }

    fn words<'a>(&'a self, program: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
        let options = self.options.iter().map(String::as_str);
        [program].into_iter().chain(options).chain(rest.iter().copied()).collect()
    }
}

/// What apt says of each of its package lists; the mirror comes last, for it may hold anything but a blank.
const TARGET: &str = "$(ORIGIN) $(LABEL) $(REPO_URI)";

/// The mirror this machine has its own Debian from: every release is there.
fn mirror(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| line.strip_prefix("Debian Debian "))
}

/// Makes a folder under another name and renames it, so that one that is there is whole.
pub(super) fn whole(place: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if place.exists() {
        return Ok(());
    }
    let partial = place.with_extension("partial");
    remove(&partial)?;
    fs::create_dir_all(&partial)?;
    make(&partial)?;
    Ok(fs::rename(&partial, place)?)
}

pub(super) fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => Err(fault.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_of_debian_itself() {
        let security = "Debian Debian-Security http://mirror.example/debian-security/\n";
        let others = "Node Node http://node.example/\n";
        let own = "Debian Debian http://mirror.example/debian/\n";
        assert_eq!(mirror(&[others, security, own].concat()), Some("http://mirror.example/debian/"));
        assert_eq!(mirror(&[others, security].concat()), None);
    }
}
