//! Replies, recognized from their first byte and the size that they must have.

use super::requests::Kind;

/// The size of one `VALUE` block; all keys of a load have one size, and all values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    key_size: usize,
    value_size: usize,
}

impl Shape {
    /// Blocks of keys and values of these sizes, client flags 0.
    pub(crate) fn new(key_size: usize, value_size: usize) -> Shape {
        Shape {
            key_size,
            value_size,
        }
    }

    /// Bytes of `VALUE <key> 0 <bytes>\r\n<value>\r\n`.
    pub(crate) fn block(self) -> usize {
        let digits = self.value_size.checked_ilog10().unwrap_or(0) as usize + 1;
        b"VALUE ".len() + self.key_size + b" 0 ".len() + digits + 2 + self.value_size + 2
    }

    /// What a server answers to a get of `keys` keys that are all there, as far as sizes go: the
    /// keys are made up.
    pub(crate) fn hit(self, keys: usize) -> Vec<u8> {
        let block = format!(
            "VALUE {} 0 {}\r\n{}\r\n",
            "k".repeat(self.key_size),
            self.value_size,
            "v".repeat(self.value_size)
        );
        let mut reply = block.repeat(keys).into_bytes();
        reply.extend_from_slice(b"END\r\n");
        reply
    }

    /// Tells what `bytes` begin with, as an answer to a request of this kind.
    pub(crate) fn next(self, kind: Kind, bytes: &[u8]) -> Result<Step, Unexpected> {
        match kind {
            Kind::Get => self.next_of_get(bytes),
            Kind::Set => next_of_set(bytes),
        }
    }

    fn next_of_get(self, bytes: &[u8]) -> Result<Step, Unexpected> {
        match bytes.first() {
            None => Ok(Step::Incomplete),
            Some(b'V') => {
                let block = self.block();
                let end_of_value = block - 2 - self.value_size - 2;
                match bytes.get(..block) {
                    None => Ok(Step::Incomplete),
                    Some(block)
                        if block.ends_with(b"\r\n")
                            && &block[end_of_value..end_of_value + 2] == b"\r\n" =>
                    {
                        Ok(Step::Block)
                    }
                    Some(_) => Err(Unexpected),
                }
            }
            Some(_) => match bytes.get(..5) {
                Some(b"END\r\n") => Ok(Step::Reply {
                    bytes: 5,
                    refused: false,
                }),
                Some(_) => Err(Unexpected),
                None => Ok(Step::Incomplete),
            },
        }
    }
}

fn next_of_set(bytes: &[u8]) -> Result<Step, Unexpected> {
    if bytes.starts_with(b"STORED\r\n") {
        return Ok(Step::Reply {
            bytes: 8,
            refused: false,
        });
    }
    match memchr::memchr(b'\n', bytes) {
        Some(end) if bytes.starts_with(b"SERVER_ERROR ") => Ok(Step::Reply {
            bytes: end + 1,
            refused: true,
        }),
        Some(_) => Err(Unexpected),
        None => Ok(Step::Incomplete),
    }
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More bytes are needed.
    Incomplete,
    /// One value; [`Shape::block`] bytes.
    Block,
    /// The end of a reply.
    Reply {
        /// Bytes up to the end.
        bytes: usize,
        /// The server was out of memory or the like.
        refused: bool,
    },
}

/// The server answered something that the request cannot be answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unexpected;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        key_size: 3,
        value_size: 10,
    };

    #[test]
    fn a_hit_is_blocks_and_an_end() {
        let reply = b"VALUE abc 0 10\r\n0123456789\r\nEND\r\n";
        assert_eq!(SHAPE.block(), reply.len() - 5);
        assert_eq!(SHAPE.next(Kind::Get, reply), Ok(Step::Block));
        let end = &reply[SHAPE.block()..];
        assert_eq!(
            SHAPE.next(Kind::Get, end),
            Ok(Step::Reply {
                bytes: 5,
                refused: false
            })
        );
        assert_eq!(SHAPE.hit(1).len(), reply.len());
        assert_eq!(SHAPE.next(Kind::Get, &SHAPE.hit(2)), Ok(Step::Block));
    }

    #[test]
    fn every_beginning_is_incomplete() {
        let reply = b"VALUE abc 0 10\r\n0123456789\r\n";
        for end in 0..reply.len() {
            assert_eq!(SHAPE.next(Kind::Get, &reply[..end]), Ok(Step::Incomplete));
        }
        for end in 0..8 {
            assert_eq!(
                SHAPE.next(Kind::Set, &b"STORED\r\n"[..end]),
                Ok(Step::Incomplete)
            );
        }
    }

    #[test]
    fn replies_out_of_step_are_noticed() {
        for wrong in [
            &b"VALUE abc 0 9\r\n012345678\r\nEND\r\n"[..],
            b"ERROR\r\n",
            b"STORED\r\n",
        ] {
            assert_eq!(SHAPE.next(Kind::Get, wrong), Err(Unexpected));
        }
        assert_eq!(SHAPE.next(Kind::Set, b"END\r\n"), Err(Unexpected));
        let full = b"SERVER_ERROR out of memory storing object\r\n";
        assert_eq!(
            SHAPE.next(Kind::Set, full),
            Ok(Step::Reply {
                bytes: full.len(),
                refused: true
            })
        );
    }

    #[test]
    fn an_empty_value_has_one_digit() {
        assert_eq!(Shape::new(1, 0).block(), b"VALUE k 0 0\r\n\r\n".len());
    }
}
