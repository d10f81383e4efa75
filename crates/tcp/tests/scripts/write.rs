//! Frames for the stack, out of what a script writes.
//!
//! All formats are written out here, so that what the stack's own reading and writing have in
//! common is not taken for right.

use std::net::IpAddr;

use crate::hosts::{Flow, Hosts, PORT, peer_byte, wrapped};
use crate::notation::{ANY, Notation, number, small};

pub(crate) const FLAGS: [(&str, u8); 8] = [
    ("FIN", 1),
    ("SYN", 2),
    ("RST", 4),
    ("PSH", 8),
    ("ACK", 16),
    ("URG", 32),
    ("ECE", 64),
    ("CWR", 128),
];

/// The Internet checksum of these bytes (RFC 1071), in two parts of even length.
pub(crate) fn checksum(first: &[u8], second: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for part in [first, second] {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    !u16::try_from(sum).expect("folded")
}

/// The pseudo header of TCP, UDP and ICMPv6.
pub(crate) fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = [octets(from), octets(to)].concat();
    bytes.extend(u32::try_from(len).expect("short").to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A frame as it arrives.
pub(crate) fn frame(line: &Notation, hosts: &Hosts, flow: &Flow) -> Result<Vec<u8>, String> {
    let kind = line.what.first().map(String::as_str);
    if kind == Some("arp") {
        return arp(line, hosts);
    }
    let by_default = |tag: &str, default: IpAddr| {
        let named = line.tag(tag).map(|name| hosts.address(name));
        named.unwrap_or(Ok(default))
    };
    let mut from = hosts.address("peer")?;
    let mut to = hosts.address("ours")?;
    let mut mac = "ours";
    let mut hops = 64;
    if kind == Some("nd") {
        hops = 255;
        if line.has("who-has") {
            from = hosts.address(line.field("tell").unwrap_or("peer"))?;
            (to, mac) = (hosts.address("group")?, "group");
        }
    }
    if kind == Some("mld") {
        from = "fe80::2".parse().expect("an address");
        (to, mac, hops) = (hosts.address("all")?, "all-nodes", 1);
    }
    (from, to) = (by_default("from", from)?, by_default("to", to)?);
    if let Some(told) = line.tag("hops") {
        hops = small(told)?;
    }
    let (protocol, mut payload) = match kind {
        Some("icmp") => (if hosts.is_v6 { 58 } else { 1 }, icmp(line, hosts, flow)?),
        Some("nd") => (58, neighbour(line, hosts)?),
        Some("mld") => (58, query(line, hosts)?),
        Some("udp") => (17, udp(line, flow)),
        _ => (6, tcp(line, flow)?),
    };
    let pseudo = match (protocol, from) {
        (1, _) => Vec::new(),
        _ => pseudo_header(from, to, protocol, payload.len()),
    };
    let at = match protocol {
        6 => 16,
        17 => 6,
        _ => 2,
    };
    let mut sum = checksum(&pseudo, &payload);
    if line.tag("bad-checksum").is_some() {
        sum ^= 0x0100;
    }
    if line.tag("no-checksum").is_some() {
        sum = 0;
    }
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let packet = match hosts.is_v6 {
        true => packet_v6(line, (from, to), (protocol, hops), &payload)?,
        false => packet_v4(line, (from, to), (protocol, hops), &payload)?,
    };
    ethernet(
        line,
        hosts,
        mac,
        if hosts.is_v6 { 0x86dd } else { 0x0800 },
        &packet,
    )
}

fn ethernet(
    line: &Notation,
    hosts: &Hosts,
    to: &str,
    ether_type: u16,
    payload: &[u8],
) -> Result<Vec<u8>, String> {
    let mut frame = hosts.mac(line.tag("to-mac").unwrap_or(to))?.0.to_vec();
    frame.extend(hosts.mac(line.tag("from-mac").unwrap_or("peer"))?.0);
    if let Some(vlan) = line.tag("vlan") {
        // Of the highest priority, which is no part of the number.
        frame.extend([0x81, 0]);
        frame.extend((small::<u16>(vlan)? | 0xe000).to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    if let Some(count) = line.tag("pad") {
        frame.extend(vec![0xee; small(count)?]);
    }
    if let Some(count) = line.tag("cut") {
        let count: usize = small(count)?;
        frame.truncate(frame.len().saturating_sub(count));
    }
    Ok(frame)
}

/// What queues have done with a packet, or may do.
fn ecn(line: &Notation) -> u8 {
    let is = |tag: &str| line.tag(tag).is_some();
    u8::from(is("ect1")) + 2 * u8::from(is("ect0")) + 3 * u8::from(is("ce"))
}

/// The length that a header tells: the right one, unless it is to lie.
fn told_len(line: &Notation, len: usize) -> Result<[u8; 2], String> {
    let lie = line.tag("length").map_or(Ok(0), number)?;
    let len = i64::try_from(len).expect("short") + lie;
    Ok(u16::try_from(len)
        .map_err(|_| "a packet is too long")?
        .to_be_bytes())
}

fn packet_v4(
    line: &Notation,
    (from, to): (IpAddr, IpAddr),
    (protocol, hops): (u8, u8),
    payload: &[u8],
) -> Result<Vec<u8>, String> {
    let options: &[u8] = match line.tag("ip-options") {
        // Three that do nothing, and the end.
        Some(_) => &[1, 1, 1, 0],
        None => &[],
    };
    let fragment: u16 = match line.tag("fragment").map(|tag| tag.split_once(' ')) {
        Some(Some((at, more))) => small::<u16>(at)? | if more == "more" { 0x2000 } else { 0 },
        Some(None) => return Err("a fragment is at AT more, or at AT last".to_owned()),
        None => 0x4000,
    };
    let words = u8::try_from(5 + options.len() / 4).expect("short");
    let mut packet = vec![0x40 | words, ecn(line)];
    packet.extend(told_len(line, 20 + options.len() + payload.len())?);
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([hops, protocol, 0, 0]);
    packet.extend([octets(from), octets(to)].concat());
    packet.extend(options);
    let mut sum = checksum(&packet, &[]);
    if line.tag("bad-ip-checksum").is_some() {
        sum ^= 1;
    }
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    Ok(packet)
}

fn packet_v6(
    line: &Notation,
    (from, to): (IpAddr, IpAddr),
    (protocol, hops): (u8, u8),
    payload: &[u8],
) -> Result<Vec<u8>, String> {
    // From the last to the first, since each says what follows.
    let (mut next, mut extensions) = (protocol, Vec::new());
    let usual = if line.has("mld") { "alert" } else { "" };
    for kind in line.tag("ext").unwrap_or(usual).split_whitespace().rev() {
        let (number, body): (u8, [u8; 6]) = match kind {
            // Padding of six bytes.
            "hop" => (0, [1, 4, 0, 0, 0, 0]),
            "dst" => (60, [1, 4, 0, 0, 0, 0]),
            // For routers to look at (RFC 2711), and padding.
            "alert" => (0, [5, 2, 0, 0, 1, 0]),
            // An option that nobody knows, whose packet is to be dropped by who does not.
            "dst-drop" => (60, [0x5e, 4, 0, 0, 0, 0]),
            "routing" => (43, [253, 0, 0, 0, 0, 0]),
            "routing-on" => (43, [253, 1, 0, 0, 0, 0]),
            _ => return Err(format!("{kind} is no extension header")),
        };
        extensions = [&[next, 0][..], &body, &extensions].concat();
        next = number;
    }
    if let Some(tag) = line.tag("fragment") {
        let (at, more) = tag.split_once(' ').unwrap_or((tag, "last"));
        let field = small::<u16>(at)? << 3 | u16::from(more == "more");
        let [high, low] = field.to_be_bytes();
        extensions = [&[next, 0, high, low, 0, 0, 0, 7][..], &extensions].concat();
        next = 44;
    }
    let mut packet = vec![0x60, ecn(line) << 4, 0, 0];
    packet.extend(told_len(line, extensions.len() + payload.len())?);
    packet.extend([next, hops]);
    packet.extend([octets(from), octets(to), extensions].concat());
    packet.extend(payload);
    Ok(packet)
}

/// The payload of a segment of the peer's: what is written out, or what stands there in its stream.
fn text(line: &Notation, seq: i64) -> Result<Vec<u8>, String> {
    if let Some(text) = &line.text {
        return Ok(text.clone());
    }
    let len = line.number("len")?.unwrap_or(0);
    Ok((seq..seq + len).map(|at| peer_byte(wrapped(at))).collect())
}

fn tcp(line: &Notation, flow: &Flow) -> Result<Vec<u8>, String> {
    let mut flags = 0;
    for word in line.what.iter().filter(|word| *word != "none") {
        let known = FLAGS.iter().find(|(name, _)| name == word);
        flags |= known.ok_or_else(|| format!("{word} is no flag"))?.1;
    }
    let seq = line.number("seq")?.ok_or("a segment needs a seq")?;
    let ack = match line.number("ack")? {
        Some(ack) => flow.own(ack),
        None => 0,
    };
    let win: u16 = line.field("win").map_or(Ok(65535), small)?;
    let urgent: u16 = line.field("urgent").map_or(Ok(0), small)?;
    let options = options(line.options.as_deref().unwrap_or_default(), flow)?;
    let port = |tag: &str, default| line.tag(tag).map_or(Ok(default), small::<u16>);
    let mut segment = Vec::new();
    segment.extend(port("from-port", flow.peer_port)?.to_be_bytes());
    segment.extend(port("to-port", flow.own_port)?.to_be_bytes());
    segment.extend(flow.peer(seq).to_be_bytes());
    segment.extend(ack.to_be_bytes());
    let words = match line.tag("offset") {
        Some(words) => small::<u8>(words)?,
        None => u8::try_from(5 + options.len() / 4).expect("short"),
    };
    segment.extend([words << 4, flags]);
    segment.extend(win.to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(urgent.to_be_bytes());
    segment.extend(options);
    // The SYN comes before the first byte.
    segment.extend(text(line, seq + i64::from(line.has("SYN")))?);
    Ok(segment)
}

fn options(words: &[String], flow: &Flow) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in words {
        let parts: Vec<&str> = word.split_whitespace().collect();
        match parts[..] {
            ["mss", value] => {
                bytes.extend([2, 4]);
                bytes.extend(small::<u16>(value)?.to_be_bytes());
            }
            ["ws", shift] => bytes.extend([3, 3, small(shift)?]),
            ["sack"] => bytes.extend([4, 2]),
            ["ts", value, echo] => {
                bytes.extend([8, 10]);
                bytes.extend(wrapped(number(value)?).to_be_bytes());
                let (first, last) = flow.clock.unwrap_or_default();
                let echo = match echo {
                    ANY => last,
                    echo => first.wrapping_add(wrapped(number(echo)?)),
                };
                bytes.extend(echo.to_be_bytes());
            }
            ["sack", ref blocks @ ..] => {
                bytes.extend([5, u8::try_from(2 + 8 * blocks.len()).expect("short")]);
                for block in blocks {
                    let (from, to) = block.split_once(':').ok_or("a block is FROM:TO")?;
                    bytes.extend(flow.own(number(from)?).to_be_bytes());
                    bytes.extend(flow.own(number(to)?).to_be_bytes());
                }
            }
            ["nop"] => bytes.push(1),
            ["end"] => bytes.push(0),
            // An option in bytes, right or wrong.
            ["bytes", ref raw @ ..] => {
                for byte in raw {
                    bytes.push(small(byte)?);
                }
            }
            _ => return Err(format!("{word} is no option")),
        }
    }
    let fill = if words.iter().any(|word| word == "end") {
        0xee
    } else {
        1
    };
    bytes.resize(bytes.len().next_multiple_of(4), fill);
    Ok(bytes)
}

fn udp(line: &Notation, flow: &Flow) -> Vec<u8> {
    let text = line.text.clone().unwrap_or_default();
    let len = u16::try_from(8 + text.len()).expect("short");
    let mut datagram = flow.peer_port.to_be_bytes().to_vec();
    datagram.extend(PORT.to_be_bytes());
    datagram.extend(len.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(text);
    datagram
}

fn icmp(line: &Notation, hosts: &Hosts, flow: &Flow) -> Result<Vec<u8>, String> {
    let kind = line.what.get(1).map_or("", String::as_str);
    let detail = line.what.get(2).map_or("", String::as_str);
    if kind == "echo" {
        let id: u16 = line.field("id").map_or(Ok(1), small)?;
        let mut message = vec![if hosts.is_v6 { 128 } else { 8 }, 0, 0, 0];
        message.extend(id.to_be_bytes());
        message.extend([0, 1]);
        message.extend(text(line, 0)?);
        return Ok(message);
    }
    let mtu = line.number("mtu")?.unwrap_or(0);
    let (v4, v6): ([u8; 2], [u8; 2]) = match (kind, detail) {
        ("too-big", _) => ([3, 4], [2, 0]),
        ("unreachable", "net") => ([3, 0], [1, 0]),
        ("unreachable", "host") => ([3, 1], [1, 3]),
        ("unreachable", "protocol") => ([3, 2], [4, 1]),
        ("unreachable", "port") => ([3, 3], [1, 4]),
        ("unreachable", "forbidden") => ([3, 13], [1, 1]),
        ("quench", _) => ([4, 0], [4, 2]),
        ("time-exceeded", _) => ([11, 0], [3, 0]),
        ("parameter-problem", _) => ([12, 0], [4, 0]),
        _ => return Err(format!("{kind} {detail} is no message of ICMP")),
    };
    let mut message = if hosts.is_v6 { v6 } else { v4 }.to_vec();
    message.extend([0, 0]);
    message.extend(wrapped(mtu).to_be_bytes());
    message.extend(quoted(line, hosts, flow)?);
    Ok(message)
}

/// The beginning of the segment that an error is about.
fn quoted(line: &Notation, hosts: &Hosts, flow: &Flow) -> Result<Vec<u8>, String> {
    let seq = line.number("for")?.ok_or("an error is for a number")?;
    let port = line
        .tag("quotes-port")
        .map_or(Ok(flow.peer_port), small::<u16>)?;
    let mut segment = flow.own_port.to_be_bytes().to_vec();
    segment.extend(port.to_be_bytes());
    segment.extend(flow.own(seq).to_be_bytes());
    let ends = (hosts.address("ours")?, hosts.address("peer")?);
    let plain = Notation::default();
    match hosts.is_v6 {
        true => packet_v6(&plain, ends, (6, 60), &segment),
        false => packet_v4(&plain, ends, (6, 60), &segment),
    }
}

/// The MAC address that a neighbour tells as its own.
fn told_mac(line: &Notation, hosts: &Hosts) -> Result<[u8; 6], String> {
    let default = line.tag("from-mac").unwrap_or("peer");
    Ok(hosts.mac(line.field("is-at").unwrap_or(default))?.0)
}

fn arp(line: &Notation, hosts: &Hosts) -> Result<Vec<u8>, String> {
    let asks = line.has("who-has");
    let subject = line.what.last().ok_or("nobody is asked for")?;
    let subject = octets(hosts.address(subject)?);
    let (operation, sender, target) = match asks {
        true => (
            1,
            octets(hosts.address(line.field("tell").unwrap_or("peer"))?),
            subject,
        ),
        false => (2, subject, octets(hosts.address("ours")?)),
    };
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
    packet.extend(told_mac(line, hosts)?);
    packet.extend(sender);
    packet.extend(if asks { [0; 6] } else { hosts.mac("ours")?.0 });
    packet.extend(target);
    // As short frames come.
    packet.extend([0; 18]);
    ethernet(
        line,
        hosts,
        if asks { "all" } else { "ours" },
        0x0806,
        &packet,
    )
}

fn neighbour(line: &Notation, hosts: &Hosts) -> Result<Vec<u8>, String> {
    let asks = line.has("who-has");
    let flags = match line.tag("unsolicited") {
        _ if asks => 0,
        Some(_) => 0x20,
        None => 0x60,
    };
    let flags = match line.tag("does-not-override") {
        Some(_) => flags & !0x20,
        None => flags,
    };
    let mut message = vec![if asks { 135 } else { 136 }, 0, 0, 0, flags, 0, 0, 0];
    let subject = line.what.last().ok_or("nobody is asked for")?;
    message.extend(octets(hosts.address(subject)?));
    if line.tag("no-mac").is_none() {
        message.extend([if asks { 1 } else { 2 }, 1]);
        message.extend(told_mac(line, hosts)?);
    }
    Ok(message)
}

/// A query for listeners, of a group or of all.
fn query(line: &Notation, hosts: &Hosts) -> Result<Vec<u8>, String> {
    let delay: u16 = line.field("delay").map_or(Ok(10_000), small)?;
    let mut message = vec![130, 0, 0, 0];
    message.extend(delay.to_be_bytes());
    message.extend([0, 0]);
    let group = line.what.get(2).map_or("nobody", String::as_str);
    message.extend(octets(hosts.address(group)?));
    if line.tag("v1").is_none() {
        // What the querier does by default, and no sources.
        message.extend([2, 125, 0, 0]);
    }
    Ok(message)
}
