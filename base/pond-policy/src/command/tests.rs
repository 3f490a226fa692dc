//! Every way of spelling a command that must not pass the allowlist, each with its cause.

use crate::quote::quote;

use super::{ALLOWED_COMMANDS, AllowedCommand, CommandDenied, audit_form, check};

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn refusal(words: &[&str]) -> CommandDenied {
    check(&argv(words)).expect_err("must be refused")
}

#[test]
fn the_list_is_the_seed_list() {
    let seed = "git pytest python python3 pip pip3 cat ls echo find grep head tail mkdir cp mv touch chmod";
    assert_eq!(ALLOWED_COMMANDS.join(" "), seed);
    for name in ALLOWED_COMMANDS {
        let expected = AllowedCommand { name, argv: argv(&[name, "-x", "/etc"]) };
        assert_eq!(check(&argv(&[name, "-x", "/etc"])), Ok(expected));
    }
}

#[test]
fn refusals_by_cause() {
    let path = |given: &str, bare| CommandDenied::Path { given: quote(given), bare };
    let blank = |given: &str, bare| CommandDenied::Blank { given: quote(given), bare };
    let unlisted = |given: &str, bare| CommandDenied::NotListed { given: quote(given), bare };
    let table = [
        (vec![], CommandDenied::NoCommand),
        (vec![""], CommandDenied::EmptyName),
        (vec!["", "git"], CommandDenied::EmptyName),
        (vec!["git\0"], CommandDenied::Nul { index: 0 }),
        (vec!["git", "log", "a\0b"], CommandDenied::Nul { index: 2 }),
        (vec!["/usr/bin/python3"], path("/usr/bin/python3", Some("python3"))),
        (vec!["./python"], path("./python", Some("python"))),
        (vec!["../python"], path("../python", Some("python"))),
        (vec!["bin/git"], path("bin/git", Some("git"))),
        (vec!["python/"], path("python/", None)),
        (vec!["/bin/rm"], path("/bin/rm", None)),
        (vec!["bin\\git"], path("bin\\git", Some("git"))),
        (vec!["X=Y", "git"], CommandDenied::Assignment { given: quote("X=Y") }),
        (vec!["env", "X=Y", "git"], CommandDenied::Wrapper { given: quote("env") }),
        (vec!["sudo", "git"], CommandDenied::Wrapper { given: quote("sudo") }),
        (vec!["xargs", "git"], CommandDenied::Wrapper { given: quote("xargs") }),
        (vec!["sh", "-c", "git"], CommandDenied::Shell { given: quote("sh") }),
        (vec!["bash", "-c", "git"], CommandDenied::Shell { given: quote("bash") }),
        (vec!["git "], blank("git ", Some("git"))),
        (vec![" git"], blank(" git", Some("git"))),
        (vec!["git\n"], blank("git\n", Some("git"))),
        (vec!["\tgit"], blank("\tgit", Some("git"))),
        (vec!["git status"], blank("git status", Some("git"))),
        (vec!["git\u{a0}"], blank("git\u{a0}", Some("git"))),
        (vec!["rm -rf"], blank("rm -rf", None)),
        (vec!["g\u{131}t"], CommandDenied::NotAscii { given: quote("g\u{131}t") }),
        (vec!["\u{440}ython"], CommandDenied::NotAscii { given: quote("\u{440}ython") }),
        (vec!["git\u{200b}"], CommandDenied::NotAscii { given: quote("git\u{200b}") }),
        (vec!["GIT"], unlisted("GIT", Some("git"))),
        (vec!["Python3"], unlisted("Python3", Some("python3"))),
        (vec!["rm"], unlisted("rm", None)),
        (vec!["curl"], unlisted("curl", None)),
        (vec!["wget"], unlisted("wget", None)),
        (vec!["nc"], unlisted("nc", None)),
        (vec!["git;rm"], unlisted("git;rm", None)),
        (vec!["git&&rm"], unlisted("git&&rm", None)),
        (vec!["$(git)"], unlisted("$(git)", None)),
        (vec!["python3.11"], unlisted("python3.11", None)),
        (vec!["-git"], unlisted("-git", None)),
        (vec!["gi"], unlisted("gi", None)),
        (vec!["gitt"], unlisted("gitt", None)),
    ];
    for (words, expected) in table {
        assert_eq!(refusal(&words), expected, "{words:?}");
    }
}

#[test]
fn hints_name_the_bare_name() {
    assert_eq!(refusal(&["/usr/bin/python3"]).hint(), "write the bare name `python3`");
    assert_eq!(refusal(&["GIT"]).hint(), "write the bare name `git`");
    assert_eq!(refusal(&["git "]).hint(), "write the bare name `git`");
    assert_eq!(refusal(&["/bin/rm"]).code(), "command_path");
}

#[test]
fn audit_keeps_three_safe_words() {
    let form = |words: &[&str]| audit_form(&argv(words));
    assert_eq!(form(&["git", "log", "--oneline", "secret"]), "git log --oneline");
    assert_eq!(form(&["echo", "a b", ""]), "echo \"a b\" \"\"");
    assert_eq!(form(&["echo", "x\r\n\u{1b}[2J", "\u{e9}"]), "echo \"x\\r\\n\\u{1b}[2J\" \"\\u{e9}\"");
    assert_eq!(form(&["echo", &"a".repeat(100)]), format!("echo {}", quote(&"a".repeat(100))));
}

proptest::proptest! {
    #[test]
    fn only_listed_first_words_pass(words in proptest::collection::vec(".{0,12}", 0..4)) {
        match check(&words) {
            Ok(allowed) => {
                proptest::prop_assert!(ALLOWED_COMMANDS.contains(&words[0].as_str()));
                proptest::prop_assert_eq!(allowed.argv(), words.as_slice());
            }
            Err(denied) => {
                proptest::prop_assert!(!denied.hint().is_empty());
                proptest::prop_assert!(!denied.to_string().contains(char::is_control));
            }
        }
        proptest::prop_assert!(!audit_form(&words).contains(char::is_control));
    }
}
