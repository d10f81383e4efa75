//! The queues of one worker, as one [`Nic`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use coua_tcp::nic::{BURST_LEN, Features, Frame, LINK_HEADER_LEN, Nic, Offload};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::socket::{Arrived, Socket};
use super::{Attachment, Counters};

/// The queues of one worker.
///
/// It receives from all of its queues in turn and sends on the first one: a second one would not
/// help a single core. Each queue has its own memory. So a frame returns to the ring that it came
/// from, drivers share nothing between queues, and a flooded queue takes no memory from the others.
///
/// A burst costs at most one system call, in [`Nic::flush`]. (Kernels before 6.17 need a call for
/// each 32 frames in copy mode.) A receive that finds nothing costs a call for each queue whose
/// driver wants to be woken, and one for each queue with busy polling.
///
/// # Sleeping
/// The descriptor ([`AsFd`]) becomes readable when frames have arrived. Sleep on it only after a
/// [`Nic::receive`] that found none, and with nothing committed that is not flushed.
pub struct XdpNic {
    sockets: Vec<Socket>,
    /// Where the next burst begins, so that no queue starves the others.
    first: usize,
    arrived: Vec<Arrived>,
    features: Features,
    /// An epoll set of all sockets, if there are several.
    set: Option<OwnedFd>,
    /// Keeps the filter attached to the card.
    _attachment: Arc<Attachment>,
}

impl XdpNic {
    /// `sockets` is not empty, and the first one transmits.
    pub(super) fn new(
        sockets: Vec<Socket>,
        features: Features,
        attachment: Arc<Attachment>,
    ) -> io::Result<XdpNic> {
        let set = (sockets.len() > 1).then(|| set_of(&sockets)).transpose()?;
        Ok(XdpNic {
            sockets,
            first: 0,
            arrived: Vec::with_capacity(BURST_LEN),
            features,
            set,
            _attachment: attachment,
        })
    }

    /// Whether, on all queues, the card accesses the frames directly; otherwise the kernel copies
    /// each.
    pub fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(Socket::is_zero_copy)
    }

    /// Whether, on all queues, the kernel accepted the options for busy polling.
    pub fn is_busy_polling(&self) -> bool {
        self.sockets.iter().all(Socket::is_busy_polling)
    }

    /// What has been counted so far, on all queues together.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn counters(&self) -> io::Result<Counters> {
        self.sockets
            .iter()
            .try_fold(Counters::default(), |sum, socket| {
                Ok(sum + socket.counters()?)
            })
    }

    fn gather(&mut self) {
        let count = self.sockets.len();
        for at in 0..count {
            let number = (self.first + at) % count;
            self.sockets[number].receive(number, &mut self.arrived);
        }
        self.first = (self.first + 1) % count;
    }
}

impl Nic for XdpNic {
    fn features(&self) -> Features {
        self.features
    }

    #[inline]
    fn receive(&mut self) -> usize {
        self.release();
        self.gather();
        if self.arrived.is_empty() {
            let mut is_prodded = false;
            for socket in &mut self.sockets {
                is_prodded |= socket.prod();
            }
            if is_prodded {
                self.gather();
            }
        }
        self.arrived.len()
    }

    #[inline]
    fn frame(&self, at: usize) -> Frame<'_> {
        let arrived = &self.arrived[at];
        Frame {
            bytes: self.sockets[arrived.socket].frame(arrived),
            is_verified: false,
        }
    }

    #[inline]
    fn release(&mut self) {
        if self.arrived.is_empty() {
            return;
        }
        for arrived in self.arrived.drain(..) {
            self.sockets[arrived.socket].recycle(arrived);
        }
        for socket in &mut self.sockets {
            socket.refill();
        }
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        let len = LINK_HEADER_LEN + usize::from(self.features.mtu);
        self.sockets[0].slot().map(|room| &mut room[..len])
    }

    #[inline]
    fn commit(&mut self, len: usize, offload: Offload) {
        assert_eq!(offload, Offload::None, "AF_XDP does nothing to a frame");
        self.sockets[0].commit(len);
    }

    #[inline]
    fn flush(&mut self) {
        self.sockets[0].flush();
    }
}

impl AsFd for XdpNic {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.set {
            Some(set) => set.as_fd(),
            None => self.sockets[0].as_fd(),
        }
    }
}

fn set_of(sockets: &[Socket]) -> io::Result<OwnedFd> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for socket in sockets {
        epoll::add(&set, socket, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(set)
}
