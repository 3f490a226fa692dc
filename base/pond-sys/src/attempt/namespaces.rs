//! Namespaces, address randomisation, and filters on top of the filter.

use std::fs::File;
use std::io::{self, Write};

/// A kind of namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    User,
    Mount,
    Pid,
    Net,
    Ipc,
    Uts,
    Cgroup,
    Time,
}

const CLONE_NEWTIME: libc::c_int = 0x80;

impl Kind {
    const fn flag(self) -> libc::c_int {
        match self {
            Self::User => libc::CLONE_NEWUSER,
            Self::Mount => libc::CLONE_NEWNS,
            Self::Pid => libc::CLONE_NEWPID,
            Self::Net => libc::CLONE_NEWNET,
            Self::Ipc => libc::CLONE_NEWIPC,
            Self::Uts => libc::CLONE_NEWUTS,
            Self::Cgroup => libc::CLONE_NEWCGROUP,
            Self::Time => CLONE_NEWTIME,
        }
    }
}

/// Moves the calling process into new namespaces of these kinds, all at once.
pub fn unshare(kinds: &[Kind]) -> io::Result<()> {
    let flags = kinds.iter().fold(0, |flags, kind| flags | kind.flag());
    // SAFETY: none of these flags changes memory or closes a descriptor of the calling process.
    crate::check(unsafe { libc::unshare(flags) }.into()).map(|_| ())
}

/// Moves the calling process into a new user namespace in which `user` and `group`, its own until now, are root's.
pub fn unshare_user_as_root(user: u32, group: u32) -> io::Result<()> {
    unshare(&[Kind::User])?;
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1\n")),
        ("gid_map", format!("0 {group} 1\n")),
    ];
    for (name, text) in maps {
        File::options().write(true).open(format!("/proc/self/{name}"))?.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Forks by the old `clone` with the bit of a user namespace; the child ends at once.
pub fn clone_into_user() -> io::Result<()> {
    let flags = libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child runs on a copy of this stack; the caller has one thread.
    let pid = crate::check(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) })?;
    if pid == 0 {
        crate::process::exit_now(0)
    }
    Ok(())
}

const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x004_0000;

/// Switches address randomisation off for what this process executes.
pub fn disable_randomisation() -> io::Result<()> {
    // SAFETY: changing the personality of this process touches no memory.
    crate::check(unsafe { libc::personality(ADDR_NO_RANDOMIZE) }.into()).map(|_| ())
}

/// Installs a filter that allows everything, which must not undo the one that does not.
pub fn stack_allowing_filter() -> io::Result<()> {
    let everything = [libc::sock_filter {
        code: 0x06, // BPF_RET | BPF_K
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    }];
    let program = libc::sock_fprog { len: 1, filter: everything.as_ptr().cast_mut() };
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: `program` names one initialised instruction that outlives the call; the kernel copies it.
    let ret =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0u32, &raw const program) };
    crate::check(ret).map(|_| ())
}
