//! A user of the API, over connections that stay open.

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::say;

/// The longest anything is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// One connection and a token.
struct User {
    token: String,
    host: String,
    sender: SendRequest<Full<Bytes>>,
}

impl User {
    async fn connect(address: &str, token: &str) -> Self {
        let host = address.strip_prefix("http://").unwrap().to_owned();
        let stream = TcpStream::connect(&host).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { token: token.to_owned(), host, sender }
    }

    async fn send(&mut self, method: Method, path: &str, body: Vec<u8>) -> Response<Incoming> {
        let request = hyper::Request::builder().method(method).uri(path).header("host", &self.host);
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let request = request.header("content-type", "application/json").body(Full::from(body)).unwrap();
        self.sender.ready().await.unwrap();
        tokio::time::timeout(PATIENCE, self.sender.send_request(request)).await.unwrap().unwrap()
    }

    /// The answer to what is asked until it is not too often any more.
    async fn json(&mut self, method: Method, path: &str, body: Value) -> Value {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body).unwrap() };
        loop {
            let response = self.send(method.clone(), path, body.clone()).await;
            let status = response.status();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            if status == StatusCode::TOO_MANY_REQUESTS {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            assert!(status.is_success(), "{path}: {}", String::from_utf8_lossy(&bytes));
            return serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        }
    }

    async fn submit(&mut self) -> String {
        let reply = self.json(Method::POST, "/v1/runs", json!({"document": document()})).await;
        reply["run"].as_str().unwrap().to_owned()
    }
}

fn document() -> Value {
    let sandbox = json!({"profile": "untrusted-code-test"});
    let executor =
        json!({"kind": "swarm", "command": ["echo", "here"], "timeout": "50s", "sandbox": sandbox});
    json!({"project": "bench", "stages": [{"name": "noop", "executor": executor}]})
}

async fn project(user: &mut User) {
    user.json(Method::PUT, "/v1/projects/bench", Value::Null).await;
}

/// A line in, a run; a line out, the nanoseconds from the first byte of the submission to the first byte of its output.
pub(crate) async fn first(address: &str, token: &str) {
    let mut submitting = User::connect(address, token).await;
    let mut reading = User::connect(address, token).await;
    project(&mut submitting).await;
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        let started = Instant::now();
        let run = submitting.submit().await;
        let path = format!("/v1/runs/{run}/stages/noop/logs?follow=true");
        let response = reading.send(Method::GET, &path, Vec::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = response.into_body();
        let first = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap();
        let took = started.elapsed();
        assert_eq!(first.unwrap().unwrap().into_data().unwrap(), "here\n");
        while body.frame().await.is_some() {}
        // The next one finds the machine idle: its runs are over.
        while active(&mut submitting).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        say(&took.as_nanos().to_string());
    }
}

async fn active(user: &mut User) -> bool {
    let runs = user.json(Method::GET, "/v1/runs?state=active&limit=1", Value::Null).await;
    !runs["runs"].as_array().unwrap().is_empty()
}

/// Submits and says so; then says how long it took from there until nothing was left to do.
pub(crate) async fn drain(address: &str, token: &str, runs: u32) {
    let mut user = User::connect(address, token).await;
    project(&mut user).await;
    for _ in 0..runs {
        user.submit().await;
    }
    say(&runs.to_string());
    let started = Instant::now();
    while active(&mut user).await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    say(&started.elapsed().as_nanos().to_string());
}
