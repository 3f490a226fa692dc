//! A certificate authority nobody trusts but the clients of this world, made anew for every world by OpenSSL: the other
//! implementation keeps a mistake of ours from agreeing with itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::sides::tool;

pub(crate) struct Authority {
    directory: PathBuf,
}

impl Authority {
    /// An authority and one certificate for all of `names`.
    pub(crate) fn new(directory: &Path, names: &[&str]) -> Self {
        let new_key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let authority =
            ["-days", "2", "-subj", "/CN=pond test authority", "-keyout", "ca.key", "-out", "ca.pem"];
        openssl(directory, &[&new_key[..], &authority[..]].concat());
        let sans: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let sans = format!("subjectAltName={}", sans.join(","));
        let leaf = [
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-days",
            "2",
            "-subj",
            "/CN=far side",
            "-addext",
            &sans,
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            "extendedKeyUsage=serverAuth",
            "-keyout",
            "leaf.key",
            "-out",
            "leaf.pem",
        ];
        openssl(directory, &[&new_key[..], &leaf[..]].concat());
        Self { directory: directory.to_owned() }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let chain = CertificateDer::from_pem_file(self.directory.join("leaf.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.directory.join("leaf.key")).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![chain], key);
        Arc::new(config.unwrap())
    }
}

fn openssl(directory: &Path, arguments: &[&str]) {
    let output = tool("openssl").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}
