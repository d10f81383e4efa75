//! A card, or a virtual device.

use std::sync::Arc;

use coua_dpdk_sys::{self as sys, rx_offload, tx_offload};
use coua_tcp::nic::{Features, LINK_HEADER_LEN, Mac};

use super::device::{Device, Rooms, Start};
use super::eal::Eal;
use super::error::PortError;
use super::queue::{Manner, Queue};
use super::spreading::{Differing, Spreading};

/// Descriptors to ask for in each ring; the card may have more or fewer.
const DESCRIPTORS: u16 = 1024;

/// The least number of bytes for a frame in an mbuf, which drivers expect.
const ROOM_LEN_MIN: u16 = 2048;

/// The most bytes of payload that a card is given to cut. Cards take more, but the gain is in the
/// first dozen segments, and all mbufs of a transmit queue have this size.
const SEGMENTATION_LEN: u16 = 16 << 10;

/// The most bytes of an IP and a TCP header together.
const HEADERS_LEN: u16 = 60 + 60;

#[expect(clippy::cast_possible_truncation, reason = "18 fits")]
const LINK_LEN: u16 = LINK_HEADER_LEN as u16;

/// The least MTU of a link with IPv6, in bytes (RFC 8200).
const MTU_MIN: u16 = 1280;

/// The driver whose events must be kept apart from bursts.
const GATED_DRIVER: &str = "net_memif";

/// How to open a port.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Its name in DPDK: a PCI address such as `0000:3b:00.0`, or a virtual device such as
    /// `net_memif0`. Without a name the first port is opened.
    pub name: Option<String>,
    /// How many queues to open, one for each worker; at least one.
    pub queues: u16,
    /// Bytes of the longest IP packet, at least 1280; without it, what the device is set to.
    pub mtu: Option<u16>,
    /// Let the card check and fill in checksums, and cut segments, as far as it can.
    pub offloads: bool,
    /// Let queues interrupt if the device can, for workers that sleep.
    pub interrupts: bool,
    /// Connections are opened from here rather than accepted. It matters if flow rules have to
    /// spread received frames.
    pub connects: bool,
}

/// An open port. It is closed when it and all its queues are dropped.
pub struct Port {
    device: Arc<Device>,
    name: String,
    driver: String,
    features: Features,
    spreading: Spreading,
}

/// Whether frames can pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// There is a peer at the other end.
    pub is_up: bool,
    /// Megabits a second, if the device reports it.
    pub speed_mbps: Option<u32>,
}

/// What has gone wrong at a port since it was opened, as its driver counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames lost because the receive queue was full: the worker was too slow.
    pub missed: u64,
    /// Frames that arrived damaged.
    pub damaged: u64,
    /// How often there was no mbuf for a frame.
    pub without_buffer: u64,
    /// Frames that the card could not send.
    pub unsent: u64,
}

impl Port {
    /// The names of all ports.
    pub fn names(_: Eal) -> Vec<String> {
        ports().map(|(_, facts)| text(&facts.name)).collect()
    }

    /// Opens a port and its queues, and starts to receive.
    ///
    /// # Errors
    /// [`PortError`]; each one says what to do. If a port refuses a step it is closed, and a
    /// virtual port no longer exists then.
    pub fn open(_: Eal, options: &PortOptions) -> Result<(Port, Vec<Queue>), PortError> {
        let (port, facts) = choose(options.name.as_deref())?;
        let name = text(&facts.name);
        let driver = text(&facts.driver);
        let queues_max = facts.rx_queues_max.min(facts.tx_queues_max);
        if options.queues == 0 || options.queues > queues_max {
            return Err(PortError::Queues {
                port: name,
                wanted: options.queues,
                max: queues_max,
            });
        }
        let mtu = options.mtu.unwrap_or(facts.mtu);
        if mtu < MTU_MIN || mtu > facts.mtu_max {
            return Err(PortError::Mtu {
                port: name,
                wanted: mtu,
                max: facts.mtu_max,
            });
        }
        let work = CardWork::of(&facts, options.offloads);
        let slot_len = slot_len(mtu, work.segments);
        let rooms = Rooms {
            rx_len: ROOM_LEN_MIN.max(slot_len_of_packet(mtu)),
            tx_len: ROOM_LEN_MIN.max(slot_len),
        };
        let has_rss = options.queues > 1 && facts.has_rss != 0;
        let plan = sys::PortPlan {
            rx_offloads: work.rx_offloads,
            tx_offloads: work.tx_offloads,
            queues: options.queues,
            mtu,
            rx_descriptors: DESCRIPTORS,
            tx_descriptors: DESCRIPTORS,
            wants_rss: u8::from(has_rss),
            wants_symmetric_key: u8::from(has_rss),
            wants_interrupts: u8::from(options.interrupts),
            reserved: [0; 5],
        };
        let manner = Start {
            plan,
            rooms,
            is_gated: driver == GATED_DRIVER,
            differing: match options.connects {
                true => Differing::Own,
                false => Differing::Theirs,
            },
        };
        let (device, pairs) = Device::start(port, &name, &facts, manner)?;
        let spreading = device.spreading();
        let features = Features {
            mac: Mac(facts.mac),
            mtu,
            fills_checksums: work.fills_checksums,
            segmentation_len_max: if work.segments {
                u32::from(SEGMENTATION_LEN)
            } else {
                0
            },
        };
        let manner = Manner {
            features,
            slot_len,
            fills_ipv4: work.fills_ipv4,
            verifies: options.offloads,
            interrupts: options.interrupts,
        };
        let queues = pairs.into_iter().map(|pair| Queue::new(pair, manner));
        let queues = queues.collect();
        let port = Port {
            device,
            name,
            driver,
            features,
            spreading,
        };
        Ok((port, queues))
    }

    /// Its name in DPDK.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its driver.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// What it is and can do.
    pub fn features(&self) -> Features {
        self.features
    }

    /// How received frames are spread over its queues.
    pub fn spreading(&self) -> Spreading {
        self.spreading
    }

    /// Whether frames can pass now. May ask the card, which takes a microsecond or two.
    pub fn link(&self) -> LinkStatus {
        let mut link = sys::LinkState::default();
        let is_known = sys::coua_port_link(self.device.port(), &mut link) == 0;
        let has_speed = link.speed_mbps != 0 && link.speed_mbps != u32::MAX;
        LinkStatus {
            is_up: is_known && link.is_up != 0,
            speed_mbps: (is_known && has_speed).then_some(link.speed_mbps),
        }
    }

    /// What has gone wrong; all zero if its driver does not count.
    pub fn counters(&self) -> PortCounters {
        let mut errors = sys::PortErrors::default();
        sys::coua_port_counters(self.device.port(), &mut errors);
        PortCounters {
            missed: errors.rx_missed,
            damaged: errors.rx_errors,
            without_buffer: errors.rx_no_buffer,
            unsent: errors.tx_errors,
        }
    }
}

/// The part of the stack's work that the card does.
struct CardWork {
    rx_offloads: u64,
    tx_offloads: u64,
    fills_checksums: bool,
    fills_ipv4: bool,
    segments: bool,
}

impl CardWork {
    fn of(facts: &sys::PortFacts, is_wanted: bool) -> CardWork {
        // In any case, all mbufs of a queue come from one pool and have one owner.
        let mut tx_offloads = facts.tx_offloads & tx_offload::FAST_FREE;
        let mut rx_offloads = 0;
        // If the card cannot fill in the checksum of IPv4, the driver does; that header is short.
        let l4 = tx_offload::TCP_CHECKSUM | tx_offload::UDP_CHECKSUM;
        let fills_checksums = is_wanted && facts.tx_offloads & l4 == l4;
        let fills_ipv4 = fills_checksums && facts.tx_offloads & tx_offload::IPV4_CHECKSUM != 0;
        let segments = fills_checksums && facts.tx_offloads & tx_offload::TCP_SEGMENTS != 0;
        if is_wanted {
            rx_offloads = facts.rx_offloads
                & (rx_offload::IPV4_CHECKSUM | rx_offload::UDP_CHECKSUM | rx_offload::TCP_CHECKSUM);
        }
        if fills_checksums {
            tx_offloads |=
                facts.tx_offloads & (l4 | tx_offload::IPV4_CHECKSUM | tx_offload::TCP_SEGMENTS);
        }
        CardWork {
            rx_offloads,
            tx_offloads,
            fills_checksums,
            fills_ipv4,
            segments,
        }
    }
}

fn choose(name: Option<&str>) -> Result<(u16, sys::PortFacts), PortError> {
    let mut known = Vec::new();
    for (port, facts) in ports() {
        let this = text(&facts.name);
        if name.is_none_or(|name| name == this) {
            return Ok((port, facts));
        }
        known.push(this);
    }
    match name {
        Some(name) if !known.is_empty() => Err(PortError::NoSuchPort {
            name: name.to_owned(),
            known: known.join(", "),
        }),
        _ => Err(PortError::NoPort),
    }
}

fn ports() -> impl Iterator<Item = (u16, sys::PortFacts)> {
    let next = |from| Some(sys::coua_port_next(from)).filter(|port| *port != sys::NO_PORT);
    let numbers = std::iter::successors(next(0), move |port| next(port + 1));
    numbers.filter_map(|port| {
        let mut facts = sys::PortFacts::new();
        (sys::coua_port_facts(port, &mut facts) == 0).then_some((port, facts))
    })
}

fn slot_len(mtu: u16, segments: bool) -> u16 {
    let of_packet = slot_len_of_packet(mtu);
    if segments {
        let of_segments = LINK_LEN + HEADERS_LEN + SEGMENTATION_LEN;
        of_packet.max(of_segments)
    } else {
        of_packet
    }
}

fn slot_len_of_packet(mtu: u16) -> u16 {
    // With DPDK's largest MTU the header would exceed 16 bits; no card has that MTU.
    mtu.saturating_add(LINK_LEN)
}

fn text(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}
