//! Frames without a TCP stack, to show what a driver and a cable can do by themselves: a sender of
//! requests, an echo, and a card that counts frames.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use coua_tcp::nic::{Features, Frame, Mac, Nic, Offload};
use coua_tcp::seq::SeqNumber;
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::tcp::{self, Flags, Options, Timestamps};
use coua_tcp::wire::{Address, arp};

use crate::segments::address_of;

/// Where the headers of a plain segment begin, and the end of a header with timestamps.
const NETWORK_AT: usize = 14;
const TRANSPORT_AT: usize = NETWORK_AT + ip::V4_HEADER_LEN;
const PAYLOAD_AT: usize = TRANSPORT_AT + tcp::HEADER_LEN + tcp::TIMESTAMPS_LEN;

/// Where the checksums stand.
const NETWORK_SUM_AT: usize = NETWORK_AT + 10;
const TRANSPORT_SUM_AT: usize = TRANSPORT_AT + 16;

/// Bytes of a frame with ARP.
const ARP_LEN: usize = NETWORK_AT + arp::LEN;

/// Time without a frame after which what is in flight counts as lost.
const PATIENCE: Duration = Duration::from_millis(100);

/// Frames that have passed a card.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// A card of clients' that counts, and knows the server: the kernel, which sees the server's answer
/// to the question for its MAC address, tells nobody else.
pub(crate) struct Counted<N> {
    nic: N,
    passed: Rc<Cell<Passed>>,
    introduction: [u8; ARP_LEN],
    /// It was received, and it is in view.
    is_introduced: bool,
    introduces: bool,
}

impl<N: Nic> Counted<N> {
    /// Counts into `passed`.
    pub(crate) fn new(
        nic: N,
        (server, server_mac): (Address, Mac),
        passed: Rc<Cell<Passed>>,
    ) -> Counted<N> {
        let link = ethernet::Header {
            destination: nic.features().mac,
            source: server_mac,
            vlan: 0,
            ether_type: EtherType::ARP,
        };
        let packet = arp::Packet {
            is_reply: true,
            sender_mac: server_mac,
            sender: server,
            target_mac: nic.features().mac,
            target: address_of(0).0,
        };
        let mut introduction = [0; ARP_LEN];
        link.write(&mut introduction);
        packet.write(&mut introduction[NETWORK_AT..]);
        Counted {
            nic,
            passed,
            introduction,
            is_introduced: false,
            introduces: false,
        }
    }

    fn count(&self, sent: usize, received: usize) {
        let mut passed = self.passed.get();
        passed.sent += sent as u64;
        passed.received += received as u64;
        self.passed.set(passed);
    }
}

impl<N: Nic> Nic for Counted<N> {
    fn features(&self) -> Features {
        self.nic.features()
    }

    fn receive(&mut self) -> usize {
        if !self.is_introduced {
            self.nic.release();
            (self.is_introduced, self.introduces) = (true, true);
            return 1;
        }
        self.introduces = false;
        let count = self.nic.receive();
        self.count(0, count);
        count
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        match self.introduces {
            true => Frame {
                bytes: &self.introduction,
                is_verified: true,
            },
            false => self.nic.frame(at),
        }
    }

    fn release(&mut self) {
        match self.introduces {
            true => self.introduces = false,
            false => self.nic.release(),
        }
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        self.nic.slot()
    }

    fn commit(&mut self, len: usize, offload: Offload) {
        self.count(1, 0);
        self.nic.commit(len, offload);
    }

    fn flush(&mut self) {
        self.nic.flush();
    }
}

/// Requests in frames as a client's on TCP, which nobody takes for a connection's.
pub(crate) struct Volley {
    frames: Vec<Vec<u8>>,
    reply_len: usize,
    next: usize,
    under_way: usize,
}

/// What the sender measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Volleys {
    pub(crate) replies: u64,
    /// Frames that were not answered.
    pub(crate) lost: u64,
    pub(crate) elapsed: Duration,
    /// Of that, the time in turns that found nothing.
    pub(crate) idle: Duration,
}

impl Volley {
    /// One frame of each of `connections` may be under way, with a request of those bytes to a server,
    /// and a reply of so many bytes.
    pub(crate) fn new(
        connections: usize,
        features: Features,
        (server, port, server_mac): (Address, u16, Mac),
        request: &[u8],
        reply_len: usize,
    ) -> anyhow::Result<Volley> {
        let mtu = usize::from(features.mtu);
        let longest = request.len().max(reply_len);
        ensure!(
            PAYLOAD_AT - NETWORK_AT + longest <= mtu,
            "a request and its reply are one frame each: {longest} bytes are too many"
        );
        let link = ethernet::Header {
            destination: server_mac,
            source: features.mac,
            vlan: 0,
            ether_type: EtherType::IPV4,
        };
        let frames = (0..connections).map(|number| {
            let (own, own_port) = address_of(number);
            let header = tcp::Header {
                source: own_port,
                destination: port,
                seq: SeqNumber(1),
                ack: SeqNumber(1),
                flags: Flags::ACK.and(Flags::PSH),
                window: u16::MAX,
                options: Options {
                    timestamps: Some(Timestamps { value: 0, echo: 0 }),
                    ..Options::default()
                },
            };
            let mut frame = vec![0; PAYLOAD_AT];
            let len = PAYLOAD_AT - TRANSPORT_AT + request.len();
            let packet = ip::Header::new(own, server, Protocol::TCP, len);
            link.write(&mut frame);
            packet.write(&mut frame[NETWORK_AT..], false);
            header.write(&mut frame[TRANSPORT_AT..]);
            frame.extend_from_slice(request);
            let sum = Sum::pseudo_header(own, server, Protocol::TCP.0, len);
            let sum = sum.with(&frame[TRANSPORT_AT..]).checksum();
            frame[TRANSPORT_SUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
            frame
        });
        Ok(Volley {
            frames: frames.collect(),
            reply_len,
            next: 0,
            under_way: 0,
        })
    }

    /// Sends for a time, as much as is answered.
    ///
    /// # Errors
    /// Where something else comes than what was sent, turned round.
    pub(crate) fn run(&mut self, nic: &mut impl Nic, time: Duration) -> anyhow::Result<Volleys> {
        let begun = Instant::now();
        let mut volleys = Volleys::default();
        let (mut turn_at, mut heard_at) = (begun, begun);
        while begun.elapsed() < time {
            let count = self.receive(nic)?;
            self.send(nic);
            let now = Instant::now();
            if count == 0 {
                volleys.idle += now - turn_at;
            } else {
                heard_at = now;
            }
            if now - heard_at > PATIENCE {
                volleys.lost += std::mem::take(&mut self.under_way) as u64;
                heard_at = now;
            }
            turn_at = now;
            volleys.replies += count as u64;
        }
        volleys.elapsed = begun.elapsed();
        Ok(volleys)
    }

    fn receive(&mut self, nic: &mut impl Nic) -> anyhow::Result<usize> {
        let count = nic.receive();
        let mut replies = 0;
        for at in 0..count {
            let bytes = nic.frame(at).bytes;
            if bytes.len() == ARP_LEN {
                continue;
            }
            let payload = bytes
                .get(PAYLOAD_AT..)
                .context("a frame came that is shorter than its headers")?;
            ensure!(
                payload.len() == self.reply_len,
                "a frame with {} bytes came, not one with a reply of {}",
                payload.len(),
                self.reply_len
            );
            replies += 1;
        }
        nic.release();
        // What was taken for lost may come after all.
        self.under_way = self.under_way.saturating_sub(replies);
        Ok(replies)
    }

    fn send(&mut self, nic: &mut impl Nic) {
        while self.under_way < self.frames.len() {
            let Some(slot) = nic.slot() else {
                break;
            };
            let frame = &self.frames[self.next];
            slot[..frame.len()].copy_from_slice(frame);
            nic.commit(frame.len(), Offload::None);
            self.next = (self.next + 1) % self.frames.len();
            self.under_way += 1;
        }
        nic.flush();
    }
}

/// How a [`Bounce`] spends its time.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    busy_ns: AtomicU64,
    idle_ns: AtomicU64,
}

impl Tally {
    /// Nanoseconds in turns that found frames, and in the others.
    pub(crate) fn times(&self) -> (u64, u64) {
        (self.busy_ns.load(Relaxed), self.idle_ns.load(Relaxed))
    }

    fn add(&self, is_busy: bool, time: Duration) {
        let sum = if is_busy {
            &self.busy_ns
        } else {
            &self.idle_ns
        };
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // No other thread adds to it.
        sum.store(sum.load(Relaxed) + nanos, Relaxed);
    }
}

/// Sends frames back: their MAC addresses, IP addresses and ports turned round, and the same reply in
/// each.
pub(crate) struct Bounce {
    reply: Vec<u8>,
    total_len: u16,
}

impl Bounce {
    /// With that reply.
    pub(crate) fn new(reply: Vec<u8>) -> anyhow::Result<Bounce> {
        let total_len = u16::try_from(PAYLOAD_AT - NETWORK_AT + reply.len());
        Ok(Bounce {
            reply,
            total_len: total_len.context("a reply is one frame")?,
        })
    }

    /// Serves until it is told to stop.
    pub(crate) fn serve(&self, nic: &mut impl Nic, tally: &Tally, is_over: &AtomicBool) {
        let mut turn_at = Instant::now();
        while !is_over.load(Relaxed) {
            let count = self.turn(nic);
            let now = Instant::now();
            tally.add(count > 0, now - turn_at);
            turn_at = now;
        }
    }

    fn turn(&self, nic: &mut impl Nic) -> usize {
        let count = nic.receive();
        for at in 0..count {
            let Some(headers) = nic.frame(at).bytes.first_chunk::<PAYLOAD_AT>() else {
                continue;
            };
            let headers = self.turned(headers);
            let Some(slot) = nic.slot() else {
                break;
            };
            slot[..PAYLOAD_AT].copy_from_slice(&headers);
            slot[PAYLOAD_AT..][..self.reply.len()].copy_from_slice(&self.reply);
            nic.commit(PAYLOAD_AT + self.reply.len(), Offload::None);
        }
        nic.release();
        nic.flush();
        count
    }

    fn turned(&self, headers: &[u8; PAYLOAD_AT]) -> [u8; PAYLOAD_AT] {
        let mut turned = *headers;
        for (at, len) in [(0, 6), (NETWORK_AT + 12, 4), (TRANSPORT_AT, 2)] {
            let (one, other) = turned[at..at + 2 * len].split_at_mut(len);
            one.swap_with_slice(other);
        }
        turned[NETWORK_AT + 2..][..2].copy_from_slice(&self.total_len.to_be_bytes());
        turned[NETWORK_SUM_AT..][..2].fill(0);
        let sum = Sum::of(&turned[NETWORK_AT..TRANSPORT_AT]).checksum();
        turned[NETWORK_SUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
        turned
    }
}

#[cfg(test)]
mod tests {
    use coua_tcp::simulated::{Card, Faults, Link};

    use super::*;

    const SERVER: Address = Address::v4([10, 77, 0, 1]);
    const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

    #[test]
    fn frames_come_back_turned_round() {
        let (link, [clients, mut server]) = Link::new(1, MACS.map(Card::new), Faults::NONE);
        let passed = Rc::new(Cell::new(Passed::default()));
        let mut clients = Counted::new(clients, (SERVER, MACS[1]), Rc::clone(&passed));
        let to = (SERVER, 11211, MACS[1]);
        let mut volley = Volley::new(7, clients.features(), to, b"get k\r\n", 5).unwrap();
        let bounce = Bounce::new(b"END\r\n".to_vec()).unwrap();
        // Who the server is comes first.
        assert_eq!(volley.receive(&mut clients).unwrap(), 0);
        for now_us in 1..4 {
            volley.send(&mut clients);
            assert_eq!(volley.under_way, 7);
            link.advance_to(now_us);
            assert_eq!(bounce.turn(&mut server), 7);
            link.advance_to(now_us);
            assert_eq!(clients.receive(), 7);
            let frame = clients.frame(3).bytes;
            let (header, at) = ethernet::Header::read(frame).unwrap();
            assert_eq!((header.source, header.destination), (MACS[1], MACS[0]));
            let (packet, len) = ip::Header::read_v4(&frame[at..], false).unwrap();
            assert_eq!(
                (packet.source, packet.destination),
                (SERVER, address_of(3).0)
            );
            let (segment, _) = tcp::Header::read(&frame[at + len..]).unwrap();
            assert_eq!(
                (segment.source, segment.destination),
                (11211, address_of(3).1)
            );
            assert!(frame.ends_with(b"END\r\n"));
            volley.under_way = 0;
        }
        assert_eq!((passed.get().sent, passed.get().received), (21, 21));
    }

    #[test]
    fn other_frames_are_noticed() {
        let (link, [mut clients, mut server]) = Link::new(1, MACS.map(Card::new), Faults::NONE);
        let to = (SERVER, 11211, MACS[1]);
        let mut volley = Volley::new(1, clients.features(), to, b"get k\r\n", 8).unwrap();
        volley.send(&mut clients);
        link.advance_to(1);
        Bounce::new(b"END\r\n".to_vec()).unwrap().turn(&mut server);
        link.advance_to(2);
        let error = volley.receive(&mut clients).unwrap_err().to_string();
        assert!(error.contains("5 bytes") && error.contains('8'), "{error}");
    }
}
