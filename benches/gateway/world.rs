//! The small internet of `cargo xtask bench gateway`: who is where. Shared by the instrument and by whoever starts it.
//! The addresses are of the public range, because the gateway dials no other, and exist in the bench's namespaces alone.

/// Where the name server listens.
pub(crate) const DNS: &str = "93.184.216.53";

pub(crate) const HTTPS: u16 = 443;

/// A far host: its name, and the address the name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    pub(crate) address: &'static str,
}

/// Answers a hello with one byte.
pub(crate) const QUICK: Host = Host { name: "quick.example.org", address: "93.184.220.1" };
/// Answers a hello and a number with that many bytes.
pub(crate) const FLOW: Host = Host { name: "flow.example.org", address: "93.184.220.2" };
/// Never says anything.
pub(crate) const QUIET: Host = Host { name: "quiet.example.org", address: "93.184.220.3" };
/// A real TLS server with a page.
pub(crate) const PAGE: Host = Host { name: "page.example.org", address: "93.184.220.4" };

/// A model's API.
pub(crate) const MODEL: Host = Host { name: "model.example.org", address: "93.184.220.5" };

pub(crate) const HOSTS: [Host; 5] = [QUICK, FLOW, QUIET, PAGE, MODEL];
