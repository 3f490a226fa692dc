//! The measuring instrument of `cargo xtask bench gateway`. `far` is the other side of the internet, `gate` a job's gateway
//! as pond starts it, `load` the clients. Each runs in a network namespace it was started in, says a number once it is
//! ready, answers every line it reads with a line of numbers, and ends with its input.
#![forbid(unsafe_code)]

mod far;
mod gate;
mod hello;
mod load;
mod model;
mod world;

use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str =
    "gateway far CERTIFICATES\ngateway gate CERTIFICATES POND PORT BROKER-PORT\ngateway load CERTIFICATES";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("gateway: {fault:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["far", directory] => far::serve(Path::new(directory)),
        ["gate", directory, pond, proxy, broker] => {
            let ports = [proxy.parse().context(USAGE)?, broker.parse().context(USAGE)?];
            gate::serve(Path::new(directory), Path::new(pond), ports)
        }
        ["load", directory] => load::serve(Path::new(directory)),
        _ => bail!(USAGE),
    }
}

/// Says that this side is ready, then answers until nobody asks any more.
fn answer(mut reply: impl FnMut(&[&str]) -> Result<Vec<u64>>) -> Result<()> {
    say(&[0])?;
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        say(&reply(&words).with_context(|| format!("asked for `{line}`"))?)?;
    }
    Ok(())
}

fn say(numbers: &[u64]) -> Result<()> {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    Ok(writeln!(stdout().lock(), "{}", words.join(" "))?)
}
