//! A turn of the clients: receive, begin batches that are due, send.

use std::hint::black_box;
use std::time::Duration;

use anyhow::ensure;
use coua_tcp::nic::{Frame, Nic};
use coua_tcp::wire::tcp::{Flags, Timestamps};

use super::connection::{Connection, Stage};
use super::dialogue::{Progress, Step};
use super::requests::Kind;
use super::wire::{Arrival, Incoming, likely_client};
use super::{ACK_DELAY, Clients, SWEEP, TIMEOUT, TIMEOUTS_MAX};
use crate::workload::below;

/// How many frames are examined, and how many batches begun, at a time: their connections are
/// prefetched together.
const GO: usize = 16;

/// How many connections stay in a core's cache: 128 KiB of them.
const AT_HAND: usize = 2048;

/// The unit of the clients' clock in the timestamps option, in nanoseconds.
const TICK: u64 = 1_000_000;

impl Clients {
    /// One turn, at `now` nanoseconds.
    ///
    /// # Errors
    /// If a reply is wrong, or if the server ends a connection or is silent for long.
    #[inline]
    pub(crate) fn turn(&mut self, nic: &mut impl Nic, now: u64) -> anyhow::Result<()> {
        if self.last_was_idle && self.is_started {
            self.stretch.idle += Duration::from_nanos(now - self.now);
        }
        self.now = now;
        self.is_started = true;
        let count = nic.receive();
        let mut is_idle = count == 0;
        for from in (0..count).step_by(GO) {
            let to = count.min(from + GO);
            self.fetch(nic, from, to);
            for at in from..to {
                self.take_frame(&nic.frame(at))?;
            }
            // Replies to the first frames of a burst leave before the last ones are examined, so
            // that the server does not wait for all of them.
            is_idle &= !self.begin_batches(nic);
            nic.flush();
        }
        if count > 0 {
            self.run.flush(now, &mut self.stretch.measured);
            nic.release();
        }
        if let Some(question) = self.question.take() {
            self.wire.answer(nic, &question);
        }
        self.open_some(nic);
        is_idle &= !self.send_listed(nic);
        is_idle &= !self.begin_batches(nic);
        self.acknowledge_listed(nic);
        self.sweep()?;
        nic.flush();
        self.last_was_idle = is_idle;
        match is_idle {
            true => self.stretch.idle_turns += 1,
            false => self.stretch.busy_turns += 1,
        }
        Ok(())
    }

    #[inline]
    fn take_frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        if let Some(incoming) = self.wire.read_plain(frame) {
            return match self.try_take_fast(&incoming) {
                true => Ok(()),
                false => self.take(&incoming),
            };
        }
        match self.wire.read(frame) {
            Arrival::Segment(incoming) => self.take(&incoming)?,
            Arrival::Arp(packet) if !packet.is_reply => self.question = Some(packet),
            Arrival::Arp(packet) => self.meet(packet.sender_mac),
            Arrival::Other => {}
        }
        Ok(())
    }

    /// Prefetches the connections of some frames, if there are too many to be in the cache.
    #[inline]
    fn fetch(&self, nic: &impl Nic, from: usize, to: usize) {
        if self.connections.len() <= AT_HAND {
            return;
        }
        let mut seen = 0;
        for at in from..to {
            let connection =
                likely_client(nic.frame(at).bytes).and_then(|client| self.connections.get(client));
            seen ^= connection.map_or(0, |connection| connection.echo);
        }
        black_box(seen);
    }

    /// The fast path, for nearly all segments: in order, with the whole reply to the connection's
    /// only request and an acknowledgment of it. Returns false for any other segment; then nothing
    /// has changed.
    #[inline]
    fn try_take_fast(&mut self, incoming: &Incoming<'_>) -> bool {
        const ODD: Flags = Flags::SYN.and(Flags::RST).and(Flags::FIN);
        let (client, payload) = (incoming.client, incoming.payload);
        let Some(connection) = self.connections.get_mut(client) else {
            return false;
        };
        let is_predicted = connection.stage == Stage::Open
            && !incoming.flags.has(ODD)
            && connection.asked == 1
            && connection.progress == Progress::default()
            && incoming.seq == connection.theirs
            && connection.told == connection.theirs
            && incoming.ack == connection.end;
        if !is_predicted {
            return false;
        }
        let ask = self.asks[client * self.depth];
        let Some(is_miss) = self.dialogue.is_reply(ask, payload) else {
            return false;
        };
        connection.acknowledged = connection.end;
        connection.next = connection.end;
        connection.window = u32::from(incoming.window) << self.shift;
        connection.timeouts = 0;
        connection.echo = incoming.clock.unwrap_or(connection.echo);
        connection.heard_at = self.now;
        connection.theirs += u32::try_from(payload.len()).expect("a segment is short");
        connection.asked = 0;
        self.batches -= 1;
        self.idle.push(number(client));
        let measured = &mut self.stretch.measured;
        let is_get = ask.kind() == Kind::Get;
        measured.gets += u64::from(is_get);
        measured.hits += u64::from(is_get && !is_miss);
        measured.replies += 1;
        self.run.count(connection.due_at, self.now, 1, measured);
        true
    }

    /// Handles a segment.
    #[inline(never)]
    fn take(&mut self, incoming: &Incoming<'_>) -> anyhow::Result<()> {
        let (client, flags) = (incoming.client, incoming.flags);
        let Some(connection) = self.connections.get_mut(client) else {
            return Ok(());
        };
        if connection.stage != Stage::Open || flags.has(Flags::SYN.and(Flags::RST)) {
            return self.take_opening(incoming);
        }
        ensure!(
            !flags.has(Flags::FIN),
            "the server has closed connection {client}"
        );
        let window = u32::from(incoming.window) << self.shift;
        connection.acknowledge(incoming.ack, window);
        if let Some(clock) = incoming.clock
            && incoming.seq <= connection.told
        {
            connection.echo = clock;
        }
        if !incoming.payload.is_empty() {
            self.take_payload(incoming)?;
        }
        let connection = &mut self.connections[client];
        if connection.asked > 0 && connection.is_done() {
            (connection.asked, connection.answered) = (0, 0);
            self.batches -= 1;
            self.idle.push(number(client));
        } else if connection.sendable() > 0 {
            self.to_send.push(number(client));
        }
        Ok(())
    }

    #[inline]
    fn take_payload(&mut self, incoming: &Incoming<'_>) -> anyhow::Result<()> {
        let client = incoming.client;
        let connection = &mut self.connections[client];
        let seq = incoming.seq;
        let known = connection.theirs.since(seq) as usize;
        if seq > connection.theirs || known >= incoming.payload.len() {
            // A gap before it, or a duplicate: the server must be told.
            self.stretch.retransmitted += 1;
            self.to_acknowledge.push((number(client), true));
            return Ok(());
        }
        let bytes = &incoming.payload[known..];
        if connection.told == connection.theirs {
            connection.heard_at = self.now;
        }
        connection.theirs += u32::try_from(bytes.len()).expect("a segment is short");
        if connection.theirs.since(connection.told) >= 2 * self.segment_len {
            self.to_acknowledge.push((number(client), false));
        }
        self.take_replies(client, bytes)
    }

    /// Compares what has come with the replies that must come.
    #[inline]
    fn take_replies(&mut self, client: usize, mut bytes: &[u8]) -> anyhow::Result<()> {
        let connection = &mut self.connections[client];
        let (due_at, before) = (connection.due_at, connection.answered);
        while !bytes.is_empty() {
            ensure!(
                connection.answered < connection.asked,
                "connection {client} got a reply without a request"
            );
            let place = client * self.depth + usize::from(connection.answered);
            let ask = self.asks[place];
            let progress = &mut connection.progress;
            match self.dialogue.compare(ask, progress, bytes)? {
                Step::Part => break,
                Step::Reply(len, is_miss) => {
                    bytes = &bytes[len..];
                    connection.answered += 1;
                    let is_get = ask.kind() == Kind::Get;
                    self.stretch.measured.gets += u64::from(is_get);
                    self.stretch.measured.hits += u64::from(is_get && !is_miss);
                }
            }
        }
        let answered = connection.answered - before;
        if answered > 0 {
            let measured = &mut self.stretch.measured;
            self.run
                .count(due_at, self.now, u64::from(answered), measured);
            measured.replies += u64::from(answered);
        }
        Ok(())
    }

    /// Begins the batches that are due; returns whether there were any.
    #[inline]
    fn begin_batches(&mut self, nic: &mut impl Nic) -> bool {
        let mut has_begun = false;
        let mut picked = std::mem::take(&mut self.picked);
        loop {
            picked.clear();
            let mut seen = 0;
            while picked.len() < GO
                && let Some((client, due)) = self.pick()
            {
                seen ^= self.connections[client as usize].echo;
                picked.push((client, due));
            }
            black_box(seen);
            for &(client, due) in &picked {
                self.begin_batch(nic, client as usize, due);
            }
            has_begun |= !picked.is_empty();
            if picked.len() < GO {
                break;
            }
        }
        self.picked = picked;
        has_begun
    }

    /// One of the idle connections, where a batch is due, and since when.
    #[inline]
    fn pick(&mut self) -> Option<(u32, u64)> {
        if self.batches == self.batches_max || self.idle.is_empty() {
            return None;
        }
        let due = self.pace.take(self.now)?;
        let idle = u32::try_from(self.idle.len()).expect("at most 2^20 connections");
        let place = below(idle, &mut self.dice) as usize;
        self.batches += 1;
        Some((self.idle.swap_remove(place), due))
    }

    #[inline]
    fn begin_batch(&mut self, nic: &mut impl Nic, client: usize, due: u64) {
        if self.is_long {
            return self.begin_long_batch(client, due);
        }
        self.batch.clear();
        let mut asked = 0;
        for place in &mut self.asks[client * self.depth..][..self.depth] {
            let Some(ask) = self.dialogue.draw() else {
                break;
            };
            *place = ask;
            self.dialogue.append(ask, &mut self.batch);
            asked += 1;
        }
        let connection = &mut self.connections[client];
        connection.due_at = due;
        connection.asked = asked;
        let len = u32::try_from(self.batch.len()).expect("a batch is short");
        connection.end += len;
        if connection.window < len {
            return self.to_send.push(number(client));
        }
        // Nothing else is under way, so that all of it leaves at once.
        let numbers = self.numbers(client);
        let flags = Flags::ACK.and(Flags::PSH);
        if !self.wire.send(nic, &numbers, flags, &self.batch) {
            self.to_send.push(number(client));
            return;
        }
        let connection = &mut self.connections[client];
        connection.next = connection.end;
        connection.sent_at = self.now;
        connection.told = connection.theirs;
    }

    /// Begins a batch that may be longer than a segment. It is sent when those are that were begun
    /// before: were it to take the card's room as it comes, they might wait for ever.
    #[inline(never)]
    fn begin_long_batch(&mut self, client: usize, due: u64) {
        let (mut asked, mut len) = (0, 0);
        for place in &mut self.asks[client * self.depth..][..self.depth] {
            let Some(ask) = self.dialogue.draw() else {
                break;
            };
            *place = ask;
            len += self.dialogue.request_len(ask);
            asked += 1;
        }
        let connection = &mut self.connections[client];
        connection.due_at = due;
        connection.sent_at = self.now;
        connection.asked = asked;
        connection.end += u32::try_from(len).expect("a batch is shorter than a window");
        self.to_send.push(number(client));
    }

    /// Sends more of what connections have begun to send, in the order in which they are listed, as
    /// far as the card takes it; whether there was any.
    #[inline]
    fn send_listed(&mut self, nic: &mut impl Nic) -> bool {
        let mut done = 0;
        while let Some(&client) = self.to_send.get(done) {
            let client = client as usize;
            let is_all = match self.connections[client].stage {
                Stage::Opening => self.send_syn(nic, client),
                Stage::New | Stage::Open => self.send_batch(nic, client),
            };
            if !is_all {
                break;
            }
            done += 1;
        }
        self.to_send.drain(..done);
        done > 0
    }

    /// Sends of the batch what the windows take and was not sent; false where the card takes no more.
    #[inline(never)]
    fn send_batch(&mut self, nic: &mut impl Nic, client: usize) -> bool {
        loop {
            let connection = &self.connections[client];
            let len = connection.sendable().min(self.segment_len);
            let is_last = connection.next + len == connection.end;
            let is_alone = connection.acknowledged == connection.next;
            // A segment that the windows cut short waits, where an acknowledgment is still to come.
            if len == 0 || len < self.segment_len && !is_last && !is_alone {
                return true;
            }
            if nic.slot().is_none() {
                return false;
            }
            self.make_segment(client, len as usize);
            let numbers = self.numbers(client);
            let flags = Flags::ACK.and(Flags::PSH);
            if !self.wire.send(nic, &numbers, flags, &self.batch) {
                return false;
            }
            let connection = &mut self.connections[client];
            connection.next += len;
            connection.sent_at = self.now;
            connection.told = connection.theirs;
        }
    }

    /// Makes so many bytes of a batch that are next to be sent.
    fn make_segment(&mut self, client: usize, len: usize) {
        let connection = &self.connections[client];
        let asks = &self.asks[client * self.depth..][..usize::from(connection.asked)];
        let mut unsent = connection.end.since(connection.next) as usize;
        let mut rest: usize = asks.iter().map(|ask| self.dialogue.request_len(*ask)).sum();
        self.batch.clear();
        for &ask in asks {
            let request_len = self.dialogue.request_len(ask);
            let at = rest - unsent;
            if at < request_len {
                let to = request_len.min(at + len - self.batch.len());
                self.dialogue.append_part(ask, at..to, &mut self.batch);
                unsent -= to - at;
            }
            rest -= request_len;
            if self.batch.len() == len {
                break;
            }
        }
    }

    /// Acknowledges what must not wait, where no request has done so. What finds no room in the
    /// card's queue is acknowledged when it has waited long, or comes again.
    #[inline]
    fn acknowledge_listed(&mut self, nic: &mut impl Nic) {
        while let Some((client, is_a_must)) = self.to_acknowledge.pop() {
            let client = client as usize;
            let connection = &self.connections[client];
            if !is_a_must && connection.told == connection.theirs {
                continue;
            }
            if self.wire.send(nic, &self.numbers(client), Flags::ACK, &[]) {
                let connection = &mut self.connections[client];
                connection.told = connection.theirs;
            }
        }
    }

    /// Looks at the timers of the connections that are due for it.
    #[inline]
    fn sweep(&mut self) -> anyhow::Result<()> {
        let count = self.begun;
        let passed = (self.now - self.swept_at).min(SWEEP);
        let due = passed * count as u64 / SWEEP;
        if due == 0 {
            return Ok(());
        }
        self.swept_at = self.now;
        for _ in 0..due {
            self.swept = (self.swept + 1) % count;
            self.look_at_timers(self.swept)?;
        }
        Ok(())
    }

    #[inline]
    fn look_at_timers(&mut self, client: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[client];
        let is_sent =
            connection.stage == Stage::Opening || connection.acknowledged < connection.end;
        let timeout = TIMEOUT << connection.timeouts.min(TIMEOUTS_MAX);
        if is_sent && self.now.saturating_sub(connection.sent_at) > timeout {
            ensure!(
                connection.timeouts < TIMEOUTS_MAX,
                "the server does not answer connection {client}"
            );
            connection.timeouts += 1;
            connection.next = connection.acknowledged;
            connection.congestion = self.segment_len;
            connection.sent_at = self.now;
            // A window that stays closed is tried with a byte (RFC 9293, section 3.8.6.1).
            connection.window = connection.window.max(1);
            self.stretch.retransmitted += 1;
            self.to_send.push(number(client));
        } else if connection.stage == Stage::Open
            && connection.told < connection.theirs
            && self.now.saturating_sub(connection.heard_at) > ACK_DELAY
        {
            self.to_acknowledge.push((number(client), false));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn timestamps(&self, connection: &Connection) -> Timestamps {
        #[expect(clippy::cast_possible_truncation, reason = "the clock wraps around")]
        let value = (self.now / TICK) as u32;
        Timestamps {
            value,
            echo: connection.echo,
        }
    }
}

#[inline]
pub(super) fn number(client: usize) -> u32 {
    u32::try_from(client).expect("at most 2^20 connections")
}
