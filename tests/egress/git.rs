//! git over https with a credential that only the gateway has: a real client inside, git's own server on the far side, and what else
//! somebody inside could try with the door.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use crate::world::http::Reply;
use crate::world::log::Request;
use crate::world::servers::Handler;
use crate::world::sides::tool;
use crate::world::{Backend, Done, Plan, World};

const HOST: &str = "github.com";
const SECRET: &str = "ghp_PlantedSecret0123456789abcdef";
/// `x-access-token` and the secret, as they travel.
const ENCODED: &str = "eC1hY2Nlc3MtdG9rZW46Z2hwX1BsYW50ZWRTZWNyZXQwMTIzNDU2Nzg5YWJjZGVm";

struct Site {
    world: World,
    /// What the far side serves.
    repositories: TempDir,
}

fn git(directory: &Path, words: &[&str]) -> Done {
    let mut command = tool("git");
    command.args([
        "-c",
        "user.name=far",
        "-c",
        "user.email=far@example.com",
        "-c",
        "init.defaultBranch=main",
    ]);
    command.args(words).current_dir(directory).env("HOME", directory);
    let done = Done::of(command.output().unwrap());
    assert_eq!(done.code, 0, "{words:?}: {done:?}");
    done
}

fn header<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    let found = request.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// git's own server, for who has the credential.
fn served(root: &Path, request: &Request) -> Reply {
    if request.target.starts_with("/team/moved.git") {
        let to = "https://elsewhere.example.com/team/tool.git/info/refs".to_owned();
        return Reply::Whole { status: 302, headers: vec![("location", to)], body: Vec::new() };
    }
    if header(request, "authorization") != Some(&format!("Basic {ENCODED}")) {
        let ask = ("www-authenticate", "Basic realm=\"git\"".to_owned());
        return Reply::Whole { status: 401, headers: vec![ask], body: b"who are you?\n".to_vec() };
    }
    if request.target.starts_with("/team/echo.git") {
        let body = format!("001e# service=git-upload-pack\n{SECRET} {ENCODED}");
        return Reply::ok("application/x-git-upload-pack-advertisement", body);
    }
    if request.target.starts_with("/team/typed.git") {
        return Reply::ok("application/x-git-ghp_PlantedSecret0123456789abcdef", String::new());
    }
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let mut backend = tool("git");
    backend.arg("http-backend").env_clear().env("PATH", "/usr/bin:/bin");
    backend.env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1").env("REMOTE_USER", "far");
    backend.env("PATH_INFO", path).env("QUERY_STRING", query).env("REQUEST_METHOD", &request.method);
    backend.env("CONTENT_LENGTH", request.body.len().to_string());
    for (name, field) in [
        ("CONTENT_TYPE", "content-type"),
        ("HTTP_CONTENT_ENCODING", "content-encoding"),
        ("HTTP_GIT_PROTOCOL", "git-protocol"),
    ] {
        backend.envs(header(request, field).map(|value| (name, value)));
    }
    let mut child = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&request.body).unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    let end = said.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&said[..end]).into_owned();
    let field = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
    };
    let status = field("Status:").map_or(200, |text| text[..3].parse().unwrap());
    let headers = field("Content-Type:").map(|kind| ("content-type", kind)).into_iter().collect();
    Reply::Whole { status, headers, body: said[end + 4..].to_vec() }
}

impl Site {
    fn new(backend: Backend) -> Self {
        let repositories = tempfile::tempdir().unwrap();
        let root = repositories.path().to_owned();
        git(&root, &["init", "--quiet", "--bare", "team/tool.git"]);
        git(&root, &["clone", "--quiet", "team/tool.git", "work"]);
        std::fs::write(root.join("work/file"), "first\n").unwrap();
        git(&root.join("work"), &["add", "file"]);
        git(&root.join("work"), &["commit", "--quiet", "-m", "first"]);
        git(&root.join("work"), &["push", "--quiet", "origin", "main"]);
        let handler: Handler = Arc::new(move |request| served(&root, request));
        let handlers = HashMap::from([(HOST.to_owned(), handler)]);
        let world = World::new(Plan { handlers, backend, ..Plan::default() });
        let token = world.directory().join("token");
        std::fs::write(&token, format!("{SECRET}\n")).unwrap();
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
        let ca = world.authority.certificate();
        let file = format!(
            "[git.hub]\nhost = \"{HOST}\"\ncredential = \"file:{}\"\nca_file = \"{}\"\n",
            token.display(),
            ca.display()
        );
        std::fs::write(world.operator_file(), file).unwrap();
        Self { world, repositories }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.pond(&[&["sandbox"], words].concat());
        command.env("POND_CONFIG", self.world.operator_file()).stdin(Stdio::null());
        command
    }

    fn pond(&self, words: &[&str]) -> Done {
        Done::of(self.command(words).output().unwrap())
    }

    fn create(&self, id: &str, credentials: &str, backend: &str) -> Done {
        let document = self.world.directory().join(format!("{id}.yaml"));
        std::fs::write(
            &document,
            format!("sandbox: {{ profile: untrusted-code-internet, backend: {backend} }}\n{credentials}"),
        )
        .unwrap();
        self.pond(&["create", "--id", id, "-f", document.to_str().unwrap()])
    }

    fn shell(&self, id: &str, script: &str) -> Done {
        self.pond(&["exec", id, "--", "sh", "-c", script])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for id in ["box", "bare"] {
            self.pond(&["rm", id]);
        }
    }
}

const LENT: &str = "credentials: { github.com: { secret: hub } }\n";
const WORK: &str = "set -e; export GIT_TERMINAL_PROMPT=0; git clone --quiet https://github.com/team/tool.git; cd tool; \
    echo second >> file; git -c user.name=in -c user.email=in@example.com commit --quiet -am second; git push --quiet origin main; \
    head -c 3000000 /dev/urandom > large; git add large; git -c user.name=in -c user.email=in@example.com commit --quiet -m large; \
    git push --quiet origin main; git fetch --quiet; git log --format=%s";
/// The words that are looked for come on standard input, so that they stand in no line of the search itself.
const SEARCH: &str = "read a; read b; cat /proc/*/environ /proc/*/cmdline > /tmp/seen 2>/dev/null; env >> /tmp/seen; \
    printf '%s\\n' \"$a\" \"$b\" | grep -rlaF -f - /tmp /workspace /home /etc /run 2>/dev/null; wc -c < /tmp/seen";

fn works_on(backend: Backend, name: &str) {
    let site = Site::new(backend);
    let made = site.create("box", LENT, name);
    assert_eq!(made.code, 0, "{made:?}");
    let done = site.shell("box", WORK);
    assert_eq!((done.code, done.stdout.as_str()), (0, "large\nsecond\nfirst\n"), "{done:?}");
    let log = git(&site.repositories.path().join("team/tool.git"), &["log", "--format=%s", "main"]);
    assert_eq!(log.stdout, "large\nsecond\nfirst\n", "the far side has it");
    let mut search = site.command(&["exec", "box", "--", "sh", "-c", SEARCH]);
    let mut search = search.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    search.stdin.take().unwrap().write_all(format!("{SECRET}\n{ENCODED}\n").as_bytes()).unwrap();
    let found = Done::of(search.wait_with_output().unwrap());
    let seen: Result<u64, _> = found.stdout.trim().parse();
    assert!(seen.is_ok_and(|bytes| bytes > 500), "inside: {found:?}");
    let outside = tool("grep")
        .args(["-rlaF", "--exclude=*.image", "-e", SECRET, "-e", ENCODED])
        .arg(site.world.state())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "", "pond's own files");
}

#[test]
fn clone_and_push_with_a_credential_that_is_nowhere_inside() {
    works_on(Backend::Native, "native");
}

#[test]
fn clone_and_push_with_a_credential_in_a_container() {
    works_on(Backend::Docker, "docker");
}

/// Without the credential the same far side lets nobody in.
#[test]
fn without_a_credential_the_host_refuses() {
    let site = Site::new(Backend::Native);
    let made = site.create("bare", "", "native");
    assert_eq!(made.code, 0, "{made:?}");
    let trust = std::fs::read_to_string(site.world.authority.certificate()).unwrap();
    std::fs::write(site.world.project().join("ca.pem"), trust).unwrap();
    let ca = site.world.project().join("ca.pem");
    assert_eq!(site.pond(&["cp", ca.to_str().unwrap(), "bare:/workspace/ca.pem"]).code, 0);
    let clone = "GIT_TERMINAL_PROMPT=0 git -c http.sslCAInfo=/workspace/ca.pem clone https://github.com/team/tool.git";
    let done = site.shell("bare", clone);
    assert!(done.code != 0 && done.stderr.contains("could not read Username"), "{done:?}");
}

const ASK: &str = "ask() { curl -sS -o /tmp/said -w '%{http_code} ' \"$@\"; cat /tmp/said; echo; }; ";

#[test]
fn the_door_is_for_git_and_for_the_named_host_alone() {
    let site = Site::new(Backend::Native);
    let made = site.create("box", LENT, "native");
    assert_eq!(made.code, 0, "{made:?}");
    let ask = |arguments: &str| {
        let done = site.shell("box", &format!("{ASK}ask {arguments}"));
        assert_eq!(done.code, 0, "{arguments}: {done:?}");
        done.stdout
    };
    let door = "http://127.0.0.1:8378";
    for (arguments, code) in [
        (format!("{door}/{HOST}/settings/tokens"), "403 pond: only git passes here"),
        (format!("'{door}/{HOST}/team/tool.git/HEAD'"), "403 pond: only git passes here"),
        (
            format!("-X DELETE '{door}/{HOST}/team/tool.git/git-receive-pack'"),
            "403 pond: only git passes here",
        ),
        (
            format!("--path-as-is '{door}/{HOST}/a/../../x/info/refs?service=git-upload-pack'"),
            "403 pond: only git passes here",
        ),
        (
            format!("'{door}/elsewhere.example.com/team/tool.git/info/refs?service=git-upload-pack'"),
            "403 pond: only git passes here",
        ),
        (
            format!("'{door}/{HOST}/team/moved.git/info/refs?service=git-upload-pack'"),
            "403 pond: host redirected git elsewhere",
        ),
        (
            format!("'{door}/{HOST}/team/typed.git/info/refs?service=git-upload-pack'"),
            "403 pond: only git passes here",
        ),
        (
            format!("'{door}/{HOST}/team/none.git/info/refs?service=git-upload-pack'"),
            "404 pond: github.com answered 404",
        ),
    ] {
        let said = ask(&arguments);
        assert!(said.starts_with(code), "{arguments}: {said}");
    }
    // What comes back of the credential is masked, in both of its forms.
    let said = ask(&format!("'{door}/{HOST}/team/echo.git/info/refs?service=git-upload-pack'"));
    let masked = format!("{} {}", "*".repeat(SECRET.len()), "*".repeat(ENCODED.len()));
    assert!(said.contains(&masked), "{said}");
    // Nothing of the client's own goes along.
    let own = "-H 'Authorization: Basic bWluZTptaW5l' -H 'Cookie: a=b' -H 'X-Forwarded-For: 10.0.0.1' -H 'Host: evil.example.com'";
    let said = ask(&format!("{own} '{door}/{HOST}/team/tool.git/info/refs?service=git-upload-pack'"));
    assert!(said.starts_with("200 001e# service=git-upload-pack"), "{said}");
    let requests = site.world.log.requests();
    let last = requests.last().unwrap();
    let mut names: Vec<String> = last.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort();
    assert_eq!(names, ["accept", "accept-encoding", "authorization", "host", "user-agent"]);
    let expected = format!("Basic {ENCODED}");
    assert_eq!((header(last, "authorization"), header(last, "host")), (Some(expected.as_str()), Some(HOST)));
    assert!(requests.iter().all(|request| request.host == HOST), "{requests:?}");
    assert!(!site.world.log.queries().iter().any(|name| name.contains("elsewhere")), "nobody was looked up");
    let record = site.world.state().join("sandboxes/box/network/egress.jsonl");
    let record = std::fs::read_to_string(record).unwrap();
    for code in ["git_only", "git_redirect", "\"door\":\"git\""] {
        assert!(record.contains(code), "{code}: {record}");
    }
}

#[test]
fn a_credential_is_for_the_host_that_the_operator_names() {
    let site = Site::new(Backend::Native);
    let stolen = site.create("box", "credentials: { elsewhere.example.com: { secret: hub } }\n", "native");
    assert!(stolen.code == 125 && stolen.stderr.contains("is for github.com, not for"), "{stolen:?}");
    let unknown = site.create("bare", "credentials: { github.com: { secret: other } }\n", "native");
    assert!(unknown.code == 125 && unknown.stderr.contains("pond.toml names hub"), "{unknown:?}");
}
