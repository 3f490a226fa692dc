//! The door of the internet posture: every connection of the job to an address outside loopback. The address says whom it
//! is for. Zone: host, reading hostile bytes.
//!
//! Invariants: an address that stands for no name is refused, public or not; a client that begins with TLS names the host
//! it dialled, as at every door. Another protocol passes: whoever is to speak first speaks, and no TLS server ever does.

use std::net::IpAddr;
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

/// Serves one connection to the end.
pub(crate) async fn serve(gateway: Arc<Gateway>, stream: TcpStream) {
    let Some(destination) = dialled(&gateway, &stream) else { return };
    let mut client = Client::new(stream);
    let opening = Passage::open(&gateway, Door::Any, &destination);
    match client.unless_gone(opening).await {
        None => gateway.left(Door::Any, &destination),
        Some(Ok(passage)) => Box::pin(carry(&gateway, client, passage)).await,
        Some(Err(denial)) => refuse(&gateway, client, &denial).await,
    }
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

async fn carry(gateway: &Gateway, mut client: Client, passage: Passage) {
    let spoken = match passage.while_covered(first_word(&mut client, &passage)).await {
        Ok(spoken) => spoken,
        Err(revoked) => return passage.cut(revoked).await,
    };
    match spoken {
        FirstWord::Acceptable => Box::pin(passage.carry(client.stream, client.early)).await,
        FirstWord::ClientLeft => passage.end(Close::ClientReset).await,
        FirstWord::Refused(denial) => {
            refuse(gateway, client, &denial).await;
            passage.end(Close::Refused).await;
        }
    }
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
