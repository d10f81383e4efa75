//! A card whose other end is the test: it puts in whatever frames it likes, and looks at what leaves.

use std::collections::VecDeque;

use coua_tcp::nic::{BURST_LEN, Features, Frame, LINK_HEADER_LEN, Mac, Nic, Offload};

/// The stack's MAC address.
pub(crate) const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Frames on their way in and out.
pub(crate) struct Card {
    mtu: u16,
    pub(crate) arriving: VecDeque<Vec<u8>>,
    pub(crate) left: VecDeque<Vec<u8>>,
    burst: Vec<Vec<u8>>,
    slot: Vec<u8>,
}

impl Card {
    pub(crate) fn new(mtu: u16) -> Card {
        Card {
            mtu,
            arriving: VecDeque::new(),
            left: VecDeque::new(),
            burst: Vec::new(),
            slot: vec![0; LINK_HEADER_LEN + usize::from(mtu)],
        }
    }
}

impl Nic for Card {
    fn features(&self) -> Features {
        Features {
            mac: OWN_MAC,
            mtu: self.mtu,
            fills_checksums: false,
            segmentation_len_max: 0,
        }
    }

    fn receive(&mut self) -> usize {
        let count = self.arriving.len().min(BURST_LEN);
        self.burst = self.arriving.drain(..count).collect();
        count
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: &self.burst[at],
            is_verified: false,
        }
    }

    fn release(&mut self) {
        self.burst.clear();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        // What an earlier frame has left here must not leave with the next.
        self.slot.fill(0xa5);
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize, offload: Offload) {
        assert_eq!(offload, Offload::None, "the card offers nothing");
        self.left.push_back(self.slot[..len].to_vec());
    }

    fn flush(&mut self) {}
}
