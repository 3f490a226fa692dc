//! Forbidden acts, one safe function each: what a hostile program tries against the kernel it shares.
//!
//! Zone: runs inside a sandbox as the job, and unconfined as the control that proves the attempt works at all. `Ok` means
//! that the act was possible, an error is the kernel's refusal. Invariant: each act is harmless where it succeeds. It touches
//! the calling process alone, or asks in a way the kernel can only answer with "not permitted" or "nonsense" (`reached`).

mod files;
mod foreign;
mod interfaces;
mod isolated;
mod machine;
mod memory;
mod namespaces;
mod processes;

pub use files::{
    discard_unused, drive_console, open_by_handle, set_inode_flag, set_line_discipline, type_into_terminal,
};
pub use foreign::{reach_refused_calls, socket_as_i386, socket_as_x32};
pub use interfaces::{
    bpf_map, flow_label, io_uring, kernel_aio, kernel_log, key_add, key_request, key_session, perf_event,
    port_permissions, port_privilege, segment_key, socket_program, upper_protocol, userfault,
};
pub use isolated::{Trial, isolated};
pub use machine::{
    account_processes, adjust_clock, kexec, load_module, quota, reboot, set_clock, set_time_of_day, swap_off,
    swap_on, unload_module,
};
pub use memory::{
    Segment, find_segment, ignore_signals, lock_memory, make_segment, make_timers, silenced_signals,
    touch_memory,
};
pub use namespaces::{
    Kind, clone_into_user, disable_randomisation, stack_allowing_filter, unshare, unshare_user_as_root,
};
pub use processes::{
    compare_files, map_executable, read_memory_of, run_in_real_time, trace, trace_me, write_memory_of,
};

use std::io;

/// The errors that only a call past its permission check can give count as the act being possible.
fn reached(result: io::Result<libc::c_long>, beyond: &[i32]) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(fault) if fault.raw_os_error().is_some_and(|errno| beyond.contains(&errno)) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// A descriptor the act produced is closed at once: having got it was the point.
fn closing(result: io::Result<libc::c_long>) -> io::Result<()> {
    let descriptor = i32::try_from(result?).map_err(|_| crate::out_of_range())?;
    // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) });
    Ok(())
}
