//! What others may know of a worker's RDMA.

use coua_rdma::{ConnectionCounts, ServerCounts};
use coua_transport::PeerAddress;

/// What others may know of a worker's RDMA.
#[derive(Clone, Debug, Default)]
pub struct RdmaReport {
    /// What has happened.
    pub counts: ServerCounts,
    /// Connections that were refused: no token, or no room.
    pub refused: u64,
    /// Connections now.
    pub connections: u64,
    /// Requests that are not answered yet, or whose replies are under way.
    pub under_way: u64,
    /// Bytes of memory for buffers.
    pub memory: u64,
    /// Bytes of staging memory that are in use.
    pub staged: u64,
    /// Pieces of memory that are registered with the network.
    pub registrations: u64,
    /// Buffers for receiving that belong to no connection.
    pub frames_free: u64,
    /// Some of the connections.
    pub listed: Vec<RdmaConnection>,
}

/// A connection, as others may know it.
#[derive(Clone, Debug)]
pub struct RdmaConnection {
    /// The number of the ordinary connection beside it.
    pub descriptor: i32,
    /// The client's address.
    pub peer: PeerAddress,
    /// What has happened on it.
    pub counts: ConnectionCounts,
}
