//! What others may know of a worker's RDMA.

use coua_rdma::{ConnectionCounts, PeerId, ServerCounts};
use coua_transport::PeerAddress;

use super::WorkerRdma;

/// Connections that are listed one by one, of each worker.
const LISTED_MAX: usize = 32;

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

impl WorkerRdma {
    /// What others may know now, if something has changed since this was last asked.
    pub fn take_report(&mut self) -> Option<RdmaReport> {
        std::mem::take(&mut self.is_untold).then(|| {
            let of = |(peer, client): (usize, &Option<super::Client>)| {
                let client = client.as_ref()?;
                let peer = PeerId(u32::try_from(peer).ok()?);
                Some(RdmaConnection {
                    descriptor: client.connection.descriptor,
                    peer: client.connection.peer.clone(),
                    counts: self.server.connection_counts(peer)?,
                })
            };
            RdmaReport {
                counts: self.server.counts(),
                refused: self.refused,
                connections: self.server.len() as u64,
                under_way: self.server.requests_under_way() as u64,
                memory: self.memory as u64,
                staged: self.staging.lent() as u64,
                registrations: self.driver.registrations() as u64,
                frames_free: self.driver.frames_free() as u64,
                listed: (self.clients.iter().enumerate())
                    .filter_map(of)
                    .take(LISTED_MAX)
                    .collect(),
            }
        })
    }

    /// Whether there is something to report.
    pub fn is_untold(&self) -> bool {
        self.is_untold
    }
}
