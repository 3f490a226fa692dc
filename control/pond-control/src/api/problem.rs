//! Problems as responses. What failed inside is logged and not told; what the caller did wrong is told and not logged with its content.

use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Response as HttpResponse, StatusCode};
use axum::response::{IntoResponse, Response};
use pond_policy::name::Project;
use pond_wire::api::{self, PROBLEM_TYPE, Problem, ProblemCode};

use crate::store::{CredentialFault, Fault, ProjectFault, TreeFault, WorkerFault};

/// A call that is not served.
#[derive(Debug)]
pub struct Refused {
    problem: Box<Problem>,
    /// Seconds after which it may be asked again.
    again_after: Option<u64>,
}

impl Refused {
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self::of(Problem::new(code, detail))
    }

    pub(crate) fn of(problem: Problem) -> Self {
        Self { problem: Box::new(problem), again_after: None }
    }

    pub(crate) fn after(code: ProblemCode, detail: &str, seconds: u64) -> Self {
        Self { again_after: Some(seconds), ..Self::new(code, detail) }
    }

    pub(crate) fn not_found() -> Self {
        Self::new(ProblemCode::NotFound, "no such thing, or not yours to see")
    }

    pub(crate) fn parameter(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::ParameterInvalid, detail)
    }

    /// What is wrong with one field of the request, and what it may be where that is a list.
    pub(crate) fn field(code: ProblemCode, path: &str, message: impl Into<String>, allowed: &[&str]) -> Self {
        let message = message.into();
        let fault = api::Fault {
            code: code.name().to_owned(),
            path: path.to_owned(),
            message: message.clone(),
            allowed: allowed.iter().map(|&one| one.to_owned()).collect(),
        };
        Self::of(Problem { faults: vec![fault], ..Problem::new(code, format!("{path}: {message}")) })
    }

    pub(crate) fn project_unknown(path: &str, project: &Project) -> Self {
        Self::field(ProblemCode::ProjectUnknown, path, format!("there is no project {project}"), &[])
    }

    /// Something inside failed.
    pub(crate) fn internal(fault: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(fault, "a call failed");
        Self::new(ProblemCode::Internal, "see the log of the control plane")
    }

    /// The same, where whoever asks has to know of it.
    fn tampered(fault: &TreeFault) -> Self {
        tracing::error!(fault = fault as &dyn std::error::Error, "the audit log");
        Self::new(ProblemCode::Internal, fault.to_string())
    }

    pub(crate) fn code(&self) -> ProblemCode {
        self.problem.code
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        if fault.may_pass() {
            tracing::error!(fault = &fault as &dyn std::error::Error, "the store is out of reach");
            return Self::after(ProblemCode::Unavailable, "the store is out of reach", 1);
        }
        Self::internal(&fault)
    }
}

impl From<TreeFault> for Refused {
    fn from(fault: TreeFault) -> Self {
        match fault {
            TreeFault::Store(fault) => fault.into(),
            TreeFault::Proof(fault) => Self::parameter(fault.to_string()),
            TreeFault::Checkpoint(_)
            | TreeFault::Edge(_)
            | TreeFault::Root
            | TreeFault::Tile
            | TreeFault::Entry(_)
            | TreeFault::Shrunk { .. } => Self::tampered(&fault),
        }
    }
}

impl From<CredentialFault> for Refused {
    fn from(fault: CredentialFault) -> Self {
        match fault {
            CredentialFault::Store(fault) => fault.into(),
            CredentialFault::Vault(_) => Self::internal(&fault),
        }
    }
}

impl From<ProjectFault> for Refused {
    fn from(fault: ProjectFault) -> Self {
        match fault {
            ProjectFault::Store(fault) => fault.into(),
            ProjectFault::Unknown(_) => Self::not_found(),
        }
    }
}

impl From<WorkerFault> for Refused {
    fn from(fault: WorkerFault) -> Self {
        match fault {
            WorkerFault::Store(fault) => fault.into(),
            WorkerFault::Unknown(_) => Self::not_found(),
            WorkerFault::Is(state) => {
                Self::new(ProblemCode::Conflict, format!("the worker is {}", state.name()))
            }
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, PROBLEM_TYPE, &*self.problem);
        let mut add = |name: HeaderName, value: HeaderValue| response.headers_mut().insert(name, value);
        if self.problem.code == ProblemCode::Unauthenticated {
            add(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.again_after {
            add(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A value as a response.
pub(crate) fn json(status: StatusCode, media: &'static str, value: &impl serde::Serialize) -> Response {
    // These types have string keys and no floats: they always serialise.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = HttpResponse::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
