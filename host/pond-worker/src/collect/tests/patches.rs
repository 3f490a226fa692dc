//! The patch as git writes it, within its caps, on inputs made to be slow.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::testkit::read_tree;

#[test]
fn every_kind_of_change_in_gits_own_words() {
    let base = tree(&[
        ("deleted", file("gone\n")),
        ("mode", file("same\n")),
        ("modified", file("1\n2\n3\n4\n5\n6\n7\n8\n9\n")),
        ("type", file("text\n")),
    ]);
    let overlay = Overlay::of(&base);
    let merged = overlay.merged();
    fs::write(merged.join("added name"), "one\ntwo").unwrap();
    fs::write(merged.join("empty"), "").unwrap();
    fs::write(merged.join("modified"), "1\n2\n3\n4\nfive\n6\n7\n8\n9\n").unwrap();
    fs::remove_file(merged.join("deleted")).unwrap();
    fs::set_permissions(merged.join("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(merged.join("type")).unwrap();
    symlink("mode", merged.join("type")).unwrap();
    let run = overlay.collect();
    assert_eq!(
        run.summary(),
        ["added name added", "deleted deleted", "empty added", "mode mode", "modified modified", "type type"]
    );
    let expected = "\
diff --git a/added name b/added name
new file mode 100644
index 0000000000000000000000000000000000000000..9ed40b44250875c2c4532588b014ab45a1799a0f
--- /dev/null
+++ b/added name\t
@@ -0,0 +1,2 @@
+one
+two
\\ No newline at end of file
diff --git a/deleted b/deleted
deleted file mode 100644
index 286c5f5776916d7d7d5849988ca9d83e722cf9c2..0000000000000000000000000000000000000000
--- a/deleted
+++ /dev/null
@@ -1,1 +0,0 @@
-gone
diff --git a/empty b/empty
new file mode 100644
index 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391
diff --git a/mode b/mode
old mode 100644
new mode 100755
diff --git a/modified b/modified
index ";
    let patch = String::from_utf8(run.patch()).unwrap();
    let start =
        patch.find("diff --git a/modified").map(|at| at + "diff --git a/modified b/modified\nindex ".len());
    assert_eq!(patch.get(..start.unwrap()), Some(expected));
    let hunk = "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
    assert!(patch.contains(hunk), "{patch}");
    let swapped = "deleted file mode 100644\nindex 8e27be7d6154a1f68ea9160ef0e18691d20560dc..0000";
    assert!(patch.contains(swapped) && patch.contains("new file mode 120000"), "{patch}");
    assert_eq!(run.git_applied(&base), read_tree(&merged));
}

#[test]
fn what_does_not_fit_is_left_out_whole_and_named() {
    let overlay = Overlay::of(&tree(&[]));
    let noise: Vec<u8> = (0_u32..50_000).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(overlay.merged().join("a"), "small\n").unwrap();
    fs::write(overlay.merged().join("big"), noise).unwrap();
    fs::write(overlay.merged().join("c"), "small\n").unwrap();
    let run = overlay.collect_within(&Caps { patch_bytes: 10_000, ..Caps::default() }).unwrap();
    let omitted: Vec<_> = run.collected.record.patch_omitted.iter().map(ToString::to_string).collect();
    assert_eq!(omitted, ["big"]);
    assert_eq!(run.git_applied(&tree(&[])), tree(&[("a", file("small\n")), ("c", file("small\n"))]));
    assert_eq!(u64::try_from(run.patch().len()).unwrap(), run.collected.record.patch_bytes);
}

#[test]
fn attempts_that_are_undone_are_bounded_too() {
    let overlay = Overlay::of(&tree(&[]));
    for number in 0..20 {
        let noise: Vec<u8> = (0_u32..5_000)
            .flat_map(|n| (n * 7919 + number).wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        fs::write(overlay.merged().join(format!("n{number:02}")), noise).unwrap();
    }
    fs::write(overlay.merged().join("z"), "small\n").unwrap();
    let run = overlay.collect_within(&Caps { patch_bytes: 4_000, ..Caps::default() }).unwrap();
    assert_eq!(run.collected.record.patch_omitted.len(), 20);
    assert_eq!(run.git_applied(&tree(&[])), tree(&[("z", file("small\n"))]));
}

#[test]
fn g14_inputs_made_to_be_slow_still_give_a_patch() {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| -> String { (0..count).map(line).collect() };
    let pairs = [
        // Unique lines between noise: quadratic for a histogram diff.
        (
            lines(60_000, &|n| format!("{}\n", if n % 2 == 0 { n } else { 100_000 + n })),
            lines(60_000, &|n| format!("{}\n", if n % 2 == 0 { n } else { 200_000 + n })),
        ),
        // Everything in reverse.
        (lines(60_000, &|n| format!("{n}\n")), lines(60_000, &|n| format!("{}\n", 60_000 - n))),
        // Two lines in different proportions: worst for a minimal diff.
        (
            lines(60_000, &|n| (if n % 3 == 0 { "a\n" } else { "b\n" }).to_owned()),
            lines(60_000, &|n| (if n % 5 == 0 { "b\n" } else { "a\n" }).to_owned()),
        ),
        // More lines than a diff is made of.
        ("\n".repeat(1 << 20), format!("x{}", "\n".repeat((1 << 20) - 1))),
    ];
    for (before, after) in pairs {
        let base = tree(&[("f", file(before))]);
        let overlay = Overlay::of(&base);
        fs::write(overlay.merged().join("f"), &after).unwrap();
        let run = overlay.collect();
        assert_eq!(run.git_applied(&base), tree(&[("f", file(after))]));
    }
}

#[test]
fn large_and_binary_files_are_complete_in_the_patch() {
    let large: Vec<u8> = (0_u32..600_000).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let text = "0123456789abcde\n".repeat(80_000);
    let base = tree(&[("gone.bin", file(b"\0\0")), ("big", file(&large)), ("long", file(&text))]);
    let overlay = Overlay::of(&base);
    let merged = overlay.merged();
    fs::remove_file(merged.join("gone.bin")).unwrap();
    fs::write(merged.join("big"), &large[1..]).unwrap();
    fs::write(merged.join("long"), &text[1..]).unwrap();
    fs::set_permissions(merged.join("long"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(merged.join("now-empty"), "").unwrap();
    let run = overlay.collect();
    assert_eq!(run.git_applied(&base), read_tree(&merged));
}
