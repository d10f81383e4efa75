//! Why a port is not opened.

use std::io;

/// Why a port was not opened. Its driver may have said more on standard error.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// DPDK has no port at all.
    #[error(
        "DPDK has no card, see its messages above: bind one with dpdk-devbind.py and allow it with \
         -a ADDRESS, or make a virtual one with --vdev=..., in --dpdk-args"
    )]
    NoPort,
    /// None has the name.
    #[error("DPDK has no port {name}, but: {known}")]
    NoSuchPort {
        /// The name.
        name: String,
        /// The names of all that there are.
        known: String,
    },
    /// It is open in this process.
    #[error("the DPDK port {port} is open already")]
    InUse {
        /// Its name.
        port: String,
    },
    /// It has not so many queues.
    #[error("the DPDK port {port} has {max} queues at most, and there are {wanted} workers")]
    Queues {
        /// Its name.
        port: String,
        /// How many were asked for.
        wanted: u16,
        /// How many it can have.
        max: u16,
    },
    /// It does not carry packets of that length, or only shorter ones than IPv6 needs.
    #[error("the DPDK port {port} cannot have an MTU of {wanted}, only 1280 to {max}")]
    Mtu {
        /// Its name.
        port: String,
        /// Bytes asked for.
        wanted: u16,
        /// Bytes that it can carry.
        max: u16,
    },
    /// DPDK has no memory for the frames.
    #[error(
        "DPDK has too little memory for the frames of {port}, {} MiB: raise -m MEGABYTES in \
         --dpdk-args, or /proc/sys/vm/nr_hugepages ({source})",
        bytes.div_ceil(1 << 20)
    )]
    Memory {
        /// Its name.
        port: String,
        /// Bytes for all queues.
        bytes: u64,
        /// What it came to.
        source: io::Error,
    },
    /// Its driver refuses.
    #[error(
        "the DPDK port {port} refuses {step}, see its driver's message above: correct --vdev or \
         --dpdk-args ({source})"
    )]
    Refused {
        /// Its name.
        port: String,
        /// What it refuses.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
}
