//! Which Postgres is believed to be the one that was named.
//!
//! Zone: control. What goes to the database, and what comes from it, is the whole of the control plane. One on this machine is reached by
//! a socket or the loopback; one elsewhere has to show a certificate for its name, unless the operator says something else in so
//! many words. The driver's own default is to encrypt where that can be had and to ask nobody who is there.

use std::net::IpAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// As the address says; where it says nothing of TLS, as strict as can be.
pub(super) fn strictly(options: PgConnectOptions) -> PgConnectOptions {
    let is_silent = matches!(options.get_ssl_mode(), PgSslMode::Prefer | PgSslMode::Allow);
    let is_here = options.get_socket().is_some() || is_this_machine(options.get_host());
    if is_silent && !is_here { options.ssl_mode(PgSslMode::VerifyFull) } else { options }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.starts_with('/')
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(address: &str) -> String {
        format!("{:?}", strictly(address.parse().unwrap()).get_ssl_mode())
    }

    #[test]
    fn a_database_elsewhere_shows_a_certificate_unless_somebody_says_otherwise() {
        for here in [
            "postgres://pond@localhost/pond",
            "postgres://pond@127.0.0.1/pond",
            "postgres://pond@[::1]/pond",
            "postgres://pond@localhost/pond?host=/run/postgresql",
        ] {
            assert_eq!(mode(here), "Prefer", "{here}");
        }
        for elsewhere in [
            "postgres://pond@db.acme.com/pond",
            "postgres://pond@10.0.0.7/pond",
            "postgres://pond@localhost.acme.com/pond",
            "postgres://pond@db.acme.com/pond?sslmode=prefer",
            "postgres://pond@db.acme.com/pond?sslmode=verify-full",
        ] {
            assert_eq!(mode(elsewhere), "VerifyFull", "{elsewhere}");
        }
        for (said, expected) in [("require", "Require"), ("verify-ca", "VerifyCa"), ("disable", "Disable")] {
            let address = format!("postgres://pond@db.acme.com/pond?sslmode={said}");
            assert_eq!(mode(&address), expected);
        }
    }
}
