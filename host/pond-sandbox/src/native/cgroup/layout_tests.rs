//! Layouts as they are found in the field, both files verbatim but shortened.

use super::*;

fn place(mount: &str, group: &str) -> Place {
    Place { mount: PathBuf::from(mount), group: PathBuf::from(group) }
}

fn legacy(controllers: &[Controller], mount: &str, group: &str) -> Legacy {
    Legacy { controllers: controllers.to_vec(), place: place(mount, group) }
}

use Controller::{Cpu, CpuAccounting, Memory, Pids};

#[test]
fn hybrid_with_one_mount_per_controller() {
    let mounts = "\
23 1 0:21 / /sys rw,relatime - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    let own = "9:name=systemd:/\n8:pids:/\n4:memory:/agent/7b47\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n";
    let expected = Layout {
        unified: Some(place("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified")),
        legacy: vec![
            legacy(&[Pids], "/sys/fs/cgroup/pids", "/sys/fs/cgroup/pids"),
            legacy(&[Memory], "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/agent/7b47"),
            legacy(&[CpuAccounting], "/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpuacct"),
            legacy(&[Cpu], "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu"),
        ],
    };
    assert_eq!(parse(mounts, own), expected);
}

#[test]
fn v1_with_controllers_mounted_together() {
    let mounts = "\
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/pids rw,nosuid shared:11 - cgroup cgroup rw,pids
";
    let own = "5:cpu,cpuacct:/user.slice\n4:memory:/user.slice/user-1000.slice\n3:pids:/user.slice\n";
    let together = "/sys/fs/cgroup/cpu,cpuacct";
    let expected = Layout {
        unified: None,
        legacy: vec![
            legacy(&[Cpu, CpuAccounting], together, "/sys/fs/cgroup/cpu,cpuacct/user.slice"),
            legacy(&[Memory], "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/user.slice/user-1000.slice"),
            legacy(&[Pids], "/sys/fs/cgroup/pids", "/sys/fs/cgroup/pids/user.slice"),
        ],
    };
    assert_eq!(parse(mounts, own), expected);
}

#[test]
fn v2_single_groups() {
    let at_root = "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    let bound = "40 24 0:30 /docker/ab12 /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n";
    let scope = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope";
    let cases: [(&str, &str, &str, Option<Place>); 6] = [
        ("root", at_root, "0::/\n", Some(place("/sys/fs/cgroup", "/sys/fs/cgroup"))),
        (
            "user session",
            at_root,
            &format!("0::{scope}\n"),
            Some(place("/sys/fs/cgroup", &format!("/sys/fs/cgroup{scope}"))),
        ),
        (
            "container, host's view",
            bound,
            "0::/docker/ab12\n",
            Some(place("/sys/fs/cgroup", "/sys/fs/cgroup")),
        ),
        ("below it", bound, "0::/docker/ab12/leaf\n", Some(place("/sys/fs/cgroup", "/sys/fs/cgroup/leaf"))),
        ("not below what is mounted", bound, "0::/docker/ab123\n", None),
        ("outside the namespace", at_root, "0::/../other\n", None),
    ];
    for (case, mounts, own, unified) in cases {
        assert_eq!(parse(mounts, own), Layout { unified, legacy: vec![] }, "{case}");
    }
}

#[test]
fn a_later_mount_hides_an_earlier_one_and_names_are_unescaped() {
    let mounts = "\
50 24 0:30 / /a\\040b\\134c rw - cgroup2 cgroup2 rw
51 24 0:30 / /later rw - cgroup2 cgroup2 rw
";
    let own = "0::/x:y\n";
    assert_eq!(parse(mounts, own).unified, Some(place("/later", "/later/x:y")));
    let first = mounts.lines().next().unwrap_or_default();
    assert_eq!(parse(first, own).unified, Some(place("/a b\\c", "/a b\\c/x:y")));
}

#[test]
fn nonsense_is_nothing() {
    for (mounts, own) in
        [("", ""), ("x - cgroup2", "0::/"), ("1 2 3 / /m rw - cgroup cgroup", "1:cpu:/"), ("a", ":::")]
    {
        assert_eq!(parse(mounts, own), Layout::default(), "{mounts:?} {own:?}");
    }
}
