//! The door of the internet posture: every connection of the job to an address outside loopback. The address says whom it
//! is for. Zone: host, reading hostile bytes.
//!
//! Invariants: an address that stands for no name is refused, public or not; a client that begins with TLS names the host
//! it dialled, as at every door. Another protocol passes: whoever is to speak first speaks, and no TLS server ever does.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pond_policy::egress::{Denial, DenialCode, Destination, Host, Port};
use pond_wire::gateway::{Close, Door};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::gateway::Gateway;
use crate::passage::Passage;

/// Within this time one of the two sides speaks.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// A connection to whom the client meant; `None` when there is none, and everything about that is said.
pub(crate) async fn open(gateway: Arc<Gateway>, stream: TcpStream) -> Option<(Client, Passage)> {
    let destination = dialled(&gateway, &stream)?;
    let mut client = Client::new(stream);
    let opening = Passage::open(&gateway, Door::Any, &destination);
    match client.unless_gone(opening).await {
        Some(Ok(passage)) => return begin(&gateway, client, passage).await,
        Some(Err(denial)) => refuse(&gateway, client, &denial).await,
        None => gateway.left(Door::Any, &destination),
    }
    None
}

/// What the client meant by the address it dialled.
fn dialled(gateway: &Gateway, stream: &TcpStream) -> Option<Destination> {
    let address = stream.local_addr().ok()?;
    let named = match address.ip() {
        IpAddr::V4(v4) => gateway.aliases.name(v4),
        IpAddr::V6(_) => None,
    };
    let host = named.map_or_else(|| Host::Literal(address.ip().to_string()), Host::Name);
    Some(Destination { host, port: Port::new(address.port())? })
}

/// Checks what the connection begins with.
async fn begin(gateway: &Gateway, mut client: Client, passage: Passage) -> Option<(Client, Passage)> {
    let spoken = passage.while_covered(pin!(first_word(&mut client, &passage))).await;
    let close = match spoken {
        Ok(FirstWord::Acceptable) => return Some((client, passage)),
        Ok(FirstWord::ClientLeft) => Close::ClientReset,
        Ok(FirstWord::Refused(denial)) => {
            refuse(gateway, client, &denial).await;
            Close::Refused
        }
        Err(revoked) => {
            passage.cut(revoked).await;
            return None;
        }
    };
    passage.end(close).await;
    None
}

enum FirstWord {
    Acceptable,
    ClientLeft,
    Refused(Denial),
}

/// Waits until one side speaks, and looks at what a client says first.
async fn first_word(client: &mut Client, passage: &Passage) -> FirstWord {
    let target = passage.destination().to_string();
    let spoken = async {
        tokio::select! {
            biased;
            speaks = client.speaks() => Some(speaks),
            () = passage.answers_first() => None,
        }
    };
    match tokio::time::timeout(FIRST_WORD, spoken).await {
        Ok(None) => FirstWord::Acceptable,
        Ok(Some(false)) => FirstWord::ClientLeft,
        Ok(Some(true)) if !client.begins_tls() => FirstWord::Acceptable,
        Ok(Some(true)) => match client.hello().await {
            Ok(name) if passage.destination().host == Host::Name(name.clone()) => FirstWord::Acceptable,
            Ok(name) => {
                let hint = format!(
                    "the connection was made to another host than {name}; look {name} up and connect to that"
                );
                FirstWord::Refused(Denial::at_door(DenialCode::SniMismatch, &target, hint))
            }
            Err(fault) => fault.denial(&target).map_or(FirstWord::ClientLeft, FirstWord::Refused),
        },
        Err(_) => {
            let hint = "neither side said anything";
            FirstWord::Refused(Denial::at_door(DenialCode::HelloTimeout, &target, hint))
        }
    }
}

/// Records the refusal; a client that speaks TLS is told as well.
async fn refuse(gateway: &Gateway, client: Client, denial: &Denial) {
    gateway.refused(Door::Any, denial);
    if client.begins_tls() {
        client.alert().await;
    }
}
