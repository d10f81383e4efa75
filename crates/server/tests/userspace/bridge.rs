//! A client of a memif link that is a bridge: what comes over the link goes into the server's end of
//! the cable, and the other way round. So the kernel's TCP is the client here too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use coua_tcp::nic::{Nic, Offload};
use coua_transport::userspace::Mac;
use coua_transport::userspace::memif::{self, MemifNic, Options, Role};
use coua_transport::userspace::packet::PacketSocket;

use crate::netns::{DEVICE, Pair};

/// The server's address on the link, for which frames are taken from the cable.
const SERVER: Mac = Mac([2, 0, 0, 0, 0, 7]);

/// A socket by which link and server find each other, with the server's options behind it.
pub(crate) struct Meeting {
    socket: PathBuf,
}

impl Meeting {
    pub(crate) fn new() -> Meeting {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coua-bridge-{}-{count}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        Meeting { socket }
    }

    /// What the server's `--net` says.
    pub(crate) fn net(&self) -> String {
        format!("memif:{},mac={SERVER}", self.socket.display())
    }

    /// Where it is.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A bridge, which ends when dropped.
pub(crate) struct Bridge {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Joins a link to the server's end of a cable.
    pub(crate) fn between(meeting: &Meeting, pair: &Pair) -> Bridge {
        let options = Options {
            role: Role::Client,
            ..Options::new(meeting.socket())
        };
        let link = memif::open(&options, Mac([2, 0, 0, 0, 0, 8]), Box::new(|_| ()));
        let mut link = link.expect("a client waits for its server").remove(0);
        let cable = pair
            .ours
            .enter(|| PacketSocket::open(DEVICE, Some(SERVER), 1));
        let mut cable = cable.expect("packet sockets need root").remove(0);
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                if !turn(&mut link, &mut cable) {
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        Bridge {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the bridge is well");
        }
    }
}

/// Carries what there is; whether there was anything.
fn turn(link: &mut MemifNic, cable: &mut PacketSocket) -> bool {
    // As one who sleeps does, so that a new server is heard of at once.
    link.disarm();
    let count = carry(link, cable) + carry(cable, link);
    count > 0
}

fn carry(from: &mut impl Nic, to: &mut impl Nic) -> usize {
    let count = from.receive();
    for at in 0..count {
        let bytes = from.frame(at).bytes;
        // What the other side has no room for is lost, as on any network.
        if let Some(slot) = to.slot().filter(|slot| slot.len() >= bytes.len()) {
            slot[..bytes.len()].copy_from_slice(bytes);
            to.commit(bytes.len(), Offload::None);
        }
    }
    from.release();
    to.flush();
    count
}
