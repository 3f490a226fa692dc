//! What there is: one row per call. Router, OpenAPI document and the tests of authorisation come from this table alone.

use axum::routing::MethodFilter;
use pond_policy::scope::Scope;
use pond_wire::api::{MOST_FILE_BYTES, TREE_TYPE};
use pond_wire::decode;

/// What a caller must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// For everybody who reaches the control plane: it tells nothing about anybody.
    Nothing,
    Scope(Scope, Reach),
}

/// How far a call reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What it is about belongs to one project, which the token must cover.
    Project,
    /// It concerns all: a token for one project does not do.
    Everything,
}

/// The body a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Json {
        most: usize,
    },
    /// JSON that may be left out.
    MaybeJson {
        most: usize,
    },
    Document,
    Tree,
    /// Bytes of any kind.
    Bytes {
        most: usize,
    },
}

const JSON: &[&str] = &["application/json"];
/// `""`: without a body no type is named.
const MAYBE_JSON: &[&str] = &["application/json", ""];
const DOCUMENT: &[&str] = &["application/json", "application/yaml", "application/x-yaml", "text/yaml"];
const TREE: &[&str] = &[TREE_TYPE, "application/octet-stream"];
const BYTES: &[&str] = &["application/octet-stream"];

const SMALL: Takes = Takes::Json { most: 16 << 10 };
/// JSON writes a character with up to six.
const CREDENTIAL: Takes = Takes::Json { most: (64 << 10) * 6 };
/// A document as one string, every character escaped at the worst.
const SUBMIT: Takes = Takes::Json { most: 2 * decode::MOST_BYTES + (4 << 10) };

/// A program with its arguments and variables.
const EXEC: Takes = Takes::Json { most: 1 << 20 };
const FILE: Takes = Takes::Bytes { most: MOST_FILE_BYTES };

macro_rules! routes {
    ($( $route:ident: $method:ident $path:literal, $need:expr, $takes:expr, $summary:literal; )+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Route { $( $route ),+ }

        impl Route {
            pub const ALL: &'static [Self] = &[$( Self::$route ),+];

            #[must_use]
            pub const fn path(self) -> &'static str {
                match self { $( Self::$route => $path ),+ }
            }

            /// As it is written down: method and path.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$route => concat!(stringify!($method), " ", $path) ),+ }
            }

            #[must_use]
            pub const fn method_name(self) -> &'static str {
                match self { $( Self::$route => stringify!($method) ),+ }
            }

            pub(super) const fn method(self) -> MethodFilter {
                match self { $( Self::$route => MethodFilter::$method ),+ }
            }

            #[must_use]
            pub const fn need(self) -> Need {
                match self { $( Self::$route => $need ),+ }
            }

            #[must_use]
            pub const fn takes(self) -> Takes {
                match self { $( Self::$route => $takes ),+ }
            }

            pub(super) const fn summary(self) -> &'static str {
                match self { $( Self::$route => $summary ),+ }
            }

            /// The name of the call in the OpenAPI document.
            pub(super) const fn id(self) -> &'static str {
                match self { $( Self::$route => stringify!($route) ),+ }
            }
        }
    };
}

const fn of_project(scope: Scope) -> Need {
    Need::Scope(scope, Reach::Project)
}

const fn of_all(scope: Scope) -> Need {
    Need::Scope(scope, Reach::Everything)
}

routes! {
    Health: GET "/healthz", Need::Nothing, Takes::Nothing, "Whether the process answers";
    Ready: GET "/readyz", Need::Nothing, Takes::Nothing, "Whether the store answers";
    OpenApi: GET "/openapi.json", Need::Nothing, Takes::Nothing, "This document";
    Metrics: GET "/metrics", of_all(Scope::AuditRead), Takes::Nothing, "Figures for Prometheus";
    Preflight: POST "/v1/preflight", of_project(Scope::RunsRead), Takes::Document, "Judge a run document";
    Submit: POST "/v1/runs", of_project(Scope::RunsWrite), SUBMIT, "Submit a run";
    SendSource: POST "/v1/sources", of_project(Scope::RunsWrite), Takes::Tree, "Send the tree a run works on";
    Runs: GET "/v1/runs", of_project(Scope::RunsRead), Takes::Nothing, "List runs, newest first";
    Run: GET "/v1/runs/{run}", of_project(Scope::RunsRead), Takes::Nothing, "Show a run with its stages";
    Cancel: POST "/v1/runs/{run}/cancel", of_project(Scope::RunsWrite), Takes::MaybeJson { most: 4 << 10 }, "Cancel a run";
    Events: GET "/v1/runs/{run}/events", of_project(Scope::RunsRead), Takes::Nothing, "Follow a run";
    Logs: GET "/v1/runs/{run}/stages/{stage}/logs", of_project(Scope::RunsRead), Takes::Nothing, "Read or follow the output of a stage";
    Statement: GET "/v1/runs/{run}/stages/{stage}/statement", of_project(Scope::RunsRead), Takes::Nothing, "The signed statement about a stage";
    Result: GET "/v1/runs/{run}/stages/{stage}/result", of_project(Scope::RunsRead), Takes::Nothing, "What a stage left, as a packed tree";
    Proof: GET "/v1/runs/{run}/stages/{stage}/proof", of_project(Scope::RunsRead), Takes::Nothing, "What shows that a stage's result is in the audit log";
    MakeSandbox: POST "/v1/sandboxes", of_project(Scope::SandboxesWrite), SUBMIT, "Ask for a sandbox that lasts";
    Sandboxes: GET "/v1/sandboxes", of_project(Scope::SandboxesRead), Takes::Nothing, "List sandboxes by id";
    Sandbox: GET "/v1/sandboxes/{sandbox}", of_project(Scope::SandboxesRead), Takes::Nothing, "Show a sandbox";
    Exec: POST "/v1/sandboxes/{sandbox}/execs", of_project(Scope::SandboxesWrite), EXEC, "Run a program in a sandbox";
    ShowExec: GET "/v1/sandboxes/{sandbox}/execs/{exec}", of_project(Scope::SandboxesRead), Takes::Nothing, "Show a program run in a sandbox";
    ExecOutput: GET "/v1/sandboxes/{sandbox}/execs/{exec}/output", of_project(Scope::SandboxesRead), Takes::Nothing, "Read or follow the output of a program";
    CancelExec: POST "/v1/sandboxes/{sandbox}/execs/{exec}/cancel", of_project(Scope::SandboxesWrite), Takes::Nothing, "End a program in a sandbox";
    WriteFile: PUT "/v1/sandboxes/{sandbox}/files", of_project(Scope::SandboxesWrite), FILE, "Write a file into a sandbox";
    ReadFile: GET "/v1/sandboxes/{sandbox}/files", of_project(Scope::SandboxesRead), Takes::Nothing, "Read a file of a sandbox";
    StopSandbox: POST "/v1/sandboxes/{sandbox}/stop", of_project(Scope::SandboxesWrite), Takes::Nothing, "Stop a sandbox; its disk is kept";
    ResumeSandbox: POST "/v1/sandboxes/{sandbox}/resume", of_project(Scope::SandboxesWrite), Takes::Nothing, "Start a stopped sandbox again";
    RemoveSandbox: DELETE "/v1/sandboxes/{sandbox}", of_project(Scope::SandboxesWrite), Takes::Nothing, "Delete a sandbox";
    SandboxEvents: GET "/v1/sandboxes/{sandbox}/events", of_project(Scope::SandboxesRead), Takes::Nothing, "Follow a sandbox";
    Projects: GET "/v1/projects", of_project(Scope::TokensAdmin), Takes::Nothing, "List projects";
    MakeProject: PUT "/v1/projects/{project}", of_all(Scope::TokensAdmin), Takes::Nothing, "Make a project";
    RemoveProject: DELETE "/v1/projects/{project}", of_all(Scope::TokensAdmin), Takes::Nothing, "Remove a project without runs";
    Egress: GET "/v1/projects/{project}/egress", of_project(Scope::EgressWrite), Takes::Nothing, "List the hosts a project may reach";
    AllowEgress: PUT "/v1/projects/{project}/egress/{host}", of_project(Scope::EgressWrite), Takes::Nothing, "Allow a project a host";
    RemoveEgress: DELETE "/v1/projects/{project}/egress/{host}", of_project(Scope::EgressWrite), Takes::Nothing, "Take a host away from a project";
    Credentials: GET "/v1/credentials", of_project(Scope::SecretsWrite), Takes::Nothing, "List credentials by name";
    SetCredential: PUT "/v1/credentials/{name}", of_project(Scope::SecretsWrite), CREDENTIAL, "Set a credential";
    RemoveCredential: DELETE "/v1/credentials/{name}", of_project(Scope::SecretsWrite), Takes::Nothing, "Remove a credential";
    RotateCredentials: POST "/v1/credentials/rotate", of_all(Scope::SecretsWrite), Takes::Nothing, "Give the vault a new key";
    Workers: GET "/v1/workers", of_all(Scope::WorkersAdmin), Takes::Nothing, "List workers";
    JoinToken: POST "/v1/workers/tokens", of_all(Scope::WorkersAdmin), SMALL, "Issue a token that makes one worker";
    RevokeWorker: POST "/v1/workers/{worker}/revoke", of_all(Scope::WorkersAdmin), Takes::Nothing, "Revoke a worker for good";
    DrainWorker: POST "/v1/workers/{worker}/drain", of_all(Scope::WorkersAdmin), Takes::Nothing, "Give a worker no more work";
    ReleaseWorker: POST "/v1/workers/{worker}/release", of_all(Scope::WorkersAdmin), Takes::Nothing, "Give a drained or quarantined worker work again";
    Tokens: GET "/v1/tokens", of_project(Scope::TokensAdmin), Takes::Nothing, "List tokens";
    IssueToken: POST "/v1/tokens", of_project(Scope::TokensAdmin), SMALL, "Issue a token";
    RevokeToken: DELETE "/v1/tokens/{token}", of_project(Scope::TokensAdmin), Takes::Nothing, "Revoke a token";
    Audit: GET "/v1/audit", of_project(Scope::AuditRead), Takes::Nothing, "Read the audit log, oldest first";
    Checkpoint: GET "/v1/audit/checkpoint", of_all(Scope::AuditRead), Takes::Nothing, "The signed size and root of the audit log";
    LogEntries: GET "/v1/audit/entries/{tile}", of_all(Scope::AuditRead), Takes::Nothing, "256 entries of the audit log, as they were hashed";
    Consistency: GET "/v1/audit/consistency", of_all(Scope::AuditRead), Takes::Nothing, "What shows that the log only grew";
}

impl Route {
    /// Media types of the body; the first is the one to prefer.
    pub(super) const fn media(self) -> &'static [&'static str] {
        match self.takes() {
            Takes::Nothing => &[],
            Takes::Json { .. } => JSON,
            Takes::MaybeJson { .. } => MAYBE_JSON,
            Takes::Document => DOCUMENT,
            Takes::Tree => TREE,
            Takes::Bytes { .. } => BYTES,
        }
    }

    /// The most a body may have that is read as a whole.
    pub(super) const fn most_bytes(self) -> usize {
        match self.takes() {
            // A tree is never read as a whole; what it may have is its reader's.
            Takes::Nothing | Takes::Tree => 0,
            Takes::Json { most } | Takes::MaybeJson { most } | Takes::Bytes { most } => most,
            Takes::Document => decode::MOST_BYTES,
        }
    }
}
