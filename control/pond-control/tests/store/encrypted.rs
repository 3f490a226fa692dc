//! A Postgres over TLS: believed by its certificate, for its name, and not spoken to without.

use pond_control::store::{MigrateFault, Rules, Store};
use pond_seal::vault::KeyRing;

use super::server::{Disk, Server};
use super::world::{START, block_on};

async fn opened(address: &str) -> Result<(), MigrateFault> {
    let store = Store::open(address, KeyRing::generate().unwrap(), Rules::default(), START).await?;
    store.close().await;
    Ok(())
}

#[test]
fn a_postgres_is_believed_by_its_certificate_and_by_no_other() {
    let mut server = Server::start(Disk::Careless);
    server.database("tls");
    let [own, other] = ["own", "other"].map(|name| server.certificate(name));
    let port = server.relaunch_with_tls("own");
    let address = |host: &str, mode: &str, root: &str| {
        format!("postgres://postgres@{host}:{port}/tls?sslmode={mode}&sslrootcert={root}")
    };
    block_on(async {
        opened(&address("localhost", "verify-full", &own)).await.unwrap();
        // Somebody else's certificate, and its own under a name that is not in it.
        for wrong in [address("localhost", "verify-full", &other), address("127.0.0.1", "verify-full", &own)]
        {
            let fault = opened(&wrong).await.unwrap_err();
            assert!(matches!(fault, MigrateFault::Store(_)), "{fault:?}");
        }
        // The control: whoever asks for no proof gets in.
        opened(&address("127.0.0.1", "require", &other)).await.unwrap();
    });
    // And one that has no TLS at all is not spoken to in the clear.
    server.kill();
    let port = server.relaunch_without_tls();
    let plain = format!("postgres://postgres@localhost:{port}/tls?sslmode=verify-full&sslrootcert={own}");
    block_on(async { opened(&plain).await.unwrap_err() });
}
