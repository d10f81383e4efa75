//! A stream whose bytes have all come already. Nothing can be sent to it.

use std::cell::Cell;
use std::io::IoSliceMut;

use crate::outcome::Received;

pub(super) struct Given {
    pub(super) bytes: Box<dyn AsRef<[u8]>>,
    pub(super) at: Cell<usize>,
}

impl Given {
    fn rest(&self) -> &[u8] {
        &(*self.bytes).as_ref()[self.at.get()..]
    }

    pub(super) fn has_more(&self) -> bool {
        !self.rest().is_empty()
    }

    pub(super) fn receive(&self, space: &mut [u8]) -> Received {
        let rest = self.rest();
        let len = rest.len().min(space.len());
        if len == 0 {
            return Received::Ended;
        }
        space[..len].copy_from_slice(&rest[..len]);
        self.at.set(self.at.get() + len);
        Received::Bytes(len)
    }

    pub(super) fn receive_vectored(&self, spaces: &mut [IoSliceMut<'_>]) -> Received {
        let mut count = 0;
        for space in spaces {
            if let Received::Bytes(len) = self.receive(space) {
                count += len;
            }
        }
        match count {
            0 => Received::Ended,
            _ => Received::Bytes(count),
        }
    }
}
