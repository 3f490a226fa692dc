//! The CONNECT proxy. Zone: host, reading hostile bytes.
//!
//! Invariants: the verdict uses the request target and nothing else of the head; a refused request is answered once and its
//! connection closed, whatever was pipelined behind it; nothing but CONNECT leads anywhere, and there is no page to look at;
//! of a refused request only its host is ever repeated or recorded.

use std::pin::pin;
use std::sync::Arc;

use pond_policy::egress::{Denial, DenialCode, Host};
use pond_wire::gateway::{Close, Door};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::Client;
use crate::connect::destination;
use crate::gateway::Gateway;
use crate::http::{self, HeadFault};
use crate::passage::Passage;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A tunnel that carries what it was opened for; `None` when it does not, or there is none, and everything about that is said.
pub(crate) async fn open(gateway: Arc<Gateway>, stream: TcpStream) -> Option<(Client, Passage)> {
    let mut client = Client::new(stream);
    match admit(&gateway, &mut client).await {
        Ok(Some(passage)) => begin(&gateway, client, passage).await,
        Ok(None) => None,
        Err(denial) => {
            refuse(&gateway, client, &denial).await;
            None
        }
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

/// Tells the client that its tunnel is there and checks what it is used for.
async fn begin(gateway: &Gateway, mut client: Client, passage: Passage) -> Option<(Client, Passage)> {
    if client.stream.write_all(ESTABLISHED).await.is_err() {
        passage.end(Close::ClientReset).await;
        return None;
    }
    let used = passage.while_covered(pin!(no_tunnel(&mut client, &passage))).await;
    let unfit = match used {
        Ok(None) => return Some((client, passage)),
        Ok(Some(unfit)) => unfit,
        Err(revoked) => {
            passage.cut(revoked).await;
            return None;
        }
    };
    let close = match unfit {
        Unfit::Left => Close::ClientReset,
        Unfit::ClearText(denial) => {
            refuse(gateway, client, &denial).await;
            Close::Refused
        }
        Unfit::Hello(denial) => {
            gateway.refused(Door::Proxy, &denial);
            client.alert().await;
            Close::Refused
        }
    };
    passage.end(close).await;
    None
}

/// What a client did instead of saying hello to the host its tunnel leads to.
enum Unfit {
    Left,
    ClearText(Denial),
    Hello(Denial),
}

async fn no_tunnel(client: &mut Client, passage: &Passage) -> Option<Unfit> {
    let destination = passage.destination();
    match client.hello().await {
        Ok(name) if matches!(&destination.host, Host::Name(host) if *host == name) => None,
        Ok(name) => {
            let hint = format!(
                "the tunnel was opened for another host than {name}; name the same in CONNECT and in TLS"
            );
            Some(Unfit::Hello(Denial::at_door(DenialCode::SniMismatch, &destination.to_string(), hint)))
        }
        Err(fault) => {
            let target = destination.to_string();
            Some(match client.clear_text(&target).await {
                Some(denial) => Unfit::ClearText(denial),
                None => fault.denial(&target).map_or(Unfit::Left, Unfit::Hello),
            })
        }
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
