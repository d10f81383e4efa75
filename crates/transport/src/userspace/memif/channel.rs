//! The control channel: a unix socket of whole messages, to which descriptors are attached.

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

/// One end of a channel. It never blocks.
pub(super) struct Channel {
    socket: OwnedFd,
}

/// What a look at a channel brought.
pub(super) enum ChannelRead {
    /// A message, with the descriptor that came along.
    Message(Message, Option<OwnedFd>),
    /// Nothing so far.
    Nothing,
    /// Bytes that are no message.
    Nonsense,
    /// The peer has gone.
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

    /// Takes a client that waits at a listening socket.
    pub(super) fn accept(listener: impl AsFd) -> Option<Channel> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = accept_with(listener, flags).ok()?;
        Some(Channel { socket })
    }

    /// Sends a message with a descriptor, where there is one.
    ///
    /// # Errors
    /// Where the peer is gone, or does not read: a few dozen messages have room.
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
        // Room for credentials too, which some peers attach.
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
        // Descriptors beyond the first are closed.
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
