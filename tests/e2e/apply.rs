//! Taking a result over: all or nothing, only onto the same base, and never what a person would want to see first.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

use crate::support::{Done, World, first_line, names};

fn run_id(world: &World, line: &str) -> String {
    world.summary(&[], &["sh", "-c", line])["run"].as_str().unwrap().to_owned()
}

#[test]
fn the_newest_run_of_this_checkout_is_applied() {
    let world = World::new();
    world.write("kept.txt", "one\n");
    world.write("gone.txt", "x\n");
    run_id(&world, "echo older > made.txt");
    let run = run_id(
        &world,
        "echo two >> kept.txt; rm gone.txt; mkdir d; echo new > d/made.sh; chmod +x d/made.sh; chmod -x kept.txt",
    );
    // A run somewhere else does not count, however new it is.
    let other = World::new();
    other
        .pond(&["run", "--", "sh", "-c", "echo no > made.txt"])
        .env("POND_STATE_DIR", world.state())
        .output()
        .unwrap();
    let refused = world.run(&["apply"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    assert!(
        refused.stderr.contains("d/made.sh: can now be executed") && refused.stderr.contains("--flagged"),
        "{refused:?}"
    );
    assert_eq!(world.read("kept.txt"), "one\n");
    let done = world.run(&["apply", "--flagged"]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "added d/made.sh\ndeleted gone.txt\nmodified kept.txt\n"),
        "{done:?}"
    );
    assert!(done.stderr.contains(&run), "{done:?}");
    assert_eq!(world.read("kept.txt"), "one\ntwo\n");
    assert!(!world.project().join("gone.txt").exists() && !other.project().join("made.txt").exists());
    let mode = world.project().join("d/made.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn a_moved_base_is_refused_with_every_path() {
    let world = World::new();
    for name in ["a", "b", "c", "same"] {
        world.write(name, "base\n");
    }
    let run = run_id(&world, "for f in a b c same new; do echo job >> $f; done");
    world.write("a", "mine\n");
    std::fs::remove_file(world.project().join("b")).unwrap();
    world.write("new", "mine\n");
    let refused = world.run(&["apply", &run]);
    assert_eq!(refused.code, 125, "{refused:?}");
    for line in ["a: has changed", "b: is gone", "new: is there already"] {
        assert!(refused.stderr.contains(line), "{line}: {refused:?}");
    }
    let json = world.run(&["apply", &run, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        value["reason"]["conflicts"],
        serde_json::json!([
            {"path": "a", "kind": "differs"}, {"path": "b", "kind": "missing"}, {"path": "new", "kind": "exists"}
        ]),
        "{value:#}"
    );
    assert_eq!((world.read("a").as_str(), world.read("same").as_str()), ("mine\n", "base\n"));
    // The same result on an untouched copy of the base goes through.
    let other = World::new();
    for name in ["a", "b", "c", "same"] {
        other.write(name, "base\n");
    }
    let checkout = other.project().display().to_string();
    let done = world.run(&["apply", &run, "--checkout", &checkout]);
    assert_eq!((done.code, other.read("new").as_str()), (0, "job\n"), "{done:?}");
}

/// A run whose checkout is edited after the job did its work and before it ends.
fn edited_while_it_runs(world: &World, line: &str, edit: impl FnOnce()) -> Done {
    let line = format!("{line}; echo ready; read go");
    let mut child = world
        .pond(&["run", "--", "sh", "-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "ready\n");
    edit();
    drop(child.stdin.take());
    Done::of(child.wait_with_output().unwrap())
}

#[test]
fn what_was_written_during_the_run_is_never_overwritten() {
    let world = World::new();
    for name in ["f", "g", "same"] {
        world.write(name, "base\n");
    }
    for name in ["d", "e", "moved"] {
        std::fs::create_dir(world.project().join(name)).unwrap();
        world.write(&format!("{name}/inner"), "base\n");
    }
    let job = "echo job >> f; rm -rf d g; echo job > n; mkdir m; echo job > m/x; echo job >> e/inner; echo job >> same";
    let done = edited_while_it_runs(&world, job, || {
        world.write("f", "base\nmine\n");
        world.write("d/mine", "mine\n");
        world.write("g", "mine\n");
        world.write("n", "mine\n");
        world.write("m", "mine\n");
        // The files below keep their old change times.
        std::fs::rename(world.project().join("e"), world.project().join("e.old")).unwrap();
        std::fs::rename(world.project().join("moved"), world.project().join("e")).unwrap();
    });
    assert!(done.stderr.contains("so not to be applied: d, d/mine, e, f, g, m, n\n"), "{done:?}");
    let refused = world.run(&["apply"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    for path in ["d", "d/mine", "e", "f", "g", "m", "n"] {
        assert!(
            refused.stderr.contains(&format!("pond: {path}: changed while the job ran\n")),
            "{refused:?}"
        );
    }
    assert!(!refused.stderr.contains("same") && !refused.stderr.contains("inner"), "{refused:?}");
    for path in ["d/mine", "g", "n", "m"] {
        assert_eq!(world.read(path), "mine\n");
    }
    assert_eq!((world.read("f").as_str(), world.read("same").as_str()), ("base\nmine\n", "base\n"));
    assert_eq!((world.read("d/inner").as_str(), world.read("e/inner").as_str()), ("base\n", "base\n"));
}

/// To a result such a file looks new, whether it was changed in place or replaced.
#[test]
fn what_was_removed_during_the_run_is_not_brought_back() {
    let world = World::new();
    for name in ["in-place", "replaced", "untracked", "stays"] {
        world.write(name, "base\n");
    }
    std::fs::create_dir(world.project().join("d")).unwrap();
    world.write("d/inner", "base\n");
    let git =
        "git init -q; git add in-place replaced stays d; git -c user.name=x -c user.email=x commit -qm x";
    assert_eq!(world.host_shell(git).code, 0);
    let job = "echo job >> in-place; echo job > new; for f in replaced stays; do echo job > t; mv t $f; done; echo job >> d/inner";
    let done = edited_while_it_runs(&world, job, || {
        for name in ["in-place", "replaced"] {
            std::fs::remove_file(world.project().join(name)).unwrap();
        }
        std::fs::remove_dir_all(world.project().join("d")).unwrap();
    });
    assert!(done.stderr.contains("so not to be applied: d/inner, in-place, replaced\n"), "{done:?}");
    let refused = world.run(&["apply"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    for path in ["d/inner", "in-place", "replaced"] {
        assert!(
            refused.stderr.contains(&format!("pond: {path}: changed while the job ran\n")),
            "{refused:?}"
        );
    }
    assert!(!refused.stderr.contains("new:") && !refused.stderr.contains("stays:"), "{refused:?}");
    assert!(!world.project().join("in-place").exists());
}

#[test]
fn edits_beside_the_result_do_not_stand_in_its_way() {
    let world = World::new();
    world.write("f", "base\n");
    let done = edited_while_it_runs(&world, "echo job >> f; echo job > n", || world.write("other", "mine\n"));
    assert!(done.stderr.contains("the checkout changed while the job ran"), "{done:?}");
    let done = world.run(&["apply"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "modified f\nadded n\n"), "{done:?}");
    assert_eq!((world.read("f").as_str(), world.read("other").as_str()), ("base\njob\n", "mine\n"));
}

#[test]
fn links_out_and_incomplete_results_need_a_word() {
    let world = World::new();
    let run = run_id(&world, "ln -s /etc/passwd out; mkfifo p; echo x > f");
    let refused = world.run(&["apply", &run]);
    assert!(refused.code == 125 && refused.stderr.contains("p: is a fifo"), "{refused:?}");
    let refused = world.run(&["apply", &run, "--incomplete"]);
    assert!(refused.code == 125 && refused.stderr.contains("out: symbolic link"), "{refused:?}");
    assert!(!world.project().join("f").exists());
    let done = world.run(&["apply", &run, "--incomplete", "--yes-links"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "added f\nadded out\n"), "{done:?}");
}

#[test]
fn what_the_patch_does_not_show_needs_a_word() {
    let world = World::new();
    world.write("main.rs", "fn main() {}\n");
    let run = run_id(&world, "echo large > a1; echo 'fn more() {}' >> main.rs");
    // As if the file were: making one that does not fit takes longer than everything else here.
    let path = world.state().join("runs").join(&run).join("changes.json");
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    record["patch_omitted"] = serde_json::json!(["a1"]);
    std::fs::write(&path, record.to_string()).unwrap();
    let refused = world.run(&["apply"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    assert!(refused.stderr.contains("a1: changed, and too large for the patch"), "{refused:?}");
    assert!(refused.stderr.contains("--with-omitted") && !refused.stderr.contains("main.rs"), "{refused:?}");
    assert_eq!(world.read("main.rs"), "fn main() {}\n");
    let done = world.run(&["apply", "--with-omitted"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "added a1\nmodified main.rs\n"), "{done:?}");
}

/// A prompt that asks git for its state would run the command on entering `docs`.
#[test]
fn a_planted_bare_repository_needs_a_word() {
    let world = World::new();
    let plant = "mkdir -p docs/objects docs/refs; touch docs/objects/x docs/refs/x; echo 'ref: refs/heads/x' > docs/HEAD; \
                 printf '[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch ../ran; false\n' > docs/config";
    run_id(&world, plant);
    let refused = world.run(&["apply"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    assert!(refused.stderr.contains("docs/config: lies in a git repository without .git"), "{refused:?}");
    assert!(!world.project().join("docs").exists());
}

/// Where an apply to the project writes down what it does.
fn journal_name(world: &World) -> String {
    format!("apply-{:x}.journal", world.project().metadata().unwrap().ino())
}

/// What an apply to the project writes down.
fn journal(world: &World, staging: &str, phase: &str, steps: &serde_json::Value) -> String {
    let root = world.project().metadata().unwrap();
    let tree = serde_json::json!({"device": root.dev(), "inode": root.ino()});
    serde_json::json!({"staging": staging, "tree": tree, "phase": phase, "steps": steps, "made": [], "gone": []})
        .to_string()
}

#[test]
fn an_interrupted_apply_of_another_run_is_undone_first() {
    let world = World::new();
    world.write("f", "base\n");
    world.write("g", "base\n");
    let first = run_id(&world, "echo first > f; echo first > g");
    let second = run_id(&world, "echo second > made");
    // Death after the first of two replacements: `f` has changed places with its slot.
    let staging = ".pond-apply-0123456789abcdef";
    let slots = world.project().join(staging);
    std::fs::create_dir(&slots).unwrap();
    std::fs::rename(world.project().join("f"), slots.join("0")).unwrap();
    world.write("f", "first\n");
    std::fs::write(slots.join("1"), "first\n").unwrap();
    let inode = |path: std::path::PathBuf| path.metadata().unwrap().ino();
    let step = |path: &str, staged: u64| serde_json::json!({"path": path, "action": {"kind": "replace", "staged": staged}});
    let steps =
        serde_json::json!([step("f", inode(world.project().join("f"))), step("g", inode(slots.join("1")))]);
    let directory = world.state().join("runs").join(&first);
    let written = directory.join(journal_name(&world));
    std::fs::write(&written, journal(&world, staging, "committing", &steps)).unwrap();
    // Another checkout has nothing to do with it, and its traces are not lost for that.
    let other = World::new();
    other.write("f", "base\n");
    other.write("g", "base\n");
    let elsewhere = world.run(&["apply", &first, "--checkout", &other.project().display().to_string()]);
    assert_eq!((elsewhere.code, elsewhere.stdout.as_str()), (0, "modified f\nmodified g\n"), "{elsewhere:?}");
    assert_eq!((other.read("f").as_str(), world.read("g").as_str()), ("first\n", "base\n"));
    assert!(written.exists());

    let done = world.run(&["apply", &second]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "added made\n"), "{done:?}");
    assert!(done.stderr.contains(&format!("an apply of {first} to this checkout was cut short")), "{done:?}");
    assert_eq!((world.read("f").as_str(), world.read("g").as_str()), ("base\n", "base\n"));
    assert!(!slots.exists() && !written.exists());
    assert_eq!(world.run(&["apply", &first]).stdout, "modified f\nmodified g\n");
}

#[test]
fn a_signal_in_the_middle_does_not_leave_half() {
    const FILES: usize = 3000;
    let world = World::new();
    run_id(
        &world,
        &format!("mkdir d; cd d; i=0; while [ $i -lt {FILES} ]; do echo $i > $i; i=$((i+1)); done"),
    );
    let mut child = world.pond(&["apply"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has_begun = || names(&world.project()).iter().any(|name| name.starts_with(".pond-apply-"));
    while !has_begun() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before anybody saw it begin");
    }
    let pid = rustix::process::Pid::from_child(&child);
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::HUP]
    {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!((names(&world.project()).len(), names(&world.project().join("d")).len()), (1, FILES));
}

#[test]
fn an_interrupted_apply_is_undone_first() {
    let world = World::new();
    world.write("f", "base\n");
    let run = run_id(&world, "echo job > f");
    // What a death in the middle leaves: a staged copy, and the journal that names it.
    let staging = ".pond-apply-0123456789abcdef";
    std::fs::create_dir(world.project().join(staging)).unwrap();
    std::fs::write(world.project().join(staging).join("0"), "job\n").unwrap();
    let journal = journal(&world, staging, "staging", &serde_json::json!([]));
    let directory = world.state().join("runs").join(&run);
    std::fs::write(directory.join(journal_name(&world)), journal).unwrap();
    let done = world.run(&["apply", &run]);
    assert_eq!((done.code, world.read("f").as_str()), (0, "job\n"), "{done:?}");
    assert!(done.stderr.contains("cut short; it is undone"), "{done:?}");
    assert!(!world.project().join(staging).exists() && !directory.join(journal_name(&world)).exists());
}

/// Nobody can end what was begun in a checkout that is gone: the run can be applied elsewhere, and goes when its time has come.
#[test]
fn a_checkout_that_is_gone_in_the_middle_of_an_apply_holds_nothing_up() {
    let world = World::new();
    world.write("f", "base\n");
    let run = run_id(&world, "echo job > f");
    let directory = world.state().join("runs").join(&run);
    let gone = World::new();
    let begun = journal(&gone, ".pond-apply-0123456789abcdef", "committing", &serde_json::json!([]));
    let mut begun: serde_json::Value = serde_json::from_str(&begun).unwrap();
    begun["place"] = gone.project().display().to_string().into();
    let written = directory.join(journal_name(&gone));
    std::fs::write(&written, begun.to_string()).unwrap();
    // As long as the checkout is there, so is what undoes the half-done apply.
    assert_eq!(world.run(&["gc", "--keep", "0"]).stdout, "0 swept, 0 removed, 1 kept\n");
    let place = gone.project().display().to_string();
    drop(gone);
    let done = world.run(&["apply", &run]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "modified f\n"), "{done:?}");
    let done = world.run(&["gc", "--keep", "0"]);
    assert_eq!(
        (done.stdout.as_str(), directory.exists()),
        ("0 swept, 1 removed, 0 kept\n", false),
        "{done:?}"
    );
    assert!(done.stderr.contains(&format!("{place} was cut short, and that directory is gone")), "{done:?}");
}

/// What is done is done: it stays applied, and whoever waits for word of it does not take silence for one.
#[test]
fn a_report_that_cannot_be_written_is_a_failure_of_an_apply_that_stands() {
    let world = World::new();
    for flag in ["", "--json"] {
        let run = run_id(&world, "echo job >> f; echo job >> g");
        let done = world.host_shell(&format!("\"$0\" apply {flag} > /dev/full"));
        let says =
            format!("pond: 2 of {run} applied to {}, and that could not be", world.project().display());
        assert!(done.code == 125 && done.stderr.starts_with(&says), "{flag}: {done:?}");
        assert_eq!(done.stderr.lines().count(), 1, "{flag}: {done:?}");
    }
    assert_eq!((world.read("f").as_str(), world.read("g").as_str()), ("job\njob\n", "job\njob\n"));
}

#[test]
fn a_report_nobody_takes_is_no_failure() {
    let world = World::new();
    for to in ["2>/dev/full", "| true"] {
        run_id(&world, "echo job >> f; for i in 1 2 3; do echo job >> f$i; done");
        let done = world.host_shell(&format!("\"$0\" apply {to}"));
        assert!(done.code == 0 && !done.stderr.contains("panic"), "{to}: {done:?}");
    }
    // The reader of the list is gone before it is written.
    run_id(&world, "i=0; while [ $i -lt 300 ]; do echo job >> g$i; i=$((i+1)); done");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = Done::of(world.pond(&["apply"]).stdout(writer).output().unwrap());
    assert!(done.code == 0 && done.stderr.contains("300 of"), "{done:?}");
    assert_eq!((world.read("f").as_str(), world.read("g299").as_str()), ("job\njob\n", "job\n"));
}

#[test]
fn hostile_names_are_shown_and_not_obeyed() {
    let world = World::new();
    let run = run_id(&world, "printf x > \"$(printf 'a\\033[2J\\npond: all good')\"");
    let done = world.run(&["apply", &run, "--flagged"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "added \"a\\033[2J\\npond: all good\"\n"), "{done:?}");
    assert!(world.project().join("a\u{1b}[2J\npond: all good").exists());
}

#[test]
fn there_must_be_a_result() {
    let world = World::new();
    for (arguments, says) in [
        (&["apply"][..], "no run on"),
        (&["apply", "20990101-000000-00000000"], "there is no run"),
        (&["apply", "../../etc"], "not a job name"),
    ] {
        let done = world.run(arguments);
        assert!(done.code == 125 && done.stderr.contains(says), "{arguments:?}: {done:?}");
    }
    world.run(&["run", "--profile", "untrusted-code-read", "--", "true"]);
    let done = world.run(&["apply"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
}
