//! Why a port cannot be opened.

use std::io;

/// Why a port cannot be opened. Its driver may have printed more on standard error.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// DPDK has no ports.
    #[error(
        "DPDK has no card, see its messages above: bind one with dpdk-devbind.py and allow it with \
         -a ADDRESS, or make a virtual one with --vdev=..., in --dpdk-args"
    )]
    NoPort,
    /// No port has this name.
    #[error("DPDK has no port {name}, but: {known}")]
    NoSuchPort {
        /// The name.
        name: String,
        /// The names of all ports.
        known: String,
    },
    /// It is already open in this process.
    #[error("the DPDK port {port} is open already")]
    InUse {
        /// Its name.
        port: String,
    },
    /// It has fewer queues than were asked for.
    #[error("the DPDK port {port} has {max} queues at most, and there are {wanted} workers")]
    Queues {
        /// Its name.
        port: String,
        /// How many were asked for.
        wanted: u16,
        /// How many it has at most.
        max: u16,
    },
    /// It does not carry packets of that length, or only ones shorter than IPv6 needs.
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
        /// The error.
        source: io::Error,
    },
    /// Its driver refuses a step.
    #[error(
        "the DPDK port {port} refuses {step}, see its driver's message above: correct --vdev or \
         --dpdk-args ({source})"
    )]
    Refused {
        /// Its name.
        port: String,
        /// The step.
        step: &'static str,
        /// The error.
        source: io::Error,
    },
}
