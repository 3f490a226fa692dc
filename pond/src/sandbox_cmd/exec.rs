//! `pond sandbox exec`: a program in a sandbox, with this process's streams or terminal. Its exit code is the program's own.

use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use pond_policy::life::Operation;
use pond_worker::neutral::Neutraliser;
use pond_worker::terminal::{Filter, UserTerminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{SandboxFault, find};
use crate::keeper::client::{Call, lost};
use crate::keeper::converge;
use crate::keeper::place::Place;
use crate::keeper::protocol::{self, Answer, Exec, ExecEnd, Kind, PIECE, Request, Size};
use crate::{output, runs, settings};

/// As much of standard input as goes with the request.
const AT_ONCE: usize = 4096;

/// Run a program in a sandbox.
#[derive(Debug, Args)]
#[command(
    after_help = "The exit code is the program's own; 124 when it took too long, 125 when nothing ran. Leaving ends it, unless it is detached."
)]
pub(crate) struct ExecArgs {
    /// Give it a terminal of its own that stands for this one.
    #[arg(short, long)]
    tty: bool,
    /// Print its number and return; its output is kept for `pond sandbox logs`.
    #[arg(short, long, conflicts_with = "tty")]
    detach: bool,
    /// A variable of this program.
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The directory it begins in.
    #[arg(short = 'w', long, value_name = "DIR")]
    workdir: Option<String>,
    /// End it after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print JSON: how it ended, and its output as text.
    #[arg(long, conflicts_with = "tty")]
    pub(crate) json: bool,
    /// The sandbox.
    #[arg(value_name = "ID")]
    id: String,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    argv: Vec<String>,
}

pub(super) fn main(args: &ExecArgs) -> Result<ExitCode, SandboxFault> {
    let mut wanted = args.wanted()?;
    let first = if wanted.input && wanted.terminal.is_none() { at_hand()? } else { None };
    wanted.input &= first.as_ref().is_none_or(|first| !first.is_empty());
    // Whoever keeps it knows how it is; what happened before need not be read to ask him.
    let place = Place::find(&runs::state()?, &args.id)?;
    let mut call = match Call::open(place.directory()) {
        Ok(call) => call,
        Err(_nobody_there) => {
            converge::permit(&find(&args.id)?, Operation::Exec)?;
            return Err(lost().into());
        }
    };
    call.say(&Request::Exec(wanted.clone()))?;
    let exec = match call.answer()? {
        Answer::Began { exec } => exec,
        Answer::Refused(refusal) => return Err(refusal.into()),
        Answer::Status(_) | Answer::Ended(_) | Answer::Copied { .. } | Answer::Done => {
            return Err(lost().into());
        }
    };
    if args.detach {
        return Ok(match args.json {
            true => output::json(&serde_json::json!({ "exec": exec })),
            false => output::lines(&exec.to_string()),
        });
    }
    if let Some(first) = first.filter(|first| !first.is_empty()) {
        protocol::write_frame(&mut call.stream, Kind::Input, &first)?;
    }
    if args.json { Ok(collect(&mut call)?) } else { Ok(ExitCode::from(relay(call, &wanted)?)) }
}

impl ExecArgs {
    fn wanted(&self) -> anyhow::Result<Exec> {
        let terminal = match self.tty {
            false => None,
            true if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() => {
                let size = UserTerminal::size_of(std::io::stdin().as_fd());
                Some(Size { rows: size.ws_row, columns: size.ws_col })
            }
            true => bail!("--tty needs a terminal on both standard input and standard output"),
        };
        let mut env = Vec::new();
        for pair in &self.env {
            match pair.split_once('=') {
                Some((name, value)) => env.push((name.to_owned(), value.to_owned())),
                None => bail!("--env {pair:?}: write NAME=VALUE"),
            }
        }
        if terminal.is_some() && !env.iter().any(|(name, _)| name == "TERM") {
            env.push(("TERM".to_owned(), settings::terminal_kind().unwrap_or_else(|| "xterm".to_owned())));
        }
        Ok(Exec {
            argv: self.argv.clone(),
            env,
            cwd: self.workdir.clone(),
            terminal,
            input: terminal.is_some() || !(self.detach || self.json || std::io::stdin().is_terminal()),
            detach: self.detach,
            timeout_seconds: self.timeout,
        })
    }
}

/// Everything it wrote, and how it ended, as one object.
fn collect(call: &mut Call) -> anyhow::Result<ExitCode> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let end = loop {
        match call.frame()? {
            Some((Kind::Stdout, bytes)) => stdout.extend(bytes),
            Some((Kind::Stderr, bytes)) => stderr.extend(bytes),
            Some((Kind::Say, text)) => break ended(&text)?,
            Some((Kind::Input | Kind::Terminal | Kind::Resize, _)) => {}
            None => return Err(lost().into()),
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = end.exit_code;
    let said = serde_json::json!({ "end": end, "stdout": text(&stdout), "stderr": text(&stderr) });
    output::json(&said);
    Ok(ExitCode::from(code))
}

fn ended(text: &[u8]) -> anyhow::Result<ExecEnd> {
    match serde_json::from_slice(text)? {
        Answer::Ended(end) => Ok(end),
        Answer::Refused(refusal) => Err(refusal.into()),
        Answer::Status(_) | Answer::Began { .. } | Answer::Copied { .. } | Answer::Done => Err(lost().into()),
    }
}

/// Its streams are ours until it ends.
fn relay(mut call: Call, wanted: &Exec) -> anyhow::Result<u8> {
    let interrupt = wanted.terminal.map(|_| pond_sys::signal::interrupts()).transpose()?;
    let stdin = std::io::stdin();
    let person = wanted.terminal.map(|_| UserTerminal::take(stdin.as_fd())).transpose()?;
    if wanted.input {
        let to = call.stream.try_clone()?;
        // It ends with this process: nobody can wait for a person's next key.
        std::thread::Builder::new().spawn(move || feed(to))?;
    }
    let mut shown = Shown::new();
    let end = loop {
        let ready = wait(&call, person.as_ref(), interrupt.as_ref())?;
        if ready.interrupted {
            drop(call);
            break Ok(130);
        }
        if ready.changed
            && let Some(person) = &person
        {
            let size = person.renew()?;
            let size = serde_json::to_vec(&Size { rows: size.ws_row, columns: size.ws_col })?;
            protocol::write_frame(&mut call.stream, Kind::Resize, &size)?;
        }
        if !ready.said {
            continue;
        }
        match call.frame()? {
            Some((Kind::Say, text)) => break ended(&text).map(|end| end.exit_code),
            Some((kind, bytes)) => {
                let answers = shown.take(kind, &bytes)?;
                if !answers.is_empty() {
                    protocol::write_frame(&mut call.stream, Kind::Input, answers.as_bytes())?;
                }
            }
            None => break Err(lost().into()),
        }
    };
    let finished = shown.finish();
    // The terminal is whole again before anything else is said on it.
    drop(person);
    finished?;
    end
}

struct Ready {
    said: bool,
    changed: bool,
    interrupted: bool,
}

fn wait(
    call: &Call,
    person: Option<&UserTerminal>,
    interrupt: Option<&std::os::fd::OwnedFd>,
) -> anyhow::Result<Ready> {
    let mut fds = vec![PollFd::new(&call.stream, PollFlags::IN)];
    fds.extend(person.map(|person| PollFd::from_borrowed_fd(person.changes(), PollFlags::IN)));
    fds.extend(interrupt.map(|fd| PollFd::new(fd, PollFlags::IN)));
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    let said = ready.next().unwrap_or(false);
    let changed = person.is_some() && ready.next().unwrap_or(false);
    let interrupted = interrupt.is_some() && ready.next().unwrap_or(false);
    Ok(Ready { said, changed, interrupted })
}

/// What standard input has without waiting; empty at its end, where no thread is needed to wait for more.
fn at_hand() -> anyhow::Result<Option<Vec<u8>>> {
    let stdin = std::io::stdin();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&now))? == 0 {
        return Ok(None);
    }
    // Usually there is nothing, and a larger room would be cleared for that.
    let mut piece = vec![0; AT_ONCE];
    // Nothing to read from at all is its end.
    let length = stdin.lock().read(&mut piece).unwrap_or(0);
    piece.truncate(length);
    Ok(Some(piece))
}

fn feed(mut to: UnixStream) {
    let mut piece = vec![0; PIECE];
    let mut stdin = std::io::stdin().lock();
    loop {
        let length = stdin.read(&mut piece).unwrap_or(0);
        let bytes = piece.get(..length).unwrap_or_default();
        if protocol::write_frame(&mut to, Kind::Input, bytes).is_err() || length == 0 {
            return;
        }
    }
}

/// What a person sees: text that cannot move the cursor, or a program's drawing, filtered. A pipe gets the bytes as they are.
struct Shown {
    stdout: Option<Box<Neutraliser>>,
    stderr: Option<Box<Neutraliser>>,
    terminal: Box<Filter>,
    drew: bool,
}

impl Shown {
    fn new() -> Self {
        let neutral = |is_terminal: bool| is_terminal.then(Box::<Neutraliser>::default);
        Self {
            stdout: neutral(std::io::stdout().is_terminal()),
            stderr: neutral(std::io::stderr().is_terminal()),
            terminal: Box::default(),
            drew: false,
        }
    }

    fn take(&mut self, kind: Kind, bytes: &[u8]) -> std::io::Result<String> {
        let mut text = String::new();
        match kind {
            Kind::Stdout => write(&mut std::io::stdout().lock(), self.stdout.as_deref_mut(), bytes)?,
            Kind::Stderr => write(&mut std::io::stderr().lock(), self.stderr.as_deref_mut(), bytes)?,
            Kind::Terminal => {
                self.drew = true;
                let answers = self.terminal.push(bytes, &mut text);
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
                return Ok(answers);
            }
            Kind::Say | Kind::Input | Kind::Resize => {}
        }
        Ok(String::new())
    }

    fn finish(self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let mut text = String::new();
        if self.drew {
            self.terminal.finish(&mut text);
        }
        if let Some(neutral) = self.stdout {
            neutral.finish(&mut text);
        }
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

fn write(to: &mut impl Write, neutral: Option<&mut Neutraliser>, bytes: &[u8]) -> std::io::Result<()> {
    match neutral {
        None => to.write_all(bytes)?,
        Some(neutral) => {
            let mut text = String::new();
            neutral.push(bytes, &mut text);
            to.write_all(text.as_bytes())?;
        }
    }
    to.flush()
}
