//! The door for git: what a job asks of one of the named hosts in clear text goes there over TLS, with a credential that the job
//! never has. Trust zone: the client is hostile, the far side may be broken.
//!
//! Invariants: a credential goes to its own host and to no other, through the same verdict, lookup, judgement and dial as every tunnel;
//! only the requests of git's own protocol carry it; no field of the client goes along that is not named here; no redirect is
//! followed or passed on; nothing of the credential comes back.

mod answer;
mod exchange;
mod lent;
mod route;
mod upload;

use std::pin::pin;
use std::sync::Arc;

use pond_policy::egress::{Denial, DenialCode, Destination, Host, Port};
use pond_wire::gateway::Door;
use tokio::net::TcpStream;

use crate::client::Client;
use crate::gateway::Gateway;
use crate::http::{self, RequestHead};
use crate::passage::Passage;
use crate::proxy::head_denial;
use exchange::{Ended, Exchange};
pub(crate) use lent::{Hosts, LentFault};
use route::Asked;

/// Serves one request, and closes: a client of git makes a few in all.
pub(crate) async fn serve(gateway: Arc<Gateway>, stream: TcpStream) {
    let mut client = Client::new(stream);
    let head = match http::read_head(&mut client.stream, &mut client.early).await {
        Ok(head) => head,
        Err(fault) => {
            if let Some(denial) = head_denial(&fault) {
                refuse(&gateway, client, &denial).await;
            }
            return;
        }
    };
    if let Err(denial) = Box::pin(forward(&gateway, &mut client, &head)).await {
        refuse(&gateway, client, &denial).await;
    }
}

async fn forward(gateway: &Arc<Gateway>, client: &mut Client, head: &RequestHead) -> Result<(), Denial> {
    let asked = route::route(head).map_err(|fault| {
        Denial::at_door(DenialCode::GitOnly, "request at the door for git", fault.to_string())
    })?;
    let lent = gateway.git.of(&asked.host).ok_or_else(|| no_credential(gateway, &asked))?;
    let destination = Destination { host: Host::Name(lent.host.clone()), port: Port::HTTPS };
    let opened = client.unless_gone(Passage::open(gateway, Door::Git, &destination)).await;
    let passage = match opened {
        Some(passage) => passage?,
        None => {
            gateway.left(Door::Git, &destination);
            return Ok(());
        }
    };
    let spoken = Exchange { lent, asked: &asked, head }.speak(client, passage.far_side());
    let ended = passage.while_covered(pin!(spoken)).await;
    match ended {
        Err(revoked) => passage.cut(revoked).await,
        Ok(Ended::Passed(close)) => passage.settle(close).await,
        Ok(Ended::Refused(denial, close)) => {
            passage.settle(close).await;
            return Err(denial);
        }
    }
    Ok(())
}

fn no_credential(gateway: &Gateway, asked: &Asked) -> Denial {
    let known = gateway.git.names().join(", ");
    let hint = format!("there is a credential for {known}; others are reached over https, without one");
    Denial::at_door(DenialCode::GitOnly, &asked.host, hint)
}

async fn refuse(gateway: &Gateway, client: Client, denial: &Denial) {
    gateway.refused(Door::Git, denial);
    client.answer(denial).await;
}
