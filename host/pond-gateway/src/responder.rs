//! The name server's two sockets. Zone: host, reading hostile bytes. Invariants: one answer per query; only in the internet
//! posture does a query lead to another, and then under a permit; a connection holds at most one message, and a bounded
//! number of datagrams wait for their answer.

use std::sync::Arc;
use std::time::Duration;

use pond_policy::egress::{Denial, DenialCode};
use pond_wire::gateway::Door;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::dns::{self, Received};
use crate::gateway::Gateway;

/// Anything longer than the longest query we read is malformed whatever follows.
const MAX_PACKET: usize = 4096;
/// Datagrams that wait for an answer at the same time; further ones wait in the socket.
const WAITING: usize = 64;
const QUIET: Duration = Duration::from_secs(10);
/// What is recorded of a query without a name that could be judged.
const NO_NAME: &str = "dns query";

/// Answers datagrams for as long as the job lives.
pub(crate) async fn serve_udp(gateway: Arc<Gateway>, socket: UdpSocket) {
    let (socket, seats) = (Arc::new(socket), Arc::new(Semaphore::new(WAITING)));
    let mut packet = vec![0; MAX_PACKET];
    while let Ok(seat) = Arc::clone(&seats).acquire_owned().await {
        let Ok((length, from)) = socket.recv_from(&mut packet).await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let query = packet.get(..length).unwrap_or_default().to_vec();
        let (gateway, socket) = (Arc::clone(&gateway), Arc::clone(&socket));
        tokio::spawn(async move {
            if let Some(reply) = answer(&gateway, Door::DnsUdp, &query).await {
                // A client that is gone, or whose buffer is full, asks again if it still wants to know.
                drop(socket.send_to(&reply, from).await);
            }
            drop(seat);
        });
    }
}

/// Serves one connection until the client is quiet, leaves or says something that is not a query.
pub(crate) async fn serve_tcp(gateway: Arc<Gateway>, mut stream: TcpStream) {
    while let Ok(Some(reply)) = tokio::time::timeout(QUIET, exchange(&gateway, &mut stream)).await {
        match tokio::time::timeout(QUIET, stream.write_all(&reply)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Reads one query with its length before it and gives the answer in the same form.
async fn exchange(gateway: &Gateway, stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = usize::from(stream.read_u16().await.ok()?);
    if length > MAX_PACKET {
        let hint = "the query is longer than any question";
        gateway.refused(Door::DnsTcp, &Denial::at_door(DenialCode::RequestMalformed, NO_NAME, hint));
        return None;
    }
    let mut query = vec![0; length];
    stream.read_exact(&mut query).await.ok()?;
    let reply = answer(gateway, Door::DnsTcp, &query).await?;
    let length = u16::try_from(reply.len()).ok()?;
    Some(length.to_be_bytes().into_iter().chain(reply).collect())
}

async fn answer(gateway: &Gateway, door: Door, packet: &[u8]) -> Option<Vec<u8>> {
    let question = match dns::receive(packet) {
        Received::Drop => return None,
        Received::Answer(fault, reply) => {
            gateway.refused(door, &Denial::at_door(DenialCode::RequestMalformed, NO_NAME, fault.to_string()));
            return Some(reply);
        }
        Received::Ask(question) => question,
    };
    let verdict = match question.name() {
        Ok(name) => gateway.inside_address(name).await.map_err(|denial| denial.of_name(name)),
        Err(fault) => Err(Denial::at_door(DenialCode::HostMalformed, NO_NAME, fault.to_string())),
    };
    Some(match verdict {
        Ok(address) => question.found(address),
        Err(denial) => {
            gateway.refused(door, &denial);
            question.unknown()
        }
    })
}
