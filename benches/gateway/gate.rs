//! A job's gateway, started and listened to as `pond run` does it; only its doors are made here and not inside a sandbox.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use pond_wire::gateway::broker::{Broker, Model, Price, PricedId, Rates};
use pond_wire::gateway::{Caps, Identity, Order, Reach};
use pond_wire::jail::Door;
use pond_worker::gateway::Gateway;

use super::model;
use super::world::{DNS, HOSTS, MODEL};

/// Room for whatever is measured.
const CAPS: Caps = Caps {
    tunnels: 20_000,
    tunnel_bytes: 1 << 50,
    total_bytes: 1 << 50,
    lent_bytes: None,
    idle_seconds: 600,
    lifetime_seconds: 3600,
};
/// No person and no job has this id.
const IDENTITY: Identity = Identity { uid: 0x6F00_0000, gid: 0x6F00_0000 };

/// The real key, as far as this world has one.
const KEY: &[u8] = b"sk-ant-api03-the-real-key-of-this-world";
const RATES: Rates = Rates { input: 1, cache_read: 1, cache_write_5m: 1, cache_write_1h: 1, output: 1 };

/// Serves the doors of the proxy and the broker, on these ports, until the input ends.
pub(crate) fn serve(certificates: &Path, pond: &Path, ports: [u16; 2]) -> Result<()> {
    let allow = HOSTS.iter().map(|host| host.name.to_owned()).collect();
    let order = Order {
        job: "bench".to_owned(),
        reach: Reach::Allowlist { allow, deny: Vec::new() },
        resolvers: vec![SocketAddr::new(DNS.parse()?, 53)],
        nat64: None,
        caps: CAPS,
        git: Vec::new(),
        broker: Some(broker(std::fs::read_to_string(certificates.join("ca.pem"))?)),
        identity: Some(IDENTITY),
    };
    let listeners = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(OwnedFd::from));
    let listeners = listeners.into_iter().collect::<std::io::Result<_>>()?;
    let (key, mut writer) = std::io::pipe()?;
    writer.write_all(KEY)?;
    drop(writer);
    let gateway = Arc::new(Gateway::start(pond, &order, &[key.as_fd()])?);
    gateway.serve(&[Door::Proxy, Door::Broker], listeners)?;
    let heard = Arc::clone(&gateway);
    std::thread::spawn(move || while let Ok(Some(_event)) = heard.listen() {});
    super::answer(|_| Ok(vec![0]))?;
    Ok(gateway.finish()?)
}

/// One model that may be asked for as long as the bench lasts.
fn broker(ca_pem: String) -> Broker {
    let price = Price { rates: RATES, long: None, max_input: 1 << 20, max_output: 1 << 20 };
    let model = Model {
        name: "bench".to_owned(),
        api: "anthropic".to_owned(),
        upstream: format!("https://{}", MODEL.name),
        upstream_private: false,
        ca_pem: Some(ca_pem),
        auth: "x-api-key".to_owned(),
        ids: vec![PricedId { id: model::ID.to_owned(), price }],
        provider_tools: false,
        dummy_key: model::DUMMY_KEY.to_owned(),
    };
    Broker { models: vec![model], ceiling_microcents: 1 << 60, lent: false, body_bytes: 1 << 20 }
}
