//! Arguments of EAL for both ends of a link between two processes.

use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// What every process is started with.
pub(crate) const COMMON: &str = "--no-pci --in-memory --no-telemetry -m 64 --single-file-segments --log-level=lib.eal:4 --log-level=lib.vhost.*:4";

/// A unix socket that two processes find each other by; gone when dropped.
pub(crate) struct Meeting {
    pub(crate) path: PathBuf,
}

impl Meeting {
    pub(crate) fn new() -> Meeting {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coua-dpdk-{}-{count}.sock", process::id());
        Meeting {
            path: std::env::temp_dir().join(name),
        }
    }

    /// The end of a memif link that waits for the other.
    pub(crate) fn memif_server(&self) -> String {
        self.memif("server")
    }

    /// The end that comes.
    pub(crate) fn memif_client(&self) -> String {
        self.memif("client")
    }

    fn memif(&self, role: &str) -> String {
        format!(
            "{COMMON} --vdev=net_memif0,role={role},socket={},socket-abstract=no,rsize=10",
            self.path.display()
        )
    }

    /// The end of a virtio link that waits for the other.
    pub(crate) fn vhost(&self, queues: u16) -> String {
        format!(
            "{COMMON} --vdev=net_vhost0,iface={},queues={queues}",
            self.path.display()
        )
    }

    /// The end that comes.
    pub(crate) fn virtio(&self, queues: u16) -> String {
        format!(
            "{COMMON} --vdev=net_virtio_user0,path={},queues={queues},queue_size=1024",
            self.path.display()
        )
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
