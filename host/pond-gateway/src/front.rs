//! The transparent door: clients that ignore proxy settings connect to what the responder told them, and their TLS hello
//! says whom they meant. Zone: host, reading hostile bytes. Invariant: the name is judged with the port the client dialled,
//! and the bytes it sent reach the destination unchanged and only after the verdict. A request in clear text gets a refusal.

use std::sync::Arc;

use pond_policy::egress::{Denial, Destination, Host, Port};
use pond_wire::gateway::Door;
use tokio::net::TcpStream;

use crate::client::{Client, NoHello};
use crate::gateway::Gateway;
use crate::passage::Passage;

/// A tunnel to the host the client's hello names; `None` when there is none, and everything about that is said.
pub(crate) async fn open(gateway: Arc<Gateway>, stream: TcpStream) -> Option<(Client, Passage)> {
    let port = stream.local_addr().ok().and_then(|address| Port::new(address.port()))?;
    let mut client = Client::new(stream);
    let host = match client.hello().await {
        Ok(name) => Host::Name(name),
        Err(fault) => {
            no_hello(&gateway, client, &fault, &format!("unnamed:{port}")).await;
            return None;
        }
    };
    let destination = Destination { host, port };
    let opening = Passage::open(&gateway, Door::Tls, &destination);
    match client.unless_gone(opening).await {
        Some(Ok(passage)) => return Some((client, passage)),
        Some(Err(denial)) => refuse(&gateway, client, &denial).await,
        None => gateway.left(Door::Tls, &destination),
    }
    None
}

/// Refuses a client that did not begin with a hello, in the words of its own protocol where that is HTTP.
async fn no_hello(gateway: &Gateway, mut client: Client, fault: &NoHello, target: &str) {
    if let Some(denial) = client.clear_text(target).await {
        gateway.refused(Door::Tls, &denial);
        client.answer(&denial).await;
    } else if let Some(denial) = fault.denial(target) {
        refuse(gateway, client, &denial).await;
    }
}

async fn refuse(gateway: &Gateway, client: Client, denial: &Denial) {
    gateway.refused(Door::Tls, denial);
    client.alert().await;
}
