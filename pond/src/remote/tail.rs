//! One stream of a stage's output, from its beginning to its end, over as many connections as it takes.

use std::sync::Arc;

use hyper::body::Bytes;

use super::screen::Stream;
use crate::client::events::Patience;
use crate::client::fault::ClientFault;
use crate::client::server::{Answer, Call, Server};
use crate::client::target::Target;

/// Whose output, and whether to wait for more of it.
#[derive(Debug)]
pub(super) struct Tail {
    server: Arc<Server>,
    target: Target,
    offset: u64,
    open: Option<Answer>,
    patience: Patience,
}

/// Whether the end of what there is, is the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    Now,
    StageEnds,
}

impl Tail {
    pub(super) fn new(server: &Arc<Server>, run: &str, stage: &str, stream: Stream, until: Until) -> Self {
        let follow = match until {
            Until::Now => None,
            Until::StageEnds => Some("true"),
        };
        let target = Target::new(&["runs", run, "stages", stage, "logs"]).with("stream", stream.name());
        let target = target.maybe("follow", follow);
        Self { server: Arc::clone(server), target, offset: 0, open: None, patience: Patience::default() }
    }

    /// The next piece; nothing at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ClientFault> {
        loop {
            match self.read().await {
                Ok(piece) => return Ok(piece),
                Err(fault) if fault.may_pass() => {
                    self.open = None;
                    self.patience.wait(fault).await?;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>, ClientFault> {
        let answer = match &mut self.open {
            Some(answer) => answer,
            closed @ None => {
                let target = self.target.clone().with("offset", &self.offset.to_string());
                closed.insert(self.server.stream(Call::get(target)).await?)
            }
        };
        let piece = answer.next().await?;
        if let Some(bytes) = &piece {
            self.offset += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            self.patience = Patience::default();
        }
        Ok(piece)
    }
}
