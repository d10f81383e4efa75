//! The way of a frame on its link.

use crate::nic::Mac;

/// From where a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkAddress {
    pub(super) mac: Mac,
    pub(super) vlan: u16,
}
