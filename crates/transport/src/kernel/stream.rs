//! Receives and sends on connected sockets.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, recvmsg,
    sendmsg, shutdown,
};

use crate::outcome::{Received, Sent};

/// Receives into `space`.
pub(crate) fn receive(fd: &OwnedFd, space: &mut [u8]) -> Received {
    received(|| {
        let (_, count) = recv(fd, &mut *space, RecvFlags::empty())?;
        Ok(count)
    })
}

/// Receives into several spaces, one after another.
pub(crate) fn receive_vectored(fd: &OwnedFd, spaces: &mut [IoSliceMut<'_>]) -> Received {
    received(|| {
        let mut control = RecvAncillaryBuffer::default();
        Ok(recvmsg(fd, spaces, &mut control, RecvFlags::empty())?.bytes)
    })
}

/// Sends from the front of `bytes`.
pub(crate) fn send(fd: &OwnedFd, bytes: &[u8]) -> Sent {
    sent(|| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL))
}

/// Sends several pieces, one after another.
pub(crate) fn send_vectored(fd: &OwnedFd, pieces: &[IoSlice<'_>], more: bool) -> Sent {
    let flags = match more {
        true => SendFlags::NOSIGNAL | SendFlags::MORE,
        false => SendFlags::NOSIGNAL,
    };
    sent(|| {
        let mut control = SendAncillaryBuffer::default();
        sendmsg(fd, pieces, &mut control, flags)
    })
}

/// Sends the end of the stream behind all that was sent.
pub(crate) fn end_output(fd: &OwnedFd) {
    // This fails only of a connection that is gone.
    let _ = shutdown(fd, Shutdown::Write);
}

fn received(mut receive: impl FnMut() -> Result<usize, Errno>) -> Received {
    loop {
        return match receive() {
            Ok(0) => Received::Ended,
            Ok(count) => Received::Bytes(count),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Received::Nothing,
            Err(_) => Received::Ended,
        };
    }
}

fn sent(mut send: impl FnMut() -> Result<usize, Errno>) -> Sent {
    loop {
        return match send() {
            Ok(count) => Sent::Bytes(count),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Sent::Full,
            Err(_) => Sent::Broken,
        };
    }
}
