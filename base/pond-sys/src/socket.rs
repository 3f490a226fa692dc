//! Packet sockets that carry descriptors: how pond's own processes talk to each other.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The most descriptors one packet carries. The kernel's own bound is 253.
pub const MAX_DESCRIPTORS: usize = 65;

/// Two connected ends; a packet keeps its boundaries, and a closed end reads as zero bytes.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one packet and the descriptors that belong to it.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet into `buffer`. Zero bytes and no descriptors mean the other end is gone. A packet that did not fit,
/// in bytes or descriptors, is an error: half a message is no message.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match rustix::net::recvmsg(
            &socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let descriptors =
        control
            .drain()
            .filter_map(|message| {
                if let RecvAncillaryMessage::ScmRights(rights) = message { Some(rights) } else { None }
            })
            .flatten()
            .collect();
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet arrived cut short"));
    }
    Ok((message.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    //! Packets keep their boundaries and their descriptors.
    use super::*;
    use std::io::Read;

    #[test]
    fn bytes_and_descriptors_travel_together() {
        let (left, right) = pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send(&left, b"hello", &[writer.as_fd()]).unwrap();
        drop(writer);
        let mut buffer = [0; 16];
        let (length, descriptors) = receive(&right, &mut buffer).unwrap();
        assert_eq!((&buffer[..length], descriptors.len()), (&b"hello"[..], 1));
        rustix::io::write(&descriptors[0], b"through").unwrap();
        drop(descriptors);
        let mut text = String::new();
        std::fs::File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn a_packet_larger_than_the_buffer_is_refused() {
        let (left, right) = pair().unwrap();
        send(&left, b"too long", &[]).unwrap();
        let fault = receive(&right, &mut [0; 3]).map_err(|fault| fault.kind());
        assert_eq!(fault.map(|(length, _)| length), Err(io::ErrorKind::InvalidData));
    }
}
