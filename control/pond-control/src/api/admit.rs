//! Who asks, and whether he may: rate, token, scope, reach, in this order, before anything else of a request is read.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use pond_policy::name::Project;
use pond_policy::scope::Scope;
use pond_seal::bearer::{Bearer, Kind};
use pond_wire::api::ProblemCode;

use super::Api;
use super::limit::{Key, Peer};
use super::problem::Refused;
use super::route::{Need, Reach, Route};
use crate::store::{Actor, ApiToken, TokenFault};

/// Who was let in.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) actor: Actor,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// On a route that is for everybody.
    Nothing,
    Token(ApiToken),
}

/// Who was turned away.
#[derive(Debug)]
pub(super) struct Turned {
    pub(super) actor: Actor,
    pub(super) why: Refused,
}

impl Caller {
    /// The one project its token is for.
    pub(super) fn project(&self) -> Option<&Project> {
        match &self.held {
            Held::Nothing => None,
            Held::Token(token) => token.project.as_ref(),
        }
    }

    /// Whether it may see and change what is this project's.
    pub(super) fn may(&self, project: &Project) -> bool {
        match &self.held {
            Held::Nothing => false,
            Held::Token(token) => token.project.as_ref().is_none_or(|own| own == project),
        }
    }

    pub(super) fn scopes(&self) -> &[Scope] {
        match &self.held {
            Held::Nothing => &[],
            Held::Token(token) => &token.scopes,
        }
    }
}

pub(super) async fn admit(api: &Api, route: Route, request: &Parts) -> Result<Caller, Turned> {
    let nobody = |why| Turned { actor: Actor::Nobody, why };
    // Whoever accepts connections says from where; without that everybody is one caller.
    let unknown = Peer(std::net::Ipv4Addr::UNSPECIFIED.into());
    let peer = request.extensions.get::<Peer>().copied().unwrap_or(unknown);
    api.limiter.spend(Key::Address(peer)).map_err(|wait| nobody(slow_down(wait)))?;
    let (scope, reach) = match route.need() {
        Need::Nothing => return Ok(Caller { actor: Actor::Nobody, held: Held::Nothing }),
        Need::Scope(scope, reach) => (scope, reach),
    };
    let token = match authenticate(api, &request.headers).await {
        Ok(token) => token,
        Err(why) => {
            let failed = api.limiter.spend(Key::Failed(peer));
            return Err(nobody(failed.err().map_or(why, slow_down)));
        }
    };
    let actor = Actor::Token(token.id.clone());
    let turned = |why| Turned { actor: actor.clone(), why };
    api.limiter.spend(Key::Token(&token.id)).map_err(|wait| turned(slow_down(wait)))?;
    if !token.scopes.contains(&scope) {
        let detail = format!("this needs the scope {scope}");
        return Err(turned(Refused::new(ProblemCode::ScopeMissing, detail)));
    }
    if reach == Reach::Everything && token.project.is_some() {
        let detail = "this concerns every project; the token is for one";
        return Err(turned(Refused::new(ProblemCode::ProjectForbidden, detail)));
    }
    Ok(Caller { actor, held: Held::Token(token) })
}

async fn authenticate(api: &Api, headers: &HeaderMap) -> Result<ApiToken, Refused> {
    let refused = || Refused::new(ProblemCode::Unauthenticated, "send `Authorization: Bearer pond_api_…`");
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (shown.next(), shown.next());
    let text = first.filter(|_| second.is_none()).and_then(|value| value.to_str().ok());
    let (scheme, token) = text.and_then(|text| text.split_once(' ')).ok_or_else(refused)?;
    let bearer = Some(token).filter(|_| scheme.eq_ignore_ascii_case("bearer"));
    let bearer = bearer.and_then(|token| Bearer::parse(token).ok()).ok_or_else(refused)?;
    if bearer.kind() != Kind::Api {
        return Err(refused());
    }
    match api.plane.store.authenticate(&bearer, api.plane.now()).await {
        Ok(token) => Ok(token),
        Err(TokenFault::Refused) => Err(refused()),
        Err(TokenFault::Store(fault)) => Err(fault.into()),
    }
}

fn slow_down(seconds: u64) -> Refused {
    Refused::after(ProblemCode::RateLimited, "slow down", seconds)
}
