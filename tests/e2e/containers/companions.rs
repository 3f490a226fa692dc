//! Companions: a real Postgres and a real Redis beside a sandbox, on its network, each confined as it is. Both are Debian's, given to the
//! engine by the test; nothing is pulled.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use pond_policy::backend::Backend;
use pond_sandbox::container::companion::{
    Beside, Checkup, Companion, CompanionFault, Health, News, Primary, Told, accompany, fit_together,
};
use pond_sandbox::native::Ending;

use super::Daemon;
use super::kept::{Ground, PATIENCE, job, policy, shell};

const POSTGRES: [&str; 13] = [
    "/usr/lib/postgresql/15/bin/postgres",
    "/usr/lib/postgresql/15/bin/initdb",
    "/usr/lib/postgresql/15/bin/pg_isready",
    "/usr/lib/postgresql/15/bin/psql",
    "/bin/sh",
    "/usr/bin/sh",
    "/usr/bin/cat",
    "/usr/bin/id",
    "/usr/bin/touch",
    "/usr/bin/ls",
    "/usr/bin/grep",
    "/usr/bin/sleep",
    "/usr/bin/stat",
];
const POSTGRES_TREES: [&str; 3] =
    ["/usr/share/postgresql/15", "/usr/lib/postgresql/15/lib", "/usr/lib/locale/C.utf8"];
const DATA: &str = "/var/lib/postgresql/data";
/// Makes its database where its image declares a volume, and becomes the server.
const SERVE: &str = "set -e; bin=/usr/lib/postgresql/15/bin; $bin/initdb -D /var/lib/postgresql/data -A trust -U app >/dev/null; exec $bin/postgres -D /var/lib/postgresql/data -h 127.0.0.1 -k /run";
/// Debian's server has this name where its service is not installed, and goes by the one it is called by.
const REDIS: &str = "/usr/bin/redis-check-rdb";

pub(super) fn images(engine: &Daemon) {
    engine.import_with("postgres", &POSTGRES, &POSTGRES_TREES, &[&format!("VOLUME {DATA}"), "EXPOSE 5432"]);
    engine.import(
        "redis",
        &[REDIS, "/usr/bin/redis-cli", "/usr/bin/sh", "/usr/bin/ln"],
        &["VOLUME /data", "EXPOSE 6379", "WORKDIR /data"],
    );
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn checkup(test: &[&str]) -> Checkup {
    Checkup {
        test: words(test),
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(20),
        retries: 3,
        start_period: Duration::from_secs(60),
        start_interval: Duration::from_millis(500),
    }
}

fn companion(alias: &str, image: &str, command: &[&str], checkup: Option<Checkup>) -> Companion {
    Companion {
        alias: alias.to_owned(),
        policy: policy(&[("image", image), ("memory", "512m")]),
        command: words(command),
        env: vec![("PGUSER".to_owned(), "app".to_owned())],
        checkup,
        post_start_on_primary: Vec::new(),
        disk: None,
    }
}

fn postgres() -> Companion {
    let ready = ["/usr/lib/postgresql/15/bin/pg_isready", "-h", "127.0.0.1"];
    let mut postgres = companion("db", "postgres", &["sh", "-c", SERVE], Some(checkup(&ready)));
    postgres.post_start_on_primary = vec![words(&["sh", "-c", "echo db is up > /workspace/started"])];
    postgres
}

fn redis() -> Companion {
    let line =
        format!("ln -s {REDIS} /run/redis-server; exec /run/redis-server --bind 127.0.0.1 --dir /data");
    let serve = ["sh", "-c", line.as_str()];
    companion("cache", "redis", &serve, Some(checkup(&["redis-cli", "ping"])))
}

/// Waits until somebody is told something.
fn until(news: &Receiver<Told>, heard: &mut Vec<Told>, is_it: impl Fn(&Told) -> bool) {
    let deadline = Instant::now() + PATIENCE * 2;
    while !heard.iter().any(&is_it) {
        let left = deadline.saturating_duration_since(Instant::now());
        match news.recv_timeout(left) {
            Ok(told) => heard.push(told),
            Err(_) => panic!("{heard:#?}"),
        }
    }
}

fn is_healthy(told: &Told, alias: &str) -> bool {
    told.alias == alias && matches!(told.news, News::Health { health: Health::Healthy, .. })
}

/// Speaks to Redis as the sandbox does, by its name.
const ASK_REDIS: &str = r#"python3 -c "
import socket
s = socket.create_connection(('cache', 6379)); s.sendall(b'SET k v\r\nGET k\r\n')
got = b''
while got.count(b'\n') < 3: got += s.recv(100)
print(got)""#;

fn beside(backend: Backend) {
    let ground = Ground::new(backend);
    images(&ground.engine);
    let Ground { engine, directory, container, checkout } = ground;
    let record = container.reserve(job("primary")).unwrap();
    let aliases = words(&["db", "cache"]);
    let began = Instant::now();
    let ground = Ground { engine, directory, container, checkout };
    let kept = Arc::new(ground.keep(&record, &aliases));
    let Ground { engine, directory, container, checkout } = ground;
    let (container, checkout) = (Arc::new(container), Arc::new(checkout));
    let primary = Primary { container: Arc::clone(&container), kept: Arc::clone(&kept), checkout, aliases };
    let (news, heard) = sync_channel(1024);
    let mut all: Vec<Beside> = Vec::new();
    for (name, companion) in [("primary-c-db", postgres()), ("primary-c-cache", redis())] {
        all.push(accompany(primary.clone(), companion, job(name), news.clone()).unwrap());
    }
    // The sandbox does not wait for them.
    let (code, _, _) = shell(&kept, "true");
    assert_eq!(code, Some(0));
    let ready = began.elapsed();
    let mut told = Vec::new();
    until(&heard, &mut told, |told| is_healthy(told, "cache"));
    until(&heard, &mut told, |told| is_healthy(told, "db"));
    until(&heard, &mut told, |told| matches!(told.news, News::PostStart { .. }));
    eprintln!("{backend:?}: sandbox ready after {ready:?}, companions after {:?}", began.elapsed());
    assert_eq!(shell(&kept, "cat started").1, "db is up\n");
    // By their names, over the network they share.
    assert_eq!(shell(&kept, ASK_REDIS).1, "b'+OK\\r\\n$1\\r\\nv\\r\\n'\n");
    let query = "/usr/lib/postgresql/15/bin/psql -U app -h db -Atc 'create table t(n int); insert into t values (7); select n from t' postgres";
    let (code, out, error) = shell(&kept, query);
    assert_eq!((code, out.as_str()), (Some(0), "CREATE TABLE\nINSERT 0 1\n7\n"), "{error}");
    // The containers are there, with the posture of any other.
    let mut names = engine.containers();
    names.sort();
    assert_eq!(names, ["/pond-primary", "/pond-primary-c-cache", "/pond-primary-c-db"]);
    for name in names {
        let found = engine.api("GET", &format!("/containers{name}/json"), None);
        let host = &found["HostConfig"];
        assert_eq!(
            (&host["CapDrop"][0], &host["ReadonlyRootfs"], &host["Privileged"]),
            (&"ALL".into(), &true.into(), &false.into())
        );
        assert!(host["SecurityOpt"].to_string().contains("no-new-privileges"), "{host}");
        assert!(found["NetworkSettings"]["Networks"].to_string().len() < 400, "{found}");
    }
    drop(all);
    while let Ok(more) = heard.try_recv() {
        told.push(more);
    }
    let gone = told.iter().filter(|told| told.news == News::Gone).count();
    assert_eq!(gone, 2, "{told:#?}");
    drop(primary);
    kept.stop().unwrap();
    record.close().unwrap();
    assert_eq!((engine.containers(), engine.processes()), (Vec::new(), Vec::new()));
    drop((container, directory));
}

#[test]
fn a_database_and_a_cache_beside_a_sandbox_on_docker() {
    beside(Backend::Docker);
}

#[test]
fn a_database_and_a_cache_beside_a_sandbox_on_gvisor() {
    beside(Backend::Gvisor);
}

/// One that is never well, one whose check never ends, two that end, one without an image and one without a command.
fn failing() -> [Companion; 6] {
    let sick =
        Checkup { start_period: Duration::ZERO, retries: 2, ..checkup(&["sh", "-c", "echo no; exit 1"]) };
    let slow = Checkup { timeout: Duration::from_secs(1), ..checkup(&["sleep", "1000"]) };
    let slow = Checkup { start_period: Duration::ZERO, retries: 1, ..slow };
    let confined = "touch /etc/x; touch /var/lib/postgresql/data/x && id -u; exit 3";
    let room = "stat --file-system --format '%b %S' /var/lib/postgresql/data; exit 4";
    [
        companion("sick", "postgres", &["sleep", "1000"], Some(sick)),
        companion("slow", "postgres", &["sleep", "1000"], Some(slow)),
        companion("brief", "postgres", &["sh", "-c", confined], None),
        companion("room", "postgres", &["sh", "-c", room], None),
        companion("absent", "nosuch", &["true"], None),
        companion("idle", "redis", &[], None),
    ]
}

/// Each of these tells what became of it, and none keeps the sandbox from anything.
#[test]
fn companions_that_fail_say_why_and_end_nothing() {
    let ground = Ground::new(Backend::Docker);
    images(&ground.engine);
    let record = ground.reserve("primary");
    let kept = Arc::new(ground.keep(&record, &[]));
    let Ground { engine, directory: _directory, container, checkout } = ground;
    let (container, checkout) = (Arc::new(container), Arc::new(checkout));
    let primary =
        Primary { container: Arc::clone(&container), kept: Arc::clone(&kept), checkout, aliases: Vec::new() };
    let (news, heard) = sync_channel(1024);
    let mut all = Vec::new();
    for wish in failing() {
        let name = job(&format!("primary-c-{}", wish.alias));
        all.push(accompany(primary.clone(), wish, name, news.clone()).unwrap());
    }
    let mut told = Vec::new();
    let ill = |told: &Told, alias: &str| {
        told.alias == alias && matches!(told.news, News::Health { health: Health::Unhealthy, .. })
    };
    until(&heard, &mut told, |told| ill(told, "sick"));
    until(&heard, &mut told, |told| ill(told, "slow"));
    for alias in ["brief", "room"] {
        until(&heard, &mut told, |told| told.alias == alias && told.news == News::Gone);
    }
    for alias in ["absent", "idle"] {
        until(&heard, &mut told, |told| told.alias == alias && matches!(told.news, News::Failed { .. }));
    }
    let of = |alias: &str| {
        let news: Vec<News> =
            told.iter().filter(|told| told.alias == alias).map(|told| told.news.clone()).collect();
        news
    };
    let ended = |alias: &str| {
        of(alias).into_iter().find_map(|news| {
            let News::Ended { ending: Ending::Exited { code, .. }, said } = news else { return None };
            Some((code, said))
        })
    };
    let why = |alias: &str| {
        of(alias).into_iter().find_map(|news| {
            let News::Failed { why } = news else { return None };
            Some(why)
        })
    };
    let (code, said) = ended("brief").unwrap();
    assert!(code == 3 && said.contains("Read-only file system"), "{said}");
    let id: u32 = said.lines().find_map(|line| line.parse().ok()).unwrap();
    assert!(id > 1_000_000, "an id of nobody's: {id}");
    // What its image declares as a volume is as large as its quota, and no larger.
    let (code, said) = ended("room").unwrap();
    let (blocks, size) = said.split_once(' ').unwrap();
    let room = blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap();
    let quota = policy(&[]).limits().unwrap().disk.bytes;
    assert!(code == 4 && room <= quota && room > quota / 2, "{room} of {quota}");
    assert!(why("absent").unwrap().contains("the engine has no image nosuch"), "{told:#?}");
    assert!(why("idle").unwrap().contains("says nothing to run"), "{told:#?}");
    assert_eq!(shell(&kept, "echo still here").1, "still here\n");
    // What images say of themselves tells beforehand that two cannot serve beside each other.
    let twins = [companion("one", "redis", &[], None), companion("two", "redis", &[], None)];
    let fault = fit_together(&container, &twins).unwrap_err();
    assert!(matches!(&fault, CompanionFault::Port { port, .. } if port == "6379/tcp"), "{fault}");
    drop(all);
    drop(primary);
    kept.stop().unwrap();
    drop(record);
    assert_eq!((engine.containers(), engine.processes()), (Vec::new(), Vec::new()));
}
