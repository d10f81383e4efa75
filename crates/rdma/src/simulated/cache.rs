//! A small cache behind the protocol, for tests and figures: it knows `get KEY` and `set KEY LENGTH`.
//!
//! It is the same as far as the network can tell: values lie in pinned memory, are received where they will lie, and
//! memory is reused as soon as nothing needs it any more, with other bytes in it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::fabric::{Completion, Fabric, PeerId, Span};
use crate::limits::{FRAME_LEN, Limits, REPLY_COPY_MAX};
use crate::server::{RemoteMemory, RequestId, Server, ServerEvent};

use super::node::NodeId;
use super::node_fabric::NodeFabric;
use super::world::{Rights, World};

/// What memory holds that nothing needs.
const UNUSED: [u8; 64] = [0xee; 64];

/// Keeps a block in its place as long as there is a copy of it beside the cache's own.
pub type Pin = Rc<()>;

/// The server's node.
pub struct Cache {
    /// Its node.
    pub node: NodeId,
    /// Its side of the protocol.
    pub server: Server<Pin>,
    /// What a request costs beside its transfer, picoseconds.
    pub request_ps: u64,
    arena: Span,
    block_len: usize,
    blocks: Vec<Pin>,
    free: Vec<usize>,
    /// Blocks that no item has any more, but a reply.
    leaving: Vec<usize>,
    items: HashMap<Vec<u8>, (usize, usize)>,
    uploads: HashMap<RequestId, Upload>,
    events: Vec<ServerEvent>,
    frames: usize,
    /// What clients have done that they may not.
    pub misbehaved: Vec<(PeerId, crate::server::Misbehaviour)>,
    /// Connections that have ended.
    pub closed: HashSet<PeerId>,
}

struct Upload {
    key: Vec<u8>,
    block: Option<usize>,
    len: usize,
}

impl Cache {
    /// A cache with receive buffers for so many clients, and so many blocks for values.
    pub fn new(world: &mut World, limits: Limits, clients: usize, blocks: usize) -> Cache {
        let node = world.add_node();
        let frames = clients * limits.credits;
        let (memory, _) = world.add_region(node, frames * FRAME_LEN, Rights::None);
        world.add_frames(node, memory, FRAME_LEN);
        let replies = 2 * frames;
        let (memory, _) = world.add_region(node, replies * REPLY_COPY_MAX, Rights::None);
        let reply = |nth| memory.part(nth * REPLY_COPY_MAX, REPLY_COPY_MAX);
        let block_len = limits.value_len_max.next_multiple_of(UNUSED.len());
        let (arena, _) = world.add_region(node, blocks * block_len, Rights::None);
        Cache {
            node,
            server: Server::new(limits, frames, (0..replies).map(reply).collect()),
            request_ps: 0,
            arena,
            block_len,
            blocks: (0..blocks).map(|_| Pin::default()).collect(),
            free: (0..blocks).collect(),
            leaving: Vec::new(),
            items: HashMap::new(),
            uploads: HashMap::new(),
            events: Vec::new(),
            frames,
            misbehaved: Vec::new(),
            closed: HashSet::new(),
        }
    }

    /// Takes a client on.
    ///
    /// # Errors
    /// [`Full`](crate::Full) if there are as many as receive buffers allow.
    pub fn connect(
        &mut self,
        peer: PeerId,
        memory: RemoteMemory,
        may_write: bool,
    ) -> Result<(), crate::Full> {
        self.server.connect(peer, memory, may_write)
    }

    /// Deals with all that has come.
    pub fn run(&mut self, fabric: &mut NodeFabric<'_>) {
        while let Some(completion) = fabric.poll() {
            if let Completion::Closed { peer } = completion {
                self.closed.insert(peer);
            }
            let mut events = std::mem::take(&mut self.events);
            self.server.take(fabric, completion, &mut events);
            for event in events.drain(..) {
                self.act(fabric, event);
            }
            self.events = events;
            self.sweep(fabric);
        }
    }

    /// What is wrong with a cache to which nobody is connected; empty if nothing is.
    pub fn leaks(&self, world: &World) -> Vec<String> {
        let mut leaks = Vec::new();
        let ready = world.frames_ready(self.node);
        if ready != self.frames {
            leaks.push(format!(
                "{ready} of {} receive buffers are ready",
                self.frames
            ));
        }
        if self.server.requests_under_way() > 0 || !self.server.is_empty() {
            leaks.push(format!(
                "{} requests under way",
                self.server.requests_under_way()
            ));
        }
        if !self.uploads.is_empty() || !self.leaving.is_empty() {
            leaks.push(format!(
                "{} uploads, {} blocks",
                self.uploads.len(),
                self.leaving.len()
            ));
        }
        if world.grants(self.node) > 0 {
            leaks.push(format!("{} grants", world.grants(self.node)));
        }
        if self.free.len() + self.items.len() != self.blocks.len() {
            leaks.push(format!(
                "{} blocks, {} items",
                self.free.len(),
                self.items.len()
            ));
        }
        leaks
    }

    fn act(&mut self, fabric: &mut NodeFabric<'_>, event: ServerEvent) {
        match event {
            ServerEvent::Request {
                request,
                command,
                early,
                value_len,
                early_len,
                ..
            } => {
                let line = fabric.bytes(command).to_vec();
                if value_len > 0 {
                    // Room is found now, the index is changed when the value is there.
                    fabric.work(self.request_ps / 2);
                    self.begin_upload(fabric, request, &line, early, (value_len, early_len));
                } else {
                    fabric.work(self.request_ps);
                    self.execute(fabric, request, &line);
                }
                self.server.release(fabric, command);
            }
            ServerEvent::Early {
                request,
                offset,
                bytes,
            } => {
                self.copy_early(fabric, request, offset, bytes);
                self.server.release(fabric, bytes);
            }
            ServerEvent::Arrived { request } => {
                let Some(upload) = self.uploads.remove(&request) else {
                    return;
                };
                let reply: &[u8] = match upload.block {
                    Some(block) => {
                        fabric.work(self.request_ps / 2);
                        self.put(upload.key, block, upload.len);
                        b"HD\r\n"
                    }
                    None => b"SERVER_ERROR out of memory\r\n",
                };
                self.server.reply(fabric, request, reply);
            }
            ServerEvent::Abandoned { request } => {
                if let Some(block) = self
                    .uploads
                    .remove(&request)
                    .and_then(|upload| upload.block)
                {
                    self.leaving.push(block);
                }
            }
            ServerEvent::Misbehaved { peer, how } => self.misbehaved.push((peer, how)),
            ServerEvent::Closed { .. } => {}
        }
    }

    fn block(&self, block: usize) -> Span {
        self.arena.part(block * self.block_len, self.block_len)
    }

    fn begin_upload(
        &mut self,
        fabric: &mut NodeFabric<'_>,
        request: RequestId,
        line: &[u8],
        early: Span,
        (len, early_len): (usize, usize),
    ) {
        let key = line
            .split(|byte| *byte == b' ')
            .nth(1)
            .unwrap_or_default()
            .to_vec();
        let block = self.free.pop();
        // What finds no block is received as well: into the last one, which is nobody's.
        let place = self
            .block(block.unwrap_or(0))
            .part(early_len, len - early_len);
        let upload = Upload { key, block, len };
        self.uploads.insert(request, upload);
        self.copy_early(fabric, request, 0, early);
        if block.is_some() {
            self.server
                .receive_value(fabric, request, (place.len > 0).then_some(place));
        } else {
            self.uploads.remove(&request);
            self.server
                .reply(fabric, request, b"SERVER_ERROR out of memory\r\n");
        }
    }

    fn copy_early(
        &mut self,
        fabric: &mut NodeFabric<'_>,
        request: RequestId,
        offset: usize,
        bytes: Span,
    ) {
        let block = self.uploads.get(&request).and_then(|upload| upload.block);
        if let Some(block) = block {
            let bytes = fabric.bytes(bytes).to_vec();
            fabric.copy_in(self.block(block).part(offset, bytes.len()), &bytes);
        }
    }

    fn execute(&mut self, fabric: &mut NodeFabric<'_>, request: RequestId, line: &[u8]) {
        let mut words = line.split(|byte| *byte == b' ' || *byte == b'\r');
        let (verb, key) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        match (verb, self.items.get(key)) {
            (b"get", Some(&(block, len))) => {
                let head = format!("VA {len}\r\n");
                let value = self.block(block).part(0, len);
                if len <= self.server.limits().copy_max {
                    let value = fabric.bytes(value);
                    let reply = [head.as_bytes(), value, b"\r\n"].concat();
                    self.server.reply(fabric, request, &reply);
                } else {
                    let keep = Rc::clone(&self.blocks[block]);
                    let around = (head.as_bytes(), &b"\r\n"[..]);
                    self.server
                        .reply_from(fabric, request, around, &[value], keep);
                }
            }
            (b"get", None) => self.server.reply(fabric, request, b"EN\r\n"),
            (b"set", _) => {
                // A short value stands in the command, behind its line.
                let line_end = line.windows(2).position(|two| two == b"\r\n");
                let value = line_end.and_then(|end| line[end + 2..].strip_suffix(b"\r\n"));
                let (Some(value), Some(block)) = (value, self.free.pop()) else {
                    return self
                        .server
                        .reply(fabric, request, b"CLIENT_ERROR bad data chunk\r\n");
                };
                fabric.copy_in(self.block(block).part(0, value.len()), value);
                self.put(key.to_vec(), block, value.len());
                self.server.reply(fabric, request, b"HD\r\n");
            }
            _ => self.server.reply(fabric, request, b"ERROR\r\n"),
        }
    }

    fn put(&mut self, key: Vec<u8>, block: usize, len: usize) {
        if let Some((old, _)) = self.items.insert(key, (block, len)) {
            self.leaving.push(old);
        }
    }

    /// Overwrites and frees the blocks that no reply needs any more.
    fn sweep(&mut self, fabric: &mut NodeFabric<'_>) {
        let mut at = 0;
        while at < self.leaving.len() {
            let block = self.leaving[at];
            if Rc::strong_count(&self.blocks[block]) > 1 {
                at += 1;
                continue;
            }
            self.leaving.swap_remove(at);
            for nth in 0..self.block_len / UNUSED.len() {
                fabric.prepare(
                    self.block(block).part(nth * UNUSED.len(), UNUSED.len()),
                    &UNUSED,
                );
            }
            self.free.push(block);
        }
    }
}
