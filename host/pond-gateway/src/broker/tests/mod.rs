//! The broker end to end: real heads in, a scripted model behind real TLS, every byte compared. Cases carry the numbers
//! of the egress catalogue.

mod answers;
mod money;
mod requests;
mod secrets;
mod ways_out;
mod world;
