//! From a head to a request that may be sent: route, authenticate, frame, read, inspect, price, reserve. Each step can
//! only refuse; nothing is dialled before all have passed.

use http::{HeaderValue, Request};
use http_body_util::Full;
use hyper::body::Bytes;
use pond_policy::model::{Api, Microcents, Price, Usage};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::SemaphorePermit;

use super::Broker;
use super::count::count;
use super::denied::{Denied, Dialect};
use super::headers::to_upstream;
use super::inspect::{Inspected, OutputLimit, inspect};
use super::ledger::{Exhausted, Reservation};
use super::lender::Short;
use super::record::Record;
use super::route::{Call, Route, route};
use super::served::Served;
use crate::http::{Framing, RequestHead, Version, framing, read_body};

/// Output that makes a call worth sending when the broker chooses the limit.
const LEAST_OUTPUT: u64 = 256;
/// Tokens that a provider adds to a prompt on its own account, for tools above all.
const PROVIDER_TOKENS: u64 = 2000;

/// A smaller prompt is not worth a question to the provider.
const WORTH_COUNTING: u64 = 10_000;

/// A request that is paid for and may go.
pub(super) struct Admitted<'b> {
    pub(super) served: &'b Served,
    pub(super) call: Call,
    pub(super) request: Request<Full<Bytes>>,
    pub(super) bill: Option<Bill>,
    pub(super) hides_usage: bool,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    /// The memory the body counts for, until it is sent.
    pub(super) room: Option<SemaphorePermit<'b>>,
}

/// Money set aside, and how to count it.
pub(super) struct Bill {
    pub(super) reservation: Reservation,
    pub(super) price: Price,
    pub(super) hides_output: bool,
}

/// A refusal, with what is known of whom it is told to.
pub(super) struct Turned<'b> {
    pub(super) denied: Denied,
    pub(super) dialect: Dialect,
    pub(super) served: Option<&'b Served>,
    pub(super) call: Option<Call>,
}

/// A head that belongs to a model.
struct Addressed<'b> {
    served: &'b Served,
    route: Route,
    framing: Framing,
}

impl Broker {
    /// Reads and judges one request. `None`: the client is gone.
    pub(super) async fn admit<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        buffer: &mut Vec<u8>,
        head: &RequestHead,
    ) -> Option<Result<Admitted<'_>, Turned<'_>>> {
        let addressed = match self.address(head) {
            Ok(addressed) => addressed,
            Err(turned) => return Some(Err(turned)),
        };
        let turn = |denied: Denied| Turned {
            dialect: Dialect::of_call(addressed.route.call, addressed.served.api),
            served: Some(addressed.served),
            call: Some(addressed.route.call),
            denied,
        };
        let room = self.room(addressed.framing).await?;
        if head.headers.lists("expect", "100-continue") && addressed.framing != Framing::Empty {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
        }
        let body = match read_body(stream, buffer, addressed.framing, self.body_bytes).await {
            Ok(body) => body,
            Err(fault) => {
                let denied = Denied::new(fault.status()?, fault.code(), &fault);
                return Some(Err(turn(denied)));
            }
        };
        let prepared = self.prepare(head, &addressed, body, room).await;
        Some(prepared.map_err(turn))
    }

    fn address(&self, head: &RequestHead) -> Result<Addressed<'_>, Turned<'_>> {
        let unknown = Dialect::of_api(self.models.first().map_or(Api::Anthropic, |model| model.api));
        let early = |denied| Turned { denied, dialect: unknown, served: None, call: None };
        if head.headers.has("upgrade") || head.headers.has("http2-settings") {
            let denied =
                Denied::new(403, "upgrade_refused", "the broker speaks plain HTTP/1.1 and no WebSocket");
            return Err(early(denied));
        }
        let route = route(&head.method, &head.target)
            .map_err(|fault| early(Denied::new(fault.status(), fault.code(), fault)))?;
        let known = |denied, served: Option<&Served>| {
            let api = served.map_or(Api::Anthropic, |served| served.api);
            (denied, Dialect::of_call(route.call, api))
        };
        let Some(served) = self.authenticate(head, &route) else {
            let denied =
                Denied::new(401, "unknown_key", "the key is not this job's; use the one in the environment");
            let (denied, dialect) = known(denied, None);
            return Err(Turned { denied, dialect, served: None, call: Some(route.call) });
        };
        match check(head, &route, served) {
            Ok(framing) => Ok(Addressed { served, route, framing }),
            Err(denied) => {
                let (denied, dialect) = known(denied, Some(served));
                Err(Turned { denied, dialect, served: Some(served), call: Some(route.call) })
            }
        }
    }

    /// The model whose dummy key the client presents, in whichever place its API has for one.
    fn authenticate(&self, head: &RequestHead, route: &Route) -> Option<&Served> {
        let bearer = head.headers.all("authorization").filter_map(|value| value.strip_prefix(b"Bearer "));
        let plain =
            ["x-api-key", "x-goog-api-key", "api-key"].into_iter().flat_map(|name| head.headers.all(name));
        let query = route.query_key.as_deref().map(str::as_bytes);
        let presented: Vec<&[u8]> = bearer.chain(plain).chain(query).take(8).collect();
        self.models.iter().find(|model| presented.iter().any(|key| model.is_dummy(key)))
    }

    async fn prepare<'b>(
        &'b self,
        head: &RequestHead,
        addressed: &Addressed<'b>,
        body: Vec<u8>,
        room: SemaphorePermit<'b>,
    ) -> Result<Admitted<'b>, Denied> {
        let Addressed { served, route, .. } = addressed;
        if !route.call.is_billed() && !self.pace.allows() {
            let mut denied =
                Denied::new(429, "too_many_free_calls", "free calls are limited to one a second");
            denied.retry_after = Some(1);
            return Err(denied);
        }
        let mut admitted = Admitted {
            served,
            call: route.call,
            request: request(head, served, route)?,
            bill: None,
            hides_usage: false,
            version: head.version,
            keep_alive: head.version == Version::Http11 && !head.headers.lists("connection", "close"),
            room: Some(room),
        };
        if route.call != Call::Models {
            self.pay(route, body, &mut admitted).await?;
        }
        Ok(admitted)
    }

    /// Judges the body, sets money aside for it, and gives the request its final body.
    async fn pay(&self, route: &Route, body: Vec<u8>, admitted: &mut Admitted<'_>) -> Result<(), Denied> {
        let served = admitted.served;
        let inspected = inspect(served.api, route, body, served.provider_tools)
            .map_err(|fault| Denied::new(fault.status(), fault.code(), &fault))?;
        let Some(price) = served.price(&inspected.model) else {
            let message = "the model is not one of this job's; ask for the one in the environment";
            return Err(Denied::new(403, "model_not_allowed", message));
        };
        if !route.call.is_billed() {
            *admitted.request.body_mut() = Full::new(Bytes::from(inspected.body));
            return Ok(());
        }
        let bound = input_bound(&inspected, &price, served.provider_tools);
        // A count knows nothing of what the provider's tools will add.
        let countable = bound >= WORTH_COUNTING && !served.provider_tools;
        let (reservation, limit) = match self.reserve(&inspected, &price, bound) {
            Ok(reserved) if self.lender.is_none() => reserved,
            // Less than the call could use: there may be more.
            Ok((reservation, limit)) if limit < self.most_output(&inspected, &price) => {
                reservation.settle(Microcents(0));
                self.borrow(&inspected, &price, bound).await.map_err(Denied::over_budget)?
            }
            Ok(reserved) => reserved,
            Err(_) => {
                let counted = match countable && self.pace.allows() {
                    true => self.counted(&inspected, admitted).await,
                    false => None,
                };
                let input = counted.map_or(bound, |input| input.min(bound));
                self.borrow(&inspected, &price, input).await.map_err(Denied::over_budget)?
            }
        };
        admitted.hides_usage = inspected.hides_usage;
        admitted.bill = Some(Bill { reservation, price, hides_output: inspected.hides_output });
        *admitted.request.body_mut() = Full::new(Bytes::from(inspected.limited(limit)));
        Ok(())
    }

    /// The size of the prompt by the provider's own count. The question is told like every other request that is sent.
    async fn counted(&self, inspected: &Inspected, admitted: &Admitted<'_>) -> Option<u64> {
        let counted = count(admitted.served, admitted.call, inspected, &admitted.request).await?;
        self.tell(&Record {
            model: Some(admitted.served.name.clone()),
            call: Some(Call::Count),
            status: counted.status,
            outcome: counted.outcome,
            reason: None,
            usage: Usage::default(),
            cost: Microcents(0),
            estimated: false,
        });
        counted.tokens
    }

    /// The same, after asking for a higher ceiling where there may be one.
    async fn borrow(
        &self,
        inspected: &Inspected,
        price: &Price,
        input: u64,
    ) -> Result<(Reservation, u64), Exhausted> {
        let Some(lender) = &self.lender else { return self.reserve(inspected, price, input) };
        let turn = lender.turn().await;
        let cost = |output: u64| price.most(input, output.saturating_mul(inspected.answers));
        let most = self.most_output(inspected, price);
        let least = match inspected.output {
            OutputLimit::Given(_) | OutputLimit::Unlimited => most,
            OutputLimit::Open(_) => LEAST_OUTPUT.min(most),
        };
        let standing = self.ledger.standing();
        let taken = standing.spent.plus(standing.reserved);
        if standing.free() < cost(most) {
            lender.ask(Short { least: taken.plus(cost(least)), most: taken.plus(cost(most)) }).await;
        }
        let reserved = self.reserve(inspected, price, input);
        drop(turn);
        reserved
    }

    /// The longest answer the call may get.
    fn most_output(&self, inspected: &Inspected, price: &Price) -> u64 {
        match inspected.output {
            OutputLimit::Given(most) => most.min(price.max_output),
            OutputLimit::Unlimited | OutputLimit::Open(_) => price.max_output,
        }
    }

    /// Sets aside the most the request can cost; where the client left the length open, as much of it as is affordable.
    fn reserve(
        &self,
        inspected: &Inspected,
        price: &Price,
        input: u64,
    ) -> Result<(Reservation, u64), Exhausted> {
        let cost = |output: u64| price.most(input, output.saturating_mul(inspected.answers));
        let whole = |output: u64| Ok((self.ledger.reserve(cost(output))?, output));
        match inspected.output {
            OutputLimit::Given(most) => whole(most.min(price.max_output)),
            OutputLimit::Unlimited => whole(price.max_output),
            OutputLimit::Open(_) => {
                let least = LEAST_OUTPUT.min(price.max_output);
                let mut held = self.ledger.reserve_within(cost(least), cost(price.max_output))?;
                let affordable = price.affordable_output(held.held(), input) / inspected.answers;
                let output = affordable.max(least);
                held.shrink_to(cost(output));
                Ok((held, output))
            }
        }
    }
}

/// The most tokens the provider can count in this request. No token is shorter than a byte; but pictures are counted by
/// their size and documents by their pages, which a few bytes can make large, and what the provider's own tools find is
/// input as well.
fn input_bound(inspected: &Inspected, price: &Price, provider_tools: bool) -> u64 {
    if inspected.holds_media || provider_tools {
        return price.max_input;
    }
    let bytes = u64::try_from(inspected.body.len()).unwrap_or(u64::MAX);
    bytes.saturating_add(PROVIDER_TOKENS).min(price.max_input)
}

/// What can be said of a head before its body is read.
fn check(head: &RequestHead, route: &Route, served: &Served) -> Result<Framing, Denied> {
    if !route.call.belongs_to(served.api) {
        return Err(Denied::new(403, "path_not_allowed", "this key's model does not serve this path"));
    }
    let framing = framing(head).map_err(|fault| Denied::new(400, "body_framing", fault))?;
    if route.call == Call::Models {
        return match framing {
            Framing::Empty | Framing::Length(0) => Ok(Framing::Empty),
            Framing::Length(_) | Framing::Chunked => {
                Err(Denied::new(400, "body_unexpected", "a GET request carries no body"))
            }
        };
    }
    if head.headers.all("content-encoding").any(|coding| coding != b"identity") {
        return Err(Denied::new(415, "body_encoded", "send the body without a content encoding"));
    }
    let kind = head.headers.one("content-type").ok().flatten().unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !kind.eq_ignore_ascii_case(b"application/json") {
        return Err(Denied::new(415, "body_not_json", "send the body as application/json"));
    }
    Ok(framing)
}

/// The request as it goes upstream: listed fields of the client, then the broker's own.
fn request(head: &RequestHead, served: &Served, route: &Route) -> Result<Request<Full<Bytes>>, Denied> {
    let method = if route.call == Call::Models { http::Method::GET } else { http::Method::POST };
    let uri = format!("{}{}", served.prefix, route.target);
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.method_mut() = method;
    *request.uri_mut() =
        uri.parse().map_err(|_| Denied::new(400, "target_form", "the path cannot be sent"))?;
    *request.headers_mut() = to_upstream(&head.headers);
    let headers = request.headers_mut();
    headers.insert(http::header::HOST, served.host.clone());
    // Compressed answers could not be metered.
    headers.insert(http::header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if route.call != Call::Models {
        // The body was judged as UTF-8; under another charset of the client's the same bytes would say something else.
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let (name, value) = &served.auth;
    headers.insert(*name, value.clone());
    Ok(request)
}
