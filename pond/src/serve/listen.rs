//! Where a server listens, and who may hear it: this machine, or others over TLS. Listening to others in the clear takes a flag that
//! says so.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use pond_control::listen::Transport;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::input;
use crate::proof::store::private;

const MOST_KEY: usize = 64 << 10;

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// The address and port to listen on; this machine only, unless told otherwise.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// The certificate chain to serve TLS with, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, as PEM, in a file that is its owner's alone.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without TLS: every token that is sent can be read on the way.
    #[arg(long)]
    insecure_public: bool,
}

impl ListenArgs {
    pub(crate) fn address(&self, usual: SocketAddr) -> SocketAddr {
        self.listen.unwrap_or(usual)
    }

    /// How those who connect are spoken to; refuses where others could listen in.
    pub(crate) fn transport(&self, usual: SocketAddr) -> anyhow::Result<Transport> {
        let address = self.address(usual);
        match (&self.tls_cert, &self.tls_key) {
            (Some(chain), Some(key)) => Ok(Transport::Tls(Arc::new(tls(chain, key)?))),
            (None, None) if address.ip().to_canonical().is_loopback() || self.insecure_public => {
                Ok(Transport::Plain)
            }
            (None, None) => bail!(
                "{address} can be reached from other machines, and nothing would be encrypted: give --tls-cert and \
                 --tls-key, listen on 127.0.0.1, or say --insecure-public"
            ),
            (Some(_), None) | (None, Some(_)) => bail!("--tls-cert and --tls-key belong together"),
        }
    }
}

fn tls(chain: &Path, key: &Path) -> anyhow::Result<ServerConfig> {
    let read =
        |file: &Path| input::from_trusted_file(file).map_err(|refusal| anyhow::anyhow!(refusal.message));
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(chain)?)
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} holds no PEM certificates", chain.display()))?;
    let text = private("the TLS key", key, MOST_KEY)?;
    let text = text.with_context(|| format!("there is no TLS key {}", key.display()))?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .with_context(|| format!("{} holds no PEM private key", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(certificates, key);
    let mut config = config.context("the certificate and its key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        listen: ListenArgs,
    }

    fn refused(words: &[&str]) -> Option<String> {
        let only = Only::try_parse_from([&["pond"], words].concat()).unwrap();
        let usual = SocketAddr::from(([127, 0, 0, 1], 8340));
        only.listen.transport(usual).err().map(|fault| fault.to_string())
    }

    #[test]
    fn others_are_not_listened_to_in_the_clear() {
        for here in [&[][..], &["--listen", "127.0.0.1:1"], &["--listen", "[::1]:1"]] {
            assert_eq!(refused(here), None, "{here:?}");
        }
        for there in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert!(
                refused(&["--listen", there]).is_some_and(|why| why.contains("nothing would be encrypted"))
            );
            assert_eq!(refused(&["--listen", there, "--insecure-public"]), None);
        }
        assert!(Only::try_parse_from(["pond", "--tls-cert", "x"]).is_err_and(|fault| fault.exit_code() != 0));
    }
}
