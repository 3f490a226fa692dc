//! Jobs in containers, on a Docker engine of the test's own: the same results as native, the posture from inside, runtimes that
//! lie, and what is left after something was killed.

mod daemon;
mod images;
mod killed;
mod lies;
mod parity;
mod posture;
mod stream;
