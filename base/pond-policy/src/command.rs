//! The command allowlist of the sealed profile: the name a job starts with must be one of a fixed
//! few, checked before anything is launched. Trust zone: argv comes from the job's author.
//!
//! This is one layer, not the boundary. `python -c`, `find -exec`, a `git` alias or a `pytest` plugin
//! starts any other program inside the sandbox, and a checkout can shadow a name; what holds those is
//! the sandbox itself. The check keeps the plain way shut and the audit log readable.
//! Invariant: an [`AllowedCommand`] exists only after [`check`] and carries the argv it checked.

use thiserror::Error;

use crate::quote::quote;

/// The only names that may start a job under the command allowlist.
pub const ALLOWED_COMMANDS: [&str; 18] = [
    "git", "pytest", "python", "python3", "pip", "pip3", "cat", "ls", "echo", "find", "grep", "head", "tail",
    "mkdir", "cp", "mv", "touch", "chmod",
];

const AUDITED_TOKENS: usize = 3;
const LONGEST_BARE_WORD: usize = 64;

/// A command line whose first word is on the list.
///
/// ```compile_fail
/// let forged = pond_policy::command::AllowedCommand { name: "rm", argv: Vec::new() };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedCommand {
    name: &'static str,
    argv: Vec<String>,
}

/// Why a command line is refused. Text taken from it is already safe to print.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandDenied {
    #[error("the command line is empty")]
    NoCommand,
    #[error("the command name is empty")]
    EmptyName,
    #[error("argument {index} holds a NUL byte, where the kernel would cut it")]
    Nul { index: usize },
    #[error("{given} is a path; only bare names are allowed")]
    Path { given: String, bare: Option<&'static str> },
    #[error("{given} sets a variable instead of naming a command")]
    Assignment { given: String },
    #[error("{given} holds white space or control characters")]
    Blank { given: String, bare: Option<&'static str> },
    #[error("{given} holds characters outside ASCII")]
    NotAscii { given: String },
    #[error("{given} is a shell, which would run any command")]
    Shell { given: String },
    #[error("{given} would run another command")]
    Wrapper { given: String },
    #[error("{given} is not on the command allowlist")]
    NotListed { given: String, bare: Option<&'static str> },
}

/// Judges a command line by its first word.
pub fn check(argv: &[String]) -> Result<AllowedCommand, CommandDenied> {
    let given = argv.first().ok_or(CommandDenied::NoCommand)?;
    if given.is_empty() {
        return Err(CommandDenied::EmptyName);
    }
    if let Some(index) = argv.iter().position(|argument| argument.contains('\0')) {
        return Err(CommandDenied::Nul { index });
    }
    let name = listed(given).ok_or_else(|| denial(given))?;
    Ok(AllowedCommand { name, argv: argv.to_vec() })
}

impl AllowedCommand {
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole command line, first word included, exactly as it was checked.
    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    /// What the audit log keeps: see [`audit_form`].
    pub fn audit_form(&self) -> String {
        audit_form(&self.argv)
    }
}

/// The first three words of any command line; a word that is long or not plain is quoted, escaped and cut.
pub fn audit_form(argv: &[String]) -> String {
    argv.iter().take(AUDITED_TOKENS).map(|word| audit_word(word)).collect::<Vec<_>>().join(" ")
}

fn audit_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte);
    let bare = (1..=LONGEST_BARE_WORD).contains(&word.len()) && word.bytes().all(plain);
    if bare { word.to_owned() } else { quote(word) }
}

impl CommandDenied {
    /// The stable code of this refusal.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoCommand => "command_missing",
            Self::EmptyName => "command_name_empty",
            Self::Nul { .. } => "command_nul",
            Self::Path { .. } => "command_path",
            Self::Assignment { .. } => "command_assignment",
            Self::Blank { .. } => "command_blank",
            Self::NotAscii { .. } => "command_not_ascii",
            Self::Shell { .. } => "command_shell",
            Self::Wrapper { .. } => "command_wrapper",
            Self::NotListed { .. } => "command_not_listed",
        }
    }

    /// The smallest change that would be accepted.
    pub fn hint(&self) -> String {
        match self {
            Self::NoCommand | Self::EmptyName => {
                format!("start with one of: {}", ALLOWED_COMMANDS.join(", "))
            }
            Self::Nul { .. } => "remove the NUL byte".to_owned(),
            Self::Path { bare: Some(bare), .. }
            | Self::Blank { bare: Some(bare), .. }
            | Self::NotListed { bare: Some(bare), .. } => format!("write the bare name `{bare}`"),
            Self::Assignment { .. } => {
                "put variables in the stage's environment, not in the command".to_owned()
            }
            Self::Shell { .. } | Self::Wrapper { .. } => {
                format!("name the command itself, one of: {}", ALLOWED_COMMANDS.join(", "))
            }
            Self::NotAscii { .. }
            | Self::Path { bare: None, .. }
            | Self::Blank { bare: None, .. }
            | Self::NotListed { bare: None, .. } => {
                format!(
                    "use one of: {}; or a profile without a command allowlist",
                    ALLOWED_COMMANDS.join(", ")
                )
            }
        }
    }
}

/// Byte-for-byte membership; everything below only explains a refusal already made.
fn listed(given: &str) -> Option<&'static str> {
    ALLOWED_COMMANDS.into_iter().find(|name| *name == given)
}

fn denial(name: &str) -> CommandDenied {
    let given = quote(name);
    let folded = name.to_ascii_lowercase();
    if name.contains(['/', '\\']) {
        let last = folded.rsplit(['/', '\\']).next().unwrap_or_default();
        CommandDenied::Path { given, bare: listed(last.trim()) }
    } else if name.contains('=') {
        CommandDenied::Assignment { given }
    } else if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        CommandDenied::Blank { given, bare: folded.split_whitespace().next().and_then(listed) }
    } else if !name.is_ascii() {
        CommandDenied::NotAscii { given }
    } else if matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "fish" | "busybox") {
        CommandDenied::Shell { given }
    } else if matches!(
        name,
        "env"
            | "sudo"
            | "su"
            | "nohup"
            | "nice"
            | "timeout"
            | "xargs"
            | "exec"
            | "command"
            | "setsid"
            | "time"
    ) {
        CommandDenied::Wrapper { given }
    } else {
        CommandDenied::NotListed { given, bare: listed(&folded) }
    }
}

#[cfg(test)]
mod tests;
