//! A started port and the right to use each of its queue pairs.
#![expect(unsafe_code, reason = "sets queues up, stops and closes the port")]

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use coua_dpdk_sys as sys;

use super::error::PortError;
use super::gate::{Inside, Pass};
use super::pool::Pool;
use super::spreading::{Differing, Rules, Spreading};

/// The most mbufs in a thread's cache; DPDK lets it grow to one and a half times this.
const CACHE_LEN: u32 = 256;

/// Mbufs of a pool beyond those that the card's ring can hold: two bursts, and what the caches of
/// two threads keep.
const SPARE_MBUFS: u32 = 2 * 64 + 2 * CACHE_LEN * 3 / 2;

/// Ports that are open in this process.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Bytes for a frame in an mbuf of each pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms {
    pub(super) rx_len: u16,
    pub(super) tx_len: u16,
}

/// How a port is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) plan: sys::PortPlan,
    pub(super) rooms: Rooms,
    /// Whether its events must be kept apart from bursts.
    pub(super) is_gated: bool,
    /// The port by which the connections of a peer differ.
    pub(super) differing: Differing,
}

/// A port from its start to its end. The last owner stops and closes it.
pub(super) struct Device {
    claim: Claim,
    spreading: Spreading,
    /// Removed before the port is stopped.
    rules: Option<Rules>,
    /// If events must be kept apart from bursts: what stopping the port waits with.
    gate: Option<Pass>,
    /// Freed after the port is closed: until then the card has some of their mbufs.
    pools: Vec<Pools>,
}

/// Where one queue pair takes mbufs from.
struct Pools {
    rx: Pool,
    tx: Pool,
}

/// The right to use one queue pair; there is only one for each.
pub(super) struct Pair {
    device: Arc<Device>,
    index: u16,
    gate: Option<Pass>,
}

/// Proof that nobody else in this process has the port open.
struct Claim {
    port: u16,
}

impl Device {
    /// Sets the port up as planned, and starts it.
    pub(super) fn start(
        port: u16,
        name: &str,
        facts: &sys::PortFacts,
        start: Start,
    ) -> Result<(Arc<Device>, Vec<Pair>), PortError> {
        let Start {
            mut plan,
            rooms,
            is_gated,
            differing,
        } = start;
        let claim = Claim::take(port).ok_or_else(|| PortError::InUse {
            port: name.to_owned(),
        })?;
        let refused = |step, source| PortError::Refused {
            port: name.to_owned(),
            step,
            source,
        };
        let mut device = Device {
            claim,
            spreading: Spreading::OneQueue,
            rules: None,
            gate: None,
            pools: Vec::new(),
        };
        check(sys::coua_port_configure(port, &mut plan))
            .map_err(|source| refused("its set-up", source))?;
        for queue in 0..plan.queues {
            let pools = Pools::create(&plan, rooms, facts.numa_node);
            let pools = pools.map_err(|source| PortError::Memory {
                port: name.to_owned(),
                bytes: Pools::bytes(&plan, rooms) * u64::from(plan.queues),
                source,
            })?;
            let rx_pool = pools.rx.as_ptr();
            device.pools.push(pools);
            // SAFETY: the pool lives as long as the device, which closes the port first.
            let result =
                unsafe { sys::coua_rx_queue_setup(port, queue, plan.rx_descriptors, rx_pool) };
            check(result).map_err(|source| refused("its receive queues", source))?;
            check(sys::coua_tx_queue_setup(port, queue, plan.tx_descriptors))
                .map_err(|source| refused("its transmit queues", source))?;
        }
        let full = |source| refused("so many queues", source);
        let mut passes = Vec::new();
        if is_gated {
            device.gate = Some(Pass::take(port).map_err(full)?);
            for _ in 0..plan.queues {
                passes.push(Pass::take(port).map_err(full)?);
            }
        }
        match check(sys::coua_port_set_mtu(port, plan.mtu)) {
            // A device that does not know a longest packet carries whatever fits.
            Ok(()) => {}
            Err(source) if source.raw_os_error() == Some(NOT_SUPPORTED) => {}
            Err(_) => {
                return Err(PortError::Mtu {
                    port: name.to_owned(),
                    wanted: plan.mtu,
                    max: facts.mtu_max,
                });
            }
        }
        check(sys::coua_port_start(port)).map_err(|source| refused("to start", source))?;
        // Devices without filters receive every frame anyway.
        let _ = sys::coua_port_receive_groups(port);
        // Some drivers accept rules only on a started port. Nobody receives from it yet.
        (device.spreading, device.rules) = Spreading::settle(port, facts, plan.queues, differing);

        let device = Arc::new(device);
        let mut passes = passes.into_iter();
        let pairs = (0..plan.queues).map(|index| Pair {
            device: Arc::clone(&device),
            index,
            gate: passes.next(),
        });
        let pairs = pairs.collect();
        Ok((device, pairs))
    }

    pub(super) fn port(&self) -> u16 {
        self.claim.port
    }

    /// How received frames are spread over its queues.
    pub(super) fn spreading(&self) -> Spreading {
        self.spreading
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.rules = None;
        let _inside = self.gate.as_ref().map(Pass::wait);
        // A port that is not started refuses this, and stays stopped.
        // SAFETY: the pairs keep the device alive, so there is none left and no burst runs.
        unsafe { sys::coua_port_stop(self.claim.port) };
        // SAFETY: as above, and the claim keeps others from this port until it is dropped.
        unsafe { sys::coua_port_close(self.claim.port) };
    }
}

impl Pair {
    pub(super) fn port(&self) -> u16 {
        self.device.port()
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }

    /// The pool for frames to be sent.
    pub(super) fn tx_pool(&self) -> &Pool {
        &self.device.pools[usize::from(self.index)].tx
    }

    /// Entry for one burst; `None` if no burst may run now.
    #[inline]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        match &self.gate {
            None => Some(Inside::always()),
            Some(pass) => pass.enter(),
        }
    }
}

impl Pools {
    fn create(plan: &sys::PortPlan, rooms: Rooms, numa_node: i32) -> io::Result<Pools> {
        let pool = |descriptors, room_len| {
            Pool::create(mbufs(descriptors), CACHE_LEN, room_len, numa_node)
        };
        Ok(Pools {
            rx: pool(plan.rx_descriptors, rooms.rx_len)?,
            tx: pool(plan.tx_descriptors, rooms.tx_len)?,
        })
    }

    /// Bytes that the pools of one pair take, approximately.
    fn bytes(plan: &sys::PortPlan, rooms: Rooms) -> u64 {
        let of_pool = |descriptors, room_len| {
            // The mbuf, the headroom, and the pool's own header.
            let each = u64::from(room_len) + u64::from(sys::HEADROOM) + 128 + 64;
            u64::from(mbufs(descriptors)) * each
        };
        of_pool(plan.rx_descriptors, rooms.rx_len) + of_pool(plan.tx_descriptors, rooms.tx_len)
    }
}

impl Claim {
    fn take(port: u16) -> Option<Claim> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Not `then_some`: dropping a claim that was made in vain would release the port.
        open.insert(port).then(|| Claim { port })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.port);
    }
}

/// A pool uses its memory best with one mbuf less than a power of two.
fn mbufs(descriptors: u16) -> u32 {
    (u32::from(descriptors) + SPARE_MBUFS).next_power_of_two() - 1
}

/// `ENOTSUP`, the same number wherever DPDK runs.
const NOT_SUPPORTED: i32 = 95;

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}
