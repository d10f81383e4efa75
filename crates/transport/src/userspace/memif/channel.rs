//! The control channel: a unix socket for whole messages, with descriptors attached to them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect,
    recvmsg, sendmsg, socket_with,
};

use super::message::{MESSAGE_LEN, Message};

/// One end of a channel. Its operations never block.
pub(super) struct Channel {
    socket: OwnedFd,
}

/// The result of reading from a channel.
pub(super) enum ChannelRead {
    /// A message, and the descriptor that came with it.
    Message(Message, Option<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// Bytes that are not a message.
    Nonsense,
    /// The peer has left.
    End,
}

impl Channel {
    /// Connects to the server at `path`.
    pub(super) fn connect(path: &Path) -> io::Result<Channel> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Channel { socket })
    }

    /// Accepts a client that waits at a listening socket.
    pub(super) fn accept(listener: impl AsFd) -> Option<Channel> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = accept_with(listener, flags).ok()?;
        Some(Channel { socket })
    }

    /// Sends a message, with a descriptor if there is one.
    ///
    /// # Errors
    /// If the peer has left or does not read: there is room for a few dozen messages.
    pub(super) fn send(
        &self,
        message: &Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptor) = &descriptor {
            let has_room = control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(
                descriptor,
            )));
            assert!(has_room, "the space is for one");
        }
        let bytes = message.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
        Ok(())
    }

    /// The next message.
    pub(super) fn receive(&self) -> ChannelRead {
        let mut bytes = [0; MESSAGE_LEN];
        // There is also room for credentials, which some peers attach.
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        );
        let len = match received {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return ChannelRead::Nothing,
            Err(_) => return ChannelRead::End,
        };
        // Descriptors after the first one are closed.
        let descriptor = control.drain().find_map(|attached| match attached {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match (len, Message::decode(&bytes)) {
            (0, _) => ChannelRead::End,
            (MESSAGE_LEN, Some(message)) => ChannelRead::Message(message, descriptor),
            _ => ChannelRead::Nonsense,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
