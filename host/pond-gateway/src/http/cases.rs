//! The head and body cases of the egress catalogue, by number, as data behind a few checks.

use tokio::io::AsyncReadExt;

use super::*;

fn head(bytes: &[u8]) -> RequestHead {
    parse_head(bytes).unwrap().unwrap().0
}

/// The fault of `bytes`, the same whether they come at once or one by one.
fn code(bytes: &[u8]) -> &'static str {
    let whole = parse_head(bytes).unwrap_err().code();
    let (runtime, mut buffer) = (runtime(), Vec::new());
    let dribbled = runtime.block_on(async {
        let mut stream = in_steps(bytes, 1);
        read_head(&mut stream, &mut buffer).await.unwrap_err().code()
    });
    assert_eq!(whole, dribbled, "{:?}", String::from_utf8_lossy(bytes));
    whole
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// A reader that gives at most `step` bytes at a time and then ends.
fn in_steps(bytes: &[u8], step: usize) -> impl tokio::io::AsyncRead + Unpin + use<'_> {
    struct Steps<'a>(&'a [u8], usize);
    impl tokio::io::AsyncRead for Steps<'_> {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            out: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            let count = self.1.min(self.0.len()).min(out.remaining());
            let (now, later) = self.0.split_at(count);
            out.put_slice(now);
            self.0 = later;
            std::task::Poll::Ready(Ok(()))
        }
    }
    Steps(bytes, step)
}

#[test]
fn c02_a_head_without_fields_is_a_head() {
    let head = head(b"CONNECT h:443 HTTP/1.0\r\n\r\n");
    assert_eq!((head.method.as_slice(), head.target.as_slice()), (&b"CONNECT"[..], &b"h:443"[..]));
    assert_eq!((head.version, head.headers.iter().count()), (Version::Http10, 0));
}

#[test]
fn c05_a_repeated_field_stays_visible_in_any_case() {
    let head = head(b"GET / HTTP/1.1\r\nHost: a\r\nhOST: a\r\nX: 1\r\n\r\n");
    assert_eq!(head.headers.one("host"), Err(Repeated));
    assert_eq!(head.headers.one("x"), Ok(Some(&b"1"[..])));
    assert_eq!(head.headers.one("y"), Ok(None));
}

#[test]
fn c13_c14_ambiguous_heads_are_refused() {
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\nHost: a\n\n"[..], "line_ending"),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n", "line_ending"),
        (b"GET / HTTP/1.1\rX: a\r\n\r\n", "line_ending"),
        (b"GET / HTTP/1.1\r\nA: b\r\rC: d\r\n\r\n", "line_ending"),
        (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "folded_header"),
        (b"GET / HTTP/1.1\r\n A: b\r\n\r\n", "folded_header"),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", "header_line"),
        (b"GET / HTTP/1.1\r\nA b\r\n\r\n", "header_line"),
        (b"GET / HTTP/1.1\r\n: b\r\n\r\n", "header_line"),
        (b"GET / HTTP/1.1\r\nA\xc3\xa9: b\r\n\r\n", "header_line"),
        (b"GET / HTTP/1.1\r\nA: b\0\r\n\r\n", "control_byte"),
        (b"GET / HTTP/1.1\r\nA: \x7f\r\n\r\n", "control_byte"),
        (b"GET /\0 HTTP/1.1\r\n\r\n", "control_byte"),
        (b"GET /\t HTTP/1.1\r\n\r\n", "control_byte"),
        (b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n", "not_ascii"),
        (b"GET  / HTTP/1.1\r\n\r\n", "request_line"),
        (b"GET / x HTTP/1.1\r\n\r\n", "request_line"),
        (b" GET / HTTP/1.1\r\n\r\n", "request_line"),
        (b"GET / HTTP/1.1 \r\n\r\n", "request_line"),
        (b"G(T / HTTP/1.1\r\n\r\n", "request_line"),
        (b"\r\nGET / HTTP/1.1\r\n\r\n", "empty_line"),
    ] {
        assert_eq!(code(bytes), expected, "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn c15_limits_are_exact() {
    let line = |length: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(length - 14)).into_bytes();
    assert_eq!(head(&line(MAX_LINE)).target.len(), MAX_LINE - 13);
    assert_eq!(code(&line(MAX_LINE + 1)), "line_too_long");
    assert_eq!(code(&vec![b'A'; MAX_LINE + 1]), "line_too_long");
    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count)).into_bytes();
    assert_eq!(head(&fields(MAX_HEADERS)).headers.iter().count(), MAX_HEADERS);
    assert_eq!(code(&fields(MAX_HEADERS + 1)), "too_many_headers");
    let long =
        |length: usize| format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(length - 23)).into_bytes();
    assert_eq!(parse_head(&long(MAX_HEAD)).unwrap().map(|(_, length)| length), Some(MAX_HEAD));
    assert_eq!(code(&long(MAX_HEAD + 1)), "head_too_long");
}

#[test]
fn c16_c17_other_protocols_are_named() {
    for (bytes, expected) in [
        (&b"\x05\x01\x00"[..], "socks"),
        (b"\x04\x01\x01\xbb", "socks"),
        (b"\x16\x03\x01\x02\x00", "tls"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nCONNECT h:443 HTTP/1.1\r\n\r\n", "proxy_protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "empty_line"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2"),
        (b"GET / HTTP/3.0\r\n\r\n", "http_version"),
        (b"GET / HTTP/1.2\r\n\r\n", "http_version"),
        (b"GET / HTTP/11\r\n\r\n", "http_version"),
        (b"GET /\r\n\r\n", "request_line"),
        (b"GET / http/1.1\r\n\r\n", "request_line"),
    ] {
        assert_eq!(code(bytes), expected, "{:?}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(HeadFault::Version.status(), Some(505));
    assert_eq!(HeadFault::Stranger(Stranger::Socks).status(), Some(400));
}

#[test]
fn c20_what_follows_a_head_is_kept() {
    let mut buffer = Vec::new();
    let bytes = b"CONNECT h:443 HTTP/1.1\r\n\r\n\x16\x03\x01rest";
    let head = runtime().block_on(read_head(&mut in_steps(bytes, 4096), &mut buffer)).unwrap();
    assert_eq!((head.target.as_slice(), buffer.as_slice()), (&b"h:443"[..], &b"\x16\x03\x01rest"[..]));
}

#[test]
fn c77_a_dribbled_head_is_late_and_a_cut_one_closed() {
    let (mut near, far) = tokio::io::duplex(64);
    let late = runtime().block_on(async {
        let fault = read_head(&mut near, &mut Vec::new()).await.unwrap_err();
        drop(far);
        fault
    });
    assert_eq!((late.code(), late.status()), ("head_late", Some(408)));
    let cut = runtime().block_on(read_head(&mut in_steps(b"GET / HT", 3), &mut Vec::new()));
    assert_eq!(cut.unwrap_err().status(), None);
}

#[test]
fn c88_a_refusal_is_one_printable_line() {
    let refusal = Refusal::new(403, "host_not_allowed", "pond: \r\nSet-Cookie: a\u{1b}[2J é")
        .with_header("Retry-After", "1\r\nX: y");
    let text = String::from_utf8(refusal.to_bytes()).unwrap();
    assert_eq!(
        text,
        "HTTP/1.1 403 pond: Set-Cookie: a[2J \r\nConnection: close\r\nX-Pond-Denied: host_not_allowed\r\n\
         Content-Type: text/plain; charset=us-ascii\r\nContent-Length: 24\r\nRetry-After: 1X: y\r\n\r\n\
         pond: Set-Cookie: a[2J \n"
    );
}

#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    runtime().block_on(async {
        let (mut near, mut far) = tokio::io::duplex(64 << 10);
        let refusal = Refusal::new(413, "body_too_large", "pond: no");
        tokio::io::AsyncWriteExt::write_all(&mut far, &[b'x'; 1000]).await.unwrap();
        refuse(&mut near, &refusal).await.unwrap();
        drop(near);
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, refusal.to_bytes());
    });
}

fn framed(fields: &str) -> Result<Framing, FramingFault> {
    framing(&head(format!("POST / HTTP/1.1\r\n{fields}\r\n").as_bytes()))
}

#[test]
fn c101_a_body_has_one_end_or_none() {
    assert_eq!(framed(""), Ok(Framing::Empty));
    assert_eq!(framed("Content-Length: 5\r\n"), Ok(Framing::Length(5)));
    assert_eq!(framed("Transfer-Encoding: chunked\r\n"), Ok(Framing::Chunked));
    for (fields, fault) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", FramingFault::Both),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", FramingFault::Repeated),
        ("Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n", FramingFault::Repeated),
        ("Content-Length: +5\r\n", FramingFault::Length),
        ("Content-Length: -5\r\n", FramingFault::Length),
        ("Content-Length: 5, 5\r\n", FramingFault::Length),
        ("Content-Length: 0x5\r\n", FramingFault::Length),
        ("Content-Length:\r\n", FramingFault::Length),
        ("Content-Length: 99999999999999999999\r\n", FramingFault::Length),
        ("Transfer-Encoding: xchunked\r\n", FramingFault::Encoding),
        ("Transfer-Encoding: chunked, identity\r\n", FramingFault::Encoding),
        ("Transfer-Encoding: gzip, chunked\r\n", FramingFault::Encoding),
        ("Transfer-Encoding: Chunked\r\n", FramingFault::Encoding),
    ] {
        assert_eq!(framed(fields), Err(fault), "{fields:?}");
    }
    let old = head(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(framing(&old), Err(FramingFault::Encoding));
}

fn unchunk(bytes: &[u8]) -> Result<(Vec<u8>, Fed), ChunkFault> {
    let mut out = Vec::new();
    let fed = ChunkedDecoder::default().feed(bytes, &mut out)?;
    Ok((out, fed))
}

#[test]
fn c101_chunks_are_read_strictly() {
    let fine = b"4\r\nabcd\r\n00A\r\n0123456789\r\n0\r\n\r\nnext";
    let (body, fed) = unchunk(fine).unwrap();
    assert_eq!(
        (body.as_slice(), fed),
        (&b"abcd0123456789"[..], Fed { consumed: fine.len() - 4, done: true })
    );
    for (bytes, fault) in [
        (&b"4\nabcd\r\n"[..], ChunkFault::LineEnding),
        (b"4\r\nabcd\n", ChunkFault::LineEnding),
        (b"4\rabcd", ChunkFault::LineEnding),
        (b"4\r\nabcde", ChunkFault::LineEnding),
        (b"+4\r\n", ChunkFault::Size),
        (b"0x4\r\n", ChunkFault::Size),
        (b" 4\r\n", ChunkFault::Size),
        (b"\r\n", ChunkFault::Size),
        (b"-1\r\n", ChunkFault::Size),
        (b"000000004\r\n", ChunkFault::SizeTooLong),
        (b"4;a=b\r\n", ChunkFault::Extension),
        (b"0\r\nx-api-key: k\r\n\r\n", ChunkFault::Trailer),
        (b"0\r\n\rx", ChunkFault::LineEnding),
    ] {
        assert_eq!(unchunk(bytes).map(|(_, fed)| fed), Err(fault), "{:?}", String::from_utf8_lossy(bytes));
    }
}

fn body_of(
    framing: Framing,
    bytes: &[u8],
    step: usize,
    most: u64,
) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
    let (mut reader, mut buffer) = (in_steps(bytes, step), Vec::new());
    let body = runtime().block_on(read_body(&mut reader, &mut buffer, framing, most));
    body.map(|body| (body, buffer)).map_err(|fault| fault.code())
}

#[test]
fn c104_a_body_is_capped_by_its_announcement_and_by_its_bytes() {
    for step in [1, 3, 4096] {
        assert_eq!(body_of(Framing::Length(4), b"abcd", step, 4), Ok((b"abcd".to_vec(), vec![])));
        assert_eq!(body_of(Framing::Length(5), b"abcde", step, 4), Err("body_too_large"));
        assert_eq!(body_of(Framing::Length(5), b"abcd", step, 9), Err("body_closed"));
        let (body, _) = body_of(Framing::Chunked, b"4\r\nabcd\r\n0\r\n\r\n", step, 4).unwrap();
        assert_eq!(body, b"abcd");
        assert_eq!(body_of(Framing::Chunked, b"5\r\nabcde\r\n0\r\n\r\n", step, 4), Err("body_too_large"));
        assert_eq!(body_of(Framing::Chunked, b"5\r\nabc", step, 9), Err("body_closed"));
    }
}
