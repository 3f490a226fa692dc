//! A job's gateway, started and listened to as `pond run` does it; only its door is made here and not inside a sandbox.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use anyhow::Result;
use pond_wire::gateway::{Caps, Identity, Order, Reach};
use pond_wire::jail::Door;
use pond_worker::gateway::Gateway;

use super::world::{DNS, HOSTS};

/// Room for whatever is measured.
const CAPS: Caps = Caps {
    tunnels: 20_000,
    tunnel_bytes: 1 << 50,
    total_bytes: 1 << 50,
    idle_seconds: 600,
    lifetime_seconds: 3600,
};
/// No person and no job has this id.
const IDENTITY: Identity = Identity { uid: 0x6F00_0000, gid: 0x6F00_0000 };

/// Serves the proxy's door until the input ends.
pub(crate) fn serve(pond: &str, port: u16) -> Result<()> {
    let allow = HOSTS.iter().map(|host| host.name.to_owned()).collect();
    let order = Order {
        job: "bench".to_owned(),
        reach: Reach::Allowlist { allow, deny: Vec::new() },
        resolvers: vec![SocketAddr::new(DNS.parse()?, 53)],
        nat64: None,
        caps: CAPS,
        broker: None,
        identity: Some(IDENTITY),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let gateway = std::sync::Arc::new(Gateway::start(Path::new(pond), &order, &[])?);
    gateway.serve(&[Door::Proxy], vec![listener.into()])?;
    let heard = std::sync::Arc::clone(&gateway);
    std::thread::spawn(move || while let Ok(Some(_event)) = heard.listen() {});
    super::answer(|_| Ok(vec![0]))?;
    Ok(gateway.finish()?)
}
