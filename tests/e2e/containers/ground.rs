//! Images with something else than a directory or a file where pond mounts: an engine would follow their links, and the job's work
//! would land elsewhere or nowhere.

use super::daemon::{Daemon, command};
use crate::done::Done;
use crate::support::{World, names};

/// Gives the engine an image of a shell and `cat`, after `line` has run in its root.
pub(super) fn import(daemon: &Daemon, name: &str, line: &str) {
    let root = tempfile::tempdir().unwrap();
    let script = format!(
        r#"cd "$1" && mkdir etc && for p in /bin/sh /usr/bin/cat; do
        for f in "$p" $(ldd "$p" | grep -o '/[^ ]*'); do mkdir -p ".$(dirname "$f")" && cp -L "$f" ".$f"; done; done
        {line}
        tar --create . | curl --silent --request POST --header "Content-Type: application/x-tar" --data-binary @- \
            --unix-socket "${{2#unix://}}" "http://engine/images/create?fromSrc=-&repo=$3&tag=latest""#
    );
    let mut shell = command("sh");
    let made = shell.args(["-ec", &script, "sh"]).arg(root.path()).args([&daemon.address(), name]);
    let made = Done::of(made.output().unwrap());
    assert!(made.code == 0 && made.stdout.contains("sha256:"), "{made:?}");
}

fn run(daemon: &Daemon, world: &World, flags: &[&str], way: &str) -> Done {
    let mut pond = daemon.pond(world, &[&["run"], flags].concat());
    Done::of(pond.env("POND_CONTAINER_TRANSFER", way).output().unwrap())
}

#[test]
fn an_image_with_something_else_where_pond_mounts_is_refused() {
    let (daemon, world) = (Daemon::start(), World::new());
    world.write("f", "before\n");
    let images = [
        ("mkdir home; ln -s /workspace home/pond", "/home/pond is a link to /workspace"),
        ("ln -s /workspace home", "/home is a link to /workspace"),
        ("ln -s /workspace tmp", "/tmp is a link to /workspace"),
        ("ln -s /workspace/pw etc/passwd", "/etc/passwd is a link to /workspace/pw"),
        ("ln -s /etc workspace", "/workspace is a link to /etc"),
        ("echo > workspace", "/workspace is a file"),
        ("echo > .pond", "/.pond is a file"),
        ("mkdir etc/passwd", "/etc/passwd is a directory"),
    ];
    for (number, (line, why)) in images.into_iter().enumerate() {
        let image = format!("odd{number}");
        import(&daemon, &image, line);
        for (backend, way) in [("docker", "bind"), ("docker", "stream"), ("gvisor", "bind")] {
            let flags = ["--backend", backend, "--image", &image, "--", "sh", "-c", "echo ran; echo > made"];
            let done = run(&daemon, &world, &flags, way);
            let said = format!("in the image {image} {why}, and pond mounts");
            let refused = done.code == 125 && done.stdout.is_empty() && done.stderr.contains(&said);
            assert!(refused, "{backend} {way}: {said}: {done:?}");
        }
    }
    // A file that lies elsewhere in the image is none of those.
    import(&daemon, "store", "mkdir store; echo > store/pw; ln -s /store/pw etc/passwd");
    let flags = ["-q", "--backend", "docker", "--image", "store", "--", "cat", "/etc/passwd"];
    let done = run(&daemon, &world, &flags, "bind");
    assert!(done.code == 0 && done.stdout.contains("pond:x:"), "{done:?}");
    assert_eq!(daemon.containers(), Vec::<String>::new());
    assert_eq!(names(&world.state().join("live")).len(), 0);
}
