//! Judges a console: every suite must have ended well, by its exit code and by its own count of tests.
//! Pure. Silence, a missing suite and a suite that ran no test are failures.

use anyhow::{Context, Result, ensure};

/// Starts the line that a guest prints after each suite, before its name and its exit code.
pub(super) const MARK: &str = "pond-suite";

/// How many tests of each suite passed, as a line to show.
pub(super) fn judge(console: &str, suites: &[&str]) -> Result<String> {
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    let mut rest = lines.as_slice();
    let mut passed = Vec::new();
    for name in suites {
        let mark = format!("{MARK} {name} ");
        let end = rest.iter().position(|line| line.starts_with(&mark));
        let end = end.with_context(|| format!("the suite {name} did not end\n{}", tail(rest)))?;
        let (said, after) = rest.split_at(end);
        let code = after.first().and_then(|line| line.strip_prefix(&mark)).unwrap_or_default();
        ensure!(code == "0", "the suite {name} ended with {code}\n{}", tail(said));
        let count = said.iter().rev().find_map(|line| tests_passed(line));
        let count = count.filter(|count| *count > 0);
        passed.push(format!("{name} {}", count.with_context(|| format!("the suite {name} ran no test"))?));
        rest = after.get(1..).unwrap_or_default();
    }
    Ok(format!("{} tests passed", passed.join(", ")))
}

fn tests_passed(line: &str) -> Option<u32> {
    let counts = line.strip_prefix("test result: ok. ")?;
    counts.split_once(" passed; 0 failed; 0 ignored")?.0.parse().ok()
}

fn tail(lines: &[&str]) -> String {
    const SHOWN: usize = 60;
    lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "SeaBIOS\r\nrunning 2 tests\r\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\r\n\r\n\
        pond-suite one 0\r\ntest result: ok. 7 passed; 0 failed; 0 ignored\r\npond-suite two 0\r\n";

    fn fault(console: &str) -> String {
        judge(console, &["one", "two"]).unwrap_err().to_string().lines().next().unwrap().to_owned()
    }

    #[test]
    fn suites_that_passed_are_counted() {
        assert_eq!(judge(GOOD, &["one", "two"]).unwrap(), "one 2, two 7 tests passed");
    }

    #[test]
    fn anything_else_is_a_failure() {
        assert_eq!(fault(""), "the suite one did not end");
        assert_eq!(fault(GOOD.split_once("pond-suite two").unwrap().0), "the suite two did not end");
        assert_eq!(fault(&GOOD.replace("two 0", "two 101")), "the suite two ended with 101");
        assert_eq!(fault(&GOOD.replace("one 0", "one ")), "the suite one did not end");
        assert_eq!(
            fault(&GOOD.replace("7 passed; 0 failed", "0 passed; 0 failed")),
            "the suite two ran no test"
        );
        assert_eq!(
            fault(&GOOD.replace("7 passed; 0 failed", "6 passed; 1 failed")),
            "the suite two ran no test"
        );
        assert_eq!(
            fault(&GOOD.replace("7 passed; 0 failed; 0 ignored", "6 passed; 0 failed; 1 ignored")),
            "the suite two ran no test"
        );
    }

    #[test]
    fn one_suite_does_not_speak_for_another() {
        assert_eq!(
            fault(&GOOD.replace("test result: ok. 7 passed; 0 failed; 0 ignored", "")),
            "the suite two ran no test"
        );
    }
}
