//! The CONNECT proxy. Zone: host, reading hostile bytes.
//!
//! Invariants: the verdict uses the request target and nothing else of the head; a refused request is answered once and its
//! connection closed, whatever was pipelined behind it; nothing but CONNECT leads anywhere, and there is no page to look at;
//! of a refused request only its host is ever repeated or recorded.

use std::sync::Arc;

use pond_policy::egress::{Denial, DenialCode};
use pond_wire::gateway::{Close, Door};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::Client;
use crate::connect::destination;
use crate::gateway::Gateway;
use crate::http::{self, HeadFault};
use crate::passage::Passage;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves one connection to the end.
pub(crate) async fn serve(gateway: Arc<Gateway>, stream: TcpStream) {
    let mut client = Client::new(stream);
    match Box::pin(admit(&gateway, &mut client)).await {
        Ok(Some(passage)) => tunnel(gateway, client, passage).await,
        Ok(None) => {}
        Err(denial) => Box::pin(refuse(&gateway, client, &denial)).await,
    }
}

/// Reads the request and opens the way it asks for; `None` when the client left.
async fn admit(gateway: &Arc<Gateway>, client: &mut Client) -> Result<Option<Passage>, Denial> {
    let head = match http::read_head(&mut client.stream, &mut client.early).await {
        Ok(head) => head,
        Err(fault) => return head_denial(&fault).map_or(Ok(None), Err),
    };
    let destination = destination(&head)?;
    let opened = client.unless_gone(Passage::open(gateway, Door::Proxy, &destination)).await;
    if opened.is_none() {
        gateway.left(Door::Proxy, &destination);
    }
    opened.transpose()
}

/// Checks that the tunnel carries what it was opened for, then carries it.
async fn tunnel(gateway: Arc<Gateway>, mut client: Client, passage: Passage) {
    if client.stream.write_all(ESTABLISHED).await.is_err() {
        return passage.end(Close::ClientReset).await;
    }
    let unfit = match passage.while_covered(no_tunnel(&mut client, &passage)).await {
        Ok(unfit) => unfit,
        Err(revoked) => return passage.cut(revoked).await,
    };
    match unfit {
        None => Box::pin(passage.carry(client.stream, client.early)).await,
        Some(Unfit::Left) => passage.end(Close::ClientReset).await,
        Some(Unfit::ClearText(denial)) => {
            refuse(&gateway, client, &denial).await;
            passage.end(Close::Refused).await;
        }
        Some(Unfit::Hello(denial)) => {
            gateway.refused(Door::Proxy, &denial);
            client.alert().await;
            passage.end(Close::Refused).await;
        }
    }
}

/// What a client did instead of saying hello to the host its tunnel leads to.
enum Unfit {
    Left,
    ClearText(Denial),
    Hello(Denial),
}

async fn no_tunnel(client: &mut Client, passage: &Passage) -> Option<Unfit> {
    let target = passage.destination().to_string();
    match client.hello().await {
        Ok(name) if name.as_str() == passage.destination().host.to_string() => None,
        Ok(name) => {
            let hint = format!(
                "the tunnel was opened for another host than {name}; name the same in CONNECT and in TLS"
            );
            Some(Unfit::Hello(Denial::at_door(DenialCode::SniMismatch, &target, hint)))
        }
        Err(fault) => Some(match client.clear_text(&target).await {
            Some(denial) => Unfit::ClearText(denial),
            None => fault.denial(&target).map_or(Unfit::Left, Unfit::Hello),
        }),
    }
}

async fn refuse(gateway: &Gateway, client: Client, denial: &Denial) {
    gateway.refused(Door::Proxy, denial);
    client.answer(denial).await;
}

/// The refusal of a head that could not be read; none when nobody is left to hear it.
pub(crate) fn head_denial(fault: &HeadFault) -> Option<Denial> {
    let code = match fault.status()? {
        408 => DenialCode::HeadTimeout,
        431 => DenialCode::HeadTooLarge,
        505 => DenialCode::VersionUnsupported,
        _ => DenialCode::RequestMalformed,
    };
    Some(Denial::at_door(code, "unread request", fault.to_string()))
}
