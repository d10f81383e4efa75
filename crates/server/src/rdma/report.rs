//! What a worker tells others of its RDMA.

use coua_rdma::PeerId;

use super::WorkerRdma;
use crate::rdma_report::{RdmaConnection, RdmaReport};

/// Connections that are listed one by one, of each worker.
const LISTED_MAX: usize = 32;

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
