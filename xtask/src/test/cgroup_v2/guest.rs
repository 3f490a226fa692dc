//! The memory disk the emulated machine boots from: busybox, python and mkfs.ext4 of this host, the kernel's modules, and
//! the tests as they were built for this host, which are static.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::Message;

use super::kernel::Kernel;
use super::{SUITES, Shop, verdict};
use crate::test::release::remove;

const INIT: &str = include_str!("init.sh");
const PLACES: [&str; 9] = ["dev", "disk", "etc", "memory", "modules", "proc", "root", "suite", "sys"];
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Makes the disk, and says where.
pub(super) fn build(shop: &Shop, place: &Path, kernel: &Kernel) -> Result<String> {
    let tree = place.join("tree");
    remove(&tree)?;
    for name in PLACES {
        fs::create_dir_all(tree.join(name))?;
    }
    for name in MERGED {
        fs::create_dir_all(tree.join("usr").join(name))?;
        symlink(format!("usr/{name}"), tree.join(name))?;
    }
    programs(shop, &tree)?;
    tests(shop, &tree)?;
    for module in &kernel.modules {
        let name = module.file_stem().context("a module without a name")?;
        let (from, to) = (module.to_string_lossy(), tree.join("modules").join(name));
        let unpack = ["sh", "-c", "xz --decompress --stdout \"$0\" > \"$1\"", &from, &to.to_string_lossy()];
        shop.step(shop.command(&unpack))?;
    }
    fs::write(tree.join("init"), INIT)?;
    fs::write(tree.join("suites"), suites())?;
    shop.step(shop.command(&["chmod", "755", "init"]).within(&tree))?;
    let disk = place.join("memory-disk").to_string_lossy().into_owned();
    // Of a pipe a shell reports only the end; an incomplete disk has suites that do not pass.
    shop.step(shop.command(&["sh", "-c", "find . | busybox cpio -o -H newc > \"$0\"", &disk]).within(&tree))?;
    Ok(disk)
}

/// What the guest runs once it is up: each suite, then the mark that says how it ended.
fn suites() -> String {
    let mut script = "export PATH=/usr/sbin:/usr/bin TMPDIR=/disk RUST_BACKTRACE=0\n".to_owned();
    for suite in &SUITES {
        if let Some(group) = suite.group {
            let directory = format!("/sys/fs/cgroup/{group}");
            script.push_str(&format!("mkdir {directory} && echo $$ > {directory}/cgroup.procs\n"));
        }
        script.push_str(&format!("{} 2>&1\necho \"{} {} $?\"\n", suite.command, verdict::MARK, suite.name));
    }
    script + "poweroff -f\n"
}

/// Programs the tests call, at the places they have here.
fn programs(shop: &Shop, tree: &Path) -> Result<()> {
    let interpreter = fs::read_link("/usr/bin/python3").context("the link /usr/bin/python3")?;
    let interpreter = interpreter.to_string_lossy();
    symlink(&*interpreter, tree.join("usr/bin/python3"))?;
    let python = format!("/usr/bin/{interpreter}");
    put(shop, tree, "/bin/busybox", "/usr/bin/busybox")?;
    for program in [python.as_str(), "/usr/sbin/mkfs.ext4"] {
        put(shop, tree, program, program)?;
        let libraries = shop.command(&["ldd", program]).capture()?;
        for library in libraries.split_ascii_whitespace().filter(|word| word.starts_with('/')) {
            put(shop, tree, library, library)?;
        }
    }
    let package = format!("lib{interpreter}-minimal");
    let listed = shop.command(&["dpkg-query", "--listfiles", &package]).capture()?;
    let files: Vec<&str> = listed.lines().filter(|path| Path::new(path).is_file()).collect();
    let copy = ["cp", "--parents", "--target-directory", &tree.to_string_lossy()];
    shop.command(&[&copy[..], &files].concat()).capture().map(drop)
}

/// The tests, and pond where the tests were told it is.
fn tests(shop: &Shop, tree: &Path) -> Result<()> {
    // The whole workspace, as the other tests are built: a part of it has other features, and is compiled again.
    let build = ["cargo", "test", "--no-run", "--workspace", "--lib", "--test", "e2e"];
    shop.step(shop.command(&build))?;
    let messages = shop.command(&build).arg("--message-format=json").capture()?;
    let built = |name: &str, is_test: bool| {
        let found =
            executables(&messages)?.into_iter().find(|(other, test, _)| other == name && *test == is_test);
        found.map(|(_, _, path)| path).with_context(|| format!("cargo built no {name}"))
    };
    put(shop, tree, &built("pond_sandbox", true)?, "/suite/pond-sandbox")?;
    put(shop, tree, &built("e2e", true)?, "/suite/e2e")?;
    let pond = built("pond", false)?;
    put(shop, tree, &pond, &pond)
}

/// Name, whether it is a test, and where it is.
fn executables(messages: &str) -> Result<Vec<(String, bool, String)>> {
    let mut found = Vec::new();
    for message in Message::parse_stream(Cursor::new(messages)) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(path) = artifact.executable
        {
            found.push((artifact.target.name, artifact.profile.test, path.into_string()));
        }
    }
    Ok(found)
}

fn put(shop: &Shop, tree: &Path, from: &str, to: &str) -> Result<()> {
    let to: PathBuf = tree.join(to.trim_start_matches('/'));
    let copy = ["install", "-D", "--mode=755", from, &to.to_string_lossy()];
    shop.command(&copy).capture().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_leaves_its_mark_and_the_machine_goes_down() {
        let script = suites();
        for suite in &SUITES {
            let expected = format!("{} 2>&1\necho \"{} {} $?\"\n", suite.command, verdict::MARK, suite.name);
            assert!(script.contains(&expected), "{script}");
        }
        assert!(script.ends_with("poweroff -f\n"), "{script}");
    }
}
