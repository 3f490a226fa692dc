//! SIGKILL of each of pond's processes at each step of a run: whatever died, and wherever, the next start finds and removes
//! what is left, and works.
//!
//! A step is a system call that changes something outside the process that makes it; the victim dies on the way into it. Each
//! test runs itself again as pid 1 of a pid namespace of its own: there, whatever a run left alive is its child, and whatever
//! `/proc` shows of processes, namespaces and locks is its doing.

mod census;
mod tracer;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{World, names};
use crate::visitor::Visitor;
use census::Census;
use tracer::{Copy, Role, Traced, Victim};

/// More steps than any process of a run has: a test that does not come to an end is wrong.
const MOST_STEPS: usize = 1000;

/// Runs this very test inside its own pid and mount namespaces, and there the body.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
fn alone(test: &str, body: fn()) {
    if std::process::id() == 1 {
        return body();
    }
    // What lives on keeps the test waiting for it.
    let output = Command::new("timeout")
        .args(["--signal=KILL", "200", "unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        // Nothing here is meant to survive the machine, and a disk takes its time to promise that it would.
        .env("TMPDIR", "/dev/shm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Who runs pond.
enum Caller {
    Root(World),
    User(Visitor),
}

impl Caller {
    /// With a project of one file.
    fn root() -> Self {
        let world = World::new();
        world.write("f", "before\n");
        Self::Root(world)
    }

    fn user() -> Self {
        let visitor = Visitor::invite();
        visitor.world.write("f", "before\n");
        std::fs::set_permissions(visitor.world.project().parent().unwrap(), Permissions::from_mode(0o777))
            .unwrap();
        Self::User(visitor)
    }

    fn world(&self) -> &World {
        match self {
            Self::Root(world) => world,
            Self::User(visitor) => &visitor.world,
        }
    }

    /// A run that does all that leaves something: a copy, a change, an artifact, an output directory.
    fn traced(&self, victim: Victim) -> Traced {
        let mut shell = match self {
            Self::Root(world) => world.command("sh"),
            Self::User(visitor) => visitor.command("sh"),
        };
        let pond = match self {
            Self::Root(_) => Path::new(env!("CARGO_BIN_EXE_pond")),
            Self::User(visitor) => &visitor.pond,
        };
        shell.args(["-c", tracer::BECOME, "sh"]).arg(pond).args(["run", "--snapshot", "--out", "../out"]);
        shell.args(["--artifact", "made", "--", "sh", "-c", "echo after > f; echo x > made"]);
        let copy = match self {
            Self::Root(_) => Copy::OnDisk,
            Self::User(_) => Copy::InMemory,
        };
        tracer::run(&mut shell, victim, copy)
    }

    /// The next start.
    fn works(&self, what: &str) {
        let arguments = ["run", "--", "cat", "f"];
        let next = match self {
            Self::Root(world) => world.run(&arguments),
            Self::User(visitor) => visitor.run(&arguments),
        };
        assert_eq!((next.code, next.stdout.as_str()), (0, "before\n"), "{what}: {next:?}");
    }
}

/// Kills `role` at birth, at its first step, at its second, until a run comes to its end unharmed.
fn at_every_step(caller: &Caller, role: Role) {
    let world = caller.world();
    caller.works("before all");
    let expected = Census::of(world, &BTreeSet::new());
    for step in 0..MOST_STEPS {
        let traced = caller.traced(Victim { role, step });
        let Some(call) = traced.killed_before else {
            assert!(step > 1, "{role:?} made no step");
            assert_eq!(traced.code, Some(0));
            caller.works("after all");
            return;
        };
        let what = format!("{role:?} killed at step {step}, on its way into system call {call}");
        // Dead before any sweep: a lifeline, not the next start, ends what a victim leaves running.
        assert_eq!(census::processes(), BTreeSet::new(), "{what}");
        let dead = names(&world.state().join("live"));
        match traced.code {
            None => caller.works(&what),
            Some(code) => {
                assert!(survived(role, code) && dead.is_empty(), "{what}: exit {code}, {dead:?}");
                assert!(code != 125 || is_told(&traced.said), "{what}: {}", traced.said);
            }
        }
        assert_eq!(Census::of(world, &dead), expected, "{what}");
    }
    panic!("{role:?} still makes steps after {MOST_STEPS}");
}

/// One line, which blames the kill and nothing that the host allows or refuses.
fn is_told(said: &str) -> bool {
    said.contains("a process of pond's own was killed")
        && !said.contains("sysctl")
        && said.lines().count() == 1
}

/// pond lived on, cleaned up itself, and says what is true: the job had ended, it was killed, or nothing ran.
fn survived(victim: Role, code: u8) -> bool {
    match victim {
        Role::Launcher | Role::Bearer | Role::Builder | Role::Maker | Role::Holder => {
            [0, 125].contains(&code)
        }
        Role::Init => [0, 125, 137].contains(&code),
        Role::Job => code == 137,
        Role::Pond | Role::Other => false,
    }
}

#[test]
fn pond() {
    alone("killed::pond", || at_every_step(&Caller::root(), Role::Pond));
}

#[test]
fn the_launcher() {
    alone("killed::the_launcher", || at_every_step(&Caller::root(), Role::Launcher));
}

#[test]
fn the_bearer_of_init() {
    alone("killed::the_bearer_of_init", || at_every_step(&Caller::root(), Role::Bearer));
}

#[test]
fn the_bearer_of_a_users_init() {
    alone("killed::the_bearer_of_a_users_init", || at_every_step(&Caller::user(), Role::Bearer));
}

#[test]
fn the_builder_of_the_root() {
    alone("killed::the_builder_of_the_root", || at_every_step(&Caller::root(), Role::Builder));
}

#[test]
fn the_maker_of_the_disk() {
    alone("killed::the_maker_of_the_disk", || at_every_step(&Caller::root(), Role::Maker));
}

#[test]
fn the_holder_of_the_owner_namespace() {
    alone("killed::the_holder_of_the_owner_namespace", || at_every_step(&Caller::root(), Role::Holder));
}

#[test]
fn init() {
    alone("killed::init", || at_every_step(&Caller::root(), Role::Init));
}

#[test]
fn the_job_before_it_executes() {
    alone("killed::the_job_before_it_executes", || at_every_step(&Caller::root(), Role::Job));
}

/// The first run of a state directory also makes its rooms and the template of the job's disk.
#[test]
fn pond_in_its_first_run() {
    alone("killed::pond_in_its_first_run", || {
        let settled = Caller::root();
        settled.works("before all");
        let expected = Census::of(settled.world(), &BTreeSet::new());
        for step in 0..MOST_STEPS {
            let caller = Caller::root();
            let traced = caller.traced(Victim { role: Role::Pond, step });
            let what = format!("first run killed at step {step}, {:?}", traced.killed_before);
            let dead = names(&caller.world().state().join("live"));
            caller.works(&what);
            assert_eq!(Census::of(caller.world(), &dead), expected, "{what}");
            if traced.launched {
                return;
            }
        }
        panic!("no launch after {MOST_STEPS} steps");
    });
}

#[test]
fn pond_of_a_user() {
    alone("killed::pond_of_a_user", || at_every_step(&Caller::user(), Role::Pond));
}

#[test]
fn the_launcher_of_a_user() {
    alone("killed::the_launcher_of_a_user", || at_every_step(&Caller::user(), Role::Launcher));
}

#[test]
fn init_of_a_user() {
    alone("killed::init_of_a_user", || at_every_step(&Caller::user(), Role::Init));
}
