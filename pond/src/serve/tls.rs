//! The certificate a control plane shows. The key's file must be its owner's alone.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::proof::store::private_text;

const MOST_KEY: u64 = 64 << 10;

pub(super) fn config(cert: &Path, key: &Path) -> anyhow::Result<ServerConfig> {
    let reading = || format!("the certificate {}", cert.display());
    let pem = std::fs::read(cert).with_context(reading)?;
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().with_context(reading)?;
    let named = || format!("the TLS key {}", key.display());
    let text =
        private_text(key, "the TLS key", MOST_KEY)?.with_context(|| format!("{} is not there", named()))?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).with_context(named)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config =
        builder.with_no_client_auth().with_single_cert(chain, key).context("the certificate and its key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
