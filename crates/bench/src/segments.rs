//! Clients of a TCP stack, for `coua-bench stack`. They know every reply in advance: they make
//! segments by filling in numbers, and check that every reply is exactly right.

use anyhow::{Context, bail, ensure};
use coua_tcp::nic::{Features, Frame, Mac, Nic, Offload};
use coua_tcp::seq::SeqNumber;
use coua_tcp::wire::Address;
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::tcp::{self, Flags, Options, Timestamps};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// Segments in a burst.
pub(crate) const BURST_LEN: usize = 32;

/// Bytes of a request.
const REQUEST_LEN: usize = 16;
const REQUEST_LEN_U32: u32 = 16;

/// Bytes of a frame with a request: Ethernet, IPv4, TCP with timestamps, and the request.
const FRAME_LEN: usize = 14 + 20 + 32 + REQUEST_LEN;

const SERVER: Address = Address::v4([10, 0, 0, 1]);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// One client's connection.
#[derive(Clone, Copy)]
struct Client {
    /// Its next sequence number, and the server's.
    own: SeqNumber,
    theirs: SeqNumber,
    /// The server's timestamp in its last segment.
    echo: u32,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Opening,
    Open,
    Waiting,
}

/// All clients, and the card by which the stack reaches them.
pub(crate) struct Clients {
    clients: Vec<Client>,
    opened: usize,
    dice: Xoshiro256PlusPlus,
    trusts_link: bool,
    clock: u32,
    /// What the stack receives.
    inbox: Vec<[u8; FRAME_LEN]>,
    inbox_lens: Vec<usize>,
    /// What the stack has sent.
    outbox: Vec<[u8; 128]>,
    outbox_lens: Vec<usize>,
}

impl Clients {
    /// The server's port.
    pub(crate) const PORT: u16 = 11211;

    /// `count` clients, none of which is connected.
    pub(crate) fn new(count: usize, trusts_link: bool) -> Clients {
        let client = Client {
            own: SeqNumber(1000),
            theirs: SeqNumber(0),
            echo: 0,
            stage: Stage::New,
        };
        Clients {
            clients: vec![client; count],
            opened: 0,
            dice: Xoshiro256PlusPlus::seed_from_u64(5),
            trusts_link,
            clock: 0,
            inbox: Vec::with_capacity(BURST_LEN),
            inbox_lens: Vec::with_capacity(BURST_LEN),
            outbox: vec![[0; 128]; 4 * BURST_LEN],
            outbox_lens: Vec::with_capacity(4 * BURST_LEN),
        }
    }

    /// Opens more connections; false once all are open.
    pub(crate) fn open_some(&mut self) -> bool {
        if self.opened == self.clients.len() {
            return false;
        }
        self.clock += 1;
        let last = (self.opened + BURST_LEN).min(self.clients.len());
        for number in self.opened..last {
            let client = self.clients[number];
            match client.stage {
                Stage::New => {
                    let options = Options {
                        mss: Some(1460),
                        window_scale: Some(7),
                        sack_permitted: true,
                        timestamps: self.timestamps(&client),
                        ..Options::default()
                    };
                    self.write(number, Flags::SYN, options, 0);
                    self.clients[number].own += 1;
                    self.clients[number].stage = Stage::Opening;
                }
                Stage::Opening => {
                    let options = Options {
                        timestamps: self.timestamps(&client),
                        ..Options::default()
                    };
                    self.write(number, Flags::ACK, options, 0);
                    self.clients[number].stage = Stage::Open;
                }
                Stage::Open | Stage::Waiting => {}
            }
        }
        if self.clients[last - 1].stage == Stage::Open {
            self.opened = last;
        }
        true
    }

    /// Makes a burst of requests, each on another connection.
    pub(crate) fn make_requests(&mut self) {
        self.clock += 1;
        let wanted = BURST_LEN.min(self.clients.len());
        while self.inbox.len() < wanted {
            let number = self.dice.random_range(0..self.clients.len());
            let client = self.clients[number];
            if client.stage != Stage::Open {
                continue;
            }
            let options = Options {
                timestamps: self.timestamps(&client),
                ..Options::default()
            };
            self.write(number, Flags::ACK.and(Flags::PSH), options, REQUEST_LEN);
            let client = &mut self.clients[number];
            client.own += REQUEST_LEN_U32;
            client.stage = Stage::Waiting;
        }
    }

    /// Checks what the stack has sent, and returns how many requests were answered.
    pub(crate) fn look_at_replies(&mut self) -> anyhow::Result<u64> {
        let mut answered = 0;
        for at in 0..self.outbox_lens.len() {
            let frame = &self.outbox[at][..self.outbox_lens[at]];
            let (packet, packet_len) = read_packet(&frame[14..])?;
            let segment = &frame[14 + packet_len..][..packet.payload_len];
            let Ok((header, header_len)) = tcp::Header::read(segment) else {
                bail!("the stack sent something other than a TCP segment");
            };
            if !self.trusts_link {
                let sum = Sum::pseudo_header(packet.source, packet.destination, 6, segment.len());
                ensure!(
                    sum.with(segment).is_right(),
                    "the stack sent a wrong checksum"
                );
            }
            let number = number_of(packet.destination, header.destination);
            let number = number.context("the stack sent a segment to an address of no client")?;
            let client = &mut self.clients[number];
            let payload = &segment[header_len..];
            if let Some(timestamps) = header.options.timestamps {
                client.echo = timestamps.value;
            }
            match client.stage {
                Stage::Opening if header.flags.has(Flags::SYN) => client.theirs = header.seq + 1,
                Stage::Waiting if !payload.is_empty() => {
                    let right = header.seq == client.theirs
                        && header.ack == client.own
                        && *payload == payload_of(number);
                    ensure!(right, "connection {number} got a wrong answer: {header:?}");
                    client.theirs += REQUEST_LEN_U32;
                    client.stage = Stage::Open;
                    answered += 1;
                }
                _ => ensure!(
                    payload.is_empty(),
                    "connection {number} got a reply without a request: {header:?}"
                ),
            }
        }
        self.outbox_lens.clear();
        Ok(answered)
    }

    fn timestamps(&self, client: &Client) -> Option<Timestamps> {
        Some(Timestamps {
            value: self.clock,
            echo: client.echo,
        })
    }

    /// Puts a segment into the inbox.
    fn write(&mut self, number: usize, flags: Flags, options: Options, len: usize) {
        let client = &self.clients[number];
        let (address, port) = address_of(number);
        let header = tcp::Header {
            source: port,
            destination: Clients::PORT,
            seq: client.own,
            ack: client.theirs,
            flags,
            window: 500,
            options,
        };
        let mut frame = [0; FRAME_LEN];
        let link = ethernet::Header {
            destination: SERVER_MAC,
            source: CLIENT_MAC,
            vlan: 0,
            ether_type: EtherType::IPV4,
        };
        link.write(&mut frame);
        let segment_len = header.size() + len;
        let packet = ip::Header::new(address, SERVER, Protocol::TCP, segment_len);
        packet.write(&mut frame[14..], false);
        header.write(&mut frame[34..]);
        frame[34 + header.size()..][..len].copy_from_slice(&payload_of(number)[..len]);
        let sum = Sum::pseudo_header(address, SERVER, 6, segment_len);
        let checksum = sum.with(&frame[34..][..segment_len]).checksum();
        frame[50..52].copy_from_slice(&checksum.to_be_bytes());
        self.inbox.push(frame);
        self.inbox_lens.push(34 + segment_len);
    }
}

/// Connections from one client address.
const PORTS: usize = 1 << 15;

/// The first port of an address.
const PORT_FIRST: u16 = 1024;

/// The address and port of a client; there are 2^20 clients at most.
#[inline]
pub(crate) fn address_of(number: usize) -> (Address, u16) {
    let host = u8::try_from(number / PORTS).expect("at most 2^20 connections");
    let port = u16::try_from(number % PORTS).expect("below 2^15") + PORT_FIRST;
    (Address::v4([10, 0, 1, host]), port)
}

/// The client that has this address and port; none where no client can.
#[inline]
pub(crate) fn number_of(address: Address, port: u16) -> Option<usize> {
    let [10, 0, 1, host] = address.v4_octets() else {
        return None;
    };
    let port = usize::from(port.checked_sub(PORT_FIRST)?);
    (port < PORTS).then_some(usize::from(host) * PORTS + port)
}

/// The request of a connection, which is also its reply.
fn payload_of(number: usize) -> [u8; REQUEST_LEN] {
    let mut payload = *b"0123456789abcdef";
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload
}

fn read_packet(bytes: &[u8]) -> anyhow::Result<(ip::Header, usize)> {
    match ip::Header::read_v4(bytes, false) {
        Ok(read) => Ok(read),
        Err(why) => bail!("the stack sent something other than an IP packet: {why:?}"),
    }
}

impl Nic for Clients {
    fn features(&self) -> Features {
        Features {
            mac: SERVER_MAC,
            mtu: 1500,
            fills_checksums: false,
            segmentation_len_max: 0,
        }
    }

    fn receive(&mut self) -> usize {
        self.inbox.len()
    }

    #[inline]
    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: &self.inbox[at][..self.inbox_lens[at]],
            is_verified: false,
        }
    }

    fn release(&mut self) {
        self.inbox.clear();
        self.inbox_lens.clear();
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.outbox
            .get_mut(self.outbox_lens.len())
            .map(|slot| &mut slot[..])
    }

    #[inline]
    fn commit(&mut self, len: usize, _: Offload) {
        self.outbox_lens.push(len);
    }

    fn flush(&mut self) {}
}
