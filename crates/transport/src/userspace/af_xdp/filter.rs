//! Which frames go to the sockets: a BPF program that the card's driver runs on each frame.
//!
//! The program is assembled for the server's addresses and ports. It takes TCP and UDP to them and
//! passes everything else to the kernel. So ssh, ping, ARP and neighbour discovery keep working on
//! the same card. A frame that the program does not understand goes to the kernel:
//!
//! ```text
//! Ethernet → up to 2 VLAN tags ┬→ IPv4: options stepped over; fragments pass   ┬→ address ours? → port ours? → take
//!                              ├→ IPv6: up to 4 extension headers stepped over ┘
//!                              └→ anything else passes
//! ```
//!
//! Headers are skipped by constant lengths, with one jump for each possible length. Adding a number
//! from the frame to a pointer would need CAP_PERFMON besides CAP_BPF.
//!
//! A frame that is taken goes to the socket of the queue that it arrived on. If that queue has no
//! socket, the frame passes to the kernel.
//!
//! # Not here
//! Who may send, and whether checksums and lengths are right: the stack checks that.

mod assembler;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::ops::RangeInclusive;

pub(super) use assembler::Instruction;
use assembler::{Assembler, Condition, Label, Register, Width};

/// What a program may return: the kernel's `XDP_` values.
const PASS: i32 = 2;

/// The kernel's function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// The most extension headers that are skipped: one of each kind, and a second one for the
/// destination. Packets with more go to the kernel. The verifier's work grows with the square of
/// this number.
const EXTENSIONS_MAX: usize = 4;

/// The longest extension header that is skipped, in words of 8 bytes. Packets with longer ones go
/// to the kernel.
const EXTENSION_WORDS_MAX: u32 = 8;

const TCP: u32 = 6;
const UDP: u32 = 17;

/// What is taken: at least one address, and a port of TCP or UDP.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// Destination addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// Destination ports over TCP.
    pub(super) tcp_ports: Vec<RangeInclusive<u16>>,
    /// Destination ports over UDP.
    pub(super) udp_ports: Vec<RangeInclusive<u16>>,
}

/// What the registers hold.
const CONTEXT: Register = Register::R6;
/// The header that is being examined.
const AT: Register = Register::R7;
const END: Register = Register::R8;
const PROTOCOL: Register = Register::R9;

/// The program that redirects what matches `rules` to the sockets in the map with descriptor
/// `sockets`.
pub(super) fn program(rules: &Rules, sockets: i32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let labels = Labels {
        pass: code.label(),
        take: code.label(),
        transport: code.label(),
    };
    let (ipv4, ipv6) = (code.label(), code.label());

    code.copy(CONTEXT, Register::R1);
    // struct xdp_md: data at 0, data_end at 4, rx_queue_index at 16.
    code.load(Width::Word, AT, CONTEXT, 0);
    code.load(Width::Word, END, CONTEXT, 4);
    link_layer(&mut code, &labels, ipv4, ipv6);
    code.place(ipv4);
    internet_v4(&mut code, &labels, &rules.addresses);
    code.place(ipv6);
    internet_v6(&mut code, &labels, &rules.addresses);
    code.place(labels.transport);
    transport(&mut code, &labels, rules);

    code.place(labels.take);
    code.load(Width::Word, Register::R2, CONTEXT, 16);
    code.set_map(Register::R1, sockets);
    // What to return if the queue has no socket.
    code.set(Register::R3, PASS);
    code.call(REDIRECT_MAP);
    code.exit();
    code.place(labels.pass);
    code.set(Register::R0, PASS);
    code.exit();
    code.finish()
}

/// Places in the program that are jumped to.
struct Labels {
    pass: Label,
    take: Label,
    /// `AT` points to the transport header, and `PROTOCOL` says which one it is.
    transport: Label,
}

/// Passes the frame unless it has `len` bytes from `AT` on: the verifier allows only such reads.
fn require(code: &mut Assembler, labels: &Labels, len: i32) {
    code.copy(Register::R2, AT);
    code.add(Register::R2, len);
    code.jump_if_register(Register::R2, Condition::Greater, END, labels.pass);
}

/// A 16-bit number as a load from a frame yields it.
fn network(number: u16) -> u32 {
    u32::from(number.to_be())
}

fn link_layer(code: &mut Assembler, labels: &Labels, ipv4: Label, ipv6: Label) {
    const KIND: Register = Register::R3;
    require(code, labels, 14);
    code.load(Width::Half, KIND, AT, 12);
    code.add(AT, 14);
    let untagged = code.label();
    for _ in 0..2 {
        let tagged = code.label();
        code.jump_if(KIND, Condition::Equal, network(0x8100), tagged);
        code.jump_if(KIND, Condition::NotEqual, network(0x88a8), untagged);
        code.place(tagged);
        require(code, labels, 4);
        code.load(Width::Half, KIND, AT, 2);
        code.add(AT, 4);
    }
    code.place(untagged);
    code.jump_if(KIND, Condition::Equal, network(0x86dd), ipv6);
    code.jump_if(KIND, Condition::Equal, network(0x0800), ipv4);
    code.jump(labels.pass);
}

fn internet_v4(code: &mut Assembler, labels: &Labels, addresses: &[IpAddr]) {
    const LEN: Register = Register::R3;
    let value = Register::R4;
    // The verifier refuses code that cannot be reached.
    if !addresses.iter().any(IpAddr::is_ipv4) {
        return code.jump(labels.pass);
    }
    let ours = code.label();
    require(code, labels, 20);
    code.load(Width::Byte, LEN, AT, 0);
    code.copy(value, LEN);
    code.and(value, 0xf0);
    code.jump_if(value, Condition::NotEqual, 0x40, labels.pass);
    code.and(LEN, 0x0f);
    // The flag for more fragments, or an offset: this is a fragment.
    code.load(Width::Half, value, AT, 6);
    code.and(value, network(0x3fff).cast_signed());
    code.jump_if(value, Condition::NotEqual, 0, labels.pass);
    code.load(Width::Byte, PROTOCOL, AT, 9);
    code.load(Width::Word, value, AT, 16);
    for address in addresses {
        if let IpAddr::V4(address) = address {
            let address = u32::from_ne_bytes(address.octets());
            code.jump_if(value, Condition::Equal, address, ours);
        }
    }
    code.jump(labels.pass);
    code.place(ours);
    for words in 5..=15 {
        let next = code.label();
        code.jump_if(LEN, Condition::NotEqual, words, next);
        code.add(AT, 4 * words.cast_signed());
        code.jump(labels.transport);
        code.place(next);
    }
    code.jump(labels.pass);
}

fn internet_v6(code: &mut Assembler, labels: &Labels, addresses: &[IpAddr]) {
    let value = Register::R4;
    if !addresses.iter().any(IpAddr::is_ipv6) {
        return code.jump(labels.pass);
    }
    let ours = code.label();
    require(code, labels, 40);
    code.load(Width::Byte, value, AT, 0);
    code.and(value, 0xf0);
    code.jump_if(value, Condition::NotEqual, 0x60, labels.pass);
    code.load(Width::Byte, PROTOCOL, AT, 6);
    code.load(Width::Double, Register::R2, AT, 24);
    code.load(Width::Double, Register::R3, AT, 32);
    for address in addresses {
        if let IpAddr::V6(address) = address {
            let bytes = address.octets();
            let (prefix, host) = bytes.split_at(8);
            let [prefix, host] =
                [prefix, host].map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")));
            let next = code.label();
            code.set_wide(value, prefix);
            code.jump_if_register(Register::R2, Condition::NotEqual, value, next);
            code.set_wide(value, host);
            code.jump_if_register(Register::R3, Condition::Equal, value, ours);
            code.place(next);
        }
    }
    code.jump(labels.pass);
    code.place(ours);
    code.add(AT, 40);
    for _ in 0..EXTENSIONS_MAX {
        extension(code, labels);
    }
    // `transport` finds out whether the header after the last one is TCP or UDP.
}

/// Skips the extension header that `PROTOCOL` names, if it names one. Jumps to `transport` if it
/// names TCP or UDP.
fn extension(code: &mut Assembler, labels: &Labels) {
    const HOP_BY_HOP: u32 = 0;
    const ROUTING: u32 = 43;
    const DESTINATION: u32 = 60;
    let value = Register::R3;
    let (routing, step) = (code.label(), code.label());
    code.jump_if(PROTOCOL, Condition::Equal, TCP, labels.transport);
    code.jump_if(PROTOCOL, Condition::Equal, UDP, labels.transport);
    code.jump_if(PROTOCOL, Condition::Equal, ROUTING, routing);
    code.jump_if(PROTOCOL, Condition::Equal, HOP_BY_HOP, step);
    code.jump_if(PROTOCOL, Condition::NotEqual, DESTINATION, labels.pass);
    code.jump(step);
    code.place(routing);
    require(code, labels, 8);
    // Segments left: the packet has further stops, so this is not its destination.
    code.load(Width::Byte, value, AT, 3);
    code.jump_if(value, Condition::NotEqual, 0, labels.pass);
    code.place(step);
    require(code, labels, 8);
    code.load(Width::Byte, PROTOCOL, AT, 0);
    code.load(Width::Byte, value, AT, 1);
    let stepped = code.label();
    for words in 1..=EXTENSION_WORDS_MAX {
        let next = code.label();
        code.jump_if(value, Condition::NotEqual, words - 1, next);
        code.add(AT, 8 * words.cast_signed());
        code.jump(stepped);
        code.place(next);
    }
    code.jump(labels.pass);
    code.place(stepped);
}

fn transport(code: &mut Assembler, labels: &Labels, rules: &Rules) {
    const PORT: Register = Register::R3;
    let udp = code.label();
    require(code, labels, 4);
    code.load(Width::Half, PORT, AT, 2);
    code.swap16(PORT);
    code.jump_if(PROTOCOL, Condition::Equal, UDP, udp);
    code.jump_if(PROTOCOL, Condition::NotEqual, TCP, labels.pass);
    ports(code, labels, PORT, &rules.tcp_ports);
    code.place(udp);
    ports(code, labels, PORT, &rules.udp_ports);
}

fn ports(code: &mut Assembler, labels: &Labels, port: Register, taken: &[RangeInclusive<u16>]) {
    for range in taken {
        let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        if first == last {
            code.jump_if(port, Condition::Equal, first, labels.take);
            continue;
        }
        let next = code.label();
        code.jump_if(port, Condition::Less, first, next);
        code.jump_if(port, Condition::GreaterOrEqual, last + 1, next);
        code.jump(labels.take);
        code.place(next);
    }
    code.jump(labels.pass);
}
