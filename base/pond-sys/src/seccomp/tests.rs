//! The compiled programs against the table, against another compiler, and against the policy in plain words.

use std::collections::BTreeMap;

use libc::c_long;
use proptest::prelude::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule,
};

use super::Profile::{self, Gateway, Init, Workload, WorkloadCounted, WorkloadDebug};
use super::Verdict::{
    Allow, AskPidOne, FamilyUnsupported, KillProcess, NotImplemented, NotPermitted, PretendDone,
    ProtocolUnsupported, Unsupported,
};
use super::compile::{Filter, Instruction, assemble, compile};
use super::decision::{ABSENT, ALLOW, Argument, Decision, KILL, Question, REFUSE, UNSUPPORTED, Verdict};
use super::interpret::{Call, Outcome, run};
use super::table::{self, ARCHITECTURE};
use super::{arguments, recent};

const PROFILES: [Profile; 5] = [Workload, WorkloadCounted, WorkloadDebug, Init, Gateway];
const X32: u32 = 0x4000_0000;
const I386: u32 = 0x4000_0003;
const HIGH: u64 = 0xDEAD_BEEF_0000_0000;

fn judge(rules: &BTreeMap<u32, Decision>, unlisted: Decision, call: &Call) -> Verdict {
    if call.architecture != ARCHITECTURE {
        return Verdict::KillProcess;
    }
    settle(rules.get(&call.number).copied().unwrap_or(unlisted), call)
}

fn settle(decision: Decision, call: &Call) -> Verdict {
    match decision {
        Decision::Settled(verdict) => verdict,
        Decision::Asks(Question { argument, mask, any_of, then, otherwise }) => {
            let word = match argument {
                Argument::First => call.arguments[0],
                Argument::Second => call.arguments[1],
                Argument::Third => call.arguments[2],
                Argument::ThirdHigh => call.arguments[2] >> 32,
            };
            let word = u32::try_from(word & u64::from(u32::MAX)).unwrap() & mask;
            settle(if any_of.contains(&word) { *then } else { *otherwise }, call)
        }
    }
}

fn call(number: c_long, arguments: [u64; 3]) -> Call {
    let [a, b, c] = arguments;
    Call { number: u32::try_from(number).unwrap(), architecture: ARCHITECTURE, arguments: [a, b, c, 0, 0, 0] }
}

/// Argument triples around every value a rule compares with, each also with its high word set.
fn argument_sweep() -> Vec<[u64; 3]> {
    let namespaces = (0..32).map(|bit| 1u64 << bit);
    let first = [0, 1, 2, 3, 10, 11, 15, 16, 17, 38, 40, 44, 0x20000, 0x7E02_0000, 0xFFFF_FFFF].into_iter();
    let first: Vec<u64> = first.chain(namespaces).collect();
    let kinds = [0, 1, 2, 3, 4, 5, 6, 10, 0xF, 0x80801, 0x80003, 0x8080A, 0x13].into_iter();
    let requests = [
        0x5411,
        0x5412,
        0x5413,
        0x541C,
        0x540E,
        0x5421,
        0x5423,
        0x4008_6602,
        0x401C_5820,
        0xC050_2100,
        0xC018_2101,
    ]
    .into_iter();
    let second: Vec<u64> = kinds.chain(requests).collect();
    let third = [
        0,
        1,
        3,
        4,
        5,
        6,
        7,
        8,
        14,
        17,
        26,
        31,
        32,
        38,
        40,
        50,
        51,
        52,
        58,
        132,
        256,
        262,
        0x2180,
        0xC180,
        0xFFFF_FFFF,
    ];
    let mut sweep = Vec::new();
    for a in &first {
        for b in &second {
            sweep.extend(third.map(|c| [*a, *b, c]));
            sweep.extend(third.map(|c| [*a | HIGH, *b | HIGH, c | HIGH]));
        }
    }
    sweep
}

fn numbers() -> impl Iterator<Item = u32> {
    (0..=1024).chain(X32..=X32 + 1024).chain([X32 - 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX - 1, u32::MAX])
}

#[test]
fn every_number_on_every_architecture_gets_the_tables_verdict() {
    for profile in PROFILES {
        let (filter, rules, unlisted) = (compile(profile), table::rules(profile), table::unlisted(profile));
        for number in numbers() {
            for architecture in [ARCHITECTURE, I386, 0xC000_00B7, 0x4000_0028, 0] {
                for arguments in [[0; 6], [1; 6], [u64::MAX; 6], [HIGH; 6]] {
                    let call = Call { number, architecture, arguments };
                    let got = run(filter.instructions(), &call).code;
                    assert_eq!(got, judge(&rules, unlisted, &call).code(), "{profile:?} {call:x?}");
                }
            }
        }
    }
}

#[test]
fn every_argument_rule_gets_the_tables_verdict() {
    for profile in PROFILES {
        let filter = compile(profile);
        let asking =
            table::rules(profile).into_iter().filter(|(_, decision)| matches!(decision, Decision::Asks(_)));
        for (number, decision) in asking {
            for arguments in argument_sweep() {
                let call = call(number.into(), arguments);
                let got = run(filter.instructions(), &call).code;
                assert_eq!(got, settle(decision, &call).code(), "{profile:?} {call:x?}");
            }
        }
    }
}

/// What an install costs follows these figures: a change to them should be meant.
#[test]
#[cfg(target_arch = "x86_64")]
fn programs_are_small_and_shallow() {
    let measured = PROFILES.map(|profile| {
        let filter = compile(profile);
        let steps = (0..=512).map(|number| run(filter.instructions(), &call(number, [0; 3])).steps).max();
        (profile, filter.instructions().len(), steps)
    });
    let expected = [
        (Workload, 192, Some(17)),
        (WorkloadCounted, 197, Some(19)),
        (WorkloadDebug, 190, Some(17)),
        (Init, 50, Some(13)),
        (Gateway, 101, Some(13)),
    ];
    assert_eq!(measured, expected);
}

#[test]
fn a_call_stands_in_one_group() {
    for profile in PROFILES {
        let mut calls: Vec<c_long> = table::groups(profile).flat_map(|group| group.calls).copied().collect();
        let listed = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), listed, "{profile:?} lists a call twice");
        assert_eq!(table::rules(profile).len(), listed, "{profile:?} lists a call no register holds");
    }
}

/// A new row must say what it is; a forgotten call shows up here, and so does one that slips out of the table.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_table_names_every_call_the_kernel_has() {
    let rules = table::rules(Profile::Workload);
    let unnamed: Vec<u32> = (0..=469).filter(|number| !rules.contains_key(number)).collect();
    // create_module, get_kernel_syms, query_module, getpmsg..security, set_thread_area, get_thread_area, epoll_*_old,
    // vserver: no 64-bit kernel implements them. Then the gap reserved for aligning the numbers of all architectures.
    let never_implemented = [174, 177, 178, 181, 182, 183, 184, 185, 205, 211, 214, 215, 236];
    assert_eq!(unnamed, never_implemented.into_iter().chain(337..=423).collect::<Vec<_>>());
}

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_userfaultfd,
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_open_tree, libc::SYS_move_mount, libc::SYS_fsopen,
    libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick, libc::SYS_mount_setattr, recent::OPEN_TREE_ATTR,
    recent::STATMOUNT, recent::LISTMOUNT, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_setns,
    libc::SYS_unshare, libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at, libc::SYS_kexec_load,
    libc::SYS_kexec_file_load, libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module,
    libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_adjtimex, libc::SYS_clock_adjtime,
    libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_quotactl, libc::SYS_quotactl_fd, libc::SYS_reboot,
    libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_acct, libc::SYS_syslog, libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev, libc::SYS_kcmp, libc::SYS_pidfd_getfd, libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs, libc::SYS__sysctl,
    libc::SYS_vhangup, libc::SYS_move_pages, libc::SYS_mbind, libc::SYS_set_mempolicy, libc::SYS_memfd_secret,
    recent::LSM_GET_SELF_ATTR, recent::LSM_SET_SELF_ATTR, recent::LSM_LIST_MODULES, recent::FILE_SETATTR,
    libc::SYS_sethostname, libc::SYS_fanotify_init, libc::SYS_modify_ldt, libc::SYS_process_madvise,
];

#[test]
#[cfg(target_arch = "x86_64")]
fn workloads_are_refused_what_the_policy_says() {
    for profile in [Profile::Workload, Profile::WorkloadDebug] {
        let filter = compile(profile);
        for number in REFUSED.iter().copied() {
            let got = run(filter.instructions(), &call(number, [0; 3])).code;
            assert_eq!(got, Verdict::NotPermitted.code(), "{profile:?} {number}");
        }
    }
}

const CASES: &[(Profile, c_long, [u64; 3], Verdict)] = &[
    (Gateway, libc::SYS_socket, [2, 0x80801, 6], Allow),
    (Gateway, libc::SYS_socket, [1, 1, 0], FamilyUnsupported),
    (Gateway, libc::SYS_socket, [16, 3, 0], FamilyUnsupported),
    (Gateway, libc::SYS_socket, [2, 3, 1], NotPermitted),
    (Gateway, libc::SYS_ioctl, [0, 0x5421, 0], Allow),
    (Gateway, libc::SYS_ioctl, [0, 0x5412, 0], NotPermitted),
    (Gateway, libc::SYS_mmap, [0, 4096, 3], Allow),
    (Gateway, libc::SYS_mmap, [0, 4096, 7], KillProcess),
    (Gateway, libc::SYS_mprotect, [0, 4096, 5], KillProcess),
    (Gateway, libc::SYS_openat, [0, 0, 0], NotPermitted),
    (Gateway, libc::SYS_execve, [0, 0, 0], KillProcess),
    (Gateway, libc::SYS_clone, [17, 0, 0], KillProcess),
    (Gateway, libc::SYS_clone3, [0, 0, 0], KillProcess),
    (Gateway, libc::SYS_ptrace, [16, 1, 0], KillProcess),
    (Gateway, libc::SYS_kill, [1, 9, 0], KillProcess),
    (Gateway, libc::SYS_listen, [3, 1, 0], KillProcess),
    (Workload, libc::SYS_clone, [17, 0, 0], Allow),
    (Workload, libc::SYS_clone, [0x003D_0F00, 0, 0], Allow),
    (Workload, libc::SYS_clone, [0x1000_0011, 0, 0], NotPermitted),
    (Workload, libc::SYS_clone, [HIGH | 0x0002_0011, 0, 0], NotPermitted),
    (Workload, libc::SYS_clone3, [0, 0, 0], NotImplemented),
    (Workload, 1000, [0, 0, 0], NotImplemented),
    (Workload, libc::SYS_socket, [1, 1, 0], Allow),
    (Workload, libc::SYS_socket, [1, 3, 0], Allow),
    (Workload, libc::SYS_socket, [2, 0x80801, 0], Allow),
    (Workload, libc::SYS_socket, [10, 2, 17], Allow),
    (Workload, libc::SYS_socket, [2, 3, 1], NotPermitted),
    (Workload, libc::SYS_socket, [2, 0x80803, 6], NotPermitted),
    (Workload, libc::SYS_socket, [10, 10, 0], NotPermitted),
    (Workload, libc::SYS_socket, [2, 5, 132], NotPermitted),
    (Workload, libc::SYS_socket, [2, 1, 132], ProtocolUnsupported),
    (Workload, libc::SYS_socket, [2, 1, 262], ProtocolUnsupported),
    (Workload, libc::SYS_socket, [16, 3, 0], Allow),
    (Workload, libc::SYS_socket, [16, 3, 9], FamilyUnsupported),
    (Workload, libc::SYS_socket, [17, 3, 0], FamilyUnsupported),
    (Workload, libc::SYS_socket, [38, 5, 0], FamilyUnsupported),
    (Workload, libc::SYS_socket, [HIGH | 40, 1, 0], FamilyUnsupported),
    (Workload, libc::SYS_socket, [HIGH | 2, HIGH | 3, HIGH], NotPermitted),
    (Workload, libc::SYS_socketpair, [1, 1, 0], Allow),
    (Workload, libc::SYS_socketpair, [2, 1, 0], FamilyUnsupported),
    (Workload, libc::SYS_ioctl, [0, 0x5412, 0], NotPermitted),
    (Workload, libc::SYS_ioctl, [0, HIGH | 0x5412, 0], NotPermitted),
    (Workload, libc::SYS_ioctl, [0, 0x541C, 0], NotPermitted),
    (Workload, libc::SYS_ioctl, [0, 0x5423, 0], NotPermitted),
    (Workload, libc::SYS_ioctl, [0, 0x4008_6602, 0], NotPermitted),
    (Workload, libc::SYS_ioctl, [0, 0x401C_5820, 0], NotPermitted),
    (Workload, libc::SYS_ioctl, [0, 0x540E, 0], Allow),
    (Workload, libc::SYS_ioctl, [0, 0x5401, 0], Allow),
    (Workload, libc::SYS_setsockopt, [0, 1, 26], NotPermitted),
    (Workload, libc::SYS_setsockopt, [0, HIGH | 1, HIGH | 51], NotPermitted),
    (Workload, libc::SYS_setsockopt, [0, 6, 31], NotPermitted),
    (Workload, libc::SYS_setsockopt, [0, 6, 26], Allow),
    (Workload, libc::SYS_setsockopt, [0, 41, 32], NotPermitted),
    (Workload, libc::SYS_setsockopt, [0, 41, 26], Allow),
    (Workload, libc::SYS_setsockopt, [0, 17, 32], Allow),
    (Workload, libc::SYS_setsockopt, [0, 1, 31], Allow),
    (Workload, libc::SYS_setsockopt, [0, 0, 26], Allow),
    (Workload, libc::SYS_io_setup, [1, 0, 0], NotImplemented),
    (Workload, libc::SYS_personality, [0, 0, 0], Allow),
    (Workload, libc::SYS_personality, [0xFFFF_FFFF, 0, 0], Allow),
    (Workload, libc::SYS_personality, [0x0004_0000, 0, 0], NotPermitted),
    (Workload, libc::SYS_personality, [HIGH | 8, 0, 0], NotPermitted),
    (Workload, libc::SYS_prlimit64, [0, 4, 0], Allow),
    (Workload, libc::SYS_prlimit64, [0, 4, 0x7FFF_0000], PretendDone),
    (Workload, libc::SYS_prlimit64, [0, 4, HIGH], PretendDone),
    (Workload, libc::SYS_prlimit64, [1, HIGH | 4, HIGH | 8], PretendDone),
    (Workload, libc::SYS_prlimit64, [4, 7, 0x7FFF_0000], Allow),
    (WorkloadDebug, libc::SYS_prlimit64, [0, 4, HIGH], PretendDone),
    (Workload, libc::SYS_kill, [1, 9, 0], NotPermitted),
    (Workload, libc::SYS_kill, [HIGH | 1, 0, 0], NotPermitted),
    (Workload, libc::SYS_kill, [2, 9, 0], Allow),
    (Workload, libc::SYS_kill, [0, 15, 0], Allow),
    (Workload, libc::SYS_kill, [u64::MAX, 15, 0], Allow),
    (Workload, libc::SYS_tkill, [1, 9, 0], NotPermitted),
    (Workload, libc::SYS_tgkill, [1, 1, 9], NotPermitted),
    (Workload, libc::SYS_rt_sigqueueinfo, [1, 9, 0], NotPermitted),
    (Workload, libc::SYS_rt_tgsigqueueinfo, [1, 1, 9], NotPermitted),
    (Init, libc::SYS_kill, [1, 15, 0], Allow),
    (Workload, libc::SYS_mknodat, [0, 0, 0o100644], Allow),
    (Workload, libc::SYS_mknodat, [0, 0, 0o644], Allow),
    (Workload, libc::SYS_mknodat, [0, 0, 0o010600], Allow),
    (Workload, libc::SYS_mknodat, [0, 0, 0o140600], Allow),
    (Workload, libc::SYS_mknodat, [0, 0, 0o020666], NotPermitted),
    (Workload, libc::SYS_mknodat, [0, 0, HIGH | 0o020666], NotPermitted),
    (Workload, libc::SYS_mknodat, [0, 0, 0o060600], NotPermitted),
    (Workload, libc::SYS_socket, [16, 3, 0], Allow),
    (WorkloadCounted, libc::SYS_socket, [16, 3, 0], AskPidOne),
    (WorkloadCounted, libc::SYS_socket, [HIGH | 16, HIGH | 0x80803, HIGH], AskPidOne),
    (WorkloadCounted, libc::SYS_socket, [16, 3, 4], FamilyUnsupported),
    (WorkloadCounted, libc::SYS_socket, [2, 1, 0], Allow),
    (WorkloadCounted, libc::SYS_socket, [17, 1, 0], FamilyUnsupported),
    (Init, libc::SYS_ioctl, [0, 0xC050_2100, 0], Allow),
    (Init, libc::SYS_ioctl, [0, 0xC018_2101, 0], Allow),
    (Init, libc::SYS_ioctl, [0, 0xC018_2103, 0], KillProcess),
    (Workload, libc::SYS_setxattr, [0, 0, 0], Unsupported),
    (Workload, libc::SYS_fsetxattr, [0, 0, 0], Unsupported),
    (Workload, libc::SYS_getxattr, [0, 0, 0], Allow),
    (Workload, libc::SYS_removexattr, [0, 0, 0], Allow),
    (Workload, libc::SYS_setsockopt, [0, 1, 8], PretendDone),
    (Workload, libc::SYS_setsockopt, [0, HIGH | 1, HIGH | 8], PretendDone),
    (Workload, libc::SYS_setsockopt, [0, 1, 7], Allow),
    (Workload, libc::SYS_setsockopt, [0, 6, 14], NotPermitted),
    (Workload, libc::SYS_setsockopt, [0, 6, 38], NotPermitted),
    (Workload, libc::SYS_ptrace, [0, 0, 0], NotPermitted),
    (WorkloadDebug, libc::SYS_ptrace, [0, 0, 0], Allow),
    (Init, libc::SYS_read, [0, 0, 0], Allow),
    (Init, libc::SYS_mmap, [0, 0, 3], Allow),
    (Init, libc::SYS_mmap, [0, 0, 7], KillProcess),
    (Init, libc::SYS_openat, [0, 0, 0], KillProcess),
    (Init, libc::SYS_execve, [0, 0, 0], KillProcess),
    (Init, 1000, [0, 0, 0], KillProcess),
];

#[test]
fn the_policy_in_plain_words() {
    for (profile, number, arguments, expected) in CASES {
        let filter = compile(*profile);
        let got = run(filter.instructions(), &call(*number, *arguments)).code;
        assert_eq!(got, expected.code(), "{profile:?} {number} {arguments:x?}");
    }
}

/// Another project's compiler, given the same policy in its own terms, must allow the same calls.
fn oracle(profile: Profile) -> Vec<Instruction> {
    let condition =
        |index, operator, value: u32| SeccompCondition::new(index, Dword, operator, value.into()).unwrap();
    let rule = |conditions: &[SeccompCondition]| SeccompRule::new(conditions.to_vec()).unwrap();
    let masked = |index, mask: u32, value| condition(index, SeccompCmpOp::MaskedEq(mask.into()), value);
    let equal = |index, value| condition(index, SeccompCmpOp::Eq, value);
    let differ = |index, value| condition(index, SeccompCmpOp::Ne, value);
    let mut internet = Vec::new();
    for family in [2, 10] {
        for kind in [1, 2] {
            for protocol in [0, 6, 17] {
                internet.push(rule(&[equal(0, family), masked(1, 0xF, kind), equal(2, protocol)]));
            }
        }
    }
    let local = vec![rule(&[equal(0, 1)]), rule(&[equal(0, 16), equal(2, 0)])];
    let sockets = [local, internet.clone()].concat();
    let no_pointer = SeccompCondition::new(2, Qword, SeccompCmpOp::Eq, 0).unwrap();
    let requests = [
        arguments::TIOCSTI,
        arguments::TIOCLINUX,
        arguments::TIOCSETD,
        arguments::FS_IOC_SETFLAGS,
        arguments::FS_IOC_FSSETXATTR,
    ];
    let nodes = [0, 0x1000, 0x8000, 0xC000];
    let in_its_terms = |decision| match decision {
        ALLOW => Some(vec![]),
        arguments::CLONE => Some(vec![rule(&[masked(0, 0x7E02_0000, 0)])]),
        arguments::SOCKET => Some(sockets.clone()),
        // What pid 1 is asked about is not allowed as such.
        arguments::COUNTED_SOCKET => Some([vec![rule(&[equal(0, 1)])], internet.clone()].concat()),
        arguments::NOTICES => Some(vec![
            rule(&[equal(1, arguments::RECEIVE_NOTICE)]),
            rule(&[equal(1, arguments::ANSWER_NOTICE)]),
        ]),
        arguments::INTERNET_SOCKET => Some(internet.clone()),
        arguments::NON_BLOCKING => Some(vec![rule(&[equal(1, arguments::FIONBIO)])]),
        arguments::SOCKET_PAIR => Some(vec![rule(&[equal(0, 1)])]),
        arguments::IOCTL => Some(vec![rule(&requests.map(|request| differ(1, request)))]),
        arguments::PERSONALITY => Some(vec![rule(&[equal(0, 0)]), rule(&[equal(0, u32::MAX)])]),
        arguments::LIMIT => Some(vec![rule(&[differ(1, 4)]), rule(&[equal(1, 4), no_pointer.clone()])]),
        arguments::SET_LIMIT => Some(vec![rule(&[differ(0, 4)])]),
        arguments::SIGNAL => Some(vec![rule(&[differ(0, 1)])]),
        arguments::SET_OPTION => Some(vec![
            rule(&[differ(1, 1), differ(1, 6)]),
            rule(&[equal(1, 1), differ(2, 8), differ(2, 26), differ(2, 50), differ(2, 51), differ(2, 52)]),
            rule(&[&[equal(1, 6)][..], &[14, 31, 32, 38, 39, 40].map(|option| differ(2, option))].concat()),
        ]),
        arguments::NODE_AT => Some(nodes.map(|kind| rule(&[masked(2, 0xF000, kind)])).to_vec()),
        arguments::NODE => Some(nodes.map(|kind| rule(&[masked(1, 0xF000, kind)])).to_vec()),
        arguments::DATA_MAPPING => Some(vec![rule(&[masked(2, 4, 0)])]),
        REFUSE | ABSENT | UNSUPPORTED | KILL => None,
        Decision::Settled(_) | Decision::Asks(_) => panic!("a rule the oracle does not know: {decision:?}"),
    };
    let rules = table::rules(profile)
        .into_iter()
        .filter_map(|(number, decision)| Some((i64::from(number), in_its_terms(decision)?)))
        .collect();
    let target = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Errno(1), SeccompAction::Allow, target).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    program
        .into_iter()
        .map(|step| Instruction { code: step.code, jt: step.jt, jf: step.jf, k: step.k })
        .collect()
}

#[test]
fn another_compiler_allows_the_same_calls() {
    for profile in PROFILES {
        let (ours, theirs) = (compile(profile), oracle(profile));
        let rules = table::rules(profile);
        let allows = |program: &[Instruction], call: &Call| run(program, call).code == Verdict::Allow.code();
        for number in numbers() {
            let asks = matches!(rules.get(&number), Some(Decision::Asks(_)));
            let sweep = if asks { argument_sweep() } else { vec![[0; 3], [u64::MAX; 3]] };
            for arguments in sweep {
                let call = call(number.into(), arguments);
                assert_eq!(
                    allows(ours.instructions(), &call),
                    allows(&theirs, &call),
                    "{profile:?} {call:x?}"
                );
            }
        }
    }
}

const ANY_DECISION: [Decision; 6] =
    [ALLOW, REFUSE, ABSENT, arguments::CLONE, arguments::SOCKET, arguments::PERSONALITY];

proptest! {
    /// Tables large enough to need jumps beyond 255 instructions.
    #[test]
    fn any_table_compiles_to_what_it_says(
        gaps in prop::collection::vec((1u32..4, 0..ANY_DECISION.len()), 1..700),
        arguments in prop::array::uniform3(0u64..20),
    ) {
        let mut start = 0;
        let ranges: Vec<(u32, Decision)> = gaps
            .iter()
            .map(|(gap, kind)| {
                let range = (start, ANY_DECISION[*kind]);
                start += gap;
                range
            })
            .collect();
        let filter: Filter = assemble(&ranges);
        for number in 0..start + 2 {
            let call = call(number.into(), arguments);
            let decision = ranges.iter().rev().find(|(from, _)| *from <= number).unwrap().1;
            let Outcome { code, steps } = run(filter.instructions(), &call);
            prop_assert_eq!(code, settle(decision, &call).code());
            prop_assert!(steps < 48, "{} steps", steps);
        }
    }
}
