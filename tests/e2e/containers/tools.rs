//! Tools of a home directory, together and on every backend: each is found, and finds itself.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::daemon::Daemon;
use crate::done::Done;
use crate::support::World;

/// A home with a Python of pyenv's, built for the place it is in, and a cargo that says where it keeps things.
fn home() -> TempDir {
    let home = tempfile::Builder::new().prefix("pond-test").tempdir_in("/home").unwrap();
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let python = home.path().join(".pyenv/versions/3.99.0/bin");
    let cargo = home.path().join(".cargo/bin");
    for directory in [&python, &cargo, &home.path().join(".rustup"), &home.path().join(".ssh")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(home.path().join(".pyenv/version"), "3.99.0\n").unwrap();
    std::fs::write(python.join("own"), std::fs::read("/bin/sh").unwrap()).unwrap();
    std::fs::set_permissions(python.join("own"), PermissionsExt::from_mode(0o755)).unwrap();
    // As pip has it: its interpreter by the place it was installed in.
    program(&python.join("python3"), &format!("#!{}/own\necho Python 3.99.0\n", python.display()));
    program(
        &cargo.join("cargo"),
        "#!/bin/sh\necho kept > $CARGO_HOME/registry/made && cat $CARGO_HOME/registry/*\n",
    );
    std::fs::create_dir(home.path().join(".cargo/registry")).unwrap();
    std::fs::write(home.path().join(".cargo/registry/cached"), "cached\n").unwrap();
    symlink("/etc/passwd", home.path().join(".cargo/registry/led")).unwrap();
    home
}

fn program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn several_tools_at_once_are_found_and_find_themselves() {
    let (daemon, world, home) = (Daemon::start(), World::new(), home());
    let line = "python3 --version; cargo | grep -e kept -e cached; echo x > $CARGO_HOME/git/made && echo written; \
                (echo x > $CARGO_HOME/bin/made) 2>/dev/null || echo sealed; ls -A $(dirname $(dirname $(command -v python3)))/../../..";
    for backend in ["native", "docker", "gvisor"] {
        let run =
            ["run", "-q", "--backend", backend, "--tool", "pyenv", "--tool", "cargo", "--", "sh", "-c", line];
        let done = Done::of(daemon.pond(&world, &run).env("HOME", home.path()).output().unwrap());
        let expected = "Python 3.99.0\ncached\nkept\nwritten\nsealed\n.pyenv\n";
        assert_eq!((done.code, done.stdout.as_str()), (0, expected), "{backend}: {done:?}");
    }
    let kept = home.path().join(".cargo/registry/made");
    assert!(!kept.exists() && !home.path().join(".cargo/git").exists(), "the host's cache is not the job's");
}
