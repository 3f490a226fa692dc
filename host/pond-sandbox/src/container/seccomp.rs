//! The engine's filter, from the same table as pond's own. Pure.
//!
//! It holds from the container's first instruction, before pond's pid 1 runs. Pond's own filter goes on top for the job and
//! is exact; where both say no, the kernel tells the job what pond's says.

use pond_sys::seccomp::{Allowance, Condition, allowances};
use serde::Serialize;

/// ENOSYS, as for a call that the table does not name.
const ABSENT: u32 = 38;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: &'static str,
    default_errno_ret: u32,
    syscalls: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    names: Vec<&'static str>,
    action: &'static str,
    args: Vec<Argument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u32,
    value: u32,
    value_two: u32,
    op: &'static str,
}

pub(super) fn profile() -> Result<String, serde_json::Error> {
    let (always, sometimes): (Vec<Allowance>, Vec<Allowance>) =
        allowances().into_iter().partition(|allowance| allowance.cases.iter().any(Vec::is_empty));
    let mut syscalls = vec![allow(always.iter().map(|allowance| allowance.name).collect(), &[])];
    for Allowance { name, cases } in sometimes {
        syscalls.extend(cases.iter().map(|case| allow(vec![name], case)));
    }
    let profile = Profile { default_action: "SCMP_ACT_ERRNO", default_errno_ret: ABSENT, syscalls };
    serde_json::to_string(&profile)
}

/// The kernel reads only the low word of these arguments, so only that is compared: a rule on the whole register could be
/// stepped past with bits that nobody reads.
fn allow(names: Vec<&'static str>, case: &[Condition]) -> Rule {
    let args = case.iter().map(|Condition { argument, mask, value }| Argument {
        index: *argument,
        value: *mask,
        value_two: *value,
        op: "SCMP_CMP_MASKED_EQ",
    });
    Rule { names, action: "SCMP_ACT_ALLOW", args: args.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dockers_own_profile_lets_through_is_not_there() {
        let text = profile().unwrap();
        for name in ["io_uring_setup", "ptrace", "clone3", "process_vm_readv", "userfaultfd", "bpf"] {
            assert!(!text.contains(&format!("\"{name}\"")), "{name}");
        }
        let whole_word = r#"{"names":["socketpair"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":4294967295,"valueTwo":1,"op":"SCMP_CMP_MASKED_EQ"}]}"#;
        assert!(text.contains(whole_word), "{text}");
        assert!(text.starts_with(r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"#), "{text}");
    }
}
