//! What a card does that computes checksums and cuts segments itself.

use crate::nic::{Layout, Offload};
use crate::wire::Address;
use crate::wire::checksum::Sum;
use crate::wire::ip::Protocol;
use crate::wire::tcp::Flags;
use crate::wire::{put, u16_at, u32_at};

/// The frames that leave when one with such a request is sent.
///
/// # Panics
/// Where the frame is not prepared as [`Offload`] says.
pub(super) fn complete(frame: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let (layout, len) = match offload {
        Offload::None => return vec![frame.to_vec()],
        Offload::Checksum(layout) => (layout, frame.len()),
        Offload::Segment(layout, len) => (layout, usize::from(len)),
    };
    let (headers, payload) = frame.split_at(usize::from(layout.payload));
    let counted = match offload {
        Offload::Checksum(_) => frame.len() - usize::from(layout.transport),
        _ => 0,
    };
    let at = usize::from(layout.transport) + if layout.is_udp { 6 } else { 16 };
    let given = u16_at(headers, at);
    assert_eq!(
        given,
        pseudo(headers, layout, counted).folded(),
        "the pseudo header's sum"
    );
    if payload.is_empty() {
        return vec![finish(headers, payload, layout, (0, true))];
    }
    let count = payload.len().div_ceil(len);
    let pieces = payload.chunks(len).enumerate();
    pieces
        .map(|(number, piece)| finish(headers, piece, layout, (number * len, number + 1 == count)))
        .collect()
}

fn pseudo(headers: &[u8], layout: Layout, len: usize) -> Sum {
    let packet = &headers[usize::from(layout.network)..];
    let address = |at: usize| match layout.is_ipv6 {
        true => Address::v6(*packet[at..].first_chunk().expect("an address")),
        false => Address::v4(*packet[at..].first_chunk().expect("an address")),
    };
    let (source, destination) = match layout.is_ipv6 {
        true => (address(8), address(24)),
        false => (address(12), address(16)),
    };
    let protocol = if layout.is_udp {
        Protocol::UDP
    } else {
        Protocol::TCP
    };
    Sum::pseudo_header(source, destination, protocol.0, len)
}

/// A frame with a piece of the payload that begins so many bytes behind its beginning, and whether
/// that is the last.
fn finish(headers: &[u8], piece: &[u8], layout: Layout, (from, is_last): (usize, bool)) -> Vec<u8> {
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let mut frame = [headers, piece].concat();
    let short = |len: usize| u16::try_from(len).expect("a packet").to_be_bytes();
    let (packet_len, segment_len) = (frame.len() - network, frame.len() - transport);
    if layout.is_ipv6 {
        put(&mut frame, network + 4, &short(segment_len));
    } else {
        put(&mut frame, network + 2, &short(packet_len));
        put(&mut frame, network + 10, &[0; 2]);
        let sum = Sum::of(&frame[network..transport]).checksum();
        put(&mut frame, network + 10, &sum.to_be_bytes());
    }
    if !layout.is_udp {
        let from = u32::try_from(from).expect("within a frame");
        let seq = u32_at(&frame, transport + 4).wrapping_add(from);
        put(&mut frame, transport + 4, &seq.to_be_bytes());
        if !is_last {
            frame[transport + 13] &= !(Flags::FIN.0 | Flags::PSH.0);
        }
    }
    let at = transport + if layout.is_udp { 6 } else { 16 };
    put(&mut frame, at, &[0; 2]);
    let sum = pseudo(headers, layout, segment_len).with(&frame[transport..]);
    put(&mut frame, at, &sum.checksum().to_be_bytes());
    frame
}
