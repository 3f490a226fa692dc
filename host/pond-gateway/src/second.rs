//! The second thread: tunnels that are opened at once are served by two. Zone: host.
//!
//! Invariants: it is made before the filter, which allows no thread to be made, and the filter is for both; it waits for
//! connections that the first thread accepted, and accepts none itself; it never ends before the process does.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, Handle, Runtime};

/// Connections that the first thread has more than the second before it passes one on: a passing wakes somebody.
const AHEAD: usize = 2;

/// A runtime for one thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Starts the thread. It has done all that a thread does first once this returns.
pub(crate) fn start() -> io::Result<Handle> {
    let (tell, told) = sync_channel(1);
    let serve = move || match runtime() {
        Ok(runtime) => {
            // Whoever started this thread waits for it.
            drop(tell.send(Ok(runtime.handle().clone())));
            runtime.block_on(std::future::pending::<()>());
        }
        Err(fault) => drop(tell.send(Err(fault))),
    };
    std::thread::Builder::new().name("second".to_owned()).spawn(serve)?;
    told.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?
}

/// Where connections are served.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    here: Place,
    second: Place,
}

#[derive(Debug, Clone)]
struct Place {
    runtime: Handle,
    /// Held by each connection that is served there.
    load: Arc<()>,
}

impl Threads {
    /// The thread that calls this, and the second one.
    pub(crate) fn new(second: Handle) -> Self {
        let place = |runtime| Place { runtime, load: Arc::default() };
        Self { here: place(Handle::current()), second: place(second) }
    }

    /// Serves a connection on this thread, unless it has much more to do than the other.
    pub(crate) fn share(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let load = |place: &Place| Arc::strong_count(&place.load);
        let here = load(&self.here) <= load(&self.second) + AHEAD;
        if here { self.here.serve(connection) } else { self.second.serve(connection) }
    }

    /// Serves it on this thread.
    pub(crate) fn keep(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.here.serve(connection);
    }
}

/// Returns when the second thread has done what it was at. Whatever it does from then on it does knowing what was said before: it looks
/// whenever it goes on with a connection, and not in the middle of that.
pub(crate) async fn caught_up(second: &Handle) {
    if let Err(_ends_with_the_process) = second.spawn(std::future::ready(())).await {}
}

impl Place {
    fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let load = Arc::clone(&self.load);
        self.runtime.spawn(async move {
            connection.await;
            drop(load);
        });
    }
}

#[cfg(test)]
mod tests {
    //! Who waits for the other thread has waited for what it was in the middle of.
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_second_thread_was_at_is_done_when_it_has_caught_up() {
        let second = start().unwrap();
        let (begun, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (began, did) = (Arc::clone(&begun), Arc::clone(&done));
        second.spawn(async move {
            began.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
            did.store(true, Ordering::Relaxed);
        });
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        runtime().unwrap().block_on(caught_up(&second));
        assert!(done.load(Ordering::Relaxed));
    }
}
