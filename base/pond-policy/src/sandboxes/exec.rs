//! A program for a sandbox that lasts: its arguments, variables and place, by the rules a run document has for them.
//!
//! Whether the sandbox's profile allows the command at all is for who keeps it: he knows the profile.

use crate::path::Path;
use crate::refusal::{Code, Refusal, Refusals};
use crate::run::executor::{ARGUMENT, ENV_NAME, ENV_VALUE};
use crate::shape::{Echo, TextForm};

const MOST_ARGUMENTS: usize = 1024;
const MOST_VARIABLES: usize = 256;

/// All that is wrong with what is to be run.
pub fn check_exec<'a>(
    command: &[String],
    env: impl Iterator<Item = (&'a str, &'a str)>,
    cwd: Option<&str>,
) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    let root = Path::root();
    check_command(command, &root.key(0, "command"), &mut refusals);
    for (position, (name, value)) in env.enumerate() {
        let path = root.key(1, "env").key(position, name);
        if position == MOST_VARIABLES {
            let message = format!("more than {MOST_VARIABLES} variables");
            refusals.add(Refusal::new(Code::TooMany, &root.key(1, "env"), message));
            break;
        }
        hold(&ENV_NAME, name, &path, &mut refusals);
        hold(&ENV_VALUE, value, &path, &mut refusals);
    }
    if let Some(cwd) = cwd.filter(|cwd| *cwd != "/") {
        hold(&super::ingress::TARGET_FORM, cwd, &root.key(2, "cwd"), &mut refusals);
    }
    refusals.finish(Some(()))
}

fn check_command(command: &[String], path: &Path, refusals: &mut Refusals) {
    if command.first().is_none_or(String::is_empty) {
        refusals.refuse(Code::CommandMissing, path, "nothing to run: give a program and its arguments");
    }
    if command.len() > MOST_ARGUMENTS {
        refusals.refuse(Code::TooMany, path, format!("{} given: at most {MOST_ARGUMENTS}", command.len()));
        return;
    }
    for (index, argument) in command.iter().enumerate() {
        hold(&ARGUMENT, argument, &path.index(index), refusals);
    }
}

fn hold(form: &TextForm, text: &str, path: &Path, refusals: &mut Refusals) {
    if !form.accepts(text) {
        form.refuse(text, Echo::Given, path, refusals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::faults;

    fn check(command: &[&str], env: &[(&str, &str)], cwd: Option<&str>) -> Vec<String> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        check_exec(&command, env.iter().copied(), cwd)
            .err()
            .map(|refusals| faults(&refusals))
            .unwrap_or_default()
    }

    #[test]
    fn programs_are_held_to_the_document_s_rules() {
        assert_eq!(check(&["sh", "-c", ""], &[("A", "1")], Some("/workspace")), [""; 0]);
        assert_eq!(check(&["ls"], &[], Some("/")), [""; 0]);
        assert_eq!(
            check(&["", "a\0"], &[("1A", "x"), ("B", "\0")], Some("../x")),
            [
                "command_missing command",
                "command_invalid command[1]",
                "env_invalid env.1A",
                "env_invalid env.B",
                "target_invalid cwd"
            ]
        );
        assert_eq!(check(&[], &[], None), ["command_missing command"]);
        assert_eq!(check(&["a"; 1025], &[], None), ["too_many command"]);
    }
}
