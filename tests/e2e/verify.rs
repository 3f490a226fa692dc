//! What a run signs, and what `pond verify` makes of it when anything at all was changed since.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pond_seal::Digest;
use pond_seal::envelope::seal;
use pond_seal::key::SigningKey;
use serde_json::{Value, json};

use crate::done::Done;
use crate::support::{World, names};

/// A run that changed, added and removed a file and spoke on both streams.
fn signed(world: &World) -> (String, PathBuf) {
    world.write("kept", "old\n");
    world.write("gone", "old\n");
    let line = "echo out; echo err >&2; echo new > kept; echo new > added; rm gone";
    let summary = world.summary(&[], &["sh", "-c", line]);
    assert_eq!(summary["statement"]["kind"], "signed", "{summary:#}");
    let directory = PathBuf::from(summary["directory"].as_str().unwrap());
    (summary["run"].as_str().unwrap().to_owned(), directory)
}

fn verify(world: &World, arguments: &[&str]) -> (i32, Value) {
    let done = world.run(&[&["verify", "--json"], arguments].concat());
    (done.code, serde_json::from_str(&done.stdout).unwrap_or_else(|fault| panic!("{fault}: {done:?}")))
}

/// The codes of the checks that failed.
fn failures(report: &Value) -> Vec<&str> {
    let failed =
        report["checks"].as_array().into_iter().flatten().filter(|check| check["outcome"] == "fails");
    failed.map(|check| check["code"].as_str().unwrap()).collect()
}

pub(crate) fn statement(directory: &Path) -> Value {
    let envelope: Value =
        serde_json::from_slice(&std::fs::read(directory.join("statement.dsse.json")).unwrap()).unwrap();
    let decode = "import base64,sys; print(base64.b64decode(sys.argv[1]).decode())";
    let payload = envelope["payload"].as_str().unwrap();
    let python = World::new().command("python3").args(["-c", decode, payload]).output().unwrap();
    let done = Done::of(python);
    assert_eq!(
        (done.code, envelope["payloadType"].as_str()),
        (0, Some("application/vnd.in-toto+json")),
        "{done:?}"
    );
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn a_run_is_signed_and_verifies_with_both_its_trees() {
    let world = World::new();
    let (run, directory) = signed(&world);
    let project = world.project().display().to_string();
    let (code, report) = verify(&world, &[&run, "--input", &project]);
    assert_eq!((code, &report["verdict"], failures(&report)), (0, &json!("verified"), vec![]), "{report:#}");
    let (code, report) = verify(&world, &[&run, "--output", &project]);
    assert_eq!((code, failures(&report)), (125, vec!["output_mismatch"]), "{report:#}");
    assert_eq!(world.run(&["apply", &run]).code, 0);
    let (code, report) = verify(&world, &[&run, "--output", &project]);
    assert_eq!((code, failures(&report)), (0, vec![]), "{report:#}");
    let (code, report) = verify(&world, &[&run, "--input", &project]);
    assert_eq!((code, failures(&report)), (125, vec!["input_mismatch"]), "{report:#}");

    let said = statement(&directory);
    let predicate = &said["predicate"];
    assert_eq!(predicate["outcome"], json!({"kind": "exited", "code": 0}), "{said:#}");
    assert_eq!(predicate["job"], json!({"id": run, "attempt": 1, "lease": null}));
    assert_eq!(
        (&predicate["output"]["changed"], &predicate["residue"]["controlGroupsLeft"]),
        (&json!(3), &json!(0))
    );
    assert!(predicate["residue"]["controlGroupsChecked"].as_u64().unwrap() > 0, "{said:#}");
    let shown = world.run(&["verify", &run]);
    assert!(shown.stdout.contains("holds    signature") && shown.stdout.contains("verified: "), "{shown:?}");
}

/// What the job never touched is part of its input as well, once all of it was named.
#[test]
fn a_snapshot_binds_the_whole_input() {
    let world = World::new();
    world.write("untouched", "as it was");
    let project = world.project().display().to_string();
    let names = |flags: &[&str]| {
        let summary = world.summary(flags, &["sh", "-c", "echo more > new"]);
        let directory = PathBuf::from(summary["directory"].as_str().unwrap());
        let tree = statement(&directory)["predicate"]["input"]["treeSha256"].clone();
        (summary["run"].as_str().unwrap().to_owned(), tree)
    };
    let (live, tree) = names(&[]);
    assert_eq!(tree, Value::Null);
    let (run, tree) = names(&["--snapshot"]);
    assert!(tree.is_string(), "{tree}");
    for run in [&live, &run] {
        let (code, report) = verify(&world, &[run, "--input", &project]);
        assert_eq!((code, failures(&report)), (0, vec![]), "{report:#}");
    }
    world.write("untouched", "changed since");
    assert_eq!(verify(&world, &[&live, "--input", &project]).0, 0, "only changed paths are compared");
    let (code, report) = verify(&world, &[&run, "--input", &project]);
    assert_eq!((code, failures(&report)), (125, vec!["input_mismatch"]), "{report:#}");
}

#[test]
fn whatever_is_changed_or_missing_is_named() {
    let world = World::new();
    let (run, directory) = signed(&world);
    let object = names(&directory.join("objects")).pop_first().unwrap();
    let object = format!("objects/{object}");
    let cases = [
        ("manifest.json", vec!["manifest_mismatch"]),
        ("changes.json", vec!["changes_mismatch", "changes_mismatch", "changes_mismatch"]),
        ("changes.patch", vec!["patch_mismatch"]),
        ("stdout.log", vec!["log_mismatch"]),
        ("stderr.log", vec!["log_mismatch"]),
        ("policy.json", vec!["policy_mismatch"]),
        ("egress.jsonl", vec!["egress_mismatch"]),
        (object.as_str(), vec!["content_mismatch"]),
    ];
    for (name, expected) in cases {
        let file = directory.join(name);
        let good = std::fs::read(&file).unwrap();
        std::fs::write(&file, [&good[..], b" "].concat()).unwrap();
        let (code, report) = verify(&world, &[&run]);
        assert_eq!((code, failures(&report)), (125, expected.clone()), "{name}: {report:#}");
        std::fs::remove_file(&file).unwrap();
        let (code, report) = verify(&world, &[&run]);
        let gone = if name == object { "content_mismatch" } else { "file_missing" };
        assert_eq!((code, failures(&report)), (125, vec![gone; expected.len()]), "{name}: {report:#}");
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(verify(&world, &[&run]).0, 125, "{name}");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &good).unwrap();
    }
    assert_eq!(verify(&world, &[&run]).0, 0);
    let info = directory.join("run.json");
    let text = std::fs::read_to_string(&info).unwrap().replace("echo out", "echo in ");
    std::fs::write(&info, text).unwrap();
    let (code, report) = verify(&world, &[&run]);
    assert_eq!((code, failures(&report)), (125, vec!["command_mismatch"]), "{report:#}");
}

#[test]
fn envelopes_that_were_tampered_with_are_refused_with_their_code() {
    let world = World::new();
    let (_, directory) = signed(&world);
    let file = directory.join("statement.dsse.json");
    let good = std::fs::read_to_string(&file).unwrap();
    let envelope: Value = serde_json::from_str(&good).unwrap();
    let key = envelope["signatures"][0]["keyid"].as_str().unwrap();
    let sig = envelope["signatures"][0]["sig"].as_str().unwrap();
    let cases = [
        (good.replace("in-toto+json", "in-toto+jsox"), "payload_type"),
        (good.replacen("eyJfdHlwZSI6", "eyJfdHlwZSI7", 1), "signature_invalid"),
        (good.replace(key, &"0".repeat(64)), "key_unknown"),
        (good.replace(sig, &format!("{}AA==", &sig[..sig.len() - 4])), "signature_invalid"),
        (good.replace(sig, ""), "signature_invalid"),
        (good.replace("\"signatures\":[", "\"extra\":1,\"signatures\":["), "envelope_malformed"),
        (good.replace("{\"payloadType\"", "{\"payload\":\"\",\"payloadType\""), "envelope_malformed"),
        (good[..good.len() / 2].to_owned(), "envelope_malformed"),
        (format!("{good}{}", " ".repeat(1 << 20)), "envelope_too_large"),
        (String::new(), "envelope_malformed"),
    ];
    for (text, expected) in cases {
        assert_ne!(text, good);
        std::fs::write(&file, &text).unwrap();
        let (code, report) = verify(&world, &[file.to_str().unwrap()]);
        assert_eq!((code, failures(&report)), (125, vec![expected]), "{expected}: {report:#}");
        assert_eq!(report["run"], Value::Null, "nothing of an unverified statement is told");
    }
}

#[test]
fn a_statement_is_of_its_own_run_and_its_own_key() {
    let (world, other) = (World::new(), World::new());
    let (run, directory) = signed(&world);
    let (second, elsewhere) = signed(&world);
    let theirs = std::fs::read(elsewhere.join("statement.dsse.json")).unwrap();
    std::fs::write(directory.join("statement.dsse.json"), theirs).unwrap();
    let (code, report) = verify(&world, &[&run]);
    assert_eq!((code, failures(&report)[0]), (125, "run_mismatch"), "{report:#}");

    let shown: Value = serde_json::from_str(&other.run(&["key", "show", "--json"]).stdout).unwrap();
    let (code, report) = verify(&world, &[&second, "--key", shown["public_key_hex"].as_str().unwrap()]);
    assert_eq!((code, failures(&report)), (125, vec!["key_unknown"]), "{report:#}");
    let own: Value = serde_json::from_str(&world.run(&["key", "show", "--json"]).stdout).unwrap();
    let pem = other.project().join("key.pem");
    let alone = world.run(&["key", "show", "--pem"]).stdout;
    assert_eq!(alone, own["public_key_pem"].as_str().unwrap());
    std::fs::write(&pem, alone).unwrap();
    // Somebody else, who has the files and the public key and nothing of this machine.
    let (code, report) = verify(&other, &[elsewhere.to_str().unwrap(), "--key", pem.to_str().unwrap()]);
    assert_eq!((code, failures(&report)), (0, vec![]), "{report:#}");
    let openssl = ["pkey", "-pubin", "-in", pem.to_str().unwrap(), "-noout", "-text"];
    let read = Done::of(world.command("openssl").args(openssl).output().unwrap());
    assert!(read.code == 0 && read.stdout.to_lowercase().contains("ed25519"), "{read:?}");
    let private = ["pkey", "-in", "signing-key.pem", "-pubout"];
    let derived =
        Done::of(world.command("openssl").args(private).current_dir(world.state()).output().unwrap());
    assert_eq!(derived.stdout, own["public_key_pem"].as_str().unwrap(), "{derived:?}");
}

#[test]
fn an_output_directory_carries_all_that_is_needed() {
    let world = World::new();
    world.write("f", "old\n");
    let out = world.project().parent().unwrap().join("out");
    let place = out.to_str().unwrap();
    world.summary(&["--out", place], &["sh", "-c", "echo new > f"]);
    let project = world.project().display().to_string();
    let (code, report) = verify(&world, &[place, "--input", &project]);
    assert_eq!((code, failures(&report)), (0, vec![]), "{report:#}");
    std::fs::remove_file(out.join("stdout.log")).unwrap();
    assert_eq!(failures(&verify(&world, &[place]).1), ["file_missing"]);
    let (code, report) = verify(&world, &[place, "--alone"]);
    assert_eq!((code, &report["verdict"]), (0, &json!("statement_verified")), "{report:#}");
}

#[test]
fn what_was_handed_over_is_what_the_job_left() {
    let world = World::new();
    let out = world.project().parent().unwrap().join("out");
    let place = out.to_str().unwrap();
    let line = "mkdir -p target/d; echo app > target/d/app; echo '{}' > edit_result.json";
    world.summary(&["--artifact", "target", "--out", place], &["sh", "-c", line]);
    assert_eq!(failures(&verify(&world, &[place]).1), Vec::<&str>::new());
    for (name, honest) in [
        ("artifacts/target/d/app", Some("app\n")),
        ("edit_result.json", Some("{}\n")),
        ("artifacts/more", None),
    ] {
        std::fs::write(out.join(name), "replaced").unwrap();
        let (code, report) = verify(&world, &[place]);
        assert_eq!((code, failures(&report)), (125, vec!["artifact_mismatch"]), "{name}: {report:#}");
        match honest {
            Some(text) => std::fs::write(out.join(name), text).unwrap(),
            None => std::fs::remove_file(out.join(name)).unwrap(),
        }
    }
    assert_eq!(failures(&verify(&world, &[place]).1), Vec::<&str>::new());
}

/// Files that do not fit together, signed with the very key.
#[test]
fn a_signer_who_contradicts_himself_is_found_out() {
    let world = World::new();
    let out = world.project().parent().unwrap().join("out");
    let place = out.to_str().unwrap();
    world.summary(&["--artifact", "made", "--out", place], &["sh", "-c", "echo app > made"]);
    let key = std::fs::read_to_string(world.state().join("signing-key.pem")).unwrap();
    let key = SigningKey::from_pem(&key).unwrap();
    let said = statement(&out);
    let sign = |said: &Value| {
        let envelope = seal(&serde_json::to_vec(said).unwrap(), &key).unwrap();
        std::fs::write(out.join("statement.dsse.json"), envelope).unwrap();
        let (code, report) = verify(&world, &[place]);
        let codes: Vec<String> = failures(&report).into_iter().map(str::to_owned).collect();
        (code, codes)
    };
    assert_eq!(sign(&said), (0, vec![]));

    // A record of changes that names another manifest, or is none.
    let changes = std::fs::read_to_string(out.join("changes.json")).unwrap();
    let subject = said["subject"][0]["digest"]["sha256"].as_str().unwrap();
    for changed in [changes.replace(subject, &"0".repeat(64)), "[]".to_owned()] {
        assert_ne!(changed, changes);
        std::fs::write(out.join("changes.json"), &changed).unwrap();
        let mut said = said.clone();
        said["predicate"]["output"]["changes"] =
            json!({"sha256": Digest::of(changed.as_bytes()), "bytes": changed.len()});
        assert_eq!(sign(&said), (125, vec!["changes_malformed".to_owned()]), "{changed}");
    }
    std::fs::write(out.join("changes.json"), &changes).unwrap();

    // Another input than the one the changes tell of.
    let mut other = said.clone();
    other["predicate"]["input"]["changedPathsSha256"] = json!("0".repeat(64));
    assert_eq!(sign(&other), (125, vec!["changes_malformed".to_owned()]));

    // A subject that is no manifest.
    std::fs::write(out.join("manifest.json"), "{}").unwrap();
    let mut said = said;
    said["subject"][0]["digest"]["sha256"] = json!(Digest::of(b"{}"));
    assert_eq!(sign(&said), (125, ["changes_malformed", "manifest_malformed"].map(str::to_owned).to_vec()));
}

#[test]
fn a_run_that_cannot_be_signed_says_so() {
    let world = World::new();
    let (_, directory) = signed(&world);
    assert!(directory.join("statement.dsse.json").exists());
    let key = world.state().join("signing-key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let summary = world.summary(&[], &["true"]);
    assert_eq!(
        (&summary["exit_code"], &summary["statement"]["code"]),
        (&json!(0), &json!("signing_key")),
        "{summary:#}"
    );
    let unsigned = PathBuf::from(summary["directory"].as_str().unwrap());
    assert!(!names(&unsigned).contains("statement.dsse.json"));
    let told = world.run(&["run", "--", "true"]);
    assert!(told.stderr.contains("this run is not signed [signing_key]: "), "{told:?}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let done = world.run(&["verify", summary["run"].as_str().unwrap()]);
    assert!(done.code == 125 && done.stderr.contains("statement.dsse.json"), "{done:?}");
}

#[test]
fn every_ending_is_signed_as_what_it_was() {
    let world = World::new();
    let cases: [(&[&str], &[&str], Value); 4] = [
        (&[], &["sh", "-c", "exit 7"], json!({"kind": "exited", "code": 7})),
        (&[], &["sh", "-c", "kill -9 $$"], json!({"kind": "signaled", "signal": 9})),
        (&["--timeout", "1s"], &["sleep", "100"], json!({"kind": "timed_out"})),
        (&["--profile", "untrusted-code-read"], &["true"], json!({"kind": "exited", "code": 0})),
    ];
    for (flags, argv, outcome) in cases {
        let summary = world.summary(flags, argv);
        let said = statement(Path::new(summary["directory"].as_str().unwrap()));
        let predicate = &said["predicate"];
        assert_eq!(
            (&predicate["outcome"], &predicate["exitCode"]),
            (&outcome, &summary["exit_code"]),
            "{said:#}"
        );
        let (code, report) = verify(&world, &[summary["run"].as_str().unwrap()]);
        assert_eq!((code, failures(&report)), (0, vec![]), "{report:#}");
    }
}

/// A log that ends before the job's output did says so, and only that one.
#[test]
fn a_log_that_was_cut_is_not_passed_off_as_complete() {
    let world = World::new();
    let logs = |line: &str| {
        let summary = world.summary(&[], &["sh", "-c", line]);
        let directory = PathBuf::from(summary["directory"].as_str().unwrap());
        let logs = statement(&directory)["predicate"]["logs"].clone();
        let logs = logs.as_array().unwrap().iter().map(|log| {
            (
                log["stream"].as_str().unwrap().to_owned(),
                log["bytes"].as_u64().unwrap(),
                log["truncated"].clone(),
            )
        });
        let says = world.run(&["verify", summary["run"].as_str().unwrap()]);
        assert_eq!(says.code, 0, "{says:?}");
        (
            summary["verdict"].clone(),
            logs.collect::<Vec<_>>(),
            says.stdout.contains("stdout.log is not complete"),
        )
    };
    let log = |stream: &str, bytes: u64, truncated: bool| (stream.to_owned(), bytes, json!(truncated));
    let short = logs("echo out; echo err >&2");
    let complete = vec![log("stdout", 4, false), log("stderr", 4, false)];
    assert_eq!(short, (json!({"kind": "exited", "code": 0}), complete, false));
    let long = logs("echo err >&2; head -c 300m /dev/zero; sleep 1000");
    let cut = vec![log("stdout", (256 << 20) - 4, true), log("stderr", 4, false)];
    assert_eq!(long, (json!({"kind": "killed", "limit": "output"}), cut, true));
}
