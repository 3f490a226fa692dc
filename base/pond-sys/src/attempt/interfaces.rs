//! Kernel interfaces whose code is large, privileged by design, and none of a job's business.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{closing, reached};

/// Makes a small BPF array.
pub fn bpf_map() -> io::Result<()> {
    const BPF_MAP_CREATE: libc::c_int = 0;
    // map_type = array, key_size, value_size, max_entries; the rest of the union is zero.
    let mut attributes = [0u32; 32];
    for (slot, value) in attributes.iter_mut().zip([2, 4, 4, 1]) {
        *slot = value;
    }
    // SAFETY: the kernel reads as many bytes as it is told the array has.
    let ret = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, attributes.as_ptr(), size_of_val(&attributes))
    };
    closing(crate::check(ret))
}

/// Opens a software clock event on this process.
pub fn perf_event() -> io::Result<()> {
    const BYTES: u32 = 64;
    // type = software, size, config = cpu clock, then zeros: struct perf_event_attr of its first version.
    let mut attributes = [0u32; 16];
    for (slot, value) in attributes.iter_mut().zip([1, BYTES]) {
        *slot = value;
    }
    // SAFETY: the attribute's size field says how much the kernel reads, which is what the array has.
    let ret = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0usize) };
    closing(crate::check(ret))
}

pub fn userfault() -> io::Result<()> {
    // SAFETY: the call takes only flags.
    closing(crate::check(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) }))
}

pub fn io_uring() -> io::Result<()> {
    let mut parameters = [0u32; 30];
    // SAFETY: `struct io_uring_params` has 120 bytes, which the kernel reads and writes; the array has as many.
    let ret = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2u32, parameters.as_mut_ptr()) };
    closing(crate::check(ret))
}

/// Reserves one asynchronous request of those that the whole host has, and gives it back.
pub fn kernel_aio() -> io::Result<()> {
    let mut context: libc::c_ulong = 0;
    // SAFETY: the kernel writes the context's number, one word, where it is told.
    crate::check(unsafe { libc::syscall(libc::SYS_io_setup, 1u32, &raw mut context) })?;
    // SAFETY: this context was made just now and nothing is under way in it.
    crate::check(unsafe { libc::syscall(libc::SYS_io_destroy, context) }).map(|_| ())
}

/// Puts a program on a socket, which the kernel compiles.
pub fn socket_program(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Lets whole packets pass.
    let mut program = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::MAX }];
    let whole = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        (&raw const whole).cast(),
        size_of_val(&whole),
    )
}

/// Asks for a protocol between TCP and the program; that there is none of the name is an answer.
pub fn upper_protocol(socket: BorrowedFd<'_>) -> io::Result<()> {
    let name = b"pond";
    let asked = set_option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, name.as_ptr().cast(), name.len());
    reached(asked.map(|()| 0), &[libc::ENOENT])
}

/// Has a stream's segments to one address signed, with a key that the kernel keeps for it.
pub fn segment_key(socket: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C, align(8))]
    struct Key {
        family: u16,
        port: u16,
        address: [u8; 4],
        rest: [u8; 120],
        flags: u8,
        prefix: u8,
        length: u16,
        interface: i32,
        key: [u8; 80],
    }
    let key = Key {
        family: 2,
        port: 0,
        address: [127, 0, 0, 1],
        rest: [0; 120],
        flags: 0,
        prefix: 0,
        length: 16,
        interface: 0,
        key: [b'x'; 80],
    };
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, (&raw const key).cast(), size_of_val(&key))
}

/// Takes one of the labels that all networks of the host have between them; the socket gives it back.
pub fn flow_label(socket: BorrowedFd<'_>) -> io::Result<()> {
    const CREATE: u16 = 1;
    const EXCLUSIVE: u8 = 1;
    #[repr(C)]
    struct Request {
        destination: [u8; 16],
        label: u32,
        action: u8,
        share: u8,
        flags: u16,
        expires: u16,
        linger: u16,
        rest: u32,
    }
    let mut destination = [0; 16];
    destination[15] = 1;
    let (action, share, flags) = (0, EXCLUSIVE, CREATE);
    let request = Request { destination, label: 0, action, share, flags, expires: 0, linger: 0, rest: 0 };
    let bytes = size_of_val(&request);
    set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_FLOWLABEL_MGR, (&raw const request).cast(), bytes)
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: *const libc::c_void,
    bytes: usize,
) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(bytes).map_err(|_| crate::out_of_range())?;
    // SAFETY: every caller passes a value that lives until the call is over, and its size.
    let ret = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) };
    crate::check(ret.into()).map(|_| ())
}

const KEY_SPEC_PROCESS_KEYRING: libc::c_int = -2;
const KEY_SPEC_SESSION_KEYRING: libc::c_int = -3;

/// Adds a key to this process's own keyring, which ends with it.
pub fn key_add() -> io::Result<()> {
    let payload = b"x";
    // SAFETY: type and description are NUL-terminated, and the payload has the length that is passed.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            c"pond-attack".as_ptr(),
            payload.as_ptr(),
            payload.len(),
            KEY_SPEC_PROCESS_KEYRING,
        )
    };
    crate::check(ret).map(|_| ())
}

/// Asks for the session keyring's number.
pub fn key_session() -> io::Result<()> {
    const KEYCTL_GET_KEYRING_ID: libc::c_int = 0;
    // SAFETY: this command takes two numbers.
    let ret = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) };
    reached(crate::check(ret), &[libc::ENOKEY])
}

/// Looks for a key that does not exist; to be told so is an answer.
pub fn key_request() -> io::Result<()> {
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: type and description are NUL-terminated; no information is passed to a helper program.
    let ret = unsafe {
        libc::syscall(libc::SYS_request_key, c"user".as_ptr(), c"pond-attack-none".as_ptr(), nothing, 0)
    };
    reached(crate::check(ret), &[libc::ENOKEY])
}

/// Reads the last bytes of the kernel's log.
pub fn kernel_log() -> io::Result<()> {
    const READ_ALL: libc::c_int = 3;
    let mut text = [0u8; 64];
    // SAFETY: the kernel writes at most as many bytes as it is told the buffer has.
    let ret = unsafe { libc::syscall(libc::SYS_syslog, READ_ALL, text.as_mut_ptr(), 64) };
    crate::check(ret).map(|_| ())
}

/// Asks for the privilege to use every I/O port.
#[cfg(target_arch = "x86_64")]
pub fn port_privilege() -> io::Result<()> {
    // SAFETY: the call changes a privilege level of this process and no memory.
    crate::check(unsafe { libc::syscall(libc::SYS_iopl, 3) }).map(|_| ())
}

/// Asks for one I/O port that does nothing.
#[cfg(target_arch = "x86_64")]
pub fn port_permissions() -> io::Result<()> {
    const DELAY_PORT: libc::c_ulong = 0x80;
    // SAFETY: the call changes the port map of this process and no memory.
    crate::check(unsafe { libc::syscall(libc::SYS_ioperm, DELAY_PORT, 1usize, 1) }).map(|_| ())
}

#[cfg(not(target_arch = "x86_64"))]
pub fn port_privilege() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(not(target_arch = "x86_64"))]
pub fn port_permissions() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}
