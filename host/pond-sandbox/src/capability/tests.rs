//! On evidence recorded from runc and runsc: what is advertised is what was seen, whatever a runtime is called.
use pond_wire::contained::{Evidence as Inside, Landlock};
use pond_wire::jail::Usage;

use super::*;

const HOST: &str = "998f4bda";
const FINE: Ending = Ending::Exited { code: 0, usage: Usage { max_rss_kib: 0, cpu_micros: 0 } };

fn seen(runtime: &str, kernel: Kernel, boot_id: &str, host_sees: Program) -> Option<Isolation> {
    let inside = Inside { version: String::new(), boot_id: boot_id.to_owned(), landlock: Landlock::Present };
    let (runtime, host_boot_id) = (runtime.to_owned(), HOST.to_owned());
    let (container, image) = (String::new(), String::new());
    let nonce = match host_sees {
        Program::PidOne => Nonce::Visible,
        Program::Another => Nonce::Hidden,
    };
    Some(Isolation { runtime, container, image, kernel, inside, host_boot_id, host_sees, nonce })
}

fn proven(backend: Backend, isolation: Option<Isolation>) -> bool {
    judge(backend, FINE, isolation).is_ok()
}

#[test]
fn each_backend_is_proven_by_its_own_evidence_and_no_other() {
    let runc = || seen("runc", Kernel::Host, HOST, Program::PidOne);
    let runsc = || seen("runsc", Kernel::Gvisor, "038805dd", Program::Another);
    let kata = || seen("kata-fc", Kernel::Machine, "0c2f9a11", Program::Another);
    for backend in Backend::ALL.iter().copied() {
        let expected: Vec<bool> = Backend::ALL.iter().map(|of| *of == backend).collect();
        let found = [None, runc(), runsc(), kata()].map(|isolation| proven(backend, isolation));
        assert_eq!(found.as_slice(), expected, "{backend}");
    }
}

#[test]
fn runc_under_another_name_proves_nothing() {
    for (name, backend) in [("runsc", Backend::Gvisor), ("kata-fc", Backend::Firecracker)] {
        for kernel in [Kernel::Host, Kernel::Gvisor, Kernel::Machine] {
            assert!(!proven(backend, seen(name, kernel, HOST, Program::PidOne)), "{name} {kernel:?}");
            assert!(!proven(backend, seen(name, kernel, "", Program::PidOne)), "{name} {kernel:?}");
        }
    }
    assert!(!proven(Backend::Gvisor, seen("runsc", Kernel::Gvisor, HOST, Program::Another)));
    assert!(!proven(Backend::Gvisor, seen("runsc", Kernel::Gvisor, "038805dd", Program::PidOne)));
    // This host sees pid 1, if not where the engine says that it is.
    for (backend, kernel) in [(Backend::Gvisor, Kernel::Gvisor), (Backend::Firecracker, Kernel::Machine)] {
        let isolation = seen("hidden", kernel, "038805dd", Program::Another);
        assert!(!proven(backend, isolation.map(|seen| Isolation { nonce: Nonce::Visible, ..seen })));
    }
}

#[test]
fn a_canary_that_did_not_end_well_proves_nothing() {
    let usage = Usage { max_rss_kib: 0, cpu_micros: 0 };
    let bad = [
        Ending::Exited { code: 1, usage },
        Ending::Signaled { signal: 9, usage },
        Ending::NotLaunched { step: Step::Everywhere, errno: 2 },
        Ending::NotBegun,
        Ending::Lost,
    ];
    for ending in bad {
        assert!(judge(Backend::Native, ending, None).is_err(), "{ending:?}");
    }
}

#[test]
fn only_what_was_proven_is_advertised() {
    let all = Backend::ALL.iter().copied().map(Capability::Backend);
    let confidential = Capability::parse("sandbox.cc-snp");
    let wanted: Vec<Capability> = all.chain(confidential).collect();
    let examined = |backend, isolation| {
        let evidence = judge(backend, FINE, isolation);
        // A posture that is not to be had does not take the backend away.
        let found = evidence.map(|evidence| Proven { evidence, internet: Err(Unproven::Silent) });
        Examined { backend, found }
    };
    let examined = [
        examined(Backend::Native, None),
        Examined { backend: Backend::Docker, found: Err(Unproven::Silent) },
        examined(Backend::Gvisor, seen("runsc", Kernel::Host, HOST, Program::PidOne)),
    ];
    let advertised = filter_sandbox_capabilities(&wanted, &examined);
    assert_eq!(advertised, [Capability::Backend(Backend::Native)]);
    assert_eq!(filter_sandbox_capabilities(&[], &examined), []);
    assert_eq!(filter_sandbox_capabilities(&wanted, &[]), []);
}
