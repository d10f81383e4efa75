//! A card without a cable, and the frames that are put into it.

use coua_tcp::nic::{Features, Frame, Mac, Nic, Offload};
use coua_tcp::wire::Address;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::tcp::Header;

/// The stack's address.
pub const OURS: Address = Address::v4([192, 0, 2, 1]);
/// That of all others.
pub const PEER: Address = Address::v4([192, 0, 2, 2]);
/// The card's address.
pub const OUR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Frames that leave in a turn at most.
const OUT_MAX: usize = 8;

/// What is put into it comes, and what leaves is looked at.
pub struct Card {
    /// Frames that come with the next burst.
    pub inbox: Vec<Vec<u8>>,
    slot: Vec<u8>,
    /// Headers of the segments that have left since the last burst came.
    pub sent: Vec<Header>,
    out: usize,
    /// What the stack said last: where it is, and what it has.
    pub last: Option<Header>,
}

impl Card {
    pub fn new() -> Card {
        Card {
            inbox: Vec::new(),
            slot: vec![0; 1518],
            sent: Vec::new(),
            out: 0,
            last: None,
        }
    }

    /// Makes room for further frames to leave.
    pub fn clear(&mut self) {
        self.out = 0;
        self.sent.clear();
    }
}

impl Nic for Card {
    fn features(&self) -> Features {
        Features {
            mac: OUR_MAC,
            mtu: 1500,
            fills_checksums: false,
            segmentation_len_max: 0,
        }
    }

    fn receive(&mut self) -> usize {
        self.clear();
        self.inbox.len()
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: &self.inbox[at],
            is_verified: true,
        }
    }

    fn release(&mut self) {
        self.inbox.clear();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.out < OUT_MAX).then_some(&mut self.slot[..])
    }

    fn commit(&mut self, len: usize, _: Offload) {
        self.out += 1;
        assert!(len <= 1518, "a frame of {len} bytes");
        // What leaves must be readable.
        let (link, at) = ethernet::Header::read(&self.slot[..len]).expect("a frame");
        if link.ether_type == EtherType::IPV4 {
            let (packet, header_len) =
                ip::Header::read_v4(&self.slot[at..len], false).expect("a packet");
            if packet.protocol == Protocol::TCP {
                let at = at + header_len;
                let header = Header::read(&self.slot[at..len]).expect("a segment").0;
                self.last = Some(header);
                self.sent.push(header);
            }
        }
    }

    fn flush(&mut self) {}
}

/// A frame of the peer's with this segment. Checksums are left out.
pub fn frame(header: &Header, payload: &[u8]) -> Vec<u8> {
    let link = ethernet::Header {
        destination: OUR_MAC,
        source: PEER_MAC,
        vlan: 0,
        ether_type: EtherType::IPV4,
    };
    let len = header.size() + payload.len();
    let packet = ip::Header::new(PEER, OURS, Protocol::TCP, len);
    let mut frame = vec![0; 34 + header.size()];
    link.write(&mut frame);
    packet.write(&mut frame[14..], false);
    header.write(&mut frame[34..]);
    frame.extend_from_slice(payload);
    frame
}
