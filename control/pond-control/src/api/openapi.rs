//! The OpenAPI 3.1 document: made from the table of routes and the types that are read and written, so that it cannot differ from them.

use pond_wire::api::{self, ENVELOPE_TYPE, LINES_TYPE, PROBLEM_TYPE, ProblemCode, TREE_TYPE};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::route::{Need, Reach, Route, Takes};

const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Bodies that are read as a type of ours.
const BODIES: [(Route, SchemaOf); 8] = [
    (Route::Preflight, |types| types.subschema_for::<api::Document>()),
    (Route::Submit, |types| types.subschema_for::<api::Submit>()),
    (Route::MakeSandbox, |types| types.subschema_for::<api::NewSandbox>()),
    (Route::Exec, |types| types.subschema_for::<api::NewExec>()),
    (Route::Cancel, |types| types.subschema_for::<api::Cancel>()),
    (Route::SetCredential, |types| types.subschema_for::<api::SetCredential>()),
    (Route::JoinToken, |types| types.subschema_for::<api::NewJoinToken>()),
    (Route::IssueToken, |types| types.subschema_for::<api::NewToken>()),
];

/// What a call answers with when it is served.
enum Reply {
    Json(u16, Schema),
    Bytes(&'static str),
    Nothing,
}

/// The document, as it is committed and served.
#[must_use]
pub fn document() -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut types = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in Route::ALL {
        let entry = paths.entry(route.path()).or_insert_with(|| json!({}));
        if let Some(methods) = entry.as_object_mut() {
            methods.insert(route.method_name().to_lowercase(), operation(*route, &mut types));
        }
    }
    let problem = types.subschema_for::<api::Problem>();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "pond",
            "version": "v1",
            "description": "The user's API of a control plane. Errors are application/problem+json with a stable `code`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "pond_api_<id>_<secret>"}},
            "responses": {"problem": {
                "description": "The call was not served; `code` says why.",
                "content": {PROBLEM_TYPE: {"schema": problem}},
            }},
            "schemas": types.take_definitions(true),
        },
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn operation(route: Route, types: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": route.id(),
        "summary": route.summary(),
        "parameters": parameters(route),
        "responses": responses(route, types),
    });
    let Some(fields) = operation.as_object_mut() else { return operation };
    match route.need() {
        Need::Nothing => fields.insert("security".to_owned(), json!([])),
        Need::Scope(scope, reach) => {
            let reach = match reach {
                Reach::Project => "",
                Reach::Everything => " A token for one project does not do.",
            };
            fields.insert("description".to_owned(), format!("Needs the scope `{scope}`.{reach}").into());
            fields.insert("security".to_owned(), json!([{"token": []}]))
        }
    };
    if let Some(body) = body(route, types) {
        fields.insert("requestBody".to_owned(), body);
    }
    operation
}

fn body(route: Route, types: &mut SchemaGenerator) -> Option<Value> {
    let schema =
        BODIES.iter().find(|(of, _)| *of == route).map_or(Schema::from(true), |(_, schema)| schema(types));
    let required = match route.takes() {
        Takes::Nothing => return None,
        Takes::MaybeJson { .. } => false,
        Takes::Json { .. } | Takes::Document | Takes::Tree | Takes::Bytes { .. } => true,
    };
    let media = route.media().iter().filter(|media| !media.is_empty());
    let content: Map<String, Value> = media
        .map(|media| match route.takes() {
            Takes::Tree | Takes::Bytes { .. } => ((*media).to_owned(), json!({})),
            Takes::Nothing | Takes::Json { .. } | Takes::MaybeJson { .. } | Takes::Document => {
                ((*media).to_owned(), json!({"schema": schema}))
            }
        })
        .collect();
    Some(json!({"required": required, "content": content}))
}

fn reply(route: Route, types: &mut SchemaGenerator) -> Reply {
    fn of<T: JsonSchema>(status: u16, types: &mut SchemaGenerator) -> Reply {
        Reply::Json(status, types.subschema_for::<T>())
    }
    match route {
        Route::Health | Route::Ready | Route::Metrics => Reply::Bytes("text/plain"),
        Route::OpenApi => Reply::Json(200, Schema::from(true)),
        Route::Preflight => of::<api::Accepted>(200, types),
        Route::Submit => of::<api::SubmitReply>(201, types),
        Route::SendSource => of::<api::SourceReply>(201, types),
        Route::Runs => of::<api::RunPage>(200, types),
        Route::Run => of::<api::RunView>(200, types),
        Route::Cancel => of::<api::RunSummary>(200, types),
        Route::Events => Reply::Bytes("text/event-stream"),
        Route::Logs => Reply::Bytes("application/octet-stream"),
        Route::Statement => Reply::Bytes(ENVELOPE_TYPE),
        Route::Result => Reply::Bytes(TREE_TYPE),
        Route::MakeSandbox | Route::StopSandbox | Route::ResumeSandbox | Route::RemoveSandbox => {
            of::<api::SandboxView>(202, types)
        }
        Route::Sandboxes => of::<api::SandboxPage>(200, types),
        Route::Sandbox => of::<api::SandboxView>(200, types),
        Route::SandboxEvents => {
            // Each event's data is one of these.
            types.subschema_for::<api::SandboxEvent>();
            Reply::Bytes("text/event-stream")
        }
        Route::Exec => of::<api::ExecView>(201, types),
        Route::ShowExec | Route::CancelExec => of::<api::ExecView>(200, types),
        Route::ExecOutput | Route::ReadFile => Reply::Bytes("application/octet-stream"),
        Route::WriteFile => Reply::Nothing,
        Route::Projects => of::<api::Projects>(200, types),
        Route::MakeProject => of::<api::ProjectView>(201, types),
        Route::Egress | Route::AllowEgress => of::<api::EgressRules>(200, types),
        Route::Credentials => of::<api::Credentials>(200, types),
        Route::RotateCredentials => of::<api::Rotated>(200, types),
        Route::Workers => of::<api::Workers>(200, types),
        Route::JoinToken => of::<api::JoinTokenReply>(201, types),
        Route::RevokeWorker | Route::DrainWorker | Route::ReleaseWorker => of::<api::WorkerView>(200, types),
        Route::Tokens => of::<api::Tokens>(200, types),
        Route::IssueToken => of::<api::TokenReply>(201, types),
        Route::Audit => of::<api::AuditPage>(200, types),
        Route::Proof => of::<api::LogProof>(200, types),
        Route::Checkpoint => of::<api::LogCheckpoint>(200, types),
        Route::LogEntries => Reply::Bytes(LINES_TYPE),
        Route::Consistency => of::<api::LogConsistency>(200, types),
        Route::RemoveProject
        | Route::RemoveEgress
        | Route::SetCredential
        | Route::RemoveCredential
        | Route::RevokeToken => Reply::Nothing,
    }
}

fn responses(route: Route, types: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    match reply(route, types) {
        Reply::Json(status, schema) => {
            let served =
                json!({"description": "Served.", "content": {"application/json": {"schema": schema}}});
            // Asked again, it is there already.
            if matches!(route, Route::Submit | Route::MakeProject | Route::MakeSandbox) {
                responses.insert("200".to_owned(), served.clone());
            }
            responses.insert(status.to_string(), served);
        }
        Reply::Bytes(media) => {
            responses.insert("200".to_owned(), json!({"description": "Served.", "content": {media: {}}}));
        }
        Reply::Nothing => {
            responses.insert("204".to_owned(), json!({"description": "Done."}));
        }
    }
    for status in problems(route) {
        responses.insert(status.to_string(), json!({"$ref": "#/components/responses/problem"}));
    }
    responses.into()
}

/// Statuses of the problems a call can end with.
fn problems(route: Route) -> Vec<u16> {
    let mut codes = vec![ProblemCode::RateLimited, ProblemCode::Internal, ProblemCode::Unavailable];
    if let Need::Scope(..) = route.need() {
        codes.extend([
            ProblemCode::Malformed,
            ProblemCode::Unauthenticated,
            ProblemCode::ScopeMissing,
            ProblemCode::NotFound,
            ProblemCode::Conflict,
            ProblemCode::DocumentRefused,
        ]);
    }
    if route.takes() != Takes::Nothing {
        codes.extend([ProblemCode::RequestTimeout, ProblemCode::BodyTooLarge, ProblemCode::MediaType]);
    }
    if route == Route::ReadFile {
        codes.push(ProblemCode::BodyTooLarge);
    }
    let mut statuses: Vec<u16> = codes.into_iter().map(ProblemCode::status).collect();
    statuses.sort_unstable();
    statuses
}

fn parameters(route: Route) -> Vec<Value> {
    let in_path = route.path().split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path.map(path_parameter).collect();
    let name = || json!({"type": "string", "pattern": NAME});
    let limit = || json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50});
    let text = || json!({"type": "string"});
    let states = || json!({"enum": ["active", "succeeded", "failed", "cancelled", "refused"]});
    let sandbox_states = || json!({"enum": api::SandboxState::ALL.map(api::SandboxState::name)});
    let streams = || json!({"enum": ["stdout", "stderr", "terminal"], "default": "stdout"});
    let from = |least: u32| json!({"type": "integer", "minimum": least});
    let others: [(Route, &str, &str, Value); 31] = [
        (Route::SendSource, "query", "project", name()),
        (Route::Runs, "query", "project", name()),
        (Route::Runs, "query", "state", states()),
        (Route::Runs, "query", "cursor", text()),
        (Route::Runs, "query", "limit", limit()),
        (Route::Audit, "query", "project", name()),
        (Route::Audit, "query", "cursor", text()),
        (Route::Audit, "query", "limit", limit()),
        (Route::Credentials, "query", "project", name()),
        (Route::SetCredential, "query", "project", name()),
        (Route::RemoveCredential, "query", "project", name()),
        (Route::Logs, "query", "stream", streams()),
        (Route::Logs, "query", "offset", from(0)),
        (Route::Logs, "query", "follow", json!({"type": "boolean", "default": false})),
        (Route::Statement, "query", "attempt", from(1)),
        (Route::Proof, "query", "attempt", from(1)),
        (Route::Consistency, "query", "from", from(0)),
        (Route::Consistency, "query", "to", from(0)),
        (Route::Events, "header", "Last-Event-ID", text()),
        (Route::Sandboxes, "query", "project", name()),
        (Route::Sandboxes, "query", "state", sandbox_states()),
        (Route::Sandboxes, "query", "label", text()),
        (Route::Sandboxes, "query", "cursor", text()),
        (Route::Sandboxes, "query", "limit", limit()),
        (Route::SandboxEvents, "query", "from_sequence", from(0)),
        (Route::SandboxEvents, "header", "Last-Event-ID", text()),
        (Route::ExecOutput, "query", "stream", json!({"enum": ["stdout", "stderr"], "default": "stdout"})),
        (Route::ExecOutput, "query", "offset", from(0)),
        (Route::ExecOutput, "query", "follow", json!({"type": "boolean", "default": false})),
        (Route::ReadFile, "query", "path", text()),
        (Route::WriteFile, "query", "path", text()),
    ];
    for (_, place, name, schema) in others.into_iter().filter(|(of, ..)| *of == route) {
        let required =
            matches!(route, Route::SendSource | Route::Consistency | Route::ReadFile | Route::WriteFile);
        parameters.push(json!({"name": name, "in": place, "required": required, "schema": schema}));
    }
    if matches!(route, Route::Submit | Route::MakeSandbox) {
        let key = json!({"type": "string", "minLength": 1, "maxLength": 128});
        parameters.push(json!({"name": "Idempotency-Key", "in": "header", "required": false, "schema": key}));
    }
    parameters
}

fn path_parameter(name: &str) -> Value {
    let schema = match name {
        "run" => json!({"type": "string", "pattern": "^run_[0-9a-f]{32}$"}),
        "worker" => json!({"type": "string", "pattern": "^worker_[0-9a-f]{32}$"}),
        "token" => json!({"type": "string", "pattern": "^tok_[0-9a-f]{32}$"}),
        "sandbox" => json!({"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"}),
        "tile" | "exec" => json!({"type": "integer", "minimum": 0}),
        "host" => {
            json!({"type": "string", "description": "A host rule: `name`, `*.name`, either with `:port`."})
        }
        _ => json!({"type": "string", "pattern": NAME}),
    };
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}
