//! The transparent door: clients that ignore proxy settings connect to what the responder told them, and their TLS hello
//! says whom they meant. Zone: host, reading hostile bytes. Invariant: the name is judged with the port the client dialled,
//! and the bytes it sent reach the destination unchanged and only after the verdict.

use std::sync::Arc;

use pond_policy::egress::{Denial, Destination, Host, Port};
use pond_wire::gateway::Door;
use tokio::net::TcpStream;

use crate::client::Client;
use crate::gateway::Gateway;
use crate::passage::Passage;

/// Serves one connection to the end.
pub(crate) async fn serve(gateway: Arc<Gateway>, stream: TcpStream) {
    let Some(port) = stream.local_addr().ok().and_then(|address| Port::new(address.port())) else { return };
    let mut client = Client::new(stream);
    let host = match client.hello().await {
        Ok(name) => Host::Name(name),
        Err(fault) => {
            if let Some(denial) = fault.denial(&format!("unnamed:{port}")) {
                refuse(&gateway, client, &denial).await;
            }
            return;
        }
    };
    let destination = Destination { host, port };
    let opening = Passage::open(&gateway, Door::Tls, &destination);
    match client.unless_gone(opening).await {
        None => gateway.left(Door::Tls, &destination),
        Some(Ok(passage)) => Box::pin(passage.carry(client.stream, client.early)).await,
        Some(Err(denial)) => refuse(&gateway, client, &denial).await,
    }
}

async fn refuse(gateway: &Gateway, client: Client, denial: &Denial) {
    gateway.refused(Door::Tls, denial);
    client.alert().await;
}
