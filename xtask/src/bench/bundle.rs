//! What OCI runtimes and docker run: a root with the host's own `true` and the libraries it needs, and a configuration with
//! the namespaces and limits of pond's default profile. No filter and no overlay: the peers do less, which is theirs to gain.

use std::fs;

use anyhow::{Context, Result};

use super::stand::Stand;

pub(super) const TRUE: &str = "/usr/bin/true";

const CONFIGURATION: &str = r#"{
  "ociVersion": "1.0.2",
  "process": {
    "terminal": false, "user": { "uid": 0, "gid": 0 }, "args": ["/usr/bin/true"], "env": ["PATH=/usr/bin"], "cwd": "/",
    "capabilities": { "bounding": [], "effective": [], "permitted": [] },
    "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 }], "noNewPrivileges": true
  },
  "root": { "path": "rootfs", "readonly": true },
  "hostname": "peer",
  "mounts": [
    { "destination": "/proc", "type": "proc", "source": "proc" },
    { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"] },
    { "destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "size=64m"] },
    { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=512m"] }
  ],
  "linux": {
    "resources": {
      "memory": { "limit": 4294967296 }, "pids": { "limit": 512 }, "cpu": { "quota": 200000, "period": 100000 }
    },
    "uidMappings": [{ "containerID": 0, "hostID": 1000000, "size": 65536 }],
    "gidMappings": [{ "containerID": 0, "hostID": 1000000, "size": 65536 }],
    "namespaces": [
      { "type": "user" }, { "type": "mount" }, { "type": "pid" }, { "type": "network" }, { "type": "ipc" },
      { "type": "uts" }, { "type": "cgroup" }
    ],
    "maskedPaths": ["/proc/kcore", "/proc/keys"], "readonlyPaths": ["/proc/sys"]
  }
}
"#;

/// Makes the bundle, and says where.
pub(super) fn make(stand: &Stand) -> Result<String> {
    let bundle = stand.path("bundle");
    let root = format!("{bundle}/rootfs");
    for place in ["proc", "dev", "tmp", "sys", "etc"] {
        fs::create_dir_all(format!("{root}/{place}"))?;
    }
    for file in needed(stand)? {
        stand.step(&["install", "-D", "--mode=755", &file, &format!("{root}{file}")])?;
    }
    fs::write(format!("{bundle}/config.json"), CONFIGURATION)?;
    Ok(bundle)
}

/// `true` itself, its loader and its libraries.
fn needed(stand: &Stand) -> Result<Vec<String>> {
    let listed = stand.capture(&["ldd", TRUE]).context("which libraries `true` needs")?;
    let libraries = listed.split_ascii_whitespace().filter(|word| word.starts_with('/'));
    Ok([TRUE].into_iter().chain(libraries).map(str::to_owned).collect())
}
