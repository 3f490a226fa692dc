//! Whom a client believes to be its server: the public authorities, or with `--ca-file` those of the file and no others.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::fault::ClientFault;
use crate::input;

pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, ClientFault> {
    let roots = match ca_file {
        None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
        Some(path) => {
            own(path).map_err(|reason| ClientFault::Certificates { path: path.to_owned(), reason })?
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ClientFault::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn own(path: &Path) -> Result<RootCertStore, String> {
    let pem = input::from_trusted_file(path).map_err(|refusal| refusal.message)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|fault| fault.to_string())?;
        roots.add(certificate).map_err(|fault| fault.to_string())?;
    }
    if roots.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(roots) }
}
