//! The address of a frame's sender on its link.

use crate::nic::Mac;

/// Where a frame came from, and where replies to it go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkAddress {
    pub(super) mac: Mac,
    pub(super) vlan: u16,
}
