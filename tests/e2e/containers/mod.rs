//! Jobs in containers, on a Docker engine of the test's own: the same results as native, the posture from inside, the escape
//! catalogue, runtimes that lie, and what is left after something was killed.

mod catalogue;
mod daemon;
mod killed;
mod lies;
mod parity;
mod posture;
