//! The shapes of what pond asks an engine for and reads from it, field by field as the Engine API names them.
//!
//! A field that is not named here is not sent, and an engine's default for it must be harmless; `plan` says why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Create {
    pub(super) hostname: String,
    pub(super) user: String,
    pub(super) image: String,
    pub(super) entrypoint: Vec<String>,
    pub(super) cmd: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) working_dir: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) healthcheck: Healthcheck,
    pub(super) open_stdin: bool,
    pub(super) stdin_once: bool,
    pub(super) attach_stdin: bool,
    pub(super) attach_stdout: bool,
    pub(super) attach_stderr: bool,
    pub(super) tty: bool,
    pub(super) network_disabled: bool,
    pub(super) host_config: HostConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Healthcheck {
    pub(super) test: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HostConfig {
    pub(super) runtime: String,
    pub(super) network_mode: String,
    pub(super) ipc_mode: String,
    pub(super) cgroupns_mode: String,
    pub(super) userns_mode: String,
    pub(super) privileged: bool,
    pub(super) cap_drop: Vec<String>,
    pub(super) cap_add: Vec<String>,
    pub(super) security_opt: Vec<String>,
    pub(super) readonly_rootfs: bool,
    pub(super) masked_paths: Vec<String>,
    pub(super) readonly_paths: Vec<String>,
    pub(super) mounts: Vec<Mount>,
    pub(super) tmpfs: BTreeMap<String, String>,
    pub(super) ulimits: Vec<Ulimit>,
    pub(super) memory: u64,
    pub(super) memory_swap: u64,
    pub(super) nano_cpus: u64,
    pub(super) pids_limit: u64,
    pub(super) blkio_device_read_bps: Vec<Throttle>,
    pub(super) blkio_device_write_bps: Vec<Throttle>,
    pub(super) init: bool,
    pub(super) auto_remove: bool,
    pub(super) log_config: LogConfig,
    pub(super) restart_policy: RestartPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Mount {
    pub(super) r#type: String,
    pub(super) source: String,
    pub(super) target: String,
    pub(super) read_only: bool,
    pub(super) bind_options: BindOptions,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BindOptions {
    pub(super) propagation: String,
    pub(super) non_recursive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Ulimit {
    pub(super) name: String,
    pub(super) soft: u64,
    pub(super) hard: u64,
}

/// Bytes a second on one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Throttle {
    pub(super) path: String,
    pub(super) rate: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct LogConfig {
    pub(super) r#type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RestartPolicy {
    pub(super) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Exec {
    pub(super) user: String,
    pub(super) cmd: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) working_dir: String,
    pub(super) privileged: bool,
    pub(super) attach_stdin: bool,
    pub(super) attach_stdout: bool,
    pub(super) attach_stderr: bool,
    pub(super) tty: bool,
}

/// What an engine says of a path in a container, in a header.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PathStat {
    pub(super) mode: u32,
    pub(super) link_target: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ExecStart {
    pub(super) detach: bool,
    pub(super) tty: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Executed {
    pub(super) id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Created {
    pub(super) id: String,
    /// What the engine will not do although it was asked to.
    #[serde(default)]
    pub(super) warnings: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Inspected {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) config: Config,
    pub(super) host_config: RanUnder,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    pub(super) running: bool,
    pub(super) pid: i32,
    #[serde(rename = "OOMKilled", default)]
    pub(super) oom_killed: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Config {
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RanUnder {
    /// Nothing in a container that was made without one.
    #[serde(default)]
    pub(super) runtime: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Image {
    pub(super) id: String,
    #[serde(default)]
    pub(super) os: String,
    #[serde(rename = "RootFS")]
    pub(super) root: Layers,
    #[serde(default)]
    pub(super) config: Option<ImageConfig>,
}

/// What an image would add to a container by itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ImageConfig {
    #[serde(default)]
    pub(super) env: Option<Vec<String>>,
    #[serde(default)]
    pub(super) volumes: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    pub(super) entrypoint: Option<Vec<String>>,
    #[serde(default)]
    pub(super) cmd: Option<Vec<String>>,
    #[serde(default)]
    pub(super) working_dir: String,
    #[serde(default)]
    pub(super) exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Layers {
    #[serde(default)]
    pub(super) layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Version {
    #[serde(default)]
    pub(super) version: String,
    pub(super) api_version: String,
    #[serde(rename = "MinAPIVersion")]
    pub(super) min_api_version: String,
    pub(super) os: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Info {
    pub(super) runtimes: BTreeMap<String, Runtime>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Runtime {
    #[serde(default)]
    pub(super) runtime_args: Vec<String>,
}
