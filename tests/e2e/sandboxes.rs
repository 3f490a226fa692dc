//! Sandboxes that last: made, used, stopped, resumed, removed and killed, as a person does and as an accident does.

mod confinement;
mod killed;
mod used;
mod waited;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::residue::wait_until;
use crate::support::{Done, World};

/// A world whose sandboxes are removed with it, keepers and all.
pub(super) struct Boxes {
    pub(super) world: World,
}

impl Boxes {
    pub(super) fn new() -> Self {
        Self { world: World::new() }
    }

    pub(super) fn sandbox(&self, arguments: &[&str]) -> Done {
        self.world.run(&[&["sandbox"], arguments].concat())
    }

    pub(super) fn create(&self, id: &str, flags: &[&str]) {
        let done = self.sandbox(&[&["create", "--id", id], flags].concat());
        assert_eq!((done.code, done.stdout.trim()), (0, id), "{done:?}");
    }

    pub(super) fn shell(&self, id: &str, line: &str) -> Done {
        self.sandbox(&["exec", id, "--", "sh", "-c", line])
    }

    /// The events of a sandbox, which have no gap.
    pub(super) fn events(&self, id: &str) -> Vec<Value> {
        let done = self.sandbox(&["events", id, "--json"]);
        let events: Vec<Value> =
            done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<u64> = events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "{done:?}");
        events
    }

    pub(super) fn state(&self, id: &str) -> String {
        self.events(id).last().unwrap()["state"].as_str().unwrap().to_owned()
    }

    fn ids(&self) -> Vec<String> {
        let done = self.sandbox(&["ls", "--json"]);
        let rows: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
        let ids = rows.as_array().into_iter().flatten().filter_map(|row| row["id"].as_str());
        ids.map(str::to_owned).collect()
    }
}

impl Drop for Boxes {
    fn drop(&mut self) {
        for id in self.ids() {
            let done = self.sandbox(&["rm", &id]);
            assert!(done.code == 0 || std::thread::panicking(), "{done:?}");
        }
    }
}

#[test]
fn a_sandbox_is_made_used_stopped_resumed_and_removed() {
    let boxes = Boxes::new();
    boxes.create("one", &[]);
    let done = boxes
        .shell("one", "echo out; echo err >&2; echo kept > file; echo mine > ~/own; echo t > /tmp/t; exit 7");
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(boxes.sandbox(&["logs", "one"]).stdout, "out\n");
    assert_eq!(boxes.sandbox(&["logs", "one", "1", "--stderr"]).stdout, "err\n");
    let wrong = boxes.sandbox(&["resume", "one"]);
    assert!(
        wrong.code == 125 && wrong.stderr.contains("ready, which allows exec, cp, stop, rm"),
        "{wrong:?}"
    );

    assert_eq!(boxes.sandbox(&["stop", "one"]).stdout, "one  stopped\n");
    let wrong = boxes.shell("one", "true");
    assert!(wrong.code == 125 && wrong.stderr.contains("[sandbox_wrong_state]"), "{wrong:?}");
    assert_eq!(boxes.sandbox(&["resume", "one"]).code, 0);
    let done = boxes.shell("one", "cat file ~/own; ls /tmp | wc -l");
    assert_eq!(done.stdout, "kept\nmine\n0\n", "workspace and home last, /tmp does not: {done:?}");

    assert_eq!(boxes.sandbox(&["rm", "one"]).stdout, "one  deleted\n");
    let again = boxes.sandbox(&["create", "--id", "one"]);
    assert!(again.code == 125 && again.stderr.contains("[sandbox_id_taken]"), "{again:?}");
    let names: Vec<String> =
        boxes.events("one").iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    let expected = [
        "accepted",
        "started",
        "exec_started",
        "exec_ended",
        "stopped",
        "resuming",
        "started",
        "exec_started",
        "exec_ended",
        "deleting",
        "deleted",
    ];
    assert_eq!(names, expected);
    let replayed = boxes.sandbox(&["events", "one", "--from-sequence", "9", "--json"]);
    assert_eq!(replayed.stdout.lines().count(), 2, "{replayed:?}");
}

#[test]
fn programs_run_beside_each_other_and_can_be_ended() {
    let boxes = Boxes::new();
    boxes.create("busy", &[]);
    let started = boxes.sandbox(&["exec", "-d", "busy", "--", "sleep", "600"]);
    let number = started.stdout.trim().to_owned();
    assert_eq!(boxes.shell("busy", "pgrep -c sleep").stdout, "1\n");
    let long = boxes.sandbox(&["exec", "--timeout", "1", "busy", "--", "sleep", "600"]);
    assert_eq!(long.code, 124, "{long:?}");
    assert_eq!(boxes.sandbox(&["cancel", "busy", &number]).code, 0);
    wait_until(|| boxes.shell("busy", "pgrep -c sleep").stdout == "0\n");
    let said = boxes.sandbox(&["logs", "busy", &number, "--json"]);
    let said: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        (&said["exec"]["end"]["cancelled"], &said["exec"]["end"]["signal"]),
        (&true.into(), &9.into())
    );
    let gone = boxes.sandbox(&["cancel", "busy", &number]);
    assert!(gone.stderr.contains("[exec_unknown]"), "{gone:?}");
    let none = boxes.sandbox(&["exec", "busy", "--", "no-such-program"]);
    assert!(none.code == 125 && none.stderr.contains("[exec_failed]"), "{none:?}");
    // What is left of a program that ended goes on: a sandbox is a machine.
    assert_eq!(boxes.shell("busy", "sleep 601 & echo began").stdout, "began\n");
    assert_eq!(boxes.shell("busy", "pgrep -c sleep").stdout, "1\n");
}

#[test]
fn input_reaches_a_program_and_its_end_does() {
    let boxes = Boxes::new();
    boxes.create("in", &[]);
    let line = "printf 'one\\ntwo' | timeout 30 \"$0\" sandbox exec in -- sh -c 'cat; echo; echo end'";
    assert_eq!(boxes.world.host_shell(line).stdout, "one\ntwo\nend\n");
    let line = "head -c 3000000 /dev/zero | timeout 30 \"$0\" sandbox exec in -- wc -c";
    assert_eq!(boxes.world.host_shell(line).stdout, "3000000\n");
    let line = "timeout 60 \"$0\" sandbox exec in -- head -c 20000000 /dev/zero | wc -c";
    assert_eq!(boxes.world.host_shell(line).stdout, "20000000\n", "the caller gets all");
    let kept = boxes.world.state().join("sandboxes/in/execs/3.stdout");
    let length = std::fs::metadata(kept).unwrap().len();
    assert!((16 << 20..(16 << 20) + 100).contains(&length), "the file keeps the beginning: {length}");
}

#[test]
fn files_go_in_and_come_out_and_no_link_is_followed() {
    let boxes = Boxes::new();
    boxes.world.write("in.txt", "in\n");
    boxes.create("files", &[]);
    assert_eq!(boxes.sandbox(&["cp", "in.txt", "files:deep/in.txt"]).code, 0);
    assert_eq!(
        boxes.shell("files", "cat deep/in.txt; stat -c %U deep deep/in.txt").stdout,
        "in\npond\npond\n"
    );
    boxes.shell(
        "files",
        "mkdir tree; echo x > tree/x; ln -s /etc/shadow tree/out; ln -s / up; ln -s x tree/in",
    );
    let out = boxes.sandbox(&["cp", "files:tree", "copy"]);
    assert_eq!((out.code, out.stderr.as_str()), (0, "pond: left behind: out\n"), "{out:?}");
    assert_eq!(boxes.world.read("copy/x"), "x\n");
    for (source, target) in [("files:up/etc/passwd", "p"), ("files:/proc/1/environ", "p"), ("files:up", "p")]
    {
        let refused = boxes.sandbox(&["cp", source, target]);
        assert!(refused.code == 125 && refused.stderr.contains("[copy_"), "{source}: {refused:?}");
    }
    let refused = boxes.sandbox(&["cp", "in.txt", "files:up/tmp/planted"]);
    assert!(refused.stderr.contains("[copy_source_absent]"), "{refused:?}");
    assert!(!std::path::Path::new("/tmp/planted").exists());
}

#[test]
fn what_the_document_declares_is_inside_and_nothing_else() {
    let boxes = Boxes::new();
    boxes.world.write("seen.txt", "before\n");
    std::fs::create_dir_all(boxes.world.project().join("src/target")).unwrap();
    boxes.world.write("src/a.txt", "a\n");
    boxes.world.write("src/target/big", "big\n");
    let project = boxes.world.project();
    let path = |name: &str| project.join(name).to_str().unwrap().to_owned();
    let document = format!(
        "id: declared\nsandbox: {{profile: untrusted-code-internet}}\nenv: {{GREETING: hello}}\n\
         mounts:\n- {{source: {0}, target: /mnt/project}}\n- {{source: {0}, target: /workspace/live, writable: true}}\n\
         copies:\n- {{source: {1}, target: /workspace/src, exclude: [target/]}}\n- {{source: {1}, target: /data/src}}\n",
        path(""),
        path("src"),
    )
    .replace("/,", ",");
    boxes.world.write("box.yaml", &document);
    let done = boxes.sandbox(&["create", "-f", "box.yaml"]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = boxes.shell(
        "declared",
        "echo $GREETING; cat /mnt/project/seen.txt; touch /mnt/project/x; echo w > live/w; ls src /data/src; \
         echo own > src/own && echo own > /data/src/own && cat /data/src/own",
    );
    assert_eq!(done.stdout, "hello\nbefore\n/data/src:\na.txt\ntarget\n\nsrc:\na.txt\nown\n", "{done:?}");
    assert!(done.stderr.contains("Read-only file system"), "{done:?}");
    assert_eq!(boxes.world.read("w"), "w\n", "a writable mount is the host's own");
    // Live: a file that an editor replaces is the new one at once.
    boxes.world.write("seen.new", "after\n");
    std::fs::rename(project.join("seen.new"), project.join("seen.txt")).unwrap();
    assert_eq!(boxes.shell("declared", "cat /mnt/project/seen.txt").stdout, "after\n");
    boxes.sandbox(&["stop", "declared"]);
    assert_eq!(boxes.sandbox(&["resume", "declared"]).code, 0);
    assert_eq!(boxes.shell("declared", "cat src/own /data/src/own live/w").stdout, "own\nown\nw\n");
    // A sandbox that puts a link where a mount was gets none.
    for source in ["/dev/null", "/proc"] {
        let refused = boxes.sandbox(&["create", "--id", "bad", "--mount", &format!("{source}:/mnt/x")]);
        assert!(refused.code == 125, "{source}: {refused:?}");
    }
    std::os::unix::fs::symlink("/etc", project.join("link")).unwrap();
    let mount = format!("{}:/mnt/x", path("link"));
    let refused = boxes.sandbox(&["create", "--id", "linked", "--mount", &mount, "--copy", "none:/mnt/y/z"]);
    assert!(refused.code == 125 && refused.stderr.contains("[ingress_refused]"), "{refused:?}");
    for fault in ["mounts[0].source: ", "symbolic link", "copies[0].source: "] {
        assert!(refused.stderr.contains(fault), "all faults at once: {refused:?}");
    }
    assert!(!boxes.world.state().join("sandboxes/linked").exists(), "nothing is made");
}

#[test]
fn a_tool_is_there_or_the_sandbox_is_not() {
    let boxes = Boxes::new();
    let document = |tool: &str| {
        format!("id: with-{tool}\nsandbox: {{profile: untrusted-code-internet}}\nbuiltin_tools: [{tool}]\n")
    };
    boxes.world.write("box.yaml", &document("git"));
    assert_eq!(boxes.sandbox(&["create", "-f", "box.yaml"]).code, 0);
    assert!(boxes.shell("with-git", "git --version").stdout.starts_with("git version"));
    // No test installs this one.
    boxes.world.write("box.yaml", &document("aider"));
    let refused = boxes.sandbox(&["create", "-f", "box.yaml"]);
    assert!(refused.code == 125 && refused.stderr.contains("aider is not installed where"), "{refused:?}");
}

#[test]
fn a_published_port_is_on_loopback_alone_and_leads_inside() {
    let boxes = Boxes::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    boxes.create("web", &["--publish", &format!("{port}:8000")]);
    let taken = boxes.sandbox(&["create", "--id", "second", "--publish", &format!("{port}:80")]);
    assert!(taken.code == 125 && taken.stderr.contains("[port_in_use]"), "{taken:?}");
    assert!(!boxes.world.state().join("sandboxes/second").exists(), "nothing was made");
    boxes.shell("web", "echo served > index.txt");
    boxes.sandbox(&[
        "exec",
        "-d",
        "web",
        "--",
        "python3",
        "-m",
        "http.server",
        "8000",
        "--bind",
        "127.0.0.1",
    ]);
    let get = || {
        #[expect(clippy::disallowed_methods, reason = "a visitor of the published port")]
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"GET /index.txt HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.contains("served").then_some(())
    };
    wait_until(|| get().is_some());
    let listening = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ours = |line: &&str| line.contains(&format!(":{port:04X} 00000000:0000 0A"));
    let addresses: Vec<&str> =
        listening.lines().filter(ours).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(addresses, [format!("0100007F:{port:04X}")]);
    assert!(!std::fs::read_to_string("/proc/net/tcp6").unwrap().contains(&format!(":{port:04X} ")));
}

#[test]
fn time_alone_stops_a_sandbox_and_then_removes_it() {
    let boxes = Boxes::new();
    boxes.create("idle", &["--idle-ttl", "3s", "--cleanup-ttl", "2s"]);
    let used = Instant::now();
    // A program that runs keeps it up.
    assert_eq!(boxes.shell("idle", "sleep 4; echo done").stdout, "done\n");
    assert!(used.elapsed() > Duration::from_secs(3));
    let left = Instant::now();
    wait_until(|| boxes.state("idle") == "stopped");
    // Counted from the end of the last use, and no longer than it says: half of it is for a slow machine.
    assert!(left.elapsed() < Duration::from_millis(4500), "{:?}", left.elapsed());
    let stopped = boxes.events("idle").last().unwrap().clone();
    assert_eq!(stopped["code"], "idle");
    wait_until(|| boxes.state("idle") == "deleted");
    assert!(!boxes.world.state().join("sandboxes/idle/disk.image").exists());
}
