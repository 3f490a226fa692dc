//! Which header fields cross the broker, by allowlist in both directions. A field of the client that is not named here
//! does not exist upstream: no credential in any spelling, no cookie, no forwarding or billing hint, no word about how to read
//! the body. The key is set last.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::key::Key;
use super::scrub::Scrubber;
use crate::http::Headers;

const REQUEST: [&str; 8] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "openai-beta",
    "originator",
    "user-agent",
    "x-app",
    "x-goog-api-client",
];
const REQUEST_FAMILIES: [&str; 2] = ["x-stainless-", "x-claude-code-"];

const RESPONSE: [&str; 8] = [
    "content-type",
    "date",
    "openai-processing-ms",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
    "x-should-retry",
];
const RESPONSE_FAMILIES: [&str; 2] = ["anthropic-ratelimit-", "x-ratelimit-"];

/// The client's fields that go upstream. What `Connection` names is the client's hop and is dropped first.
pub(super) fn to_upstream(client: &Headers) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, value) in client.iter() {
        if !is_listed(name, &REQUEST, &REQUEST_FAMILIES) || client.lists("connection", name) {
            continue;
        }
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            kept.append(name, value);
        }
    }
    kept
}

/// The upstream's fields that go to the client, with every fragment of the key masked; one whose name would have to be is none.
pub(super) fn to_client(upstream: &HeaderMap, key: &Key) -> Vec<(String, Vec<u8>)> {
    let listed = |name: &HeaderName| {
        is_listed(name.as_str(), &RESPONSE, &RESPONSE_FAMILIES)
            && Scrubber::whole(key, name.as_str().as_bytes()) == name.as_str().as_bytes()
    };
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), Scrubber::whole(key, value.as_bytes()))
    };
    upstream.iter().filter(|(name, _)| listed(name)).map(field).collect()
}

fn is_listed(name: &str, exact: &[&str], families: &[&str]) -> bool {
    exact.contains(&name) || families.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_head;

    #[test]
    fn c98_c99_c100_only_listed_fields_go_up() {
        let head = b"POST / HTTP/1.1\r\nHost: evil\r\nAuthorization: Bearer attacker\r\nAUTHORIZATION: Basic x\r\n\
            X-Api-Key: attacker\r\nx_api_key: attacker\r\nx.api.key: attacker\r\nx-goog-api-key: attacker\r\n\
            Api-Key: attacker\r\nProxy-Authorization: attacker\r\nCookie: attacker\r\nForwarded: for=1\r\n\
            X-Forwarded-For: 1\r\nVia: 1\r\nOpenAI-Organization: attacker\r\nOpenAI-Project: attacker\r\n\
            anthropic-workspace-id: attacker\r\nConnection: x-api-key, Anthropic-Version, x-app\r\n\
            anthropic-version: 2023-06-01\r\nX-App: cli\r\nanthropic-beta: a-1,b-2\r\nanthropic-beta:  c-3\r\n\
            X-Stainless-Lang: js\r\nContent-Type: application/json\r\n\r\n";
        let (head, _) = parse_head(head).unwrap().unwrap();
        let kept = to_upstream(&head.headers);
        let shown: Vec<String> =
            kept.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        assert_eq!(shown, ["anthropic-beta: a-1,b-2", "anthropic-beta: c-3", "x-stainless-lang: js"]);
    }

    #[test]
    fn c115_c116_only_listed_fields_come_back_and_no_fragment_of_the_key() {
        let key = Key::read(&mut &b"sk-real-QWERTYUIOP"[..]).unwrap();
        let mut upstream = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("content-encoding", "identity"),
            ("set-cookie", "session=1"),
            ("anthropic-organization-id", "org"),
            ("openai-organization", "org"),
            ("location", "https://evil.example/"),
            ("request-id", "req-real-QWERTYU"),
            ("retry-after", "3"),
            ("anthropic-ratelimit-requests-limit", "9"),
            ("x-ratelimit-sk-real-x", "9"),
        ] {
            upstream.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let shown: Vec<String> = to_client(&upstream, &key)
            .into_iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8(value).unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                "content-type: text/event-stream",
                "request-id: req*************",
                "retry-after: 3",
                "anthropic-ratelimit-requests-limit: 9"
            ]
        );
    }
}
