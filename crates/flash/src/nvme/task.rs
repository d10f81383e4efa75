//! Admin commands: what a controller is asked by them.

use super::command::{SubmissionEntry, opcode};

/// What a queue is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueSpec {
    pub(super) submission: u64,
    pub(super) completion: u64,
    pub(super) entries: u16,
    /// Interrupts, where it has some.
    pub(super) vector: Option<u16>,
}

/// An admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Identify { namespace: u32, what: u32 },
    SetQueues,
    CreateCompletion(u16),
    CreateSubmission(u16),
    DeleteSubmission(u16),
    DeleteCompletion(u16),
    Abort { queue: u16, id: u16 },
}

impl Task {
    /// The command, but for its number. `specs` are the queues by number, `answer` is where identify writes to, and
    /// `queues` is how many queues are asked for. Nothing where the queue is not wanted any more.
    pub(super) fn entry(
        self,
        specs: &[Option<QueueSpec>],
        answer: u64,
        queues: usize,
    ) -> Option<SubmissionEntry> {
        let spec_of = |queue: u16| specs.get(usize::from(queue)).copied().flatten();
        let mut entry = SubmissionEntry::default();
        let last = |spec: QueueSpec| u32::from(spec.entries - 1) << 16;
        match self {
            Task::Identify { namespace, what } => {
                entry.opcode = opcode::IDENTIFY;
                entry.namespace = namespace;
                entry.prp1 = answer;
                entry.dwords[0] = what;
            }
            Task::SetQueues => {
                entry.opcode = opcode::SET_FEATURES;
                let count = u32::try_from(queues.saturating_sub(1)).unwrap_or(0);
                entry.dwords = [7, count | count << 16, 0, 0, 0, 0];
            }
            Task::CreateCompletion(queue) => {
                let spec = spec_of(queue)?;
                entry.opcode = opcode::CREATE_COMPLETION_QUEUE;
                entry.prp1 = spec.completion;
                // Contiguous; and interrupts.
                let interrupts = spec
                    .vector
                    .map_or(0, |vector| 1 << 1 | u32::from(vector) << 16);
                entry.dwords = [u32::from(queue) | last(spec), 1 | interrupts, 0, 0, 0, 0];
            }
            Task::CreateSubmission(queue) => {
                let spec = spec_of(queue)?;
                entry.opcode = opcode::CREATE_SUBMISSION_QUEUE;
                entry.prp1 = spec.submission;
                let completion = u32::from(queue) << 16;
                entry.dwords = [u32::from(queue) | last(spec), 1 | completion, 0, 0, 0, 0];
            }
            Task::DeleteSubmission(queue) => {
                entry.opcode = opcode::DELETE_SUBMISSION_QUEUE;
                entry.dwords[0] = u32::from(queue);
            }
            Task::DeleteCompletion(queue) => {
                entry.opcode = opcode::DELETE_COMPLETION_QUEUE;
                entry.dwords[0] = u32::from(queue);
            }
            Task::Abort { queue, id } => {
                entry.opcode = opcode::ABORT;
                entry.dwords[0] = u32::from(queue) | u32::from(id) << 16;
            }
        }
        Some(entry)
    }
}
