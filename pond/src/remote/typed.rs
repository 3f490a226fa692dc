//! A secret from whoever types or pipes it: never an argument, which every process of the machine can read, and never shown.

use std::io::{IsTerminal, Read, stdin};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::output;

/// The most a credential may have.
pub(super) const MOST_BYTES: usize = 64 << 10;

/// What is piped in, or typed at a prompt; without the end of its line.
pub(super) fn secret(prompt: &str) -> anyhow::Result<Zeroizing<String>> {
    let terminal = stdin().is_terminal();
    let quiet = if terminal { Some(Quiet::begin(prompt)?) } else { None };
    // As large as it can get, at once: growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 2));
    let read = if terminal { line(&mut bytes) } else { all(&mut bytes) };
    drop(quiet);
    read.context("reading the secret from standard input")?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.len() > MOST_BYTES {
        bail!("a secret has at most {MOST_BYTES} bytes");
    }
    if bytes.is_empty() {
        bail!("nothing came: pipe the secret in, or type it");
    }
    let text = std::str::from_utf8(&bytes).context("a secret is text")?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn all(bytes: &mut Vec<u8>) -> std::io::Result<()> {
    stdin().lock().take(u64::try_from(MOST_BYTES + 2).unwrap_or(u64::MAX)).read_to_end(bytes).map(drop)
}

/// One line, or an interrupt: the terminal must show what is typed again before this process ends.
fn line(bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let (input, interrupts) = (stdin(), pond_sys::signal::interrupts()?);
    let mut piece = Zeroizing::new([0; 4096]);
    while bytes.last() != Some(&b'\n') && bytes.len() <= MOST_BYTES {
        let mut waited = [PollFd::new(&input, PollFlags::IN), PollFd::new(&interrupts, PollFlags::IN)];
        poll(&mut waited, None)?;
        if !waited[1].revents().is_empty() {
            return Err(std::io::Error::other("interrupted"));
        }
        match rustix::io::read(&input, piece.as_mut_slice())? {
            0 => return Ok(()),
            length => bytes.extend(piece.get(..length).unwrap_or_default()),
        }
    }
    Ok(())
}

/// A terminal that does not show what is typed, until this goes.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn begin(prompt: &str) -> anyhow::Result<Self> {
        let before = tcgetattr(stdin()).context("asking the terminal for its mode")?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        tcsetattr(stdin(), OptionalActions::Flush, &quiet)
            .context("keeping the terminal from showing what is typed")?;
        output::say(&format!("{prompt} (not shown): "));
        Ok(Self { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Err(fault) = tcsetattr(stdin(), OptionalActions::Flush, &self.before) {
            output::say(&format!(
                "pond: warning: the terminal does not show what you type (`stty echo`): {fault}"
            ));
        }
    }
}
