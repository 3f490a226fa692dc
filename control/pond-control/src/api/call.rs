//! A call that was let in: its parameters, its body under a cap and a time limit, and the project it is about.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, RawPathParams};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use pond_policy::name::{Name, Project};
use pond_wire::api::ProblemCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Api;
use super::admit::Caller;
use super::problem::{Refused, json};
use super::route::Route;
use crate::plane::Plane;
use crate::store::{Moment, RunId, Store};

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Call {
    pub(super) api: Arc<Api>,
    pub(super) route: Route,
    pub(super) caller: Caller,
    pub(super) params: RawPathParams,
    pub(super) parts: Parts,
}

impl Call {
    pub(super) fn plane(&self) -> &Arc<Plane> {
        &self.api.plane
    }

    pub(super) fn store(&self) -> &Store {
        &self.api.plane.store
    }

    pub(super) fn now(&self) -> Moment {
        self.api.plane.now()
    }

    /// A part of the path, as its type reads it. What is no id names nothing.
    pub(super) fn param<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Refused> {
        let text = self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        text.and_then(parse).ok_or_else(Refused::not_found)
    }

    /// A part of the path that is a name somebody chose.
    pub(super) fn name(&self, name: &str) -> Result<Name, Refused> {
        let bad =
            || Refused::parameter(format!("{name}: 1 to 64 letters, digits, dots, underscores or dashes"));
        let text = self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        text.and_then(Name::parse).ok_or_else(bad)
    }

    /// The project named in the path, if the caller may.
    pub(super) fn project(&self) -> Result<Project, Refused> {
        self.allowed(Project::from(self.name("project")?))
    }

    /// The run named in the path, if it is there and the caller may; which of the two is not told.
    pub(super) async fn run(&self) -> Result<RunId, Refused> {
        let run = self.param("run", RunId::parse)?;
        let project = self.store().project_of(&run).await?.ok_or_else(Refused::not_found)?;
        if self.caller.may(&project) { Ok(run) } else { Err(Refused::not_found()) }
    }

    pub(super) fn allowed(&self, project: Project) -> Result<Project, Refused> {
        if self.caller.may(&project) {
            return Ok(project);
        }
        Err(Refused::new(ProblemCode::ProjectForbidden, "the token is for another project"))
    }

    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        let read = Query::<T>::try_from_uri(&self.parts.uri);
        read.map(|Query(query)| query).map_err(|fault| Refused::parameter(fault.body_text()))
    }

    /// The whole body, if it is of a media type this call takes and small enough.
    pub(super) async fn body(&self, body: Body) -> Result<Vec<u8>, Refused> {
        self.media_type()?;
        let reading = whole(body, self.declared()?, self.route.most_bytes());
        let late = || Refused::new(ProblemCode::RequestTimeout, "the body did not arrive in 30 seconds");
        tokio::time::timeout(BODY_TIME, reading).await.map_err(|_| late())?
    }

    pub(super) async fn json<T: DeserializeOwned>(&self, body: Body) -> Result<T, Refused> {
        object(&self.body(body).await?)
    }

    /// Refuses a body of another type than this call takes, and one that is packed.
    pub(super) fn media_type(&self) -> Result<(), Refused> {
        let header = |name| {
            self.parts.headers.get(name).map(|value: &axum::http::HeaderValue| value.to_str().unwrap_or("?"))
        };
        if header(CONTENT_ENCODING).is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
            return Err(Refused::new(ProblemCode::MediaType, "a body is sent as it is, not compressed"));
        }
        let media = header(CONTENT_TYPE).unwrap_or("");
        let media = media.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let taken = self.route.media();
        if taken.contains(&media.as_str()) {
            return Ok(());
        }
        Err(Refused::new(ProblemCode::MediaType, format!("send Content-Type: {}", taken.join(" or "))))
    }

    /// How long the body is, as its sender says; nothing when he does not.
    pub(super) fn declared(&self) -> Result<Option<u64>, Refused> {
        let Some(value) = self.parts.headers.get(CONTENT_LENGTH) else { return Ok(None) };
        let number = value.to_str().ok().and_then(|text| text.parse::<u64>().ok());
        number.map(Some).ok_or_else(|| Refused::new(ProblemCode::Malformed, "a length that is no number"))
    }
}

/// A body of named fields. The types would also take a list of their fields in order, which is nothing anybody was promised.
pub(super) fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    let malformed = |why: String| {
        Refused::new(ProblemCode::Malformed, format!("the body is not what this call takes: {why}"))
    };
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(malformed("it is a list; send an object".to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|fault| malformed(fault.to_string()))
}

pub(super) fn too_large(most: usize) -> Refused {
    Refused::new(ProblemCode::BodyTooLarge, format!("at most {most} bytes"))
}

async fn whole(mut body: Body, declared: Option<u64>, most: usize) -> Result<Vec<u8>, Refused> {
    let most_bytes = u64::try_from(most).unwrap_or(u64::MAX);
    if declared.is_some_and(|declared| declared > most_bytes) {
        return Err(too_large(most));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refused::new(ProblemCode::Malformed, "the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(too_large(most));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

pub(super) fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, "application/json", value)
}

pub(super) fn created(value: &impl Serialize) -> Response {
    json(StatusCode::CREATED, "application/json", value)
}

pub(super) fn gone() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// A moment as the API tells it.
pub(super) fn millis(moment: Moment) -> u64 {
    u64::try_from(moment.0).unwrap_or(0)
}
