//! What is packed and unpacked is the same tree under the same hash; what must not travel does not.

use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::unpack::unpack;

fn packed(at: &Path) -> (Vec<u8>, Packed) {
    let mut bytes = Vec::new();
    let packed = pack(&Checkout::open(at).unwrap(), &mut bytes).unwrap();
    (bytes, packed)
}

#[test]
fn a_checkout_arrives_as_it_was() {
    let from = tempfile::tempdir().unwrap();
    let root = from.path();
    std::fs::create_dir_all(root.join("a/deep")).unwrap();
    std::fs::write(root.join("a/deep/file"), vec![7; 200_000]).unwrap();
    std::fs::write(root.join("a-b"), "sorts between").unwrap();
    std::fs::write(root.join("tool"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(root.join("tool"), PermissionsExt::from_mode(0o700)).unwrap();
    symlink("/etc/passwd", root.join("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let (bytes, first) = packed(root);
    assert_eq!((first.entries, first.bytes, first.skipped), (6, 200_023, 1));
    assert_eq!(first.skipped_names, ["pipe"]);

    let to = tempfile::tempdir().unwrap();
    let target = File::open(to.path()).unwrap();
    assert_eq!(unpack(&mut bytes.as_slice(), target.as_fd(), CAPS).unwrap(), first.input);
    assert_eq!(std::fs::read(to.path().join("a/deep/file")).unwrap(), vec![7; 200_000]);
    assert_eq!(std::fs::read_link(to.path().join("link")).unwrap(), Path::new("/etc/passwd"));
    let (_, again) = packed(to.path());
    assert_eq!(again.input, first.input, "the copy is the same source");
    std::fs::write(to.path().join("a-b"), "sorts between?").unwrap();
    assert_ne!(packed(to.path()).1.input, first.input);
}

#[test]
fn credentials_of_git_stay_behind() {
    let from = tempfile::tempdir().unwrap();
    std::fs::create_dir(from.path().join(".git")).unwrap();
    let config = "[remote \"o\"]\n\turl = https://x:ghs_abc@github.com/a/b.git\n";
    std::fs::write(from.path().join(".git/config"), config).unwrap();
    let (bytes, _) = packed(from.path());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains("https://github.com/a/b.git") && !text.contains("ghs_abc"), "{text}");
}

#[test]
fn what_cannot_travel_is_a_refusal() {
    let from = tempfile::tempdir().unwrap();
    File::create_new(from.path().join("huge")).unwrap().set_len(MAX_FILE + 1).unwrap();
    let refused = pack(&Checkout::open(from.path()).unwrap(), io::sink()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("huge is larger than {MAX_FILE} bytes, which is the most a file of a source may have")
    );
    std::fs::remove_file(from.path().join("huge")).unwrap();
    let deep: std::path::PathBuf = std::iter::repeat_n("d", MAX_DEPTH + 1).collect();
    std::fs::create_dir_all(from.path().join(deep)).unwrap();
    let refused = pack(&Checkout::open(from.path()).unwrap(), io::sink()).unwrap_err();
    assert!(matches!(refused, PackFault::TooDeep(_)), "{refused}");
}
