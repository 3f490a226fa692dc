//! Caps, ends and the conversation with the host.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use pond_wire::gateway::{
    Caps, Close, Command, Event, HostTotals, MAX_EVENT_BYTES, Refusal, Totals, doors, events, journal,
};

use super::far::{self, expect, send};
use super::gate::{CAPS, Gate, allow, half_close, hello, order, rest};

#[test]
fn c81_either_side_may_finish_first() {
    let server = far::host("c81.com");
    let gate = Gate::to(&["c81.com"]);
    let (mut client, mut upstream) = gate.tunnel("c81.com", &server);
    half_close(&client);
    assert_eq!(rest(&mut upstream), b"");
    send(&mut upstream, b"late answer");
    expect(&mut client, b"late answer");
    drop(upstream);
    assert_eq!(gate.closed().close, Close::Finished);
    let (mut client, mut upstream) = gate.tunnel("c81.com", &server);
    half_close(&upstream);
    assert_eq!(rest(&mut client), b"");
    send(&mut client, b"late question");
    expect(&mut upstream, b"late question");
    drop(client);
    assert_eq!(gate.closed().close, Close::Finished);
}

#[test]
fn c82_a_reset_on_either_side_closes_both() {
    let server = far::host("c82.com");
    let gate = Gate::to(&["c82.com"]);
    for close in [Close::ClientReset, Close::UpstreamReset] {
        let (client, upstream) = gate.tunnel("c82.com", &server);
        let (resets, mut other) =
            if close == Close::ClientReset { (client, upstream) } else { (upstream, client) };
        rustix::net::sockopt::set_socket_linger(&resets, Some(Duration::ZERO)).unwrap();
        drop(resets);
        assert_eq!(rest(&mut other), b"");
        assert_eq!(gate.closed().close, close);
    }
}

#[test]
fn c79_a_quiet_tunnel_is_closed() {
    let server = far::host("c79.com");
    let gate = Gate::new(&order(allow(&["c79.com"]), Caps { idle_seconds: 1, ..CAPS }));
    let (mut client, mut upstream) = gate.tunnel("c79.com", &server);
    assert_eq!((rest(&mut client), rest(&mut upstream)), (vec![], vec![]));
    assert_eq!(gate.closed().close, Close::Idle);
}

#[test]
fn c80_a_tunnel_ends_at_its_lifetime_though_it_is_busy() {
    let server = far::host("c80.com");
    let gate = Gate::new(&order(allow(&["c80.com"]), Caps { lifetime_seconds: 1, ..CAPS }));
    let (mut client, mut upstream) = gate.tunnel("c80.com", &server);
    while client.write_all(b"x").is_ok() && upstream.read(&mut [0; 16]).is_ok_and(|count| count > 0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(gate.refused().code, "tunnel_lifetime");
    assert_eq!(gate.closed().close, Close::Lifetime);
}

#[test]
fn c80_bytes_are_capped_per_tunnel_and_per_job_to_the_byte() {
    let server = far::host("c80b.com");
    let size = u64::try_from(hello("c80b.com").len()).unwrap();
    let caps = Caps { tunnel_bytes: size + 1000, total_bytes: 2 * size + 1500, ..CAPS };
    let gate = Gate::new(&order(allow(&["c80b.com"]), caps));
    for (close, code, moved) in
        [(Close::TunnelBytes, "tunnel_bytes", 1000), (Close::TotalBytes, "bytes_spent", 500)]
    {
        let (mut client, mut upstream) = gate.tunnel("c80b.com", &server);
        upstream.write_all(&[7; 5000]).unwrap();
        assert_eq!(rest(&mut client), vec![7; moved]);
        assert_eq!(gate.refused().code, code);
        let tunnel = gate.closed();
        assert_eq!(
            (tunnel.close, tunnel.bytes_up, tunnel.bytes_down),
            (close, size, u64::try_from(moved).unwrap())
        );
    }
    assert_eq!(gate.code("c80b.com:443"), "bytes_spent");
}

/// More tunnels than one thread keeps to itself, all at once.
#[test]
fn c80_tunnels_on_both_threads_move_what_the_job_may_to_the_byte() {
    const TUNNELS: u64 = 16;
    const TOTAL: u64 = 3_000_017;
    let server = far::host("c80c.com");
    let size = u64::try_from(hello("c80c.com").len()).unwrap();
    let gate = Gate::new(&order(allow(&["c80c.com"]), Caps { total_bytes: TOTAL, ..CAPS }));
    let tunnels: Vec<_> = (0..TUNNELS).map(|_| gate.tunnel("c80c.com", &server)).collect();
    let received: usize = std::thread::scope(|scope| {
        let ends = tunnels.into_iter().map(|(mut client, mut upstream)| {
            // It is closed before it has taken all of this.
            scope.spawn(move || upstream.write_all(&vec![7; 4 << 20]).unwrap_or_default());
            scope.spawn(move || rest(&mut client).len())
        });
        let ends: Vec<_> = ends.collect();
        ends.into_iter().map(|end| end.join().unwrap()).sum()
    });
    assert_eq!(u64::try_from(received).unwrap(), TOTAL - TUNNELS * size);
    let events = std::iter::from_fn(|| Some(gate.event()));
    let closed =
        events.filter_map(|event| if let Event::Closed(tunnel) = event { Some(tunnel) } else { None });
    let closed: Vec<_> = closed.take(usize::try_from(TUNNELS).unwrap()).collect();
    assert!(closed.iter().all(|tunnel| tunnel.close == Close::TotalBytes), "{closed:?}");
    assert_eq!(closed.iter().map(|tunnel| tunnel.bytes_up + tunnel.bytes_down).sum::<u64>(), TOTAL);
    let mut numbers: Vec<_> = closed.iter().map(|tunnel| tunnel.approval.tunnel).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..TUNNELS).collect::<Vec<_>>());
}

#[test]
fn c83_a_client_that_stops_reading_stops_the_far_side() {
    let server = far::host("c83.com");
    let gate = Gate::to(&["c83.com"]);
    let (client, mut upstream) = gate.tunnel("c83.com", &server);
    upstream.set_nonblocking(true).unwrap();
    let (mut sent, quiet) = (0, Duration::from_millis(500));
    let mut last = Instant::now();
    while last.elapsed() < quiet {
        match upstream.write(&[0; 64 << 10]) {
            Ok(count) => (sent, last) = (sent + count, Instant::now()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(sent < 64 << 20, "nothing holds the far side back");
    }
    drop(client);
}

#[test]
fn c84_the_next_tunnel_over_the_cap_is_429_with_retry_after() {
    let server = far::host("c84.com");
    let gate = Gate::new(&order(allow(&["c84.com"]), Caps { tunnels: 1, ..CAPS }));
    let held = gate.tunnel("c84.com", &server);
    let reply = gate.ask(b"CONNECT c84.com:443 HTTP/1.1\r\n\r\n");
    assert!(
        reply.starts_with("HTTP/1.1 429 pond: too many open tunnels: c84.com:443 (at most 1 at a time)\r\n")
    );
    assert!(reply.contains("\r\nRetry-After: 5\r\n"), "{reply}");
    assert_eq!(gate.refused().code, "too_many_tunnels");
    drop(held);
    assert!(matches!(gate.event(), Event::Closed(_)));
    drop(gate.tunnel("c84.com", &server));
}

#[test]
fn c77_c78_c71_slow_heads_dead_hosts_and_silent_clients_end_in_ten_seconds() {
    far::addresses("dead.c78.com", &[super::world::BLACK_HOLE, "93.184.217.2"]);
    let server = far::host("c71.com");
    let gate = Gate::to(&["*.c78.com", "c71.com"]);
    let mut slow = gate.client(doors::PROXY);
    send(&mut slow, b"CONNECT dead.c78.com:443 HTT");
    let mut dead = gate.client(doors::PROXY);
    send(&mut dead, b"CONNECT dead.c78.com:443 HTTP/1.1\r\n\r\n");
    let mut silent = gate.connect("c71.com:443");
    let mut upstream = server.accept();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert!(text(rest(&mut slow)).starts_with("HTTP/1.1 408 pond: "));
    assert!(text(rest(&mut dead)).starts_with("HTTP/1.1 504 pond: "));
    assert_eq!((rest(&mut silent).len(), rest(&mut upstream).len()), (7, 0));
}

#[test]
fn c87_c43_new_rules_hold_at_once_and_bad_ones_not_at_all() {
    let (old, kept) = (far::host("old.com"), far::host("kept.com"));
    let gate = Gate::to(&["old.com", "kept.com"]);
    let (mut closed, _far) = gate.tunnel("old.com", &old);
    let (mut open, mut open_far) = gate.tunnel("kept.com", &kept);
    gate.command(&Command::Rules(allow(&["*"])));
    assert!(matches!(gate.event(), Event::RulesRefused { .. }));
    gate.command(&Command::Rules(allow(&["kept.com"])));
    let events = [gate.event(), gate.event(), gate.event()];
    assert!(events.contains(&Event::RulesReplaced));
    let refused = events
        .iter()
        .find_map(|event| if let Event::Refused(refused) = event { Some(refused) } else { None });
    assert_eq!(
        refused.map(|refused| (refused.target.as_str(), refused.code.as_str())),
        Some(("old.com:443", "host_not_allowed"))
    );
    let ended =
        events.iter().find_map(|event| if let Event::Closed(tunnel) = event { Some(tunnel) } else { None });
    assert_eq!(
        ended.map(|tunnel| (tunnel.approval.host.as_str(), tunnel.close)),
        Some(("old.com", Close::RuleRemoved))
    );
    assert_eq!(rest(&mut closed), b"");
    assert_eq!(gate.code("old.com:443"), "host_not_allowed");
    send(&mut open, b"still here");
    expect(&mut open_far, b"still here");
}

#[test]
fn c87_a_tunnel_that_has_said_nothing_yet_ends_with_its_rule_and_with_its_job() {
    let server = far::host("mute.com");
    for ended in [Close::RuleRemoved, Close::JobEnded] {
        let gate = Gate::to(&["mute.com"]);
        let mut client = gate.connect("mute.com:443");
        let mut upstream = server.accept();
        assert!(matches!(gate.event(), Event::Opened(_)));
        if ended == Close::RuleRemoved {
            gate.command(&Command::Rules(allow(&["other.com"])));
            // The answer waits for the other thread; what the rule cuts on this one may be told before it.
            let events = [gate.event(), gate.event(), gate.event()];
            let is = |wanted: fn(&Event) -> bool| events.iter().any(wanted);
            assert!(is(|event| *event == Event::RulesReplaced), "{events:?}");
            assert!(is(
                |event| matches!(event, Event::Refused(refused) if refused.code == "host_not_allowed")
            ));
            assert!(is(|event| matches!(event, Event::Closed(tunnel) if tunnel.close == Close::RuleRemoved)));
        } else {
            gate.command(&Command::Finish);
            assert_eq!(gate.closed().close, ended);
        }
        assert_eq!((rest(&mut client), rest(&mut upstream)), (vec![], vec![]));
    }
}

#[test]
fn c86_when_the_host_goes_every_tunnel_goes() {
    let server = far::host("c86.com");
    let mut gate = Gate::to(&["c86.com"]);
    let (mut client, mut upstream) = gate.tunnel("c86.com", &server);
    drop(gate.control.take());
    assert_eq!(gate.process.wait().unwrap().code(), Some(0));
    assert_eq!((rest(&mut client), rest(&mut upstream)), (vec![], vec![]));
}

/// Whoever kills the gateway, and whenever: each tunnel that was answered is in what it sent or in its journal. Killed until it
/// was at a moment at which something had not been sent yet.
#[test]
fn c86_c92_a_killed_gateway_has_told_of_every_tunnel_it_answered() {
    let server = far::host("c92k.com");
    assert!((0..20).any(|_| killed_with_tunnels(&server, 60) < 60), "nothing was ever still on its way");
}

/// How many of so many tunnels a gateway had sent when it was killed; of all of them it had told.
fn killed_with_tunnels(server: &far::Server, number: u64) -> u64 {
    let mut gate = Gate::to(&["c92k.com"]);
    let _tunnels: Vec<_> = (0..number).map(|_| (gate.connect("c92k.com:443"), server.accept())).collect();
    gate.process.kill().unwrap();
    gate.process.wait().unwrap();
    let tunnel = |event: Event| match event {
        Event::Opened(approval) => Some(approval.tunnel),
        _ => None,
    };
    let (mut sent, mut packet) = (Vec::new(), [0; MAX_EVENT_BYTES]);
    while let Ok((length @ 1.., _)) = pond_sys::socket::receive(gate.control.as_ref().unwrap(), &mut packet) {
        sent.extend(events(&packet[..length]).map(Result::unwrap).filter_map(tunnel));
    }
    let slots = (0..journal::SLOTS).filter_map(|slot| {
        let mut bytes = vec![0; journal::SLOT_BYTES];
        let place = u64::try_from(slot * bytes.len()).unwrap();
        gate.journal.read_exact_at(&mut bytes, place).unwrap();
        serde_json::from_slice(journal::event(&bytes)?).ok()
    });
    let mut told: Vec<u64> = slots.filter_map(tunnel).chain(sent.iter().copied()).collect();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, (0..number).collect::<Vec<u64>>());
    u64::try_from(sent.len()).unwrap()
}

#[test]
fn c88_a_flood_of_refusals_is_counted_and_hostile_names_are_escaped() {
    let gate = Gate::to(&["c88.com"]);
    gate.ask(b"CONNECT evil.com\"};x:443 HTTP/1.1\r\n\r\n");
    assert_eq!(gate.refused().target, "\"evil.com\\\"};x:443\"");
    for number in 0..400 {
        gate.ask(format!("CONNECT n{number}.evil.com:443 HTTP/1.1\r\n\r\n").as_bytes());
    }
    gate.command(&Command::Finish);
    let (mut told, mut counted, mut hosts) = (0, 0, 0);
    let totals = loop {
        match gate.event() {
            Event::Refused(_) => told += 1,
            Event::Flood { refusals } => counted += refusals,
            Event::Host(_) => hosts += 1,
            Event::Summary(totals) => break totals,
            other => panic!("{other:?}"),
        }
    };
    assert!((60..200).contains(&told), "{told}");
    assert_eq!((told + counted, hosts, totals.refused, totals.untold), (400, 256, 401, 145));
}

#[test]
fn finish_sums_up_and_ends_the_gateway() {
    let server = far::host("sum.com");
    let mut gate = Gate::to(&["sum.com"]);
    let (_client, mut upstream) = gate.tunnel("sum.com", &server);
    send(&mut upstream, b"12345");
    assert_eq!(gate.code("no.com:443"), "host_not_allowed");
    assert_eq!(gate.code("no.com:443"), "host_not_allowed");
    assert_eq!([gate.refused().target, gate.refused().target], ["no.com:443", "no.com:443"]);
    gate.command(&Command::Finish);
    assert_eq!(gate.closed().close, Close::JobEnded);
    let up = u64::try_from(hello("sum.com").len()).unwrap();
    let refusal =
        Refusal { code: "host_not_allowed".into(), count: 2, rule: None, hint: "--allow-host no.com".into() };
    let no = HostTotals {
        target: "no.com:443".into(),
        allowed: 0,
        bytes_up: 0,
        bytes_down: 0,
        refusals: vec![refusal],
    };
    let sum = HostTotals {
        target: "sum.com:443".into(),
        allowed: 1,
        bytes_up: up,
        bytes_down: 5,
        refusals: vec![],
    };
    let totals =
        Totals { allowed: 1, refused: 2, bytes_up: up, bytes_down: 5, untold: 0, ..Totals::default() };
    assert_eq!(
        [gate.event(), gate.event(), gate.event()],
        [Event::Host(no), Event::Host(sum), Event::Summary(totals)]
    );
    assert_eq!(gate.process.wait().unwrap().code(), Some(0));
}

#[test]
fn c83_c80_a_busy_tunnel_is_spliced_whole() {
    let server = far::host("busy.com");
    let gate = Gate::to(&["busy.com"]);
    let (mut client, mut upstream) = gate.tunnel("busy.com", &server);
    let block: Vec<u8> =
        (0..1_000_003_u32).map(|number| number.to_le_bytes()[1] ^ number.to_le_bytes()[0]).collect();
    let sent = block.clone();
    let writer = std::thread::spawn(move || {
        for _ in 0..24 {
            upstream.write_all(&sent).unwrap();
        }
        upstream
    });
    let pipes = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", gate.process.id())).unwrap();
        let target = |file: std::io::Result<std::fs::DirEntry>| std::fs::read_link(file.unwrap().path()).ok();
        files.filter_map(target).filter(|target| target.to_string_lossy().starts_with("pipe:")).count()
    };
    let (mut got, before) = (vec![0; block.len()], pipes());
    for round in 0..24 {
        client.read_exact(&mut got).unwrap();
        assert!(got == block, "round {round}");
    }
    assert_eq!(pipes(), before + 2, "a busy direction has a pipe");
    drop((client, writer.join().unwrap()));
    assert_eq!(gate.closed().bytes_down, 24 * 1_000_003);
}

/// What the kernel says about the threads that serve.
#[test]
fn a_serving_gateway_has_given_everything_up() {
    use std::os::unix::fs::MetadataExt;
    let gate = Gate::to(&["locked.com"]);
    let tasks = format!("/proc/{}/task", gate.process.id());
    let tasks: Vec<_> = std::fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path()).collect();
    let status = |task: &std::path::PathBuf| std::fs::read_to_string(task.join("status")).unwrap();
    assert!(tasks.iter().all(|task| status(task).contains("Seccomp:\t2")), "not all are behind the filter");
    // The test's own thread, which waits for them, has only the filter.
    let mut serving = tasks.iter().filter(|task| status(task).contains("Uid:\t54321\t"));
    let (Some(first), Some(second), None) = (serving.next(), serving.next(), serving.next()) else {
        panic!("there are not two threads");
    };
    [first, second].into_iter().for_each(|task| has_given_everything_up(task));
    // The files of a process that cannot be dumped belong to root, whoever it runs as.
    assert_eq!(std::fs::metadata(first.join("environ")).unwrap().uid(), 0);
}

fn has_given_everything_up(task: &std::path::Path) {
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    for line in [
        "Uid:\t54321\t54321\t54321\t54321",
        "Gid:\t54321\t54321\t54321\t54321",
        "Groups:\t ",
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(status.lines().any(|own| own == line), "{line:?} is not in\n{status}");
    }
    let limits = std::fs::read_to_string(task.join("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"]);
}

#[test]
fn c85_out_of_descriptors_the_doors_stay_open_and_tunnels_live() {
    let server = far::host("c85.com");
    let gate = Gate::to(&["c85.com"]);
    let (mut client, mut upstream) = gate.tunnel("c85.com", &server);
    gate.limit_files(24);
    let crowd: Vec<_> = (0..40).map(|_| gate.client(doors::PROXY)).collect();
    send(&mut client, b"through the crowd");
    expect(&mut upstream, b"through the crowd");
    std::thread::sleep(Duration::from_millis(200));
    drop(crowd);
    assert_eq!(gate.code("other.com:443"), "host_not_allowed");
}

#[test]
fn connections_that_say_nothing_leave_room_for_tunnels() {
    let server = far::host("quiet.com");
    let gate = Gate::new(&order(allow(&["quiet.com"]), Caps { tunnels: 4, ..CAPS }));
    let _silent: Vec<_> = (0..250).map(|_| gate.client(doors::PROXY)).collect();
    drop(gate.tunnel("quiet.com", &server));
}
