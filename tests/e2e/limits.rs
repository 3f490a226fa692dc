//! Every limit ends the job, and the summary names it.

use crate::support::World;

#[test]
fn exit_codes_are_the_commands_own() {
    let world = World::new();
    assert_eq!(world.shell("exit 7").code, 7);
    assert_eq!(world.shell("kill -TERM $$").code, 128 + 15);
    assert_eq!(world.run(&["run", "--", "no-such-command"]).code, 125);
    world.write("bad.sh", "#!/no/such/interpreter\n");
    assert_eq!(world.run(&["run", "--", "./bad.sh"]).code, 125);
}

#[test]
fn time_ends_a_job() {
    let world = World::new();
    let summary =
        world.summary(&["--timeout", "1s"], &["sh", "-c", "trap '' TERM INT HUP; sleep 1000 & sleep 1000"]);
    assert_eq!((&summary["verdict"]["kind"], &summary["exit_code"]), (&"timed_out".into(), &124.into()));
}

#[test]
fn memory_ends_a_job() {
    let world = World::new();
    let eat = "x=[]\nwhile True: x.append(bytearray(1<<20))";
    let summary = world.summary(&["--memory", "64m"], &["python3", "-c", eat]);
    assert_eq!(summary["verdict"], serde_json::json!({"kind": "killed", "limit": "memory"}), "{summary:#}");
    // With room the same allocation is no crime.
    let some = "x=[bytearray(1<<20) for _ in range(100)]; print('ok')";
    let summary = world.summary(&["--memory", "512m"], &["python3", "-c", some]);
    assert_eq!(summary["exit_code"], 0, "{summary:#}");
}

#[test]
fn a_file_that_would_be_larger_than_the_disk_is_named() {
    let world = World::new();
    let done = world.run(&["run", "--", "truncate", "-s", "1000G", "large"]);
    assert_eq!(done.code, 128 + 25, "{done:?}");
    assert!(done.stderr.contains("[file_size]"), "{done:?}");
    let done = world.run(&["run", "--", "truncate", "-s", "1M", "small"]);
    assert!(done.code == 0 && !done.stderr.contains("[file_size]"), "{done:?}");
}

/// v2 counts it as memory; v1 counts it apart, and only where there is a limit.
#[test]
fn what_waits_in_sockets_is_limited() {
    const FILL: &str = "import socket\nhost=socket.create_server(('127.0.0.1',0),backlog=200)\nkeep=[]\nsent=0\nfor _ in range(100):\n c=socket.socket()\n c.setsockopt(socket.SOL_SOCKET,socket.SO_SNDBUF,4<<20)\n c.connect(host.getsockname())\n keep+=[c,host.accept()]\n c.setblocking(False)\n try:\n  while True: sent+=c.send(b'x'*65536)\n except BlockingIOError: pass\nprint(sent>>20)";
    let world = World::new();
    let done = world.run(&["run", "--memory", "128m", "--", "python3", "-c", FILL]);
    let waited = done.stdout.trim().parse::<u32>();
    assert!(done.code == 137 || waited.is_ok_and(|mib| mib < 64), "{done:?}");
}

#[test]
fn processes_are_bounded() {
    let world = World::new();
    let fork = "import os,time\nn=0\ntry:\n while n<200:\n  if os.fork()==0: time.sleep(60)\n  n+=1\nexcept OSError: pass\nprint(n)";
    let few = world.run(&["run", "--pids", "32", "--", "python3", "-c", fork]);
    assert!(few.stdout.trim().parse::<u32>().unwrap() < 32, "{few:?}");
    let many = world.run(&["run", "--pids", "400", "--", "python3", "-c", fork]);
    assert_eq!(many.stdout, "200\n", "{many:?}");
}

#[test]
fn tmp_and_the_copy_are_bounded() {
    let world = World::new();
    let fill =
        "head -c 8m /dev/zero > /tmp/a && echo fits; head -c 64m /dev/zero > /tmp/b 2>/dev/null || echo full";
    let done = world.run(&["run", "--tmp", "16m", "--", "sh", "-c", fill]);
    assert_eq!(done.stdout, "fits\nfull\n", "{done:?}");
    let disk = world.run(&["run", "--profile", "untrusted-code-test", "--", "python3", "-c", "import os\nf=open('big','wb')\ntry:\n os.posix_fallocate(f.fileno(),0,3<<30); print('fits')\nexcept OSError as e: print(e.errno)"]);
    assert!(disk.stdout == "28\n" || disk.stdout == "27\n", "no space, or too large for one file: {disk:?}");
}

/// Whoever runs the job learns which limit it was, as of a disk.
#[test]
fn a_tmp_that_is_full_is_named_with_its_limit() {
    let world = World::new();
    let run = |line: &str| {
        let summary = world.summary(&["--tmp", "1m"], &["sh", "-c", line]);
        let found: Vec<_> = summary["findings"].as_array().unwrap().clone();
        (summary["exit_code"].clone(), found)
    };
    let (code, found) = run("exec 2> /dev/null; head -c 2m /dev/zero > /tmp/a");
    assert_eq!((code, found.len()), (1.into(), 1), "{found:#?}");
    assert_eq!((&found[0]["code"], &found[0]["rule"]), (&"tmp_full".into(), &"tmpfs_size: 1 MiB".into()));
    assert_eq!(found[0]["advice"], "allow it more with --tmp 2m");
    let many = "import os\ntry:\n for i in range(10**6): os.close(os.open(f'/tmp/{i}', os.O_CREAT))\nexcept OSError: pass";
    let summary = world.summary(&["--tmp", "1g"], &["python3", "-c", many]);
    assert_eq!(summary["findings"][0]["code"], "tmp_files", "{summary:#}");
    // Much of it, all of it for a while, and a directory of that name of the job's own are no finding.
    for line in [
        "head -c 900k /dev/zero > /tmp/a",
        "head -c 2m /dev/zero > /tmp/a; rm /tmp/a",
        "mkdir tmp; head -c 2m /dev/zero > tmp/a",
    ] {
        assert_eq!(run(line).1, Vec::<serde_json::Value>::new(), "{line}");
    }
}

/// Where control groups v2 have the controller the job is slowed; elsewhere the run says that it is not, to a person and signed.
#[test]
fn the_disk_rate_is_held_or_said_not_to_be() {
    let world = World::new();
    // Past the cache: the job's view is one that syncs nothing, and what lies in the cache is written when the kernel likes.
    let write = "dd if=/dev/zero of=x bs=1M count=4 oflag=direct";
    let run = |rate: Option<&str>| {
        let mut command = world.pond(&["run", "--json", "--", "sh", "-c", write]);
        command.envs(rate.map(|rate| ("POND_DISK_BYTES_PER_SECOND", rate)));
        let output = command.output().unwrap();
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let directory = std::path::PathBuf::from(summary["directory"].as_str().unwrap());
        let said = crate::verify::statement(&directory)["predicate"].clone();
        let took = said["usage"]["elapsedMs"].as_u64().unwrap();
        (took, said["limits"]["diskRate"].clone(), String::from_utf8(output.stderr).unwrap())
    };
    let (free, said, _) = run(None);
    assert_eq!(said, serde_json::json!({"kind": "unlimited"}));
    let (held, said, told) = run(Some("1m"));
    if said["kind"] == "limited" {
        assert!(held >= free + 2500, "{held} ms at 1 MiB/s, {free} ms without a limit");
    } else {
        assert_eq!(said, serde_json::json!({"kind": "not_enforceable", "bytesPerSecond": 1 << 20}));
        assert!(told.contains("POND_DISK_BYTES_PER_SECOND is not enforceable here: "), "{told}");
    }
    let wrong =
        world.pond(&["run", "--", "true"]).env("POND_DISK_BYTES_PER_SECOND", "fast").output().unwrap();
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("[setting_invalid]"));
    assert_eq!(wrong.status.code(), Some(125));
}

#[test]
fn standard_input_reaches_the_job() {
    let world = World::new();
    let mut child = world
        .pond(&["run", "--", "tr", "a-z", "A-Z"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "HELLO\n");
}

#[test]
fn output_arrives_complete_and_in_order() {
    let world = World::new();
    let done = world.shell("seq 1 200000; echo end >&2");
    assert_eq!(done.stdout.lines().count(), 200_000);
    assert!(done.stderr.starts_with("end\n"));
}
