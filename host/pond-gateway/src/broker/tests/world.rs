//! A world for one test: a broker, a scripted upstream behind TLS with a test authority, and a client over a pipe.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pond_policy::model::{Microcents, built_in};
use pond_wire::gateway::broker as wire;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::broker::{Broker, Connect, DialFault, Key, Record};
use crate::http::{RequestHead, framing, read_body, read_head};

pub(super) const CA: &str = include_str!("ca.pem");
const SERVER: &str = include_str!("server.pem");
const SERVER_KEY: &str = include_str!("server.key");

pub(super) const KEYS: [&str; 4] = [
    "sk-ant-real-AAAAbbbbCCCCdddd1111",
    "sk-real-EEEEffffGGGGhhhh2222",
    "AIzaREAL-IIIIjjjjKKKKllll3333",
    "local-real-MMMMnnnnOOOOpppp4444",
];
pub(super) const DUMMIES: [&str; 4] = [
    "sk-ant-api03-dummy-0000000000000001",
    "sk-proj-dummy-0000000000000000002",
    "AIzaDummy00000000000000000000003",
    "local-dummy-000000000000000004",
];

/// What the upstream saw of one request.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) head: RequestHead,
    pub(super) body: Vec<u8>,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Vec<String> {
        self.head.headers.all(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What the upstream does with one request.
#[derive(Clone)]
pub(super) enum Reply {
    /// Sends the pieces, one write each, and keeps the connection.
    Send(Vec<Vec<u8>>),
    /// Sends the pieces and closes.
    Close(Vec<Vec<u8>>),
    /// Sends the pieces and waits until the broker closes; notes that it did.
    Hold(Vec<Vec<u8>>),
}

pub(super) type Script = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

pub(super) struct World {
    pub(super) broker: Arc<Broker>,
    pub(super) seen: Arc<Mutex<Vec<Seen>>>,
    pub(super) records: Arc<Mutex<Vec<Record>>>,
    hung_up: Arc<tokio::sync::Notify>,
    sent: Arc<AtomicUsize>,
}

pub(super) fn response(status: &str, fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{fields}\r\n{body}", body.len()).into_bytes()
}

pub(super) fn json_ok(body: &str) -> Reply {
    Reply::Send(vec![response("200 OK", "content-type: application/json\r\n", body)])
}

/// A stream in chunked coding, one chunk for each piece.
pub(super) fn sse(pieces: &[&str]) -> Vec<Vec<u8>> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |piece: &&str| format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes();
    [head.as_bytes().to_vec()].into_iter().chain(pieces.iter().map(chunk)).collect()
}

pub(super) fn sse_whole(pieces: &[&str]) -> Reply {
    let mut all = sse(pieces);
    all.push(b"0\r\n\r\n".to_vec());
    Reply::Send(all)
}

fn model(at: usize, api: &str, auth: &str, ids: &[&str]) -> wire::Model {
    let priced = |id: &&str| wire::PricedId { id: (*id).to_owned(), price: built_in(id).unwrap().into() };
    wire::Model {
        name: api.to_owned(),
        api: api.to_owned(),
        upstream: "https://api.model.test".to_owned(),
        upstream_private: false,
        ca_pem: Some(CA.to_owned()),
        auth: auth.to_owned(),
        ids: ids.iter().map(priced).collect(),
        provider_tools: false,
        dummy_key: DUMMIES[at].to_owned(),
    }
}

pub(super) fn order(ceiling: Microcents) -> wire::Broker {
    let mut local = model(3, "openai-chat", "api-key", &["gpt-5-mini"]);
    local.upstream = "https://api.model.test:8443/compatible".to_owned();
    wire::Broker {
        models: vec![
            model(0, "anthropic", "x-api-key", &["claude-sonnet-4-5"]),
            model(1, "openai", "bearer", &["gpt-5"]),
            model(2, "gemini", "x-goog-api-key", &["gemini-2.5-pro"]),
            local,
        ],
        ceiling_microcents: ceiling.0,
        lent: false,
        body_bytes: 1 << 20,
    }
}

impl World {
    pub(super) async fn new(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(order(Microcents::from_cents(100_000)), script).await
    }

    pub(super) async fn with(
        order: wire::Broker,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let (seen, records) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::<Mutex<Vec<Record>>>::default());
        let hung_up = Arc::new(tokio::sync::Notify::new());
        let sent = Arc::<AtomicUsize>::default();
        let stage = Stage {
            script: Arc::new(script),
            seen: Arc::clone(&seen),
            hung_up: Arc::clone(&hung_up),
            sent: Arc::clone(&sent),
        };
        let address = upstream(stage).await;
        let connect: Connect = Arc::new(move |_| {
            Box::pin(async move { TcpStream::connect(address).await.map_err(DialFault::Failed) })
        });
        let keys = KEYS.iter().take(order.models.len()).map(|key| Key::read(&mut key.as_bytes()).unwrap());
        let told = Arc::clone(&records);
        let report = Arc::new(move |record: &Record| told.lock().unwrap().push(record.clone()));
        let broker = Arc::new(Broker::new(&order, keys.collect(), &connect, report).unwrap());
        Self { broker, seen, records, hung_up, sent }
    }

    /// The same, under a ceiling that is raised for whoever asks, as far as the purse goes.
    pub(super) async fn lent(
        order: wire::Broker,
        purse: Microcents,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let mut world = Self::with(order, script).await;
        let broker = Arc::into_inner(world.broker).unwrap();
        world.broker = Arc::new_cyclic(|weak: &std::sync::Weak<Broker>| {
            let weak = weak.clone();
            broker.lent_by(Arc::new(move |short| {
                weak.upgrade().unwrap().raise(short.most.min(purse));
            }))
        });
        world
    }

    /// A client's end of a new connection.
    pub(super) fn client(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(1 << 20);
        let broker = Arc::clone(&self.broker);
        tokio::spawn(async move { broker.serve(far).await });
        near
    }

    /// Sends bytes on a new connection and reads to its end.
    pub(super) async fn raw(&self, request: &[u8]) -> String {
        let mut client = self.client();
        // A refusal may come, and the connection end, before all of it is sent.
        drop(client.write_all(request).await);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    pub(super) async fn post(&self, path: &str, fields: &str, body: &str) -> String {
        self.raw(post(path, fields, body).as_bytes()).await
    }

    /// A request of an honest client of the model at this place.
    pub(super) async fn ask(&self, at: usize, path: &str, body: &str) -> String {
        self.post(path, &format!("Authorization: Bearer {}\r\n", DUMMIES[at]), body).await
    }

    /// Waits until the broker has closed its connection to the upstream; fails rather than hangs.
    pub(super) async fn hung_up(&self) {
        let waited = tokio::time::timeout(std::time::Duration::from_secs(20), self.hung_up.notified()).await;
        waited.expect("the upstream was not hung up on");
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Pieces the upstream has written, over all answers.
    pub(super) fn pieces_sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap().clone()
    }
}

pub(super) fn post(path: &str, fields: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{fields}\r\n{body}",
        body.len()
    )
}

/// The status line and the body of an answer that is not chunked.
pub(super) fn parts(answer: &str) -> (&str, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    (head.lines().next().unwrap_or_default(), body)
}

/// The data of a chunked answer.
pub(super) fn unchunk(answer: &str) -> String {
    let (_, body) = parts(answer);
    let mut out = Vec::new();
    crate::http::ChunkedDecoder::default().feed(body.as_bytes(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The upstream's side of a world.
#[derive(Clone)]
struct Stage {
    script: Script,
    seen: Arc<Mutex<Vec<Seen>>>,
    hung_up: Arc<tokio::sync::Notify>,
    sent: Arc<AtomicUsize>,
}

async fn upstream(stage: Stage) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let certificates = vec![CertificateDer::from_pem_slice(SERVER.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(SERVER_KEY.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, stage) = (acceptor.clone(), stage.clone());
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream, &stage).await;
                }
            });
        }
    });
    address
}

async fn answer(mut stream: tokio_rustls::server::TlsStream<TcpStream>, stage: &Stage) {
    let mut buffer = Vec::new();
    while let Ok(head) = read_head(&mut stream, &mut buffer).await {
        let framing = framing(&head).unwrap();
        let Ok(body) = read_body(&mut stream, &mut buffer, framing, 1 << 30).await else { return };
        let request = Seen { head, body };
        let reply = (stage.script)(&request);
        stage.seen.lock().unwrap().push(request);
        let (pieces, after) = match reply {
            Reply::Send(pieces) => (pieces, "send"),
            Reply::Close(pieces) => (pieces, "close"),
            Reply::Hold(pieces) => (pieces, "hold"),
        };
        for piece in pieces {
            if stream.write_all(&piece).await.is_err() || stream.flush().await.is_err() {
                return stage.hung_up.notify_one();
            }
            stage.sent.fetch_add(1, Ordering::Relaxed);
        }
        match after {
            "send" => {}
            "close" => return,
            _ => {
                let mut scrap = [0; 16];
                drop(stream.read(&mut scrap).await);
                return stage.hung_up.notify_one();
            }
        }
    }
}
