//! `pond audit`: the log of a real control plane, exported and verified, and what does not pass.

use super::serving::Serving;

const KEY: &str = "signed by key ";

/// What the lines of a report say: `holds` or a code, each.
fn outcomes(report: &str) -> Vec<String> {
    let code = |line: &str| {
        line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(code, _)| code.to_owned())
    };
    let lines = report.lines().filter(|line| line.starts_with("holds") || line.starts_with("FAILS"));
    lines.map(|line| code(line).unwrap_or_else(|| "holds".to_owned())).collect()
}

#[test]
fn the_audit_log_is_exported_and_verified() {
    let serving = Serving::start();
    let exported = serving.run(&["audit", "export", "--out", "log.jsonl"]);
    assert_eq!(exported.code, 0, "{exported:?}");
    let key = exported.stderr.trim_end().rsplit_once(KEY).map(|(_, key)| key.to_owned());
    let key = key.unwrap_or_else(|| panic!("{exported:?}"));
    let kept = serving.run(&["audit", "verify", "--save", "checkpoint.txt", "--key", &key]);
    assert_eq!((kept.code, outcomes(&kept.stdout)), (0, vec!["holds".to_owned(); 3]), "{kept:?}");
    for number in 0..30 {
        serving.run(&["project", "create", &format!("p{number}")]);
    }
    let since = serving.run(&["audit", "verify", "--since", "checkpoint.txt"]);
    assert_eq!((since.code, outcomes(&since.stdout)), (0, vec!["holds".to_owned(); 6]), "{since:?}");

    let offline = |file: &str, more: &[&str]| {
        serving.run(&[["audit", "verify", file, "--key", &key].as_slice(), more].concat())
    };
    let good = offline("log.jsonl", &["--since", "checkpoint.txt"]);
    let text = serving.world.read("log.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() >= 3, "{text}");
    // The checkpoint that was kept may be of a few entries more than the export.
    assert!(good.code == 0 || outcomes(&good.stdout).contains(&"log_shrunk".to_owned()), "{good:?}");
    assert_eq!(offline("log.jsonl", &[]).code, 0);
    let unnamed = serving.run(&["audit", "verify", "log.jsonl"]);
    assert!(unnamed.code == 125 && unnamed.stderr.contains(&key), "{unnamed:?}");
    let other = serving.run(&["audit", "verify", "log.jsonl", "--key", &"11".repeat(32)]);
    assert_eq!(other.code, 125, "{other:?}");

    let swapped = [&[lines[1], lines[0]], &lines[2..]].concat().join("\n") + "\n";
    let bad = [
        ("edited", text.replacen("\"actor\":\"system\"", "\"actor\":\"nobody\"", 1), "log_root"),
        ("swapped", swapped, "log_root"),
        ("shorter", lines[1..].join("\n") + "\n", "log_count"),
        ("longer", format!("{}\n{text}", lines[0]), "log_count"),
        ("resized", text.replacen("\\n", "\\n1", 1), "checkpoint_signature"),
    ];
    for (name, text, code) in bad {
        serving.world.write(name, &text);
        let refused = offline(name, &[]);
        assert!(
            refused.code == 125 && outcomes(&refused.stdout).contains(&code.to_owned()),
            "{name}: {refused:?}"
        );
    }
    serving.world.write("cut", &lines[..2].join("\n"));
    assert!(offline("cut", &[]).stderr.contains("the export is not complete"));
}
