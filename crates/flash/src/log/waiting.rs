//! A device whose requests are waited for: while a volume is opened, closed or recovered.

use crate::buffer::Buffer;
use crate::device::{
    BlockDevice, Command, Completion, Failure, OPENING_LEN, Queue, Request, Transfer,
};

use super::error::VolumeError;

/// Tells the time in nanoseconds, monotonically. Called while something is waited for, so it may sleep a little.
pub type Clock<'c> = &'c mut dyn FnMut() -> u64;

/// Requests under way.
const DEPTH: usize = 32;

/// A device, and memory for requests to it.
pub(super) struct Waiting {
    pub(super) name: String,
    pub(super) queue: Box<dyn Queue>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) done: Vec<Completion>,
    pub(super) sector_len: usize,
    pub(super) transfer_len_max: usize,
}

/// The longest transfer while a volume is opened.
const BUFFER_LEN: usize = OPENING_LEN / DEPTH;

impl Waiting {
    pub(super) fn new(device: &dyn BlockDevice) -> Result<Waiting, VolumeError> {
        let identity = device.identity();
        let queue = device.queue(DEPTH).map_err(|error| VolumeError::Queue {
            device: identity.name.clone(),
            error,
        })?;
        let mut buffers = Vec::with_capacity(DEPTH);
        let mut memory = device.opening_memory();
        for _ in 0..DEPTH {
            let rest = memory.split_off(BUFFER_LEN);
            buffers.push(std::mem::replace(&mut memory, rest));
        }
        Ok(Waiting {
            name: identity.name.clone(),
            queue,
            buffers,
            done: Vec::with_capacity(DEPTH),
            sector_len: identity.sector_len,
            transfer_len_max: identity.transfer_len_max.min(BUFFER_LEN),
        })
    }

    pub(super) fn error(&self, failure: Failure) -> VolumeError {
        VolumeError::Device {
            device: self.name.clone(),
            failure,
        }
    }

    fn take(&mut self) -> Result<Buffer, Failure> {
        self.buffers.pop().ok_or(Failure::Refused)
    }

    /// Runs one command; its buffer goes back among the others, and its content to `with` before.
    fn run_with<T>(
        &mut self,
        command: Command,
        clock: Clock<'_>,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Failure> {
        let token = 0;
        if let Err(rejected) = self.queue.push(Request { token, command }) {
            self.buffers.extend(rejected.request.command.into_buffer());
            return Err(match rejected.why {
                crate::Rejection::Removed => Failure::Removed,
                crate::Rejection::Full | crate::Rejection::Refused => Failure::Refused,
            });
        }
        self.queue.submit(clock());
        while self.queue.poll(clock(), &mut self.done) == 0 {
            std::thread::yield_now();
        }
        let done = self.done.pop().ok_or(Failure::Refused)?;
        let result = done
            .result
            .map(|()| with(done.buffer.as_deref().unwrap_or_default()));
        self.buffers.extend(done.buffer);
        result
    }

    /// Runs a command without a transfer.
    pub(super) fn run(&mut self, command: Command, clock: Clock<'_>) -> Result<(), Failure> {
        self.run_with(command, clock, |_| ())
    }

    /// Reads `len` bytes from `from` on, whole sectors and no more than a buffer holds.
    pub(super) fn read<T>(
        &mut self,
        from: u64,
        len: usize,
        clock: Clock<'_>,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Failure> {
        let buffer = self.take()?;
        let sector = from / self.sector_len as u64;
        let command = Command::Read(Transfer {
            sector,
            len,
            buffer,
        });
        self.run_with(command, clock, |bytes| with(&bytes[..len]))
    }

    pub(super) fn write(
        &mut self,
        from: u64,
        len: usize,
        clock: Clock<'_>,
        with: impl FnOnce(&mut [u8]),
    ) -> Result<(), Failure> {
        let mut buffer = self.take()?;
        with(&mut buffer[..len]);
        let sector = from / self.sector_len as u64;
        let command = Command::Write(Transfer {
            sector,
            len,
            buffer,
        });
        self.run(command, clock)
    }
}
