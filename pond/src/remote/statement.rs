//! What a signed statement says of how a job ended, read for an exit code. The control plane verified it when it took it in;
//! `pond fetch` and `pond verify` check it again.

use base64ct::{Base64, Encoding};
use pond_wire::api::{RunState, RunView, StageState};
use serde::Deserialize;

use crate::client::fault::ClientFault;
use crate::client::server::{Call, Server};
use crate::client::target::Target;
use crate::output::REFUSED;

const MOST_BYTES: usize = 4 << 20;
const CANCELLED: u8 = 130;

#[derive(Deserialize)]
struct Envelope {
    payload: String,
}

#[derive(Deserialize)]
struct Statement {
    predicate: Predicate,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    exit_code: u8,
}

/// The bytes of the signed statement of a stage.
pub(super) async fn envelope(server: &Server, run: &str, stage: &str) -> Result<Vec<u8>, ClientFault> {
    let target = Target::new(&["runs", run, "stages", stage, "statement"]);
    Ok(server.bytes(Call::get(target), MOST_BYTES).await?.to_vec())
}

/// The exit code of a run that is over: 0, or that of its first stage that failed, by the order of the document.
pub(super) async fn code(server: &Server, view: &RunView) -> Result<u8, ClientFault> {
    match view.run.state {
        RunState::Succeeded => Ok(0),
        RunState::Cancelled => Ok(CANCELLED),
        RunState::Active | RunState::Refused => Ok(REFUSED),
        RunState::Failed => {
            let mut failed = view.stages.iter().filter(|stage| stage.state == StageState::Failed);
            match failed.find(|stage| !stage.results.is_empty()) {
                // Nothing ran: no worker came, or it cost too many of them.
                None => Ok(REFUSED),
                Some(stage) => {
                    let envelope = envelope(server, &view.run.id, &stage.name).await?;
                    Ok(exit_code(&envelope).filter(|code| *code != 0).unwrap_or(REFUSED))
                }
            }
        }
    }
}

fn exit_code(envelope: &[u8]) -> Option<u8> {
    let envelope: Envelope = serde_json::from_slice(envelope).ok()?;
    let payload = Base64::decode_vec(&envelope.payload).ok()?;
    let statement: Statement = serde_json::from_slice(&payload).ok()?;
    Some(statement.predicate.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_read_from_the_statement() {
        let payload = Base64::encode_string(br#"{"_type":"x","predicate":{"exitCode":42,"other":[]}}"#);
        assert_eq!(exit_code(format!(r#"{{"payload":"{payload}"}}"#).as_bytes()), Some(42));
        for bad in ["", "{}", r#"{"payload":"!"}"#, r#"{"payload":"e30="}"#] {
            assert_eq!(exit_code(bad.as_bytes()), None, "{bad}");
        }
    }
}
