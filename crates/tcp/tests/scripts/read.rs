//! What the stack has sent, as a script would write it.

use std::net::IpAddr;

use coua_tcp::nic::Mac;

use crate::card::OWN_MAC;
use crate::hosts::{Flow, Hosts, own_byte};
use crate::notation::Notation;
use crate::write::{FLAGS, checksum, octets, pseudo_header};

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn mac(bytes: &[u8]) -> Mac {
    Mac(bytes[..6].try_into().expect("six bytes"))
}

/// An IP packet that has left.
struct Packet<'f> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    hops: u8,
    ecn: u8,
    payload: &'f [u8],
}

/// Reads a frame that has left. An error says what no frame of ours may be.
pub(crate) fn frame(frame: &[u8], hosts: &Hosts, flow: &mut Flow) -> Result<Notation, String> {
    if frame.len() < 14 {
        return Err("a frame is shorter than its header".to_owned());
    }
    if mac(&frame[6..]) != OWN_MAC {
        return Err("a frame is from another's MAC address".to_owned());
    }
    let (vlan, at) = match be16(frame, 12) {
        0x8100 => (Some(be16(frame, 14)), 18),
        _ => (None, 14),
    };
    let rest = &frame[at..];
    let (mut notation, expected_mac) = match be16(frame, at - 2) {
        0x0806 => arp(rest, hosts)?,
        0x0800 => ip(&packet_v4(rest)?, hosts, flow)?,
        0x86dd => ip(&packet_v6(rest)?, hosts, flow)?,
        other => return Err(format!("a frame of the unknown type {other:#06x}")),
    };
    let to = hosts.mac_name(mac(frame));
    if to != expected_mac {
        notation.tags.push(format!("to-mac {to}"));
    }
    if let Some(vlan) = vlan {
        notation.tags.push(format!("vlan {vlan}"));
    }
    Ok(notation)
}

fn packet_v4(packet: &[u8]) -> Result<Packet<'_>, String> {
    if packet.len() < 20
        || packet[0] != 0x45
        || packet[1] & !3 != 0
        || usize::from(be16(packet, 2)) != packet.len()
    {
        return Err("an IPv4 packet is not of the length that it tells".to_owned());
    }
    if checksum(&packet[..20], &[]) != 0 {
        return Err("the checksum of an IPv4 header is wrong".to_owned());
    }
    if be16(packet, 6) != 0x4000 {
        return Err("a packet may be cut on its way (DF is not set)".to_owned());
    }
    let address = |at: usize| {
        let octets: [u8; 4] = packet[at..at + 4].try_into().expect("four bytes");
        IpAddr::from(octets)
    };
    Ok(Packet {
        from: address(12),
        to: address(16),
        protocol: packet[9],
        hops: packet[8],
        ecn: packet[1],
        payload: &packet[20..],
    })
}

fn packet_v6(packet: &[u8]) -> Result<Packet<'_>, String> {
    let is_whole = packet.len() >= 40 && usize::from(be16(packet, 4)) == packet.len() - 40;
    if !is_whole || packet[0] != 0x60 || packet[1] & !0x30 != 0 {
        return Err("an IPv6 packet is not of the length that it tells".to_owned());
    }
    let address = |at: usize| {
        let octets: [u8; 16] = packet[at..at + 16].try_into().expect("sixteen bytes");
        IpAddr::from(octets)
    };
    Ok(Packet {
        from: address(8),
        to: address(24),
        protocol: packet[6],
        hops: packet[7],
        ecn: packet[1] >> 4,
        payload: &packet[40..],
    })
}

fn ip(packet: &Packet<'_>, hosts: &Hosts, flow: &mut Flow) -> Result<(Notation, String), String> {
    if packet.protocol == 0 {
        return listener(packet, hosts);
    }
    let pseudo = match packet.protocol {
        1 => Vec::new(),
        protocol => pseudo_header(packet.from, packet.to, protocol, packet.payload.len()),
    };
    if checksum(&pseudo, packet.payload) != 0 {
        return Err("a checksum is wrong".to_owned());
    }
    let is_neighbour = packet.protocol == 58 && matches!(packet.payload[0], 135 | 136);
    if packet.hops != if is_neighbour { 255 } else { 64 } {
        return Err(format!("a packet may take {} hops", packet.hops));
    }
    if is_neighbour {
        return neighbour(packet, hosts);
    }
    let mut notation = match packet.protocol {
        6 => tcp(packet.payload, flow)?,
        17 => udp(packet.payload, flow),
        1 | 58 => icmp(packet.payload, hosts.is_v6)?,
        other => return Err(format!("a packet of the unknown protocol {other}")),
    };
    match packet.ecn {
        0 => {}
        2 => notation.tags.push("ect0".to_owned()),
        other => return Err(format!("the ECN field {other}")),
    }
    let ends = [("from", packet.from, "ours"), ("to", packet.to, "peer")];
    for (tag, address, usual) in ends {
        if hosts.address(usual)? != address {
            notation.tags.push(format!("{tag} {}", hosts.name(address)));
        }
    }
    Ok((notation, "peer".to_owned()))
}

fn tcp(segment: &[u8], flow: &mut Flow) -> Result<Notation, String> {
    let header_len = usize::from(segment[12] >> 4) * 4;
    if header_len < 20 || segment.len() < header_len {
        return Err("a segment is shorter than its header".to_owned());
    }
    if segment[12] & 0xf != 0 {
        return Err("a bit is set that is reserved".to_owned());
    }
    let mut line = Notation::default();
    let flags = FLAGS.iter().filter(|(_, bit)| segment[13] & bit != 0);
    line.what.extend(flags.map(|(name, _)| (*name).to_owned()));
    if line.what.is_empty() {
        line.what.push("none".to_owned());
    }
    if (be16(segment, 0), be16(segment, 2)) != (flow.own_port, flow.peer_port) {
        let (from, to) = (be16(segment, 0), be16(segment, 2));
        line.tags.push(format!("ports {from}:{to}"));
    }
    let (seq, ack) = (be32(segment, 4), be32(segment, 8));
    if line.has("SYN") && flow.own_iss.is_none() {
        flow.own_iss = Some(seq);
    }
    let relative_seq = seq.wrapping_sub(flow.own_iss.unwrap_or(0));
    let relative_ack = ack.wrapping_sub(flow.peer_iss);
    if !line.has("ACK") && ack != 0 {
        return Err("a number is acknowledged without ACK".to_owned());
    }
    let payload = &segment[header_len..];
    let marks = u32::from(line.has("SYN")) + u32::from(line.has("FIN"));
    let len = u32::try_from(payload.len()).expect("short");
    let end = seq.wrapping_add(len + marks);
    if line.has("SYN") || end.wrapping_sub(flow.own_end).cast_signed() > 0 {
        flow.own_end = end;
    }
    let signed = |number: u32| number.cast_signed().to_string();
    // A reset to what acknowledges nothing has the number zero, whatever was there before.
    let is_zero = seq == 0 && line.has("RST") && flow.own_iss.is_some();
    for (name, value) in [
        (
            "seq",
            if is_zero {
                "=0".to_owned()
            } else {
                signed(relative_seq)
            },
        ),
        ("ack", signed(relative_ack)),
        ("win", be16(segment, 14).to_string()),
        ("len", payload.len().to_string()),
        ("urgent", be16(segment, 18).to_string()),
    ] {
        line.fields.insert(name.to_owned(), value);
    }
    let right = (0..len).map(|at| own_byte(relative_seq.wrapping_add(at)));
    if !right.eq(payload.iter().copied()) {
        line.tags.push("wrong-bytes".to_owned());
    }
    line.options = Some(options(&segment[20..header_len], flow)?);
    Ok(line)
}

fn options(mut bytes: &[u8], flow: &mut Flow) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    while let Some((&kind, rest)) = bytes.split_first() {
        if kind <= 1 {
            bytes = rest;
            continue;
        }
        let len = rest.first().map_or(0, |len| usize::from(*len));
        if len < 2 || len > bytes.len() {
            return Err("an option is not of the length that it tells".to_owned());
        }
        let value = &bytes[2..len];
        bytes = &bytes[len..];
        words.push(match (kind, value.len()) {
            (2, 2) => format!("mss {}", be16(value, 0)),
            (3, 1) => format!("ws {}", value[0]),
            (4, 0) => "sack".to_owned(),
            (8, 8) => {
                let clock = be32(value, 0);
                let (first, last) = *flow.clock.get_or_insert((clock, clock));
                if clock.wrapping_sub(last).cast_signed() < 0 {
                    return Err(format!(
                        "our clock went back by {} ms",
                        last.wrapping_sub(clock)
                    ));
                }
                flow.clock = Some((first, clock));
                format!("ts {} {}", clock.wrapping_sub(first), be32(value, 4))
            }
            (5, len) if len % 8 == 0 => {
                let mut word = "sack".to_owned();
                for block in value.chunks_exact(8) {
                    let relative = |at| be32(block, at).wrapping_sub(flow.peer_iss).cast_signed();
                    word += &format!(" {}:{}", relative(0), relative(4));
                }
                word
            }
            _ => return Err(format!("the unknown option {kind}")),
        });
    }
    Ok(words)
}

fn udp(datagram: &[u8], flow: &Flow) -> Notation {
    let mut line = Notation {
        what: vec!["udp".to_owned()],
        text: Some(datagram[8..].to_vec()),
        ..Notation::default()
    };
    if usize::from(be16(datagram, 4)) != datagram.len() || be16(datagram, 6) == 0 {
        line.tags.push("wrong-length".to_owned());
    }
    if be16(datagram, 2) != flow.peer_port {
        line.tags.push(format!("to-port {}", be16(datagram, 2)));
    }
    line
}

fn icmp(message: &[u8], is_v6: bool) -> Result<Notation, String> {
    let reply = if is_v6 { 129 } else { 0 };
    if message.len() < 8 || message[..2] != [reply, 0] || be16(message, 6) != 1 {
        return Err(format!("the message of ICMP {message:?}"));
    }
    let mut line = Notation {
        what: ["icmp", "echo-reply"].map(str::to_owned).to_vec(),
        text: Some(message[8..].to_vec()),
        ..Notation::default()
    };
    line.fields
        .insert("id".to_owned(), be16(message, 4).to_string());
    Ok(line)
}

fn arp(packet: &[u8], hosts: &Hosts) -> Result<(Notation, String), String> {
    if packet.len() != 28 || packet[..6] != [0, 1, 8, 0, 6, 4] || mac(&packet[8..]) != OWN_MAC {
        return Err(format!("the ARP packet {packet:?}"));
    }
    let address = |at: usize| {
        let octets: [u8; 4] = packet[at..at + 4].try_into().expect("four bytes");
        hosts.name(IpAddr::from(octets))
    };
    let asks = be16(packet, 6) == 1;
    let mut line = Notation::default();
    if asks {
        line.what = vec!["arp".to_owned(), "who-has".to_owned(), address(24)];
        line.fields.insert("tell".to_owned(), address(14));
        return Ok((line, "all".to_owned()));
    }
    line.what = vec!["arp".to_owned(), address(14)];
    line.fields
        .insert("is-at".to_owned(), hosts.mac_name(mac(&packet[8..])));
    if address(24) != "peer" {
        line.tags.push(format!("to {}", address(24)));
    }
    Ok((line, "peer".to_owned()))
}

fn neighbour(packet: &Packet<'_>, hosts: &Hosts) -> Result<(Notation, String), String> {
    let message = packet.payload;
    let asks = message[0] == 135;
    let option = if asks { 1 } else { 2 };
    if message.len() != 32 || message[24..26] != [option, 1] || mac(&message[26..]) != OWN_MAC {
        return Err(format!("the neighbour's message {message:?}"));
    }
    let octets_of: [u8; 16] = message[8..24].try_into().expect("sixteen bytes");
    let target = IpAddr::from(octets_of);
    let mut line = Notation::default();
    if asks {
        let mut group = octets("ff02::1:ff00:0".parse().expect("an address"));
        group[13..].copy_from_slice(&octets(target)[13..]);
        if octets(packet.to) != group {
            return Err(format!("the question about {target} goes to {}", packet.to));
        }
        line.what = vec!["nd".to_owned(), "who-has".to_owned(), hosts.name(target)];
        line.fields
            .insert("tell".to_owned(), hosts.name(packet.from));
        let [.., a, b, c] = octets_of;
        let to = hosts.mac_name(Mac([0x33, 0x33, 0xff, a, b, c]));
        return Ok((line, to));
    }
    line.what = vec!["nd".to_owned(), hosts.name(target)];
    line.fields
        .insert("is-at".to_owned(), hosts.mac_name(mac(&message[26..])));
    if packet.from != target {
        line.tags.push(format!("from {}", hosts.name(packet.from)));
    }
    if hosts.name(packet.to) != "peer" {
        line.tags.push(format!("to {}", hosts.name(packet.to)));
    }
    if message[4] & 0x40 == 0 {
        line.tags.push("unsolicited".to_owned());
    }
    if message[4] & 0x20 == 0 {
        line.tags.push("does-not-override".to_owned());
    }
    Ok((line, "peer".to_owned()))
}

/// A report of a listener, behind the option that has routers look at it.
fn listener(packet: &Packet<'_>, hosts: &Hosts) -> Result<(Notation, String), String> {
    let (options, message) = packet.payload.split_at(8);
    if options != [58, 0, 5, 2, 0, 0, 1, 0] || packet.hops != 1 {
        return Err(format!("options {options:?} and {} hops", packet.hops));
    }
    if checksum(
        &pseudo_header(packet.from, packet.to, 58, message.len()),
        message,
    ) != 0
    {
        return Err("a checksum is wrong".to_owned());
    }
    let address = |bytes: &[u8]| {
        let octets: [u8; 16] = bytes.try_into().expect("sixteen bytes");
        IpAddr::from(octets)
    };
    let mut line = Notation::default();
    let mut mac = "mld-routers".to_owned();
    if message[0] == 131 {
        let group = address(&message[8..24]);
        if message.len() != 24 || message[4..8] != [0; 4] || packet.to != group {
            return Err(format!("the report {message:?}"));
        }
        let [.., a, b, c, d] = octets(group)[..] else {
            return Err("no address".to_owned());
        };
        mac = hosts.mac_name(Mac([0x33, 0x33, a, b, c, d]));
        line.what = vec!["mld".to_owned(), "report-v1".to_owned(), group.to_string()];
    } else {
        let count = usize::from(be16(message, 6));
        let is_right = message[0] == 143 && message.len() == 8 + 20 * count;
        if !is_right || packet.to != "ff02::16".parse::<IpAddr>().expect("an address") {
            return Err(format!("the report {message:?}"));
        }
        let kind = if message[8] == 4 { "changes" } else { "is" };
        line.what = ["mld", "report", kind].map(str::to_owned).to_vec();
        for record in message[8..].chunks_exact(20) {
            if record[..4] != [message[8], 0, 0, 0] || !matches!(record[0], 2 | 4) {
                return Err(format!("the record {record:?}"));
            }
            line.what.push(address(&record[4..]).to_string());
        }
    }
    if packet.from != hosts.address("nobody")? {
        line.tags.push(format!("from {}", packet.from));
    }
    Ok((line, mac))
}
