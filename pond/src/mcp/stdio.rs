//! The protocol on standard input and output: a message a line, answers as they are ready. It ends with its input.

use std::io::{BufRead, Read, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::{Semaphore, mpsc};

use super::rpc;
use crate::client::server::Server;

/// A file in base64 in a message, and its envelope.
const MOST_LINE: u64 = 32 << 20;
/// Tools at work at once.
const MOST_CALLS: usize = 32;

pub(super) async fn serve(server: &Arc<Server>) -> anyhow::Result<ExitCode> {
    let (lines, mut heard) = mpsc::channel(1);
    // Reading blocks, and cannot be given up: it has a thread, which ends with the process.
    std::thread::Builder::new()
        .name("mcp-input".into())
        .spawn(move || read(&lines))
        .context("reading input")?;
    let slots = Arc::new(Semaphore::new(MOST_CALLS));
    while let Some(line) = heard.recv().await {
        let slot = Arc::clone(&slots).acquire_owned().await.context("waiting for a free place")?;
        let server = Arc::clone(server);
        tokio::spawn(async move {
            if let Some(answer) = rpc::answer(&server, &line).await {
                write(&answer);
            }
            std::mem::drop(slot);
        });
    }
    // Whoever asked before he left is answered.
    let every = u32::try_from(MOST_CALLS).unwrap_or(u32::MAX);
    slots.acquire_many(every).await.context("waiting for the last answers")?.forget();
    Ok(ExitCode::SUCCESS)
}

fn read(lines: &mpsc::Sender<Vec<u8>>) {
    let mut input = stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(MOST_LINE).read_until(b'\n', &mut line);
        let whole = line.last() == Some(&b'\n');
        // What is longer than any message is not a message; nothing after it could be told apart.
        if read.is_err()
            || line.is_empty()
            || (!whole && u64::try_from(line.len()).unwrap_or(u64::MAX) >= MOST_LINE)
        {
            return;
        }
        if !line.trim_ascii().is_empty() && lines.blocking_send(line).is_err() {
            return;
        }
    }
}

/// JSON on one line: serde_json writes no line breaks. A client that has gone hears nothing, and its input ends too.
fn write(answer: &serde_json::Value) {
    let mut out = stdout().lock();
    if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
        tracing::debug!("nobody reads the answers");
    }
}
