//! What comes back from a run: changes without build output, and a run that stands even when its result cannot be had.

use crate::support::{World, names};

#[test]
fn build_output_stays_out_of_the_result() {
    let world = World::new();
    world.write(".gitignore", "target/\n*.o\n");
    let line = "mkdir -p target/debug && echo x > target/debug/app && echo x > a.o && echo 'int x;' > a.c";
    let done = world.shell(line);
    assert!(done.stderr.contains("1 file changed"), "{done:?}");
    assert!(done.stderr.contains("2 paths left out by .gitignore (--keep-ignored"), "{done:?}");
    let kept = world.summary(&["--keep-ignored"], &["sh", "-c", line]);
    let found = (&kept["result"]["changed"], &kept["result"]["left_out"]);
    assert_eq!(found, (&3.into(), &serde_json::json!([])), "{kept:#}");
}

/// More entries than a result may have, where they cost the least: names of four files.
const TOO_MANY: &str = "import os,sys
os.makedirs('.git/x')
for i in range(200001):
 if i % 60000 == 0: open(f'.git/s{i}', 'w').close(); s = f'.git/s{i}'
 os.link(s, f'.git/x/{i}')
print('done'); sys.exit(3)";

#[test]
fn a_result_over_a_cap_costs_the_result_and_not_the_run() {
    let world = World::new();
    let done = world.run(&["run", "--", "python3", "-c", TOO_MANY]);
    assert_eq!((done.code, done.stdout.as_str()), (3, "done\n"), "{done:?}");
    assert!(
        done.stderr.contains("result not collected: the result has more than the allowed number of entries"),
        "{done:?}"
    );
    assert!(done.stderr.contains("to get one: ") && done.stderr.contains("--artifact"), "{done:?}");
    let runs = world.state().join("runs");
    let name = names(&runs).pop_first().unwrap();
    let left = names(&runs.join(&name));
    assert!(
        left.contains("stdout.log") && !left.contains("objects") && !left.contains("manifest.json"),
        "{left:?}"
    );
    let verified = world.run(&["verify", &name]);
    assert!(verified.code == 0 && verified.stdout.contains("output not collected"), "{verified:?}");
}

/// A checkout that was built before has its build output in it: git does not know those files, so they are no result.
#[test]
fn build_output_of_an_earlier_build_is_no_result() {
    let world = World::new();
    world.write(".gitignore", "target/\n*.log\n");
    world.write("lib.rs", "one\n");
    world.write("kept.log", "tracked although ignored\n");
    std::fs::create_dir(world.project().join("target")).unwrap();
    for name in ["target/old", "target/gone", "gone.log"] {
        world.write(name, "built before\n");
    }
    world.host_shell("git init -q && git add .gitignore lib.rs && git add -f kept.log");
    let line = "echo two > lib.rs; echo x >> target/old; rm target/gone gone.log; echo y > target/new; echo z >> kept.log";
    let summary = world.summary(&[], &["sh", "-c", line]);
    let patch = std::fs::read_to_string(summary["result"]["patch"].as_str().unwrap()).unwrap();
    let files: Vec<&str> =
        patch.lines().filter_map(|line| line.strip_prefix("diff --git a/")?.split(' ').next()).collect();
    assert_eq!(files, ["kept.log", "lib.rs"], "{patch}");
    let all = world.summary(&["--keep-ignored"], &["sh", "-c", line]);
    assert_eq!(all["result"]["changed"], 6, "{all:#}");
}

/// The rules and the index of a repository lie above a checkout that is a part of it, snapshot or not.
#[test]
fn a_part_of_a_repository_is_collected_by_its_rules() {
    let world = World::new();
    world.write(".gitignore", "target/\n");
    let made = world.host_shell("git init -q . && mkdir -p crates/one && git add . && echo made");
    assert_eq!(made.stdout, "made\n", "{made:?}");
    for flags in [&["--checkout", "crates/one"][..], &["--snapshot", "--checkout", "crates/one"]] {
        let summary = world.summary(flags, &["sh", "-c", "mkdir target; echo x > target/o; echo y > work"]);
        let result = &summary["result"];
        let left_out = serde_json::json!([{"rules": "../../.gitignore", "paths": 1}]);
        assert_eq!((&result["changed"], &result["left_out"]), (&1.into(), &left_out), "{summary:#}");
    }
}

/// Commits stay in the copy. Whoever reads the summary learns that there are some, and which.
#[test]
fn commits_of_the_job_are_told_and_stay_behind() {
    let world = World::new();
    world.write("file", "one\n");
    let as_somebody = "git -c user.name=a -c user.email=a@b";
    let made = world.host_shell(&format!(
        "git init -q -b main . && git add . && {as_somebody} commit -q -m one && git rev-parse HEAD"
    ));
    let line = format!(
        "echo two > file; {as_somebody} commit -q -a -m two; git checkout -q -b new; git rev-parse HEAD"
    );
    let summary = world.summary(&[], &["sh", "-c", &line]);
    let log = std::path::Path::new(summary["directory"].as_str().unwrap()).join("stdout.log");
    let (from, to) = (made.stdout.trim_end(), std::fs::read_to_string(log).unwrap());
    let to = to.trim_end();
    assert_ne!(from, to, "{made:?}");
    let expected = serde_json::json!([
        {"reference": "HEAD", "from": from, "to": to},
        {"reference": "refs/heads/main", "from": from, "to": to},
        {"reference": "refs/heads/new", "from": null, "to": to},
    ]);
    assert_eq!(
        (&summary["result"]["commits"], &summary["result"]["changed"]),
        (&expected, &1.into()),
        "{summary:#}"
    );
    let told = world.shell(&line);
    assert!(
        told.stderr
            .contains("pond: committed in the copy, where commits stay; the patch has the files: HEAD "),
        "{told:?}"
    );
    assert!(told.stderr.contains(", new at "), "{told:?}");
    assert_eq!(
        world.host_shell("git rev-parse HEAD").stdout,
        made.stdout,
        "the checkout's own is where it was"
    );
    assert_eq!(world.summary(&[], &["true"])["result"]["commits"], serde_json::json!([]));
}

/// A file over the cap is a hole here, which costs nothing.
#[test]
fn an_artifact_that_was_not_taken_is_not_told_as_missing() {
    let world = World::new();
    world.write(".gitignore", "out\n");
    let line = "mkdir out; truncate -s 1025m out/big; ln -s /etc/passwd out/link; echo x > out/file";
    let flags: Vec<&str> = ["out/big", "out/link", "out/file", "out/none"]
        .iter()
        .flat_map(|path| ["--artifact", path])
        .collect();
    let done = world.run(&[&["run"], &flags[..], &["--", "sh", "-c", line]].concat());
    for says in [
        "not taken as an artifact: out/big is larger than the limit for one file, 1024 MiB\n",
        "not taken as an artifact: out/link is a symbolic link, and none is followed\n",
        "the job made no artifact out/none\n",
        "pond: 1 artifact: ",
    ] {
        assert!(done.stderr.contains(says), "{says}: {done:?}");
    }
    assert_eq!(done.stderr.matches("the job made no artifact").count(), 1, "{done:?}");
}
