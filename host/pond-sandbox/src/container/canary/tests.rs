//! On evidence recorded from runc and runsc, and as Kata's documents show it: one lie is enough.

use super::*;

const HOST: &str = "Linux version 6.18.44 (build@host) #1 SMP PREEMPT_DYNAMIC";
const HOST_BOOT: &str = "998f4bda-9c43-4b0e-8a0e-2d2a1f1f0c11";
const OTHER_BOOT: &str = "038805dd-71c4-4b1e-9d70-0e64c0a5f2aa";
/// Kata's own guest kernel.
const GUEST: &str =
    "Linux version 6.1.62 (root@buildkitsandbox) (gcc 11.4.0) #1 SMP Mon Jan 8 22:14:02 UTC 2024";

fn evidence(version: &str, boot_id: &str, landlock: Landlock) -> Evidence {
    Evidence { version: version.to_owned(), boot_id: boot_id.to_owned(), landlock }
}

fn outside(program: Program, nonce: Nonce) -> Outside {
    Outside { boot_id: HOST_BOOT.to_owned(), version: HOST.to_owned(), program, nonce }
}

fn here() -> Outside {
    outside(Program::PidOne, Nonce::Visible)
}

fn elsewhere() -> Outside {
    outside(Program::Another, Nonce::Hidden)
}

#[test]
fn the_truth_passes() {
    let runc = evidence(HOST, HOST_BOOT, Landlock::Present);
    assert_eq!(judge(Kernel::Host, &runc, &here()), Ok(()));
    for version in [GVISOR_FIXED, "Linux version 4.19.0-gvisor #1 SMP"] {
        let runsc = evidence(version, OTHER_BOOT, Landlock::Absent);
        assert_eq!(judge(Kernel::Gvisor, &runsc, &elsewhere()), Ok(()));
    }
    for landlock in [Landlock::Present, Landlock::Absent] {
        let kata = evidence(GUEST, OTHER_BOOT, landlock);
        assert_eq!(judge(Kernel::Machine, &kata, &elsewhere()), Ok(()));
    }
    // A guest may well boot what the host boots.
    let same_kernel = evidence(HOST, OTHER_BOOT, Landlock::Present);
    assert_eq!(judge(Kernel::Machine, &same_kernel, &elsewhere()), Ok(()));
}

#[test]
fn runc_under_another_name_is_found_out() {
    let runc = evidence(HOST, HOST_BOOT, Landlock::Present);
    for (kernel, name, lie) in
        [(Kernel::Gvisor, "gVisor", GVISOR_FIXED), (Kernel::Machine, "a virtual machine", GUEST)]
    {
        let found_out = Err(Mismatch::HostKernel(name));
        for outside in [here(), elsewhere()] {
            assert_eq!(judge(kernel, &runc, &outside), found_out);
        }
        // Whatever it says inside, the host sees its process, by either way of looking.
        let faked = evidence(lie, OTHER_BOOT, Landlock::Absent);
        assert_eq!(judge(kernel, &faked, &outside(Program::PidOne, Nonce::Hidden)), found_out);
        assert_eq!(judge(kernel, &faked, &outside(Program::Another, Nonce::Visible)), found_out);
    }
}

#[test]
fn another_kernel_is_neither() {
    let machine = evidence(GUEST, OTHER_BOOT, Landlock::Present);
    assert_eq!(judge(Kernel::Gvisor, &machine, &elsewhere()), Err(Mismatch::NotGvisor));
    assert_eq!(judge(Kernel::Host, &machine, &elsewhere()), Err(Mismatch::NotTheHost));
    let gvisor = evidence(GVISOR_FIXED, OTHER_BOOT, Landlock::Absent);
    assert_eq!(judge(Kernel::Machine, &gvisor, &elsewhere()), Err(Mismatch::NotAMachine));
    for silent in [evidence("", "", Landlock::Absent), evidence(GUEST, "", Landlock::Absent)] {
        assert_eq!(judge(Kernel::Gvisor, &silent, &elsewhere()), Err(Mismatch::NotGvisor));
        assert_eq!(judge(Kernel::Machine, &silent, &elsewhere()), Err(Mismatch::NotAMachine));
    }
    let no_landlock = evidence(HOST, HOST_BOOT, Landlock::Absent);
    assert_eq!(judge(Kernel::Host, &no_landlock, &here()), Err(Mismatch::NotTheHost));
    let unseen = evidence(HOST, HOST_BOOT, Landlock::Present);
    let hidden = outside(Program::PidOne, Nonce::Hidden);
    assert_eq!(judge(Kernel::Host, &unseen, &hidden), Err(Mismatch::NotTheHost));
}
