//! Loop devices: a file as a block device that frees itself when its last user is gone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587D;
const BLOCK: u32 = 4096;
static SHUTDOWN_WITHOUT_FLUSH: u32 = 2;

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// The number of a loop device nobody uses at the moment of asking; another process may take it first.
pub fn free_number(control: impl AsFd) -> io::Result<u32> {
    // SAFETY: this request takes no argument beyond the descriptor.
    let ret = unsafe { libc::ioctl(control.as_fd().as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(crate::check(ret.into())?).map_err(|_| crate::out_of_range())
}

/// Binds `image` to `device`. The kernel undoes the binding when the last opener or mount of the device goes away.
pub fn configure(device: impl AsFd, image: impl AsFd) -> io::Result<()> {
    let image: RawFd = image.as_fd().as_raw_fd();
    let config = LoopConfig {
        fd: u32::try_from(image).map_err(|_| crate::out_of_range())?,
        // The filesystem's own: with a smaller one the kernel reads its first block twice and forgets what it knew in between.
        block_size: BLOCK,
        info: LoopInfo64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: `config` has the layout of `struct loop_config` and outlives the call; the kernel only reads it.
    let ret = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    crate::check(ret.into()).map(|_| ())
}

/// Ends an ext4 filesystem without writing back what is dirty: its content is about to be thrown away.
pub fn shut_down_ext4(root: impl AsFd) -> io::Result<()> {
    // SAFETY: the kernel reads one u32 from the pointer, which outlives the call.
    let ret = unsafe {
        libc::ioctl(root.as_fd().as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const SHUTDOWN_WITHOUT_FLUSH)
    };
    crate::check(ret.into()).map(|_| ())
}
