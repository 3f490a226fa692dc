//! Debian's newest kernel for virtual machines: fetched and unpacked, never installed. pond builds overlays from
//! descriptors, which needs a newer kernel than Debian 12 has, so it comes from the backports of the next release.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Shop;
use crate::test::release::{self, Release};

const SUITE: &str = "trixie-backports";
const PACKAGE: &str = "linux-image-cloud-amd64";
/// What pond needs that this kernel keeps in files of its own.
const MODULES: [&str; 2] = ["loop", "overlay"];

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) version: String,
    pub(super) image: PathBuf,
    /// Compressed, as Debian ships them.
    pub(super) modules: Vec<PathBuf>,
}

/// Fetched once; a kernel that is there is taken as it is.
pub(super) fn fetch(shop: &Shop, place: &Path) -> Result<Kernel> {
    let unpacked = place.join("kernel");
    release::whole(&unpacked, |partial| download(shop, place, partial))?;
    let image = find(shop, &unpacked, "vmlinuz*")?;
    let modules = MODULES
        .iter()
        .map(|name| find(shop, &unpacked, &format!("{name}.ko.xz")))
        .collect::<Result<Vec<_>>>()?;
    Ok(Kernel { version: version(&modules)?, image, modules })
}

/// Modules lie in a folder named for their kernel.
fn version(modules: &[PathBuf]) -> Result<String> {
    let path = modules.first().context("a kernel without modules")?.to_string_lossy().into_owned();
    let after = path.split_once("/lib/modules/").and_then(|(_, rest)| rest.split('/').next());
    Ok(after.context("a kernel without a version")?.to_owned())
}

fn download(shop: &Shop, place: &Path, partial: &Path) -> Result<()> {
    let release = Release::open(shop, place, SUITE)?;
    let packages = parts(&release.ask(shop, &["depends", "--recurse", "--important", PACKAGE])?);
    ensure!(!packages.is_empty(), "the package {PACKAGE} names no kernel");
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    release.unpack(shop, &packages, partial)
}

/// The packages that make up a kernel, of all that apt lists: one in some releases, several in others.
fn parts(listed: &str) -> Vec<String> {
    let is_part = |name: &str| {
        let kind = ["linux-image-", "linux-binary-", "linux-modules-"]
            .iter()
            .find_map(|kind| name.strip_prefix(kind));
        kind.is_some_and(|rest| {
            rest.starts_with(|first: char| first.is_ascii_digit()) && rest.ends_with("-cloud-amd64")
        })
    };
    listed.lines().filter(|line| is_part(line)).map(str::to_owned).collect()
}

fn find(shop: &Shop, below: &Path, name: &str) -> Result<PathBuf> {
    let found = shop.command(&["find", &below.to_string_lossy(), "-type", "f", "-name", name]).capture()?;
    let first = found.lines().next().with_context(|| format!("the unpacked kernel has no {name}"))?;
    Ok(PathBuf::from(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_whole_whichever_way_it_is_packaged() {
        let whole = "linux-image-cloud-amd64\n  Depends: linux-image-6.18.15+deb13-cloud-amd64\nlinux-image-6.18.15+deb13-cloud-amd64\nlinux-base\n";
        assert_eq!(parts(whole), ["linux-image-6.18.15+deb13-cloud-amd64"]);
        let split = "linux-image-7.2.12+deb13-cloud-amd64\nlinux-base-7.2.12+deb13-cloud-amd64\nlinux-binary-7.2.12+deb13-cloud-amd64\n\
            linux-modules-7.2.12+deb13-cloud-amd64\nlinux-modules-7.2.12+deb13-amd64\ndracut\n";
        let expected =
            ["image", "binary", "modules"].map(|kind| format!("linux-{kind}-7.2.12+deb13-cloud-amd64"));
        assert_eq!(parts(split), expected);
        assert_eq!(parts("linux-image-cloud-amd64\n"), Vec::<String>::new());
    }

    #[test]
    fn the_version_is_the_folder_of_the_modules() {
        let module = PathBuf::from("/x/usr/lib/modules/7.2.12+deb13/kernel/fs/overlayfs/overlay.ko.xz");
        assert_eq!(version(&[module]).unwrap(), "7.2.12+deb13");
    }
}
