//! A card without a cable, and the frames that are put into it.
#![allow(dead_code, reason = "each target takes what it needs")]

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

/// Frames that leave in a turn at most, of a card that is soon full.
const OUT_MAX: usize = 8;

/// Where a VLAN tag stands.
pub const TAG_AT: usize = 12;

/// What is put into it comes, and what leaves is looked at.
pub struct Card {
    /// Frames that come with the next burst.
    pub inbox: Vec<Vec<u8>>,
    slot: Vec<u8>,
    /// Headers of the segments that have left since the last burst came.
    pub sent: Vec<Header>,
    /// All frames that have left since then, without their tags.
    pub left: Vec<Vec<u8>>,
    out_max: usize,
    /// The tag that each frame has which leaves.
    tag: Option<[u8; 4]>,
    /// What the stack said last: where it is, and what it has.
    pub last: Option<Header>,
}

impl Card {
    /// A card that is soon full.
    pub fn new() -> Card {
        Card::with(OUT_MAX, None)
    }

    /// A card that is never full, and whose frames have this tag when they leave.
    pub fn never_full(tag: Option<[u8; 4]>) -> Card {
        Card::with(usize::MAX, tag)
    }

    fn with(out_max: usize, tag: Option<[u8; 4]>) -> Card {
        Card {
            inbox: Vec::new(),
            slot: vec![0; 1518 + 4],
            sent: Vec::new(),
            left: Vec::new(),
            out_max,
            tag,
            last: None,
        }
    }

    /// Makes room for further frames to leave.
    pub fn clear(&mut self) {
        self.left.clear();
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
        (self.left.len() < self.out_max).then_some(&mut self.slot[..])
    }

    fn commit(&mut self, len: usize, _: Offload) {
        let mut frame = self.slot[..len].to_vec();
        if let Some(tag) = self.tag {
            let found: Vec<u8> = frame.drain(TAG_AT..TAG_AT + tag.len()).collect();
            assert_eq!(found, tag, "replies go where the request came from");
        }
        assert!(frame.len() <= 1518, "a frame of {len} bytes");
        // What leaves must be readable.
        let (link, at) = ethernet::Header::read(&frame).expect("a frame");
        if link.ether_type == EtherType::IPV4 {
            let (packet, header_len) = ip::Header::read_v4(&frame[at..], false).expect("a packet");
            if packet.protocol == Protocol::TCP {
                let header = Header::read(&frame[at + header_len..])
                    .expect("a segment")
                    .0;
                self.last = Some(header);
                self.sent.push(header);
            }
        }
        self.left.push(frame);
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
