//! For those who watch over a control plane, and for those who want to know what it speaks.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use pond_wire::api::ProblemCode;

use super::call::Call;
use super::openapi;
use super::problem::Refused;
use crate::plane::Plane;
use crate::store::{Fault, Misfit};

/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn health() -> Response {
    text("text/plain", "ok\n".to_owned())
}

pub(super) async fn ready(call: &Call) -> Result<Response, Refused> {
    let late = |_| Refused::after(ProblemCode::Unavailable, "the store does not answer", 1);
    match tokio::time::timeout(PATIENCE, fit(call.plane())).await.map_err(late)? {
        Ok(None) => Ok(text("text/plain", "ready\n".to_owned())),
        Ok(Some(misfit)) => Err(Refused::after(ProblemCode::Unavailable, &misfit.to_string(), 60)),
        Err(fault) => {
            tracing::error!(fault = &fault as &dyn std::error::Error, "the store does not answer");
            Err(Refused::after(ProblemCode::Unavailable, "the store does not answer", 1))
        }
    }
}

/// Whether the store answers, and is that of this control plane's keys.
async fn fit(plane: &Plane) -> Result<Option<Misfit>, Fault> {
    plane.store.ping().await?;
    plane.store.misfit(&plane.key).await
}

pub(super) async fn metrics(call: &Call) -> Result<Response, Refused> {
    let counts = call.store().counts().await?;
    let waiting = call.store().waiting().await?;
    let body = call.api.metrics.render(&counts, waiting.len());
    Ok(text("text/plain; version=0.0.4", body))
}

pub(super) fn openapi() -> Response {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    text("application/json", DOCUMENT.get_or_init(openapi::document).clone())
}

fn text(media: &'static str, body: String) -> Response {
    (StatusCode::OK, [(CONTENT_TYPE, HeaderValue::from_static(media))], body).into_response()
}
