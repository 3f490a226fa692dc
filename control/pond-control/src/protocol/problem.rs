//! How a worker's call fails: a status, a code that never changes its meaning, and a sentence. As problem+json (RFC 9457).

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pond_seal::enroll::EnrollFault;
use pond_seal::request::RequestFault;
use pond_wire::orch::BodyFault;
use serde_json::json;

use crate::store;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A call that was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    /// The lease is over, was never the caller's, or is not the current one: which, is nobody's business.
    pub(super) fn stale() -> Self {
        Self::new(StatusCode::CONFLICT, "lease_stale", "the lease is over")
    }

    pub(super) fn unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "the control plane cannot serve this now; ask again",
        )
    }

    /// What was made here could not be made; nothing the caller sent is at fault.
    pub(super) fn internal(code: &'static str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, "the control plane failed")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": format!("urn:pond:problem:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        (self.status, [(header::CONTENT_TYPE, MEDIA_TYPE)], Body::from(body.to_string())).into_response()
    }
}

/// The database's own words stay inside.
impl From<store::Fault> for Problem {
    fn from(_: store::Fault) -> Self {
        Self::unavailable()
    }
}

impl From<store::LeaseFault> for Problem {
    fn from(fault: store::LeaseFault) -> Self {
        match fault {
            store::LeaseFault::Stale => Self::stale(),
            store::LeaseFault::Store(fault) => fault.into(),
        }
    }
}

impl From<BodyFault> for Problem {
    fn from(fault: BodyFault) -> Self {
        let status = match fault {
            BodyFault::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::Malformed(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, fault.code(), fault.to_string())
    }
}

impl From<RequestFault> for Problem {
    fn from(fault: RequestFault) -> Self {
        let status = match fault {
            RequestFault::Malformed
            | RequestFault::Time { .. }
            | RequestFault::Signature
            | RequestFault::Replayed => StatusCode::UNAUTHORIZED,
            RequestFault::Full => StatusCode::TOO_MANY_REQUESTS,
            RequestFault::Random(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, fault.code(), fault.to_string())
    }
}

impl From<EnrollFault> for Problem {
    fn from(fault: EnrollFault) -> Self {
        Self::new(StatusCode::FORBIDDEN, fault.code(), fault.to_string())
    }
}
