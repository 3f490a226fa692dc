//! Rules that depend on what a call is asked to do.
//!
//! Zone: trusted, pure data. Every number looked at is an `int` or is truncated to one by the kernel, so its low word
//! is all of it: setting high bits must change no verdict. A pointer is looked at in both words.

use super::decision::Argument::{First, Second, Third, ThirdHigh};
use super::decision::{ALLOW, Decision, KILL, Question, REFUSE, Verdict};

const NO_FAMILY: Decision = Decision::Settled(Verdict::FamilyUnsupported);
const PRETEND: Decision = Decision::Settled(Verdict::PretendDone);
const NO_PROTOCOL: Decision = Decision::Settled(Verdict::ProtocolUnsupported);
const WHOLE: u32 = u32::MAX;

/// The bits of `clone` flags that make a namespace. The time namespace has none: its bit is part of the exit signal here.
pub(super) const NAMESPACES: u32 = bits(
    libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET,
);

pub(super) const CLONE: Decision = Decision::Asks(&Question {
    argument: First,
    mask: NAMESPACES,
    any_of: &[0],
    then: ALLOW,
    otherwise: REFUSE,
});

/// Everything but local, internet and routing sockets is a family nobody audits, loads a kernel module on request
/// (AF_ALG, AF_RDS, …) or reaches past the network namespace (AF_VSOCK).
pub(super) const SOCKET: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[bits(libc::AF_UNIX)],
    then: ALLOW,
    otherwise: Decision::Asks(&Question {
        argument: First,
        mask: WHOLE,
        any_of: &[bits(libc::AF_INET), bits(libc::AF_INET6)],
        then: INTERNET_TYPE,
        otherwise: NETLINK,
    }),
});

/// The same where pid 1 counts routing sockets: what waits in them no control group counts, and there is no other bound on how many
/// there are.
pub(super) const COUNTED_SOCKET: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[bits(libc::AF_NETLINK)],
    then: Decision::Asks(&Question {
        argument: Third,
        mask: WHOLE,
        any_of: &[bits(libc::NETLINK_ROUTE)],
        then: Decision::Settled(Verdict::AskPidOne),
        otherwise: NO_FAMILY,
    }),
    otherwise: SOCKET,
});

/// The gateway dials and asks name servers, and has its local socket already.
pub(super) const INTERNET_SOCKET: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[bits(libc::AF_INET), bits(libc::AF_INET6)],
    then: INTERNET_TYPE,
    otherwise: NO_FAMILY,
});

/// The one request the gateway makes of a socket by `ioctl`: not to block.
pub(super) const NON_BLOCKING: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: WHOLE,
    any_of: &[FIONBIO],
    then: ALLOW,
    otherwise: REFUSE,
});

/// What pid 1 does with the listener of the job's filter.
pub(super) const NOTICES: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: WHOLE,
    any_of: &[RECEIVE_NOTICE, ANSWER_NOTICE],
    then: ALLOW,
    otherwise: KILL,
});

pub(crate) const RECEIVE_NOTICE: u32 = 0xC050_2100;
pub(crate) const ANSWER_NOTICE: u32 = 0xC018_2101;

pub(super) const FIONBIO: u32 = 0x5421;

pub(super) const SOCKET_PAIR: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[bits(libc::AF_UNIX)],
    then: ALLOW,
    otherwise: NO_FAMILY,
});

/// The kernel keeps a socket's type in four bits; SOCK_CLOEXEC and SOCK_NONBLOCK lie above them.
const SOCKET_TYPE: u32 = 0xF;

const INTERNET_TYPE: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: SOCKET_TYPE,
    any_of: &[bits(libc::SOCK_STREAM), bits(libc::SOCK_DGRAM)],
    then: INTERNET_PROTOCOL,
    otherwise: REFUSE,
});

/// SCTP, DCCP, MPTCP, SMC, L2TP and the rest are modules an unprivileged socket call would load into the host.
const INTERNET_PROTOCOL: Decision = Decision::Asks(&Question {
    argument: Third,
    mask: WHOLE,
    any_of: &[bits(libc::IPPROTO_IP), bits(libc::IPPROTO_TCP), bits(libc::IPPROTO_UDP)],
    then: ALLOW,
    otherwise: NO_PROTOCOL,
});

/// Routing is how C libraries list interfaces.
const NETLINK: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[bits(libc::AF_NETLINK)],
    then: Decision::Asks(&Question {
        argument: Third,
        mask: WHOLE,
        any_of: &[bits(libc::NETLINK_ROUTE)],
        then: ALLOW,
        otherwise: NO_FAMILY,
    }),
    otherwise: NO_FAMILY,
});

pub(super) const SO_ATTACH_FILTER: u32 = 26;
pub(super) const SO_ATTACH_BPF: u32 = 50;
pub(super) const SO_ATTACH_REUSEPORT_CBPF: u32 = 51;
pub(super) const SO_ATTACH_REUSEPORT_EBPF: u32 = 52;
pub(super) const SO_RCVBUF: u32 = 8;
pub(super) const TCP_ULP: u32 = 31;
pub(super) const IPV6_FLOWLABEL_MGR: u32 = 32;
/// TCP_MD5SIG, TCP_MD5SIG_EXT, and TCP_AO_ADD_KEY to TCP_AO_INFO.
pub(super) const TCP_KEYS: [u32; 5] = [14, 32, 38, 39, 40];

/// What waits in a socket for routing messages no control group counts: there is no more of it than the kernel gives everybody.
const RECEIVE_ROOM: Decision = Decision::Asks(&Question {
    argument: Third,
    mask: WHOLE,
    any_of: &[SO_RCVBUF],
    then: PRETEND,
    otherwise: ALLOW,
});

/// A program on a socket is compiled into memory that no control group counts and that is bounded once for the whole host:
/// a job that takes all of it leaves nobody else, pond's next job included, enough for a filter of system calls.
/// A protocol beneath TCP is kernel code (TLS, SMC) that `socket` would not give it. Keys that routers sign segments with are kernel
/// memory that nobody counts either.
pub(super) const SET_OPTION: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: WHOLE,
    any_of: &[bits(libc::SOL_SOCKET)],
    then: Decision::Asks(&Question {
        argument: Third,
        mask: WHOLE,
        any_of: &[SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF],
        then: REFUSE,
        otherwise: RECEIVE_ROOM,
    }),
    otherwise: Decision::Asks(&Question {
        argument: Second,
        mask: WHOLE,
        any_of: &[bits(libc::IPPROTO_TCP)],
        then: Decision::Asks(&Question {
            argument: Third,
            mask: WHOLE,
            any_of: &[TCP_KEYS[0], TCP_ULP, TCP_KEYS[1], TCP_KEYS[2], TCP_KEYS[3], TCP_KEYS[4]],
            then: REFUSE,
            otherwise: ALLOW,
        }),
        otherwise: FLOW_LABEL,
    }),
});

/// There is one table of them for all networks of the host, and three thousand places in it for everybody.
const FLOW_LABEL: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: WHOLE,
    any_of: &[bits(libc::IPPROTO_IPV6)],
    then: Decision::Asks(&Question {
        argument: Third,
        mask: WHOLE,
        any_of: &[IPV6_FLOWLABEL_MGR],
        then: REFUSE,
        otherwise: ALLOW,
    }),
    otherwise: ALLOW,
});

pub(super) const TIOCSTI: u32 = 0x5412;
pub(super) const TIOCLINUX: u32 = 0x541C;
pub(super) const TIOCSETD: u32 = 0x5423;
pub(super) const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
pub(super) const FS_IOC_FSSETXATTR: u32 = 0x401C_5820;

/// Typing into, driving or changing the line discipline of a terminal is how a job escapes to whoever watches it; inode
/// flags and project ids would outlive the job on the layer it wrote. Taking a controlling terminal (TIOCSCTTY) stays:
/// every program that opens a terminal of its own needs it, and it cannot take one that belongs to another session.
pub(super) const IOCTL: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: WHOLE,
    any_of: &[TIOCSTI, TIOCLINUX, TIOCSETD, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR],
    then: REFUSE,
    otherwise: ALLOW,
});

/// PER_LINUX, and the value that only asks.
pub(super) const PERSONALITY: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[0, u32::MAX],
    then: ALLOW,
    otherwise: REFUSE,
});

/// RLIMIT_CORE, the same on every architecture.
const CORE: u32 = 4;

/// A job's limit of core files is one byte. That is how the kernel spells "start no crash handler": at zero a handler that the
/// host has set up is started all the same, as root and outside, with the job's memory for its input. So it must not become
/// zero, and programs that set it to zero out of caution have what they want.
pub(super) const SET_LIMIT: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[CORE],
    then: PRETEND,
    otherwise: ALLOW,
});

/// The same for the call that also reads limits: without a new one it only does that.
pub(super) const LIMIT: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: WHOLE,
    any_of: &[CORE],
    then: Decision::Asks(&Question {
        argument: Third,
        mask: WHOLE,
        any_of: &[0],
        then: Decision::Asks(&Question {
            argument: ThirdHigh,
            mask: WHOLE,
            any_of: &[0],
            then: ALLOW,
            otherwise: PRETEND,
        }),
        otherwise: PRETEND,
    }),
    otherwise: ALLOW,
});

/// Pid 1, which has its own kernel's protection on Linux and none on others that run this filter. A group is not asked for:
/// nothing of a job's is ever in that of pid 1.
const PID_ONE: u32 = 1;

pub(super) const SIGNAL: Decision = Decision::Asks(&Question {
    argument: First,
    mask: WHOLE,
    any_of: &[PID_ONE],
    then: REFUSE,
    otherwise: ALLOW,
});

/// What a node may be without being a device: a file, said or not, a pipe, a socket.
const HARMLESS_NODES: &[u32] = &[0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK];

pub(super) const NODE_AT: Decision = Decision::Asks(&Question {
    argument: Third,
    mask: libc::S_IFMT,
    any_of: HARMLESS_NODES,
    then: ALLOW,
    otherwise: REFUSE,
});

/// The same for the call without a directory.
pub(super) const NODE: Decision = Decision::Asks(&Question {
    argument: Second,
    mask: libc::S_IFMT,
    any_of: HARMLESS_NODES,
    then: ALLOW,
    otherwise: REFUSE,
});

/// Init and the gateway map memory for data, never for code.
pub(super) const DATA_MAPPING: Decision = Decision::Asks(&Question {
    argument: Third,
    mask: bits(libc::PROT_EXEC),
    any_of: &[0],
    then: ALLOW,
    otherwise: KILL,
});

const fn bits(value: i32) -> u32 {
    value.cast_unsigned()
}
