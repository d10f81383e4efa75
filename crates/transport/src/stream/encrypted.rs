//! A stream within its encryption.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use super::Stream;
use crate::outcome::{Handshake, Received, Sent};
use crate::tls::encryption::Encryption;

/// A stream that carries records, and what encrypts them.
pub(super) struct Encrypted {
    /// The records' way.
    pub(super) stream: Stream,
    /// What makes records of plain bytes, and plain bytes of records.
    pub(super) encryption: Encryption,
}

impl Encrypted {
    pub(super) fn shake_hands(&self) -> Handshake {
        self.encryption.shake_hands(&mut self.records())
    }

    pub(super) fn receive(&self, space: &mut [u8]) -> Received {
        self.encryption.receive(&mut self.records(), space)
    }

    pub(super) fn receive_vectored(&self, spaces: &mut [IoSliceMut<'_>]) -> Received {
        self.encryption
            .receive_vectored(&mut self.records(), spaces)
    }

    pub(super) fn send(&self, pieces: &[IoSlice<'_>]) -> Sent {
        self.encryption.send(&mut self.records(), pieces)
    }

    pub(super) fn flush(&self) -> Sent {
        self.encryption.flush(&mut self.records())
    }

    pub(super) fn say_end(&self) {
        self.encryption.say_end(&mut self.records());
    }

    fn records(&self) -> Records<'_> {
        Records(&self.stream)
    }
}

/// The peer hears that nothing more comes, as far as the stream takes it.
impl Drop for Encrypted {
    fn drop(&mut self) {
        self.say_end();
    }
}

/// The stream as rustls reads and writes it.
struct Records<'s>(&'s Stream);

impl Read for Records<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self.0.receive(space) {
            Received::Bytes(count) => Ok(count),
            Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Received::Ended => Ok(0),
        }
    }
}

impl Write for Records<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        taken(self.0.send(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        taken(self.0.send_vectored(pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn taken(sent: Sent) -> io::Result<usize> {
    match sent {
        Sent::Bytes(count) => Ok(count),
        Sent::Full => Err(io::ErrorKind::WouldBlock.into()),
        Sent::Broken => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
