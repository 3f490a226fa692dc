//! The first command a newcomer will copy from the README, run exactly as it stands there.

use std::fs;

use anyhow::{Context, Result};

use super::Shop;

pub(super) fn run(shop: &Shop) -> Result<()> {
    let readme = fs::read_to_string(shop.root.join("README.md")).context("README.md")?;
    let command = first_command(&readme).context("README.md shows no command in a code block")?;
    shop.step(shop.command(&["sh", "-c", &command]))
}

/// The first line inside the first code block, continued lines included.
fn first_command(readme: &str) -> Option<String> {
    let mut lines = readme.lines().skip_while(|line| !line.starts_with("```")).skip(1);
    let mut line =
        lines.by_ref().take_while(|line| !line.starts_with("```")).find(|line| !is_remark(line))?;
    let mut command = String::new();
    while let Some(continued) = line.strip_suffix('\\') {
        command.push_str(continued);
        line = lines.next()?.trim_start();
    }
    command.push_str(line);
    Some(command.strip_prefix("$ ").unwrap_or(&command).to_owned())
}

fn is_remark(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(readme: &str, expected: Option<&str>) {
        assert_eq!(first_command(readme).as_deref(), expected);
    }

    #[test]
    fn the_first_command_of_the_first_block_is_taken() {
        check(
            "# pond\n\n```sh\n# build and run\ncargo run -- a\ncargo b\n```\n```sh\nc\n```\n",
            Some("cargo run -- a"),
        );
        check("```console\n$ cargo run -- \\\n    'a b'\nhello\n```\n", Some("cargo run -- 'a b'"));
    }

    #[test]
    fn no_command_is_not_a_command() {
        check("# pond\ncargo run\n", None);
        check("```sh\n```\ncargo run\n", None);
    }
}
