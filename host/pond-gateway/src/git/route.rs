//! Which requests may carry a credential: those with which git fetches and pushes, and nothing else of a host. Zone: host, reading
//! hostile bytes. Invariant: what goes to the far side is spelled from what was judged, and a path has one reading.

use http::Method;
use thiserror::Error;

use crate::http::{Framing, RequestHead, framing};

/// What a client asks of the far side: to send, or to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    UploadPack,
    ReceivePack,
}

/// A request that may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) host: String,
    /// Path and query at the far side.
    pub(super) target: String,
    pub(super) method: Method,
    pub(super) framing: Framing,
}

/// Why a request carries no credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum RouteFault {
    #[error("the path is not /HOST/REPOSITORY/… in plain characters")]
    Path,
    #[error("only git's smart protocol passes: info/refs, git-upload-pack and git-receive-pack")]
    Request,
    #[error("the body is not what git sends")]
    Body,
}

impl Service {
    const ALL: [Service; 2] = [Service::UploadPack, Service::ReceivePack];

    const fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }
}

pub(super) fn route(head: &RequestHead) -> Result<Asked, RouteFault> {
    let target = std::str::from_utf8(&head.target).map_err(|_| RouteFault::Path)?;
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let rest = path.strip_prefix('/').ok_or(RouteFault::Path)?;
    let (host, path) = rest.split_once('/').ok_or(RouteFault::Path)?;
    if !path.split('/').all(is_segment) {
        return Err(RouteFault::Path);
    }
    let framing = framing(head).map_err(|_| RouteFault::Body)?;
    let asked = |method, target| Ok(Asked { host: host.to_owned(), target, method, framing });
    for service in Service::ALL {
        let name = service.name();
        let asks = query.and_then(|query| query.strip_prefix("service=")) == Some(name);
        if asks && is_below_repository(path, "/info/refs") && head.method == b"GET" {
            if framing != Framing::Empty {
                return Err(RouteFault::Body);
            }
            return asked(Method::GET, format!("/{path}?service={name}"));
        }
        if query.is_none() && is_below_repository(path, &format!("/{name}")) && head.method == b"POST" {
            let kind = format!("application/x-{name}-request");
            if framing == Framing::Empty || head.headers.one("content-type") != Ok(Some(kind.as_bytes())) {
                return Err(RouteFault::Body);
            }
            return asked(Method::POST, format!("/{path}"));
        }
    }
    Err(RouteFault::Request)
}

fn is_below_repository(path: &str, ending: &str) -> bool {
    path.strip_suffix(ending).is_some_and(|repository| !repository.is_empty())
}

/// One name of a path, as both sides read it: nothing that means another place, nothing that could be decoded once more.
fn is_segment(segment: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~@+,=".contains(&b);
    !matches!(segment, "" | "." | "..") && segment.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_head;

    fn routed(request: &str) -> Result<(String, String), RouteFault> {
        let head = format!("{request}\r\n\r\n");
        let (head, _) = parse_head(head.as_bytes()).unwrap().unwrap();
        route(&head).map(|asked| (asked.host, asked.target))
    }

    fn post(path: &str, kind: &str) -> String {
        format!("POST {path} HTTP/1.1\r\nContent-Type: application/x-{kind}-request\r\nContent-Length: 4")
    }

    #[test]
    fn what_git_asks_for_goes_on() {
        for service in ["git-upload-pack", "git-receive-pack"] {
            let refs = format!("GET /github.com/a/b.git/info/refs?service={service} HTTP/1.1");
            let expected = ("github.com".to_owned(), format!("/a/b.git/info/refs?service={service}"));
            assert_eq!(routed(&refs), Ok(expected));
            let expected = ("github.com".to_owned(), format!("/a/b/{service}"));
            assert_eq!(routed(&post(&format!("/github.com/a/b/{service}"), service)), Ok(expected));
        }
    }

    #[test]
    fn nothing_else_does() {
        let get = |target: &str| routed(&format!("GET {target} HTTP/1.1"));
        for target in [
            "/github.com/a/b/info/refs",
            "/github.com/a/b/info/refs?service=git-upload-archive",
            "/github.com/a/b/info/refs?service=git-upload-pack&x=1",
            "/github.com/a/b/info/refs?x=1&service=git-upload-pack",
            "/github.com/info/refs?service=git-upload-pack",
            "/github.com/a/b/HEAD",
            "/github.com/a/b/objects/info/packs",
            "/github.com/settings/tokens",
            "/github.com/a/b/git-upload-pack",
        ] {
            assert_eq!(get(target), Err(RouteFault::Request), "{target}");
        }
        for target in [
            "/github.com/../b/info/refs?service=git-upload-pack",
            "/github.com/a/./b/info/refs?service=git-upload-pack",
            "/github.com/a//b/info/refs?service=git-upload-pack",
            "/github.com//info/refs?service=git-upload-pack",
            "/github.com/a%2fb/info/refs?service=git-upload-pack",
            "/github.com/a\\b/info/refs?service=git-upload-pack",
            "/github.com/a;b/info/refs?service=git-upload-pack",
            "/github.com",
            "/",
            "http://github.com/a/b/info/refs?service=git-upload-pack",
        ] {
            assert_eq!(get(target), Err(RouteFault::Path), "{target}");
        }
    }

    #[test]
    fn a_body_is_gits_own_or_none() {
        let bodies = [
            post("/github.com/a/b/git-upload-pack", "git-receive-pack"),
            "POST /github.com/a/b/git-upload-pack HTTP/1.1\r\nContent-Length: 4".to_owned(),
            "POST /github.com/a/b/git-upload-pack HTTP/1.1\r\nContent-Type: application/x-git-upload-pack-request"
                .to_owned(),
            "GET /github.com/a/b/info/refs?service=git-upload-pack HTTP/1.1\r\nContent-Length: 4".to_owned(),
        ];
        for body in bodies {
            assert_eq!(routed(&body), Err(RouteFault::Body), "{body}");
        }
        let put = post("/github.com/a/b/git-upload-pack", "git-upload-pack").replace("POST", "PUT");
        assert_eq!(routed(&put), Err(RouteFault::Request));
    }
}
