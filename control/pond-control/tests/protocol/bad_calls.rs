//! Calls that are not what they should be: each is refused with its own code, and written down.

use pond_seal::Digest;
use pond_seal::key::SigningKey;
use pond_seal::request::{Request, RequestNonce, SignedHead, WINDOW_SECONDS};
use pond_wire::orch::Route;

use super::worker::{Sent, Worker, deliver};
use super::world::{World, clock, plain};

pub(crate) async fn a_request_passes_once_as_it_was_signed(world: &mut World) {
    world.submit(&plain()).await;
    let mut worker = world.worker().await;
    let (poll, _) = worker.polling();
    worker.send(&poll).await.unwrap();
    let refused = |code: &str| Err(code.to_owned());
    assert_eq!(worker.send(&poll).await, refused("request_replayed"));
    let (poll, _) = worker.polling();
    let elsewhere = Sent { path: Route::Heartbeat.path().to_owned(), ..poll.clone() };
    assert_eq!(worker.send(&elsewhere).await, refused("request_signature"));
    let queried = Sent { path: format!("{}?x=1", poll.path), ..poll.clone() };
    assert_eq!(worker.send(&queried).await, refused("request_signature"));
    let mut changed = poll.clone();
    changed.body = String::from_utf8(changed.body).unwrap().replace("native", "gvisor").into_bytes();
    assert_eq!(worker.send(&changed).await, refused("request_signature"));
    assert_eq!(worker.send(&Sent { head: None, ..poll.clone() }).await, refused("request_head_malformed"));
    worker.send(&poll).await.unwrap();

    let now = u64::try_from(clock().0 / 1000).unwrap();
    let key = SigningKey::from_pem(&worker.identity.signing.to_pem()).unwrap();
    let control = worker.control.id();
    let head = |name: &str, control, time, key: &SigningKey, poll: &Sent| {
        let request = Request { method: "POST", path: &poll.path, body: Digest::of(&poll.body) };
        let head = SignedHead::sign(&request, name, control, time, RequestNonce::generate().unwrap(), key);
        Sent { head: Some(head.to_text()), ..poll.clone() }
    };
    let name = worker.name.clone();
    let stranger = SigningKey::generate().unwrap();
    let late = now - WINDOW_SECONDS - 30;
    for (code, sent) in [
        ("request_time", head(&name, control, late, &key, &poll)),
        ("request_signature", head(&name, stranger.public().id(), now, &key, &poll)),
        ("request_signature", head(&name, control, now, &stranger, &poll)),
        ("worker_unknown", head("worker_0123", control, now, &key, &poll)),
        ("worker_unknown", head(&name.replace("worker_0", "worker_f"), control, now, &key, &poll)),
    ] {
        assert_eq!(worker.send(&sent).await, refused(code));
    }
    let audit = world.audit().await;
    let written = audit.iter().filter(|(action, _)| action == "request.refused").count();
    assert_eq!(written, 10, "{audit:?}");
}

pub(crate) async fn bodies_are_capped_and_shaped(world: &mut World) {
    let mut worker = world.worker().await;
    for route in Route::ALL {
        let huge =
            Sent { path: route.path().to_owned(), head: None, body: vec![b' '; route.most_bytes() + 1] };
        assert_eq!(worker.send(&huge).await, Err("body_too_large".to_owned()), "{route:?}");
        let shapeless = worker.signed(route, &serde_json::json!({"version": 1, "secret": true})).0;
        assert_eq!(worker.send(&shapeless).await, Err("body_malformed".to_owned()), "{route:?}");
        let (status, _) = get(&worker, route).await;
        assert_eq!(status, 405, "{route:?}");
    }
    let (status, _) =
        deliver(worker.at, &Sent { path: "/orch/nothing".to_owned(), head: None, body: Vec::new() }).await;
    assert_eq!(status, 404);
}

async fn get(worker: &Worker, route: Route) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(worker.at).await.unwrap();
    let request = format!("GET {} HTTP/1.1\r\nhost: pond\r\nconnection: close\r\n\r\n", route.path());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    (reply.split(' ').nth(1).unwrap().parse().unwrap(), reply)
}
