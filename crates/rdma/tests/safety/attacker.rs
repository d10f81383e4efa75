//! A client that sends whatever it likes.

use std::collections::HashSet;

use coua_rdma::simulated::{NodeFabric, NodeId, Rights, World};
use coua_rdma::{FRAME_LEN, Fabric, Gather, PeerId, Remote, RemoteMemory, Span, Work};

use crate::run::Dice;

pub(crate) struct Attacker {
    pub(crate) node: NodeId,
    pub(crate) peer: PeerId,
    is_connected: bool,
    frames: Span,
    lent: Span,
    remote: Remote,
    dice: Dice,
    connections: usize,
    left: usize,
}

impl Attacker {
    pub(crate) fn new(world: &mut World, dice: Dice) -> Attacker {
        let node = world.add_node();
        let (lent, remote) = world.add_region(node, 64 << 10, Rights::Write);
        let (frames, _) = world.add_region(node, 64 * FRAME_LEN, Rights::None);
        Attacker {
            node,
            peer: PeerId(u32::MAX),
            is_connected: false,
            frames,
            lent,
            remote,
            dice,
            connections: 4,
            left: 0,
        }
    }

    pub(crate) fn wants_connection(&self, closed: &HashSet<PeerId>) -> bool {
        self.connections > 0 && (!self.is_connected || closed.contains(&self.peer))
    }

    pub(crate) fn connect(&mut self, peer: PeerId) -> RemoteMemory {
        self.peer = peer;
        self.is_connected = true;
        self.connections -= 1;
        self.left = 60;
        // It may also lie about its memory.
        let lie = self.dice.below(3);
        RemoteMemory {
            key: if lie == 1 { 7 } else { self.remote.key },
            address: self.remote.address,
            len: if lie == 2 {
                u64::MAX
            } else {
                self.lent.len as u64
            },
        }
    }

    pub(crate) fn run(&mut self, fabric: &mut NodeFabric<'_>) {
        while fabric.poll().is_some() {}
        for _ in 0..self.dice.below(20) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let frame = self.frames.part(self.left * FRAME_LEN, FRAME_LEN);
            let bytes = self.bytes();
            fabric.copy_in(frame, &bytes);
            let from = frame.part(0, bytes.len());
            let work = match self.dice.below(30) {
                0 => {
                    let key = self.dice.below(u64::MAX);
                    let to = Remote { key, address: 0 };
                    Work::Write {
                        from: Gather::of(from),
                        to,
                        immediate: Some(7),
                    }
                }
                1 => Work::Read {
                    into: frame,
                    from: Remote { key: 1, address: 0 },
                },
                _ => Work::Send {
                    from: Gather::of(from),
                },
            };
            let _ = fabric.post(self.peer, &work, 1);
        }
    }

    /// A frame: mostly a request that could be one, with numbers that are often wrong.
    fn bytes(&mut self) -> Vec<u8> {
        let dice = &mut self.dice;
        let mut number = |good: u64, end: u64| {
            if dice.one_in(4) {
                dice.below(end)
            } else {
                good
            }
        };
        let kind = number(1, 6);
        let slot = number(1, 70_000);
        let generation = number(0, 256);
        let mut bytes = vec![0; 48];
        bytes[0] = kind.to_le_bytes()[0];
        bytes[1] = generation.to_le_bytes()[0];
        bytes[2..4].copy_from_slice(&slot.to_le_bytes()[..2]);
        let command = b"get 0-1\r\n";
        let command_len = number(command.len() as u64, 5000);
        bytes[4..6].copy_from_slice(&command_len.to_le_bytes()[..2]);
        let value_len = number(0, 300_000);
        let early_len = number(0, 20_000);
        let ready_len = number(value_len, 300_000);
        let area_offset = number(0, 1 << 17);
        let area_len = number(8000, 1 << 33);
        for (at, value) in [
            (8, value_len),
            (12, early_len),
            (16, ready_len),
            (20, area_offset),
            (24, area_len),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()[..4]);
        }
        let key = number(self.remote.key, u64::MAX);
        let address = number(0, u64::MAX);
        bytes[32..40].copy_from_slice(&key.to_le_bytes());
        bytes[40..48].copy_from_slice(&address.to_le_bytes());
        bytes.extend(command);
        let more = number(0, 3000);
        bytes.extend(vec![7; usize::try_from(more).expect("short")]);
        let len = number(bytes.len() as u64, bytes.len() as u64 + 1);
        bytes.truncate(usize::try_from(len).expect("short"));
        bytes
    }
}
