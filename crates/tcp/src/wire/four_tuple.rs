//! The addresses and ports of a connection.

use super::address::Address;

/// What names a connection on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FourTuple {
    /// Our address.
    pub local: Address,
    /// The peer's address.
    pub remote: Address,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}
