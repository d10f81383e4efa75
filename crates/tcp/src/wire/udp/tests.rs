use proptest::prelude::*;

use super::*;
use crate::wire::Address;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// From the peer to us.
fn tuple(is_v4: bool, ports: (u16, u16)) -> FourTuple {
    let address = |last: u8| match is_v4 {
        true => Address::v4([192, 0, 2, last]),
        false => Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
    };
    FourTuple {
        local: address(2),
        remote: address(1),
        local_port: ports.0,
        remote_port: ports.1,
    }
}

fn envelope(tuple: &FourTuple, vlan: u16) -> Envelope<'_> {
    Envelope {
        source: PEER,
        destination: OWN,
        vlan,
        tuple,
        fills_checksums: false,
        trusts_link: false,
    }
}

/// A frame to us.
fn frame(envelope: &Envelope<'_>, payload: &[u8]) -> (Vec<u8>, Offload) {
    let mut frame = vec![0xee; envelope.places().1];
    frame.extend(payload);
    let offload = envelope.write(&mut frame);
    (frame, offload)
}

/// What the readers of each header find in a frame of IP and UDP.
fn read(bytes: &[u8]) -> Result<(ethernet::Header, ip::Header, Header, &[u8]), Malformed> {
    let (link, at) = ethernet::Header::read(bytes)?;
    let rest = &bytes[at..];
    let (packet, at) = match link.ether_type {
        EtherType::IPV4 => ip::Header::read_v4(rest, false)?,
        EtherType::IPV6 => ip::Header::read_v6(rest)?,
        _ => return Err(Malformed::Field),
    };
    let datagram = &rest[at..][..packet.payload_len];
    let header = Header::read(datagram)?;
    let datagram = &datagram[..HEADER_LEN + header.payload_len];
    let (from, to, len) = (packet.source, packet.destination, datagram.len());
    let is_sealed = header.checksum != 0 || !from.is_v4();
    let sum = Sum::pseudo_header(from, to, Protocol::UDP.0, len).with(datagram);
    match is_sealed && !sum.is_right() {
        true => Err(Malformed::Checksum),
        false => Ok((link, packet, header, &datagram[HEADER_LEN..])),
    }
}

proptest! {
    /// What is written is read, at a predicted as by the readers of each header; and where a bit is
    /// wrong, a predicted sees nothing that these do not see.
    #[test]
    fn a_glance_sees_what_the_headers_say(
        is_v4 in any::<bool>(),
        vlan in prop_oneof![4 => Just(0u16), 1 => 1u16..4096],
        ports in any::<(u16, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        padding in 0usize..8,
        is_sealed in any::<bool>(),
        flip in proptest::option::of((0usize..200, 0u8..8)),
    ) {
        let tuple = tuple(is_v4, ports);
        let (mut bytes, offload) = frame(&envelope(&tuple, vlan), &payload);
        prop_assert_eq!(offload, Offload::None);
        if is_v4 && !is_sealed {
            let at = bytes.len() - payload.len() - 2;
            bytes[at..at + 2].fill(0);
        }
        let whole = bytes.len();
        bytes.extend(vec![0xee; padding]);
        if let Some((at, bit)) = flip && at < whole {
            bytes[at] ^= 1 << bit;
        }
        let Some(predicted) = PredictedDatagram::at(&bytes, OWN, false) else {
            prop_assert!(flip.is_some() || vlan != 0);
            return Ok(());
        };
        let (link, packet, header, read) = read(&bytes).expect("a datagram");
        prop_assert_eq!(link.vlan, 0);
        prop_assert_eq!(predicted.mac, link.source);
        prop_assert_eq!(predicted.tuple, FourTuple {
            local: packet.destination,
            remote: packet.source,
            local_port: header.destination,
            remote_port: header.source,
        });
        let start = usize::from(predicted.start);
        prop_assert_eq!(&bytes[start..start + usize::from(predicted.len)], read);
        if flip.is_none() {
            prop_assert_eq!(read, &payload[..]);
        }
    }

    /// Whatever comes.
    #[test]
    fn it_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..3) {
        if bytes.len() > 24 {
            bytes[..6].copy_from_slice(&OWN.0);
            bytes[12..15].copy_from_slice([&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[8, 6, 0]][usize::from(kind)]);
            bytes[if kind == 0 { 23 } else { 20 }] = Protocol::UDP.0;
        }
        PredictedDatagram::at(&bytes, OWN, true);
    }
}

#[test]
fn what_is_unusual_is_left_to_others() {
    for is_v4 in [true, false] {
        let tuple = tuple(is_v4, (1, 2));
        let (plain, _) = frame(&envelope(&tuple, 0), b"x");
        assert!(PredictedDatagram::at(&plain, OWN, false).is_some());
        assert!(PredictedDatagram::at(&plain, PEER, false).is_none());
        assert!(PredictedDatagram::at(&plain[..plain.len() - 1], OWN, true).is_none());
        let with = |at: usize, byte: u8| {
            let mut frame = plain.clone();
            frame[at] = byte;
            PredictedDatagram::at(&frame, OWN, true)
        };
        // From a group, another type, another protocol, a datagram that ends behind its packet.
        assert!(with(6, 3).is_none() && with(13, 6).is_none());
        assert!(with(if is_v4 { 23 } else { 20 }, 6).is_none());
        assert!(with(plain.len() - 4, 10).is_none());
        // One that ends before it: what is left is none of it.
        assert_eq!(
            with(plain.len() - 4, 8).map(|predicted| predicted.len),
            Some(0)
        );
    }
    let tuple = tuple(true, (1, 2));
    let (mut fragment, _) = frame(&envelope(&tuple, 0), b"x");
    fragment[20] = 0x20;
    assert!(PredictedDatagram::at(&fragment, OWN, true).is_none());
    // IPv6 wants a checksum.
    let tuple = self::tuple(false, (1, 2));
    let (mut unsealed, _) = frame(&envelope(&tuple, 0), b"x");
    let at = unsealed.len() - 3;
    unsealed[at..at + 2].fill(0);
    assert!(PredictedDatagram::at(&unsealed, OWN, false).is_none());
}

#[test]
fn a_card_is_told_what_is_left_to_it() {
    for (is_v4, vlan, network, payload) in [
        (true, 0, 14, 42),
        (true, 7, 18, 46),
        (false, 0, 14, 62),
        (false, 7, 18, 66),
    ] {
        let tuple = tuple(is_v4, (1, 2));
        let whole = frame(&envelope(&tuple, vlan), b"xyz").0;
        let fills = Envelope {
            fills_checksums: true,
            ..envelope(&tuple, vlan)
        };
        let (mut left, offload) = frame(&fills, b"xyz");
        let layout = Layout {
            network,
            transport: payload - 8,
            payload,
            is_ipv6: !is_v4,
            is_udp: true,
        };
        assert_eq!(offload, Offload::Checksum(layout));
        // What the card does.
        if is_v4 {
            let packet = &mut left[usize::from(network)..][..V4_HEADER_LEN];
            assert_eq!(packet[10..12], [0, 0]);
            let checksum = Sum::of(packet).checksum();
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let datagram = &mut left[usize::from(layout.transport)..];
        let checksum = Sum::of(datagram).checksum();
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(left, whole);

        let trusts = Envelope {
            trusts_link: true,
            ..envelope(&tuple, vlan)
        };
        let (left, offload) = frame(&trusts, b"xyz");
        assert_eq!(offload, Offload::None);
        let at = usize::from(payload) - 2;
        assert_eq!(
            (&left[..at], &left[at..at + 2]),
            (&whole[..at], &[0, 0][..])
        );
    }
}

#[test]
fn headers_are_read_as_they_were_written() {
    let header = Header {
        source: 1000,
        destination: 11211,
        payload_len: 3,
        checksum: 7,
    };
    let mut bytes = [0; 12];
    header.write(&mut bytes);
    assert_eq!(Header::read(&bytes), Ok(header));
    assert_eq!(Header::read(&bytes[..10]), Err(Malformed::Length));
    bytes[5] = 7;
    assert_eq!(Header::read(&bytes), Err(Malformed::Length));
    assert_eq!(Header::read(&bytes[..7]), Err(Malformed::Length));
}
