//! Jobs in containers, on a Docker engine of the test's own: the same results as native, the posture from inside, runtimes that
//! lie, what is left after something was killed, and the scripts that make a worker.

mod daemon;
mod deploy;
mod killed;
mod lies;
mod parity;
mod posture;
