//! What a simulated card is.

use crate::nic::Mac;

/// What a simulated card is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Its own address.
    pub mac: Mac,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// Frames that it keeps until they are received; what comes beyond is dropped.
    pub receive_len_max: usize,
    /// Frames that it takes until they are flushed.
    pub send_len_max: usize,
    /// The probability that a call of `slot` finds it full although it is not. It is so until the
    /// next `flush` or `receive`.
    pub full: f64,
    /// Bytes of payload that it cuts into segments itself; where it does, it computes checksums too. 0
    /// where it does neither.
    pub segmentation_len_max: u32,
}

impl Card {
    /// A card with that address, the MTU of Ethernet, and room for a thousand frames each way.
    pub const fn new(mac: Mac) -> Card {
        Card {
            mac,
            mtu: 1500,
            receive_len_max: 1024,
            send_len_max: 1024,
            full: 0.0,
            segmentation_len_max: 0,
        }
    }
}
