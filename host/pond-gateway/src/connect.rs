//! What a CONNECT request asks for. Pure; every byte is the job's.
//!
//! Invariants: the destination comes from the request target alone; whatever a refusal repeats of the request is its host,
//! never credentials, a path or a header.

use pond_policy::egress::{Denial, DenialCode, Destination};

use crate::http::{Repeated, RequestHead};

/// What is repeated of a request that names no host.
const NO_HOST: &str = "a request without a host";

/// Where a request wants to go, if it is one we serve.
pub fn destination(head: &RequestHead) -> Result<Destination, Denial> {
    let target = String::from_utf8_lossy(&head.target);
    if head.method != b"CONNECT" {
        return Err(not_connect(head, &target));
    }
    let destination = Destination::parse(&target)
        .map_err(|fault| Denial::malformed(named(host_part(&target), NO_HOST), fault))?;
    let malformed =
        |hint: &str| Denial::at_door(DenialCode::RequestMalformed, &destination.to_string(), hint);
    if head.headers.has("transfer-encoding")
        || head.headers.all("content-length").any(|length| length != b"0")
    {
        return Err(malformed("a CONNECT request has no body"));
    }
    match head.headers.one("host") {
        Ok(Some(host)) if !names(host, &destination) => Err(malformed("the Host header names another host")),
        Ok(_) => Ok(destination),
        Err(Repeated) => Err(malformed("the Host header is repeated")),
    }
}

/// Whether a Host header means the destination; some clients leave the port out.
fn names(host: &[u8], destination: &Destination) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let with_port = format!("{host}:{}", destination.port);
    [host, &with_port].into_iter().any(|text| Destination::parse(text).as_ref() == Ok(destination))
}

fn not_connect(head: &RequestHead, target: &str) -> Denial {
    if head.method.eq_ignore_ascii_case(b"CONNECT") {
        let hint = "methods are written in capitals";
        return Denial::at_door(DenialCode::MethodNotAllowed, named(host_part(target), NO_HOST), hint);
    }
    // Only an absolute target names a host; of any other nobody knows what it is.
    let host = if target.contains("://") { host_part(target) } else { "" };
    if host.is_empty() {
        return in_clear_text(head, NO_HOST);
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if name == "localhost" || name.starts_with("127.") || name == "[::1]" {
        return Denial::own_door(host);
    }
    Denial::https_only(host)
}

/// The refusal of a request that came where a TLS hello should have been; `otherwise` stands for the host it does not name.
pub(crate) fn in_clear_text(head: &RequestHead, otherwise: &str) -> Denial {
    match head.headers.one("host") {
        Ok(Some(host)) => Denial::https_only(named(host_part(&String::from_utf8_lossy(host)), otherwise)),
        Ok(None) | Err(Repeated) => Denial::https_only(otherwise),
    }
}

/// The host of a target in whichever form, without credentials, path or query: those are nobody's business. What follows a
/// colon and is no port may be a password with a slash in it.
fn host_part(target: &str) -> &str {
    let after_scheme = target.split_once("://").map_or(target, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let mut host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    while let Some((before, port)) = host.rsplit_once(':') {
        if port.contains(']') || (!port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())) {
            break;
        }
        host = before;
    }
    host
}

fn named<'a>(host: &'a str, otherwise: &'a str) -> &'a str {
    if host.is_empty() { otherwise } else { host }
}

#[cfg(test)]
mod tests {
    //! The table of whole requests is in the doors' own tests; here is what must hold for any bytes.
    use super::*;
    use crate::http::parse_head;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_end_in_a_destination_or_a_printable_refusal(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some((head, _))) = parse_head(&bytes) {
                check(&head);
            }
        }

        #[test]
        fn any_target_and_header_too(target in "[!-~]{1,80}", host in "[ -~]{0,40}", method in "CONNECT|GET|connect") {
            let text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            if let Ok(Some((head, _))) = parse_head(text.as_bytes()) {
                check(&head);
            }
        }
    }

    fn check(head: &RequestHead) {
        match destination(head) {
            Ok(destination) => {
                assert_eq!(head.method, b"CONNECT");
                let target = std::str::from_utf8(&head.target).unwrap();
                assert_eq!(Destination::parse(target), Ok(destination));
            }
            Err(denial) => assert!(denial.reason_phrase().bytes().all(|byte| (b' '..=b'~').contains(&byte))),
        }
    }

    /// What a request comes to: a destination, or the code of its refusal.
    fn judged(request: &str) -> Result<String, DenialCode> {
        let (head, _) = parse_head(format!("{request}\r\n\r\n").as_bytes()).unwrap().unwrap();
        destination(&head).map(|found| found.to_string()).map_err(|denial| denial.code())
    }

    #[test]
    fn c02_c03_c04_c05_c18_a_head_says_where_in_one_way_and_brings_no_body() {
        let connect = "CONNECT h.com:443 HTTP/1.1";
        for fields in ["", "\r\nHost: h.com", "\r\nHost: H.com.:443", "\r\nContent-Length: 0"] {
            assert_eq!(judged(&format!("{connect}{fields}")), Ok("h.com:443".to_owned()), "{fields}");
        }
        assert_eq!(judged("CONNECT h.com:443 HTTP/1.0"), Ok("h.com:443".to_owned()));
        for fields in [
            "Host: evil.com",
            "Host: h.com:444",
            "Host: h.com:443:443",
            "Host: \u{e9}.com",
            "Host:",
            "Host: h.com\r\nHost: h.com",
            "Content-Length: 5",
            "Content-Length: 0\r\nContent-Length: 5",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: identity",
        ] {
            let request = format!("{connect}\r\n{fields}");
            assert_eq!(judged(&request), Err(DenialCode::RequestMalformed), "{fields}");
        }
    }

    #[test]
    fn c16_c23_c26_what_is_not_connect_is_refused_by_what_it_is() {
        for (request, code) in [
            ("connect h.com:443 HTTP/1.1", DenialCode::MethodNotAllowed),
            ("GET http://h.com/ HTTP/1.1", DenialCode::HttpsOnly),
            ("GET /metrics HTTP/1.1", DenialCode::HttpsOnly),
            ("GET http://127.0.0.1:3128/ HTTP/1.1", DenialCode::SelfAddress),
            ("GET http://127.9.9.9/ HTTP/1.1", DenialCode::SelfAddress),
            ("GET http://localhost:8377/x HTTP/1.1", DenialCode::SelfAddress),
            ("GET http://[::1]:80/ HTTP/1.1", DenialCode::SelfAddress),
        ] {
            assert_eq!(judged(request), Err(code), "{request}");
        }
    }

    #[test]
    fn c24_of_a_refused_request_only_the_host_is_repeated() {
        for target in [
            "http://user:secret@h.com/secret?secret#secret",
            "https://h.com?secret",
            "/secret",
            "secret:secret@h.com:443",
            "h.com/secret:443",
            "http://user:secret/secret@h.com",
            "user:secret/secret@h.com:443",
        ] {
            for method in ["GET", "CONNECT", "connect"] {
                let text = format!("{method} {target} HTTP/1.1\r\nCookie: secret\r\n\r\n");
                let (head, _) = parse_head(text.as_bytes()).unwrap().unwrap();
                let denial = destination(&head).unwrap_err();
                assert!(!format!("{denial:?}").contains("secret"), "{method} {target}: {denial:?}");
            }
        }
    }

    #[test]
    fn c24_a_target_that_is_no_url_is_not_repeated_and_a_host_header_without_its_credentials() {
        for (request, shown) in [
            ("POST secret HTTP/1.1\r\n", "\"a request without a host\""),
            ("GET urn:secret HTTP/1.1\r\n", "\"a request without a host\""),
            ("GET /secret HTTP/1.1\r\nHost: 10.0.0.1:3128\r\n", "\"10.0.0.1:3128\""),
            ("GET /secret HTTP/1.1\r\nHost: user:secret@pypi.org\r\n", "\"pypi.org\""),
            ("GET /secret HTTP/1.1\r\nHost: pypi.org:secret\r\n", "\"pypi.org\""),
        ] {
            let (head, _) = parse_head(format!("{request}\r\n").as_bytes()).unwrap().unwrap();
            assert_eq!(destination(&head).unwrap_err().host(), shown, "{request}");
        }
        let text = "GET / HTTP/1.1\r\nHost: user:secret@pypi.org\r\n\r\n";
        let (head, _) = parse_head(text.as_bytes()).unwrap().unwrap();
        assert_eq!(in_clear_text(&head, "x:80").host(), "\"pypi.org\"");
    }
}
