//! A burst of frames, of which nearly all are ordinary segments of connections under way.
//!
//! All frames of a burst are looked at before the first is taken in. With a hundred thousand
//! connections most of the time goes into waiting for memory; so what is read of the table, of
//! connections and of buffers is then read for all frames, in loops so short that memory fetches many
//! of them at a time.

use std::hint::black_box;

use super::Stack;
use crate::connection::Signs;
use crate::nic::{BURST_LEN, Frame, Nic};
use crate::table::Hash;
use crate::wire::glance::Glance;

/// Connections that stay in the caches anyway: for so few nothing is fetched ahead.
const FEW: usize = 256;

/// What a frame looks like.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    glance: Glance,
    hash: Hash,
}

impl Stack {
    /// Takes the frames of a burst in, in their order.
    pub(super) fn take_burst(&mut self, nic: &impl Nic, count: usize) {
        if self.connections.len() <= FEW {
            for number in 0..count {
                let sight = self.look_at(nic.frame(number));
                self.take_seen(nic, number, sight.as_ref());
            }
            return;
        }
        let mut sights = std::mem::take(&mut self.sights);
        sights.clear();
        sights.extend((0..count).map(|number| self.look_at(nic.frame(number))));
        self.fetch(&sights);
        for (number, sight) in sights.iter().enumerate() {
            self.take_seen(nic, number, sight.as_ref());
        }
        self.sights = sights;
    }

    /// Takes in a frame that was looked at.
    #[inline]
    fn take_seen(&mut self, nic: &impl Nic, number: usize, sight: Option<&Sight>) {
        let is_taken = sight.is_some_and(|sight| self.take_ordinary(number, sight));
        if !is_taken {
            self.take_frame(nic, number);
        }
    }

    #[inline]
    fn look_at(&self, frame: Frame<'_>) -> Option<Sight> {
        let is_verified = frame.is_verified || self.shared.config.trusts_link;
        let glance = Glance::at(frame.bytes, self.shared.features.mac, is_verified)?;
        let hash = self.table.hash(&glance.tuple);
        Some(Sight { glance, hash })
    }

    /// Has memory fetch what the segments of a burst need.
    fn fetch(&self, sights: &[Option<Sight>]) {
        // The connection that is most likely meant.
        let mut guesses = [0; BURST_LEN];
        let guesses = &mut guesses[..sights.len()];
        for (guess, sight) in guesses.iter_mut().zip(sights) {
            let number = sight.and_then(|sight| self.table.guess(sight.hash));
            *guess = number.unwrap_or(u32::MAX);
        }
        for &guess in &*guesses {
            self.fetch_connection(guess);
        }
        for &guess in &*guesses {
            self.fetch_buffer(guess);
        }
    }

    /// Has memory fetch what of a connection every segment needs.
    #[inline]
    fn fetch_connection(&self, index: u32) {
        if let Some(connection) = self.connections.get(index as usize) {
            connection.touch();
        }
    }

    /// Has memory fetch the buffer that a segment probably acknowledges.
    #[inline]
    fn fetch_buffer(&self, index: u32) {
        if let Some(connection) = self.connections.get(index as usize)
            && !connection.send.head.is_none()
        {
            black_box(self.shared.buffers[connection.send.head].len());
        }
    }

    /// Takes an ordinary segment in. False where it is not one; nothing has changed then.
    #[inline]
    fn take_ordinary(&mut self, number: usize, sight: &Sight) -> bool {
        let glance = &sight.glance;
        // A frame before it may have changed what was guessed.
        let Some(index) = self.find(&glance.tuple, sight.hash) else {
            return false;
        };
        let connection = &mut self.connections[index as usize];
        let frame = u16::try_from(number).expect("within a burst");
        let had_fresh = connection.has_fresh();
        if connection.signs.has(Signs::WANTS_ROOM)
            || !connection.arrives_ordinary(&mut self.shared, frame, glance)
        {
            return false;
        }
        let counters = &mut self.shared.counters;
        counters.frames_received += 1;
        counters.segments_received += 1;
        if glance.len > 0 {
            self.list_ready(index);
            if !had_fresh {
                self.fresh.push(index);
            }
        }
        self.list_to_emit(index);
        true
    }
}
