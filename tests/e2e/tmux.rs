//! A person at a terminal: a tmux server of the test's own, with one window and a shell in it.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::World;

/// How long anything on the screen may take to appear.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Tmux<'a> {
    world: &'a World,
}

impl<'a> Tmux<'a> {
    /// A window of 100 by 30 whose shell stands in the project and finds the pond under test as `$POND`.
    pub(crate) fn start(world: &'a World) -> Self {
        let tmux = Self { world };
        tmux.run(&["new-session", "-d", "-x", "100", "-y", "30", "exec env PS1='host> ' sh"]);
        tmux.run(&["set-option", "-s", "set-clipboard", "on"]);
        tmux.wait_for("host>");
        tmux
    }

    /// One tmux command; its output, or nothing when it failed.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Option<String> {
        let output = self.command().args(arguments).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.ask(arguments).unwrap_or_else(|| panic!("tmux {arguments:?} failed"))
    }

    #[expect(clippy::disallowed_methods, reason = "tests start the terminal they look at")]
    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command
            .args(["-L", "pond", "-f", "/dev/null"])
            .current_dir(self.world.project())
            .env_remove("TMUX")
            .env("TMUX_TMPDIR", self.world.project().parent().unwrap())
            .env("POND", env!("CARGO_BIN_EXE_pond"))
            .env("POND_STATE_DIR", self.world.state())
            .env_remove("POND_REQUIRE_SANDBOX")
            .env_remove("POND_MIN_BACKEND");
        command
    }

    /// Types a line.
    pub(crate) fn line(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
        self.key("Enter");
    }

    pub(crate) fn key(&self, name: &str) {
        self.run(&["send-keys", name]);
    }

    pub(crate) fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-J"])
    }

    /// Waits until `text` is on the screen. It must not be in what was typed, which is on the screen too.
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_until(|| self.screen().contains(text), text);
    }

    pub(crate) fn wait_until(&self, condition: impl Fn() -> bool, what: &str) {
        wait_until(condition, || format!("no {what:?} on\n{}", self.screen()));
    }

    /// Types a line and waits for `marker-CODE`, where CODE is the exit code of the line.
    pub(crate) fn line_ending_with(&self, text: &str, marker: &str, code: u8) {
        self.line(&format!("{text}; echo {marker}-$?"));
        self.wait_for(&format!("{marker}-{code}"));
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        self.ask(&["kill-server"]);
    }
}

pub(crate) fn wait_until(condition: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(20));
    }
}
