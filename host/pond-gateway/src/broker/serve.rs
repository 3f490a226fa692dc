//! One client connection: requests one after another, each admitted, sent, relayed, settled and recorded.

use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use pond_policy::model::{Microcents, Usage};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Broker;
use super::admit::{Admitted, Bill, Turned};
use super::denied::{Denied, Dialect};
use super::meter::{Meter, Reading};
use super::record::{Outcome, Record};
use super::relay::{Relay, client_left, is_encoded, shape};
use super::route::Call;
use crate::http::{Refusal, await_byte, read_head, refuse};

/// A connection without a request is given up after this.
const IDLE: Duration = Duration::from_secs(300);

/// Whether the connection serves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

impl Broker {
    /// Serves one connection to its end. The caller has set TCP_NODELAY on it.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        let Ok(_seat) = self.seats.try_acquire() else {
            let refusal =
                Refusal::new(429, "too_many_connections", "pond: too many connections to the broker");
            self.tell(&Record::refused(None, None, refusal.status, (refusal.code, words(&refusal))));
            return send(&mut stream, &refusal.with_header("Retry-After", "1")).await;
        };
        let mut buffer = Vec::new();
        while await_byte(&mut stream, &mut buffer, IDLE).await {
            if self.exchange(&mut stream, &mut buffer).await == Next::Close {
                return;
            }
        }
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        buffer: &mut Vec<u8>,
    ) -> Next {
        let head = match read_head(stream, buffer).await {
            Ok(head) => head,
            Err(fault) => {
                if let Some(refusal) = Refusal::of_head(&fault) {
                    self.tell(&Record::refused(None, None, refusal.status, (refusal.code, words(&refusal))));
                    send(stream, &refusal).await;
                }
                return Next::Close;
            }
        };
        match self.admit(stream, buffer, &head).await {
            None => Next::Close,
            Some(Err(turned)) => {
                self.turn_away(stream, &turned).await;
                Next::Close
            }
            Some(Ok(admitted)) => self.forward(stream, buffer, admitted).await,
        }
    }

    async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut S, turned: &Turned<'_>) {
        let Turned { denied, dialect, served, call } = turned;
        let model = served.map(|served| served.name.clone());
        self.tell(&Record::refused(model, *call, denied.status, (denied.code, &denied.message)));
        send(stream, &denied.response(*dialect)).await;
    }

    async fn forward<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        buffer: &mut Vec<u8>,
        mut admitted: Admitted<'_>,
    ) -> Next {
        let served = admitted.served;
        let request = std::mem::take(&mut admitted.request);
        let sent = tokio::select! {
            sent = served.upstream.send(request) => sent,
            () = client_left(stream, buffer) => {
                self.settle(&mut admitted, &Ended::new(0, Outcome::ClientLeft, None));
                return Next::Close;
            }
        };
        // The body has gone; others may have its room.
        admitted.room = None;
        let (response, lease) = match sent {
            Ok(sent) => sent,
            Err(fault) => {
                let denied = Denied::new(fault.status(), fault.code(), &fault);
                let reading = if fault.may_be_billed() { None } else { Some(free()) };
                return self.fail(stream, admitted, &denied, reading).await;
            }
        };
        if response.status().is_redirection() || response.status().is_informational() {
            let denied = Denied::new(502, "upstream_redirect", "the model answered with a redirect");
            return self.fail(stream, admitted, &denied, Some(free())).await;
        }
        if is_encoded(response.headers()) {
            let denied = Denied::new(502, "upstream_encoded", "the model's answer is encoded, unasked");
            return self.fail(stream, admitted, &denied, None).await;
        }
        let ended = pass_on(stream, buffer, &mut admitted, response).await;
        self.settle(&mut admitted, &ended);
        if ended.outcome != Outcome::Served {
            return Next::Close;
        }
        lease.done();
        if admitted.keep_alive { Next::Request } else { Next::Close }
    }

    /// The upstream gave nothing that could be passed on.
    async fn fail<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        mut admitted: Admitted<'_>,
        denied: &Denied,
        reading: Option<Reading>,
    ) -> Next {
        let ended = Ended::new(denied.status, Outcome::Failed(denied.code), reading);
        self.settle(&mut admitted, &Ended { reason: Some(denied.message.clone()), ..ended });
        send(stream, &denied.response(Dialect::of_call(admitted.call, admitted.served.api))).await;
        Next::Close
    }

    fn settle(&self, admitted: &mut Admitted<'_>, ended: &Ended) {
        let usage = ended.reading.map(|reading| reading.usage).unwrap_or_default();
        let (cost, estimated) = admitted.bill.take().map_or((Microcents(0), false), |bill| ended.pay(bill));
        self.tell(&Record {
            model: Some(admitted.served.name.clone()),
            call: Some(admitted.call),
            status: ended.status,
            outcome: ended.outcome,
            reason: ended.reason.clone(),
            usage,
            cost,
            estimated,
        });
    }

    pub(super) fn tell(&self, record: &Record) {
        (self.report)(record);
    }
}

/// The end of a request that was sent, or nearly.
struct Ended {
    status: u16,
    outcome: Outcome,
    /// What was read of the answer; none where there was none and the provider may still charge.
    reading: Option<Reading>,
    /// What is known of a failure.
    reason: Option<String>,
}

impl Ended {
    const fn new(status: u16, outcome: Outcome, reading: Option<Reading>) -> Self {
        Self { status, outcome, reading, reason: None }
    }

    /// Settles a bill; the cost, and whether it is the broker's bound rather than the provider's report.
    fn pay(&self, bill: Bill) -> (Microcents, bool) {
        let Bill { reservation, price, hides_output } = bill;
        let reserved = reservation.held();
        let (cost, estimated) = match &self.reading {
            None => (reserved, true),
            Some(reading) => {
                let reading =
                    Reading { complete: reading.complete && self.outcome != Outcome::Cut, ..*reading };
                let cost = reading.charge(&price, reserved, hides_output);
                (cost, cost != price.cost(&reading.usage))
            }
        };
        reservation.settle(cost);
        (cost, estimated)
    }
}

/// Relays an answer. What is not a success is not billed.
async fn pass_on<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
    admitted: &mut Admitted<'_>,
    response: Response<Incoming>,
) -> Ended {
    let Admitted { served, call, bill, hides_usage, version, keep_alive, .. } = admitted;
    let dialect = Dialect::of_call(*call, served.api);
    let (version, keep_alive, hides_usage) = (*version, *keep_alive, *hides_usage);
    let mut relay = Relay { stream, buffer, key: &served.key, dialect, version, keep_alive, hides_usage };
    let status = response.status().as_u16();
    if !response.status().is_success() {
        return Ended::new(status, relay.error(response).await, Some(free()));
    }
    let mut meter = Meter::new(*call, shape(&response));
    let outcome = relay.success(response, bill, &mut meter).await;
    let mut reading = meter.finish();
    // Gemini has no last word: one of several candidates may say that it is done, and only the end of the body says that all are.
    let says_when_it_ends = !matches!(call, Call::Generate { .. });
    reading.complete &= says_when_it_ends || outcome == Outcome::Served;
    Ended::new(status, outcome, Some(reading))
}

/// The reading of a call that the provider does not charge for.
fn free() -> Reading {
    let usage = Usage::default();
    Reading { usage, saw_input: true, saw_output: true, complete: true, ..Reading::default() }
}

/// What a refusal says, without saying who says it.
fn words(refusal: &Refusal) -> &str {
    refusal.phrase.strip_prefix("pond: ").unwrap_or(&refusal.phrase)
}

/// A client that does not take its refusal has lost nothing.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, refusal: &Refusal) {
    drop(refuse(stream, refusal).await);
}

#[cfg(test)]
mod tests {
    //! What is paid for a call that is over.
    use super::*;
    use crate::broker::ledger::Ledger;
    use pond_policy::model::built_in;

    #[test]
    fn c129_a_report_that_came_with_the_cut_is_not_believed_below_what_was_seen() {
        let price = built_in("claude-sonnet-4-5").unwrap();
        let usage = Usage { output: 1, ..Usage::default() };
        let (saw_input, saw_output, complete, output_bytes) = (true, true, true, 20_000);
        let reading = Reading { usage, saw_input, saw_output, complete, output_bytes, ..Reading::default() };
        let paid = |outcome| {
            let ledger = Ledger::new(Microcents::from_cents(100));
            let reservation = ledger.reserve(Microcents::from_cents(50)).unwrap();
            let bill = Bill { reservation, price, hides_output: false };
            let (cost, _) = Ended::new(200, outcome, Some(reading)).pay(bill);
            assert_eq!(ledger.standing().spent, cost);
            cost
        };
        assert_eq!(paid(Outcome::Served), price.cost(&usage));
        assert_eq!(paid(Outcome::Cut), price.cost(&Usage { output: output_bytes, ..usage }));
    }
}
