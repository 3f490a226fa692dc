//! What pond keeps of a run and for how long: artifacts, an output directory, the list of runs, the audit log.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{World, names};

#[test]
fn artifacts_and_everything_else_land_in_a_new_directory() {
    let world = World::new();
    world.write(".gitignore", "target/\n");
    let out = world.project().parent().unwrap().join("out");
    let place = out.display().to_string();
    let line = "mkdir -p target/r && echo app > target/r/app && echo x > target/r/other && echo '{}' > edit_result.json && echo said && echo x > f";
    let flags = ["--out", &place, "--artifact", "./target/r/app", "--artifact", "none/"];
    let summary = world.summary(&flags, &["sh", "-c", line]);
    assert_eq!(summary["result"]["artifacts"]["copied"], json!(["target/r/app"]), "{summary:#}");
    assert_eq!(summary["result"]["artifacts"]["missing"], json!(["none"]));
    assert_eq!(summary["result"]["changed"], 1);
    let expected = [
        "artifacts",
        "changes.json",
        "changes.patch",
        "edit_result.json",
        "egress.jsonl",
        "manifest.json",
        "policy.json",
        "statement.dsse.json",
        "stderr.log",
        "stdout.log",
        "summary.json",
    ];
    assert_eq!(names(&out).into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(std::fs::read_to_string(out.join("artifacts/target/r/app")).unwrap(), "app\n");
    assert_eq!(std::fs::read_to_string(out.join("stdout.log")).unwrap(), "said\n");
    let saved: Value = serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(saved, summary);

    let again = world.run(&["run", "--out", &place, "--", "touch", "ran"]);
    assert!(again.code == 125 && again.stderr.contains("must be a new directory"), "{again:?}");
    let kept = world.summary(&["--artifact", "f"], &["sh", "-c", "echo x > f"]);
    let directory = kept["result"]["artifacts"]["directory"].as_str().unwrap();
    assert!(
        directory.contains(kept["run"].as_str().unwrap()) && names(directory.as_ref()).contains("f"),
        "{kept:#}"
    );
}

#[test]
fn an_output_directory_without_a_run_is_removed() {
    let world = World::new();
    let out = world.project().parent().unwrap().join("out");
    let done = world.run(&["run", "--out", out.to_str().unwrap(), "--", "no-such-command"]);
    assert_eq!((done.code, out.exists()), (125, false), "{done:?}");
    for path in ["../x", "/etc/passwd", ".git/config", ""] {
        let done = world.run(&["run", "--artifact", path, "--", "true"]);
        assert!(done.code == 125 && done.stderr.contains("below the checkout"), "{path}: {done:?}");
    }
}

/// What a run was to be handed over to is broken at the end; the run itself is not.
#[test]
fn a_run_that_cannot_be_handed_over_is_kept() {
    let world = World::new();
    let job = "sh -c 'cat; echo said; echo x > f'";
    let place = world.project().parent().unwrap().join("place");
    let out = place.join("out").display().to_string();
    for (line, says, prints) in [
        (
            format!("\"$0\" run -- {job} > /dev/full"),
            "the job's output, of which the log has all: No space left",
            "",
        ),
        (
            format!("\"$0\" run -- {job} < /"),
            "the rest of the job's input, which ended early for it: Is a directory",
            "said\n",
        ),
        (
            format!(
                "mkdir {0}; echo | \"$0\" run --out {out} -- sh -c 'cat > f; echo up; sleep 1' | {{ read up; rm -r {0}; cat; }}",
                place.display()
            ),
            "/place/out: ",
            "",
        ),
        (
            format!(
                "mkdir {0}; echo | \"$0\" run --out {out} --artifact f -- sh -c 'cat > f; echo up; sleep 1' | {{ read up; rm -r {0}; cat; }}",
                place.display()
            ),
            "/place/out: ",
            "",
        ),
    ] {
        let before = names(&world.state().join("runs"));
        let done = world.host_shell(&line);
        assert_eq!(done.stdout, prints, "{done:?}");
        for part in
            [&format!("not delivered: {says}"), "1 file changed", "pond exits with 125; the run is kept in"]
        {
            let part = if part.contains("/place/out") { "/place/out: " } else { part };
            assert!(done.stderr.contains(part), "{part}: {done:?}");
        }
        let after = names(&world.state().join("runs"));
        let run = after.difference(&before).next().unwrap();
        let verified = world.run(&["verify", run]);
        assert!(verified.code == 0 && verified.stdout.contains("verified: "), "{verified:?}");
        assert!(listed(&world).iter().any(|row| row["run"] == **run), "{run}");
        assert!(!place.exists());
        let applied = world.run(&["apply", run]);
        assert_eq!((applied.code, applied.stdout.as_str()), (0, "added f\n"), "{applied:?}");
        std::fs::remove_file(world.project().join("f")).unwrap();
    }
    // A summary that nobody can be given.
    for flags in ["--json", "--json --out o"] {
        let before = names(&world.state().join("runs")).len();
        let done = world.host_shell(&format!("\"$0\" run {flags} -- true > /dev/full"));
        assert_eq!((done.code, names(&world.state().join("runs")).len()), (125, before + 1), "{done:?}");
        assert!(done.stderr.contains("the summary could not be written: No space left"), "{done:?}");
    }
}

#[test]
fn an_output_directory_without_room_costs_the_directory() {
    let world = World::new();
    let script = "mkdir p o; mount -t tmpfs -o size=64k y o; cd p; set +e; \
        $P run --out $1/o/new --artifact f -- sh -c 'head -c 1m /dev/urandom > f'; code=$?; ls -A $1/o; exit $code";
    let done = crate::bad_input::mounted(&world, script);
    assert_eq!((done.code, done.stdout.as_str()), (125, ""), "{done:?}");
    for part in ["not delivered: ", "/o/new: ", "No space left", "1 artifact: ", "the run is kept in"] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    let run = names(&world.state().join("runs")).into_iter().next().unwrap();
    assert!(world.state().join("runs").join(run).join("artifacts/f").exists());
}

fn listed(world: &World) -> Vec<Value> {
    serde_json::from_str(&world.run(&["runs", "--json"]).stdout).unwrap()
}

#[test]
fn runs_are_listed_and_old_ones_go() {
    let world = World::new();
    assert_eq!(world.run(&["runs"]).stdout, "no runs\n");
    let mut ids: Vec<String> = Vec::new();
    for line in ["echo a > a; exit 3", "exit 0", "exit 0"] {
        let summary = world.summary(&[], &["sh", "-c", line, "token-not-shown"]);
        ids.push(summary["run"].as_str().unwrap().to_owned());
    }
    let rows = listed(&world);
    let shown: Vec<&str> = rows.iter().rev().map(|row| row["run"].as_str().unwrap()).collect();
    assert_eq!(shown, ids);
    let first = rows.iter().find(|row| row["verdict"]["code"] == 3).unwrap();
    assert_eq!((&first["changed"], &first["command"]), (&1.into(), &"sh -c \"echo a > a; exit 3\"".into()));
    let text = world.run(&["runs"]).stdout;
    assert!(text.lines().count() == 4 && !text.contains("token-not-shown"), "{text}");

    let nothing = world.run(&["gc"]);
    assert_eq!(nothing.stdout, "0 swept, 0 removed, 3 kept\n", "{nothing:?}");
    assert_eq!(world.run(&["gc", "--older-than", "1h"]).stdout, "0 swept, 0 removed, 3 kept\n");
    assert_eq!(world.run(&["gc", "--keep", "1"]).stdout, "0 swept, 2 removed, 1 kept\n");
    assert_eq!(listed(&world).len(), 1);
    assert_eq!(listed(&world)[0]["run"], rows[0]["run"]);
    assert_eq!(world.run(&["gc", "--older-than", "x"]).code, 125);
}

#[test]
fn gc_never_touches_a_live_run_and_clears_debris() {
    let world = World::new();
    world.shell("true");
    let mut child = world
        .pond(&["run", "--", "sh", "-c", "echo started; read go; echo x > f"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let debris = world.state().join("runs/20200101-000000-00000000");
    std::fs::create_dir(&debris).unwrap();
    let done = world.run(&["gc", "--keep", "0"]);
    assert_eq!((done.stdout.as_str(), debris.exists()), ("0 swept, 2 removed, 0 kept\n", false), "{done:?}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(listed(&world)[0]["changed"], 1);
}

fn audit(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(world.state().join("audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_command_leaves_one_audit_line() {
    let world = World::new();
    world.run(&["run", "--", "sh", "-c", "exit 7", "a-secret"]);
    world.run(&["run", "--timeout", "1s", "--", "sleep", "100"]);
    world.run(&["run", "--profile", "untrusted-code-test", "--", "sh", "-c", "echo"]);
    world.run(&["run", "--profile", "none", "--", "true"]);
    world.run(&["run", "--", "no-such-command"]);
    let lines = audit(&world);
    let facts: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!([
                line["command"],
                line["returncode"],
                line["timed_out"],
                line["profile"],
                line["backend"],
                line["denied"]
            ])
        })
        .collect();
    assert_eq!(
        facts,
        [
            json!(["sh -c \"exit 7\"", 7, false, "untrusted-code-write", "native", null]),
            json!(["sleep 100", 124, true, "untrusted-code-write", "native", null]),
            json!(["sh -c echo", null, false, "untrusted-code-test", "native", "command_shell"]),
            json!(["true", 0, false, "none", "none", null]),
            json!(["no-such-command", null, false, "untrusted-code-write", "native", null]),
        ]
    );
    let ids: Vec<bool> = lines.iter().map(|line| line["id"].is_string()).collect();
    assert_eq!(ids, [true, true, false, true, false]);
    assert!(lines[1]["elapsed_seconds"].as_f64().unwrap() >= 1.0);
    let path = world.state().join("audit.jsonl");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read_to_string(path).unwrap().contains("a-secret"));
}

#[test]
fn nothing_runs_that_could_not_be_written_down() {
    let world = World::new();
    std::fs::create_dir_all(world.state().join("audit.jsonl")).unwrap();
    let done = world.run(&["run", "--profile", "none", "--", "touch", "ran"]);
    assert!(done.code == 125 && done.stderr.contains("audit log"), "{done:?}");
    assert!(!world.project().join("ran").exists());
}

/// What a tester tripped over: each of these was once a panic, a silence or the end of every later command.
#[test]
fn what_is_in_the_way_of_one_thing_stops_nothing_else() {
    let world = World::new();
    for flags in [&["--timeout", "1s"][..], &["--json"], &["--out", "o"], &["--snapshot"]] {
        let done = world.run(&[&["run", "--profile", "none"], flags, &["--", "touch", "ran"]].concat());
        assert_eq!(done.code, 125, "{done:?}");
        assert!(
            (done.stdout.clone() + &done.stderr).contains(flags[0]) && !world.project().join("ran").exists(),
            "{done:?}"
        );
    }
    let mistyped = world.run(&["run", "--memroy", "1g", "--", "true"]);
    assert!(mistyped.code == 125 && mistyped.stderr.contains("no flag of `pond run`"), "{mistyped:?}");
    assert_eq!(world.host_shell("\"$0\" run --memory 5x -- true 2>/dev/full").code, 125);
    assert_eq!(
        world
            .host_shell(
                "nohup \"$0\" run -- sh -c 'echo up; sleep 1' > said & \
        for i in $(seq 600); do grep -q up said && break; sleep 0.1; done; kill -HUP $!; wait $!"
            )
            .code,
        0
    );
    let kept = names(&world.state().join("runs")).into_iter().next().unwrap();
    std::fs::write(world.state().join("runs").join(&kept).join("run.json"), "").unwrap();
    std::fs::write(world.state().join("runs/stray"), "").unwrap();
    for command in ["runs", "gc"] {
        let done = world.run(&[command]);
        assert!(done.code == 0 && done.stderr.contains("warning"), "{done:?}");
    }
    assert!(names(&world.state().join("runs")).contains(&kept));
}
