//! A model as the broker serves it: the order's words turned into values, once, before the first client connects.

use std::sync::Arc;

use http::HeaderValue;
use pond_policy::model::{Api, Auth, Price, Upstream as Place, UpstreamFault, UpstreamHost};
use pond_wire::gateway::broker as wire;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use subtle::ConstantTimeEq;
use thiserror::Error;
use tokio_rustls::TlsConnector;

use super::key::{Key, KeyFault};
use super::upstream::{Connect, Target, Upstream};

/// Why an order's model cannot be served. Nothing here repeats a key.
#[derive(Debug, Error)]
pub enum ModelFault {
    #[error("the API is not known")]
    Api,
    #[error("the kind of authentication is not known")]
    Auth,
    #[error("the upstream is not an address to serve from")]
    Upstream(#[source] UpstreamFault),
    #[error("the upstream's name cannot be asked for in TLS")]
    ServerName(#[source] InvalidDnsNameError),
    #[error("the certificates to trust are not PEM certificates")]
    Certificates,
    #[error("TLS could not be set up")]
    Tls(#[source] rustls::Error),
    #[error("the key cannot be sent")]
    Key(#[source] KeyFault),
    #[error("the dummy key is shorter than 16 bytes")]
    DummyKey,
    #[error("no priced model id is listed")]
    NoIds,
}

pub(super) struct Served {
    pub(super) name: String,
    pub(super) api: Api,
    pub(super) provider_tools: bool,
    pub(super) key: Key,
    pub(super) auth: (&'static str, HeaderValue),
    pub(super) host: HeaderValue,
    pub(super) prefix: String,
    pub(super) upstream: Upstream,
    ids: Vec<(String, Price)>,
    dummy: Vec<u8>,
}

impl Served {
    pub(super) fn new(model: &wire::Model, key: Key, connect: &Connect) -> Result<Self, ModelFault> {
        let api = Api::from_name(&model.api).ok_or(ModelFault::Api)?;
        let auth = Auth::from_name(&model.auth).ok_or(ModelFault::Auth)?;
        let place = Place::parse(&model.upstream, model.upstream_private).map_err(ModelFault::Upstream)?;
        if model.dummy_key.len() < 16 {
            return Err(ModelFault::DummyKey);
        }
        if model.ids.is_empty() {
            return Err(ModelFault::NoIds);
        }
        let target =
            Target { host: place.host().clone(), port: place.port(), private: model.upstream_private };
        let tls = tls(model.ca_pem.as_deref())?;
        Ok(Self {
            name: model.name.clone(),
            api,
            provider_tools: model.provider_tools,
            auth: key.header(auth).map_err(ModelFault::Key)?,
            key,
            host: HeaderValue::from_str(&place.authority())
                .map_err(|_| ModelFault::Key(KeyFault::NotPlain))?,
            prefix: place.prefix().to_owned(),
            upstream: Upstream::new(target, server_name(place.host())?, tls, Arc::clone(connect)),
            ids: model.ids.iter().map(|id| (id.id.clone(), id.price.into())).collect(),
            dummy: model.dummy_key.clone().into_bytes(),
        })
    }

    /// The price of exactly this id.
    pub(super) fn price(&self, id: &str) -> Option<Price> {
        self.ids.iter().find(|(own, _)| own == id).map(|(_, price)| *price)
    }

    /// Compared in constant time: a client must not learn another's key byte by byte.
    pub(super) fn is_dummy(&self, presented: &[u8]) -> bool {
        self.dummy.ct_eq(presented).into()
    }
}

fn server_name(host: &UpstreamHost) -> Result<ServerName<'static>, ModelFault> {
    match host {
        UpstreamHost::Name(name) => ServerName::try_from(name.to_string()).map_err(ModelFault::ServerName),
        UpstreamHost::Address(address) => Ok(ServerName::from(*address)),
    }
}

/// `ca_pem` replaces the built-in authorities: an operator's own upstream is trusted by the operator's own certificate.
pub(crate) fn tls(ca_pem: Option<&str>) -> Result<TlsConnector, ModelFault> {
    let mut roots = RootCertStore::empty();
    match ca_pem {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|_| ModelFault::Certificates)?;
                roots.add(certificate).map_err(|_| ModelFault::Certificates)?;
            }
        }
    }
    if roots.is_empty() {
        return Err(ModelFault::Certificates);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ModelFault::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
