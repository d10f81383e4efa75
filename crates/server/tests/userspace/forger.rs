//! Somebody who sends segments in anybody's name, and hears what is answered to the network.

use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Mac, Nic, Offload};
use coua_tcp::seq::SeqNumber;
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::tcp::{self, Flags};
use coua_tcp::wire::{Address, ethernet, ip};
use coua_transport::userspace::packet::PacketSocket;

/// The server's address.
pub(crate) const SERVER: [u8; 4] = [10, 77, 0, 1];
/// The server's port.
pub(crate) const SERVER_PORT: u16 = 11211;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// After how long without an answer a question is repeated.
const REPEAT: Duration = Duration::from_millis(500);

/// The longest segments that it says it takes.
const MSS: u16 = 1460;
/// Bytes of ICMP before what it quotes.
const ICMP_LEN: usize = 8;
/// Where the checksum of TCP stands.
const TCP_CHECKSUM_AT: usize = 16;

/// One end of a connection: an address and a port of IPv4.
pub(crate) type Place = ([u8; 4], u16);

/// One who forges.
pub(crate) struct Forger {
    socket: PacketSocket,
    server: Mac,
}

/// A segment of the server's.
pub(crate) struct Heard {
    /// To whom.
    pub(crate) to: Place,
    pub(crate) header: tcp::Header,
    pub(crate) payload_len: usize,
}

impl Forger {
    pub(crate) fn new(socket: PacketSocket, server: Mac) -> Forger {
        Forger { socket, server }
    }

    /// Sends a segment to the server in the name of `from`, of these sequence and acknowledgment
    /// numbers.
    pub(crate) fn segment(
        &mut self,
        from: Place,
        flags: Flags,
        (seq, ack): (u32, u32),
        payload: &[u8],
    ) {
        self.segment_to(SERVER_PORT, from, flags, (seq, ack), payload);
    }

    /// As `segment`, but to any port.
    pub(crate) fn segment_to(
        &mut self,
        port: u16,
        from: Place,
        flags: Flags,
        (seq, ack): (u32, u32),
        payload: &[u8],
    ) {
        let header = tcp::Header {
            source: from.1,
            destination: port,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags,
            window: u16::MAX,
            options: tcp::Options {
                mss: flags.has(Flags::SYN).then_some(MSS),
                ..tcp::Options::default()
            },
        };
        let mut bytes = vec![0; header.size()];
        header.write(&mut bytes);
        bytes.extend(payload);
        let (source, destination) = (Address::v4(from.0), Address::v4(SERVER));
        let sum = Sum::pseudo_header(source, destination, ip::Protocol::TCP.0, bytes.len());
        let sum = sum.with(&bytes).checksum();
        bytes[TCP_CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
        self.packet(from.0, ip::Protocol::TCP, &bytes);
    }

    /// Tells the server, in the name of `from`, that a segment of its to `to` with this number did
    /// not arrive: an ICMP message of a kind and code, with a last word that says more.
    pub(crate) fn icmp(&mut self, kind: (u8, u8, u32), to: Place, seq: u32) {
        let mut quoted = vec![0; ip::V4_HEADER_LEN + 8];
        let (own, other) = (Address::v4(SERVER), Address::v4(to.0));
        let header = ip::Header::new(own, other, ip::Protocol::TCP, 1000);
        header.write(&mut quoted, false);
        let transport = &mut quoted[ip::V4_HEADER_LEN..];
        transport[..2].copy_from_slice(&SERVER_PORT.to_be_bytes());
        transport[2..4].copy_from_slice(&to.1.to_be_bytes());
        transport[4..].copy_from_slice(&seq.to_be_bytes());
        let (kind, code, word) = kind;
        let mut bytes = [&[kind, code, 0, 0][..], &word.to_be_bytes(), &quoted].concat();
        debug_assert_eq!(bytes.len(), ICMP_LEN + quoted.len());
        let sum = Sum::of(&bytes).checksum();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        self.packet(to.0, ip::Protocol::ICMP, &bytes);
    }

    fn packet(&mut self, from: [u8; 4], protocol: ip::Protocol, payload: &[u8]) {
        let own = self.socket.features().mac;
        let link = ethernet::Header {
            destination: self.server,
            source: own,
            vlan: 0,
            ether_type: ethernet::EtherType::IPV4,
        };
        let network = ip::Header::new(
            Address::v4(from),
            Address::v4(SERVER),
            protocol,
            payload.len(),
        );
        let (link_len, network_len) = (link.size(), network.size());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(slot) = self.socket.slot() {
                link.write(slot);
                network.write(&mut slot[link_len..], false);
                slot[link_len + network_len..][..payload.len()].copy_from_slice(payload);
                let len = link_len + network_len + payload.len();
                self.socket.commit(len, Offload::None);
                return;
            }
            assert!(Instant::now() < deadline, "the cable takes no more");
            self.socket.flush();
        }
    }

    /// Has everything leave.
    pub(crate) fn flush(&mut self) {
        self.socket.flush();
    }

    /// The server's segments that have come since the last call.
    pub(crate) fn heard(&mut self) -> Vec<Heard> {
        self.flush();
        let mut all = Vec::new();
        loop {
            let count = self.socket.receive();
            for at in 0..count {
                all.extend(read(self.socket.frame(at).bytes));
            }
            self.socket.release();
            if count == 0 {
                return all;
            }
        }
    }

    /// Waits for a segment of the server's, which sends it again where it is lost.
    pub(crate) fn wait_for(&mut self, what: &str, is_it: impl Fn(&Heard) -> bool) -> Heard {
        self.insist(what, |_| (), is_it)
    }

    /// Does what makes the server send a segment, again and again as long as it does not come: a
    /// cable loses frames where the machine is busy, and nobody else repeats what is forged.
    pub(crate) fn insist(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Forger),
        is_it: impl Fn(&Heard) -> bool,
    ) -> Heard {
        let deadline = Instant::now() + PATIENCE;
        // What nobody has looked at leaves no room for the answer.
        self.heard();
        while Instant::now() < deadline {
            ask(self);
            let again = Instant::now() + REPEAT;
            while Instant::now() < again {
                if let Some(heard) = self.heard().into_iter().find(&is_it) {
                    return heard;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        panic!("the server does not send {what}");
    }

    /// Asks the server for a connection, and returns the number of its SYN.
    pub(crate) fn ask_for_connection(&mut self, from: Place, seq: u32) -> u32 {
        let is_answer =
            |heard: &Heard| heard.to == from && heard.header.flags.has(Flags::SYN.and(Flags::ACK));
        let syn = |forger: &mut Forger| forger.segment(from, Flags::SYN, (seq, 0), b"");
        let answer = self.insist("a SYN-ACK", syn, is_answer);
        assert_eq!(answer.header.ack.0, seq.wrapping_add(1));
        answer.header.seq.0
    }
}

/// Reads a frame with a segment of the server's.
fn read(frame: &[u8]) -> Option<Heard> {
    let (link, at) = ethernet::Header::read(frame).ok()?;
    if link.ether_type != ethernet::EtherType::IPV4 {
        return None;
    }
    let packet = &frame[at..];
    let (network, at) = ip::Header::read_v4(packet, false).ok()?;
    if network.protocol != ip::Protocol::TCP || network.source != Address::v4(SERVER) {
        return None;
    }
    let segment = &packet[at..][..network.payload_len];
    let (header, len) = tcp::Header::read(segment).ok()?;
    Some(Heard {
        to: (network.destination.v4_octets(), header.destination),
        header,
        payload_len: segment.len() - len,
    })
}
