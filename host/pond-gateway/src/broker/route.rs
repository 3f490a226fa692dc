//! What may be asked of a broker: an exact set of (method, path, query keys), compared byte for byte. Nothing is decoded or
//! normalised, so there is no second spelling to get past it with.

use pond_policy::model::Api;
use thiserror::Error;

/// A call the broker knows how to judge and to price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Messages,
    CountMessages,
    Responses,
    Chat,
    Generate {
        stream: bool,
    },
    CountGenerate,
    Models,
    /// The broker's own question about the size of a prompt; no client's request is one.
    Count,
}

/// A request line that is on the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub call: Call,
    /// Path and query as they go upstream, below the upstream's own prefix.
    pub target: String,
    /// The model, where the path names it.
    pub model: Option<String>,
    /// A key given in the query; it never goes upstream.
    pub query_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RouteFault {
    #[error("the request target is not a path")]
    Form,
    #[error("the broker serves no such path and method")]
    Unknown,
    #[error("the query holds more than the broker knows")]
    Query,
    #[error("streaming from this API needs alt=sse")]
    NotSse,
}

impl RouteFault {
    pub const fn status(self) -> u16 {
        match self {
            Self::Form | Self::Query | Self::NotSse => 400,
            Self::Unknown => 403,
        }
    }

    pub const fn code(self) -> &'static str {
        match self {
            Self::Form => "target_form",
            Self::Unknown => "path_not_allowed",
            Self::Query => "query_not_allowed",
            Self::NotSse => "stream_not_sse",
        }
    }
}

impl Call {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::CountMessages => "count_tokens",
            Self::Responses => "responses",
            Self::Chat => "chat_completions",
            Self::Generate { .. } => "generate_content",
            Self::CountGenerate => "count_tokens_generate",
            Self::Models => "models",
            Self::Count => "count",
        }
    }

    /// Whether the provider charges for it.
    pub const fn is_billed(self) -> bool {
        match self {
            Self::Messages | Self::Responses | Self::Chat | Self::Generate { .. } => true,
            Self::CountMessages | Self::CountGenerate | Self::Models | Self::Count => false,
        }
    }

    /// Whether a model of this API answers it.
    pub const fn belongs_to(self, api: Api) -> bool {
        match (api, self) {
            (Api::Anthropic, Self::Messages | Self::CountMessages | Self::Models)
            | (Api::Openai, Self::Responses | Self::Chat | Self::Models)
            | (Api::OpenaiChat, Self::Chat | Self::Models)
            | (Api::Gemini, Self::Generate { .. } | Self::CountGenerate | Self::Models) => true,
            (Api::Anthropic | Api::Openai | Api::OpenaiChat | Api::Gemini, _) => false,
        }
    }
}

const GEMINI: &str = "/v1beta/models";
const MOST_QUERY: usize = 512;

pub fn route(method: &[u8], target: &[u8]) -> Result<Route, RouteFault> {
    let target = std::str::from_utf8(target).map_err(|_| RouteFault::Form)?;
    if !target.starts_with('/') || method == b"CONNECT" {
        return Err(RouteFault::Form);
    }
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let (call, model, keys) = find(method, path)?;
    let (kept, query_key) = read_query(query, keys)?;
    if call == (Call::Generate { stream: true }) && !kept.iter().any(|pair| pair == "alt=sse") {
        return Err(RouteFault::NotSse);
    }
    let question = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    Ok(Route { call, target: format!("{path}{question}"), model, query_key })
}

type Found<'k> = (Call, Option<String>, &'k [&'k str]);

fn find(method: &[u8], path: &str) -> Result<Found<'static>, RouteFault> {
    match (method, path) {
        (b"POST", "/v1/messages") => Ok((Call::Messages, None, &["beta"])),
        (b"POST", "/v1/messages/count_tokens") => Ok((Call::CountMessages, None, &["beta"])),
        (b"POST", "/v1/responses") => Ok((Call::Responses, None, &[])),
        (b"POST", "/v1/chat/completions") => Ok((Call::Chat, None, &[])),
        (b"GET", "/v1/models") => {
            Ok((Call::Models, None, &["beta", "limit", "after_id", "before_id", "client_version"]))
        }
        (b"GET", GEMINI) => Ok((Call::Models, None, &["key", "pageSize", "pageToken"])),
        (b"POST", _) => generate(path).ok_or(RouteFault::Unknown),
        _ => Err(RouteFault::Unknown),
    }
}

/// `/v1beta/models/ID:verb`, where ID is plain.
fn generate(path: &str) -> Option<Found<'static>> {
    let (id, verb) = path.strip_prefix(GEMINI)?.strip_prefix('/')?.split_once(':')?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-');
    if id.is_empty() || id.len() > 128 || !id.bytes().all(plain) {
        return None;
    }
    let (call, keys): (Call, &[&str]) = match verb {
        "generateContent" => (Call::Generate { stream: false }, &["key"]),
        "streamGenerateContent" => (Call::Generate { stream: true }, &["key", "alt"]),
        "countTokens" => (Call::CountGenerate, &["key"]),
        _ => return None,
    };
    Some((call, Some(id.to_owned()), keys))
}

/// The pairs that go upstream, and the key that does not.
fn read_query(query: Option<&str>, keys: &[&str]) -> Result<(Vec<String>, Option<String>), RouteFault> {
    let (mut kept, mut key) = (Vec::new(), None);
    let pairs = query.unwrap_or_default();
    if pairs.len() > MOST_QUERY {
        return Err(RouteFault::Query);
    }
    for pair in pairs.split('&').filter(|_| query.is_some()) {
        let (name, value) = pair.split_once('=').ok_or(RouteFault::Query)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let repeated =
            kept.iter().any(|seen: &String| seen.split_once('=').is_some_and(|(seen, _)| seen == name));
        if !keys.contains(&name) || !value.bytes().all(plain) || repeated {
            return Err(RouteFault::Query);
        }
        if name == "key" {
            key = Some(value.to_owned());
        } else {
            kept.push(pair.to_owned());
        }
    }
    Ok((kept, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str, text: &str) -> Result<String, RouteFault> {
        route(method.as_bytes(), text.as_bytes()).map(|route| route.target)
    }

    #[test]
    fn c93_only_listed_methods_and_paths_are_served() {
        for (method, path) in [
            ("POST", "/v1/messages"),
            ("POST", "/v1/messages/count_tokens"),
            ("POST", "/v1/responses"),
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/models"),
            ("GET", "/v1beta/models"),
            ("POST", "/v1beta/models/gemini-2.5-pro:generateContent"),
        ] {
            assert_eq!(target(method, path), Ok(path.to_owned()));
        }
        for (method, path) in [
            ("GET", "/v1/messages"),
            ("POST", "/v1/files"),
            ("POST", "/v1/messages/batches"),
            ("GET", "/v1/organizations/x"),
            ("POST", "/v1/fine_tuning/jobs"),
            ("POST", "/v1/containers"),
            ("DELETE", "/v1/models"),
            ("post", "/v1/messages"),
            ("POST", "/"),
            ("POST", "/v1beta/models/gemini-2.5-pro:batchGenerateContent"),
            ("POST", "/v1beta/cachedContents"),
            ("POST", "/v1beta/models/:generateContent"),
        ] {
            assert_eq!(target(method, path), Err(RouteFault::Unknown), "{method} {path}");
        }
    }

    #[test]
    fn c94_no_second_spelling_is_a_path() {
        for path in [
            "/v1/messages/../files",
            "/v1/files/../messages",
            "/v1/%6dessages",
            "/v1/%2e%2e/messages",
            "/v1%2Fmessages",
            "//v1/messages",
            "/v1/messages/",
            "/v1/messages;x",
            "/v1\\messages",
            "/v1/messages%00",
            "/v1/messages#",
            "/V1/messages",
            "/v1beta/models/..%2f..%2fx:generateContent",
            "/v1beta/models/a/b:generateContent",
            "/v1beta/models/A:generateContent",
        ] {
            assert_eq!(target("POST", path), Err(RouteFault::Unknown), "{path}");
        }
    }

    #[test]
    fn c95_queries_are_known_or_refused_and_keys_taken_out() {
        assert_eq!(target("POST", "/v1/messages?beta=true"), Ok("/v1/messages?beta=true".into()));
        for query in
            ["?", "?x=1", "?beta", "?beta=true&x=1", "?beta=%20", "?beta=true&beta=false", "?beta=a?b", "?&"]
        {
            assert_eq!(target("POST", &format!("/v1/messages{query}")), Err(RouteFault::Query), "{query}");
        }
        let long = |value: usize| format!("/v1/messages?beta={}", "x".repeat(value));
        assert_eq!(target("POST", &long(MOST_QUERY - 5)), Ok(long(MOST_QUERY - 5)));
        assert_eq!(target("POST", &long(MOST_QUERY - 4)), Err(RouteFault::Query));
        let named = |length: usize| format!("{GEMINI}/{}:generateContent", "g".repeat(length));
        assert_eq!(target("POST", &named(128)), Ok(named(128)));
        assert_eq!(target("POST", &named(129)), Err(RouteFault::Unknown));
        let stream = "/v1beta/models/gemini-2.5-pro:streamGenerateContent";
        let found = route(b"POST", format!("{stream}?key=abc&alt=sse").as_bytes()).unwrap();
        assert_eq!(found.target, format!("{stream}?alt=sse"));
        assert_eq!(found.query_key.as_deref(), Some("abc"));
        assert_eq!(found.model.as_deref(), Some("gemini-2.5-pro"));
        assert_eq!(target("POST", stream), Err(RouteFault::NotSse));
    }

    #[test]
    fn c96_other_forms_of_target_are_refused() {
        for (method, text) in [
            ("POST", "http://api.anthropic.com/v1/messages"),
            ("CONNECT", "api.anthropic.com:443"),
            ("CONNECT", "/v1/messages"),
            ("OPTIONS", "*"),
            ("POST", "v1/messages"),
        ] {
            assert_eq!(target(method, text), Err(RouteFault::Form), "{text}");
        }
    }
}
