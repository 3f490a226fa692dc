//! The broker's place in the gateway: its door, its way to the upstream through the same lookup, judgement and dial as
//! every tunnel, and its records in the same book.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use pond_policy::egress::{Denial, DenialCode, Permit, Pinned};
use pond_policy::model::UpstreamHost;
use pond_wire::gateway::{ModelCall, ModelOutcome, broker as wire};
use tokio::net::TcpStream;

use crate::broker::{Broker, BrokerFault, Connect, DialFault, Key, Outcome, Record, Report, Target};
use crate::dial;
use crate::gateway::Gateway;

/// Gives the gateway its broker, which in turn reaches out through the gateway: one of the two must not hold the other.
pub(crate) fn install(
    gateway: &Arc<Gateway>,
    order: &wire::Broker,
    keys: Vec<Key>,
) -> Result<(), BrokerFault> {
    let from = Arc::downgrade(gateway);
    let connect: Connect = Arc::new(move |target| Box::pin(connect(from.clone(), target)));
    let book = gateway.ledger.clone();
    let report: Report = Arc::new(move |record| book.model(told(book.job(), record)));
    let mut broker = Broker::new(order, keys, &connect, report)?;
    if order.lent {
        let book = gateway.ledger.clone();
        broker = broker.lent_by(Arc::new(move |short| book.short(short.least.0, short.most.0)));
    }
    // It is set here and nowhere else, so it cannot have been set before.
    gateway.broker.get_or_init(|| broker);
    Ok(())
}

/// One client of the broker, to its end.
pub(crate) async fn serve(gateway: Arc<Gateway>, stream: TcpStream) {
    if let Some(broker) = gateway.broker.get() {
        broker.serve(stream).await;
    }
}

async fn connect(gateway: Weak<Gateway>, target: Target) -> Result<TcpStream, DialFault> {
    let gateway = gateway.upgrade().ok_or(DialFault::Late)?;
    let refused = |denial: Denial| {
        let unresolved = denial.code() == DenialCode::DnsFailed;
        if unresolved { DialFault::Dns } else { DialFault::Denied(denial.to_string()) }
    };
    let private = target.private;
    let pinned = pin(&gateway, target).await.map_err(refused)?;
    match dial::dial(&pinned).await {
        Ok((stream, address)) => {
            if !private && dial::is_to_itself(&stream, address).map_err(DialFault::Failed)? {
                return Err(DialFault::Denied("the upstream is this machine".to_owned()));
            }
            Ok(stream)
        }
        Err(dial::DialFault::Timeout) => Err(DialFault::Late),
        Err(dial::DialFault::Refused) => Err(DialFault::Failed(std::io::ErrorKind::ConnectionRefused.into())),
    }
}

async fn pin(gateway: &Gateway, target: Target) -> Result<Pinned, Denial> {
    let (permit, addresses): (Permit, Arc<[IpAddr]>) = match target.host {
        // The order is checked to hold an address only for a private upstream.
        UpstreamHost::Address(address) => (Permit::for_model_at(address, target.port), Arc::from([address])),
        UpstreamHost::Name(name) => {
            let permit = Permit::for_model(name, target.port);
            let addresses = gateway.resolver.lookup(&permit).await?;
            (permit, addresses)
        }
    };
    if target.private {
        return permit.pin_private(&addresses);
    }
    gateway.pin_to(permit, &addresses).await
}

fn told(job: &str, record: &Record) -> ModelCall {
    let usage = record.usage;
    ModelCall {
        job: job.to_owned(),
        model: record.model.clone(),
        call: record.call.map(|call| call.name().to_owned()),
        status: record.status,
        outcome: match record.outcome {
            Outcome::Refused(code) => ModelOutcome::Refused(code.to_owned()),
            Outcome::Served => ModelOutcome::Served,
            Outcome::Failed(code) => ModelOutcome::Failed(code.to_owned()),
            Outcome::Cut => ModelOutcome::Cut,
            Outcome::ClientLeft => ModelOutcome::ClientLeft,
        },
        reason: record.reason.clone(),
        input_tokens: usage.input.saturating_add(usage.cache_write_5m).saturating_add(usage.cache_write_1h),
        cached_tokens: usage.cache_read,
        output_tokens: usage.output,
        cost_microcents: record.cost.0,
        estimated: record.estimated,
    }
}
