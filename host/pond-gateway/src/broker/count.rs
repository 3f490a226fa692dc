//! Asking the provider how large a prompt really is. One token per byte is a bound that always holds and is several times
//! too large; near the ceiling that would refuse calls which fit, so there the provider's own free count decides.

use std::collections::HashMap;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::inspect::Inspected;
use super::record::Outcome;
use super::route::Call;
use super::served::Served;
use super::upstream::SendFault;

/// A count is made at once or not at all; the client waits for it.
const ANSWER_TIME: Duration = Duration::from_secs(10);
const MOST_ANSWER: usize = 64 << 10;
/// Counts are called estimates: a twentieth and a little on top.
const MARGIN: u64 = 500;

const ANTHROPIC: [&str; 6] = ["model", "messages", "system", "tools", "tool_choice", "thinking"];
const RESPONSES: [&str; 7] = ["model", "input", "instructions", "tools", "tool_choice", "text", "reasoning"];

/// How a question ended.
pub(super) struct Counted {
    pub(super) status: u16,
    pub(super) outcome: Outcome,
    /// The tokens with a margin, where the provider said how many.
    pub(super) tokens: Option<u64>,
}

/// Asks how many tokens a prompt has; none where there is no way to ask.
/// `request` is the call itself: the count goes to the same place with the same headers.
pub(super) async fn count(
    served: &Served,
    call: Call,
    inspected: &Inspected,
    request: &Request<Full<Bytes>>,
) -> Option<Counted> {
    let (target, body) = question(call, inspected, request.uri().path())?;
    // What the question leaves out may be read by the model all the same: no token of it is shorter than a byte.
    let unasked = u64::try_from(inspected.body.len().saturating_sub(body.len())).unwrap_or(u64::MAX);
    let mut asked = Request::new(Full::new(Bytes::from(body)));
    *asked.method_mut() = http::Method::POST;
    *asked.uri_mut() = target.parse().ok()?;
    *asked.headers_mut() = request.headers().clone();
    let failed = |status, code| Counted { status, outcome: Outcome::Failed(code), tokens: None };
    Some(match tokio::time::timeout(ANSWER_TIME, ask(served, asked)).await {
        Err(_) => failed(504, "upstream_late"),
        Ok(Err(fault)) => failed(fault.status(), fault.code()),
        Ok(Ok((status, tokens))) => {
            let tokens = tokens.map(|tokens| tokens.saturating_add(unasked));
            Counted { status, outcome: Outcome::Served, tokens }
        }
    })
}

async fn ask(served: &Served, asked: Request<Full<Bytes>>) -> Result<(u16, Option<u64>), SendFault> {
    let (response, lease) = served.upstream.send(asked).await?;
    let status = response.status();
    if status != http::StatusCode::OK {
        return Ok((status.as_u16(), None));
    }
    let Ok(answer) = Limited::new(response.into_body(), MOST_ANSWER).collect().await else {
        return Ok((status.as_u16(), None));
    };
    lease.done();
    let answer: Value = serde_json::from_slice(&answer.to_bytes()).unwrap_or_default();
    let tokens = answer["input_tokens"].as_u64().or_else(|| answer["totalTokens"].as_u64());
    let with_margin = |tokens: u64| tokens.saturating_add(tokens / 20).saturating_add(MARGIN);
    Ok((status.as_u16(), tokens.map(with_margin)))
}

/// Where the count is asked for, and with which parts of the body.
fn question(call: Call, inspected: &Inspected, path: &str) -> Option<(String, String)> {
    let fields: HashMap<String, &RawValue> = serde_json::from_slice(&inspected.body).ok()?;
    let chosen = |keys: &[&str]| {
        let field = |key: &&str| Some(format!("\"{key}\":{}", fields.get(*key)?.get()));
        format!("{{{}}}", keys.iter().filter_map(field).collect::<Vec<_>>().join(","))
    };
    match call {
        Call::Messages => Some((format!("{path}/count_tokens"), chosen(&ANTHROPIC))),
        Call::Responses => Some((format!("{path}/input_tokens"), chosen(&RESPONSES))),
        Call::Generate { .. } => {
            let (model, _) = path.rsplit_once(':')?;
            let body = std::str::from_utf8(&inspected.body).ok()?.trim_start().strip_prefix('{')?;
            let comma = if body.trim_start().starts_with('}') { "" } else { "," };
            let body = format!(
                "{{\"generateContentRequest\":{{\"model\":\"models/{}\"{comma}{body}}}",
                inspected.model
            );
            Some((format!("{model}:countTokens"), body))
        }
        Call::Chat | Call::CountMessages | Call::CountGenerate | Call::Models | Call::Count => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{inspect, route};
    use pond_policy::model::Api;

    fn asked(api: Api, target: &str, body: &str) -> Option<(String, Value)> {
        let route = route(b"POST", target.as_bytes()).unwrap();
        let inspected = inspect(api, &route, body.as_bytes().to_vec(), false).unwrap();
        let (target, body) = question(route.call, &inspected, target.split('?').next().unwrap())?;
        Some((target, serde_json::from_str(&body).unwrap()))
    }

    #[test]
    fn each_api_is_asked_in_its_own_words() {
        let body = r#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user"}],"system":"s"}"#;
        assert_eq!(
            asked(Api::Anthropic, "/v1/messages?beta=true", body),
            Some((
                "/v1/messages/count_tokens".into(),
                serde_json::json!({"model": "m", "messages": [{"role": "user"}], "system": "s"})
            ))
        );
        let body = r#"{"model":"m","store":false,"stream":true,"input":"x","tools":[]}"#;
        assert_eq!(
            asked(Api::Openai, "/v1/responses", body),
            Some((
                "/v1/responses/input_tokens".into(),
                serde_json::json!({"model": "m", "input": "x", "tools": []})
            ))
        );
        for (body, inner) in [
            (r#" {"contents":[]}"#, serde_json::json!({"model": "models/g-1", "contents": []})),
            ("{ }", serde_json::json!({"model": "models/g-1"})),
        ] {
            assert_eq!(
                asked(Api::Gemini, "/v1beta/models/g-1:generateContent", body),
                Some((
                    "/v1beta/models/g-1:countTokens".into(),
                    serde_json::json!({"generateContentRequest": inner})
                ))
            );
        }
        assert_eq!(asked(Api::Openai, "/v1/chat/completions", r#"{"model":"m"}"#), None);
    }
}
