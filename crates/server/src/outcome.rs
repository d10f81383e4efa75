//! What executing an operation came to.

/// What executing an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, the next one may follow.
    Done,
    /// It is done, but the client must read before the next one may follow.
    Blocked,
    /// It has not been done for want of memory, and is to be tried again in a later turn.
    Wait,
    /// It has not been done: it is to be executed again when what it needs of flash has been read.
    WaitForFlash,
    /// It is done and was the last; the connection closes when the replies have been sent.
    CloseWhenSent,
    /// The connection is broken, or must be closed without an answer.
    Close,
    /// As [`Outcome::Close`], because there was no memory to keep replies in.
    CloseForMemory,
    /// As [`Outcome::Close`], because the machine has lost bytes that were promised to the client.
    CloseForLoss,
}
