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

/// Serves one connection to the end.
pub(crate) async fn serve(gateway: Arc<Gateway>, stream: TcpStream) {
    let Some(port) = stream.local_addr().ok().and_then(|address| Port::new(address.port())) else { return };
    let mut client = Client::new(stream);
    let host = match client.hello().await {
        Ok(name) => Host::Name(name),
        Err(fault) => return no_hello(&gateway, client, &fault, &format!("unnamed:{port}")).await,
    };
    let destination = Destination { host, port };
    let opening = Passage::open(&gateway, Door::Tls, &destination);
    match client.unless_gone(opening).await {
        None => gateway.left(Door::Tls, &destination),
        Some(Ok(passage)) => Box::pin(passage.carry(client.stream, client.early)).await,
        Some(Err(denial)) => refuse(&gateway, client, &denial).await,
    }
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
