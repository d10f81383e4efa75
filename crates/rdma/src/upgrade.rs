//! How a connection over TCP comes to have one over RDMA beside it.
//!
//! The client sends `rdma`, and the server answers with a line: where it listens, what both have to keep to, and a token
//! that is good once and for a short time. With that and with the memory that it lends the client asks for a connection.

use std::fmt::Write;
use std::net::SocketAddr;

use crate::limits::Limits;
use crate::server::RemoteMemory;

/// Bytes of a token.
pub const TOKEN_LEN: usize = 16;

/// Bytes of a [`Greeting`]: no more than InfiniBand has room for beside a request for a connection.
pub const GREETING_LEN: usize = TOKEN_LEN + 24;

/// The request for an offer, as it is sent over TCP.
pub const REQUEST: &[u8] = b"rdma\r\n";

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// libfabric's name of the network.
    pub provider: String,
    /// Where the server listens.
    pub address: SocketAddr,
    /// What the client proves itself by.
    pub token: [u8; TOKEN_LEN],
    /// What both keep to.
    pub limits: Limits,
}

/// The word at the beginning of the line, and the version of all that follows from it.
const BEGINNING: &str = "RDMA version=1 ";

impl Offer {
    /// The line, without its end.
    pub fn encode(&self) -> String {
        let mut line = format!(
            "{BEGINNING}provider={} address={} token=",
            self.provider, self.address
        );
        for byte in self.token {
            // Writing to a string does not fail.
            let _ = write!(line, "{byte:02x}");
        }
        let it = &self.limits;
        let _ = write!(
            line,
            " credits={} copy={} part={} read={} reads={} writes={} value={} write={} ordered={}",
            it.credits,
            it.copy_max,
            it.part_len,
            it.read_len,
            it.reads_max,
            it.writes_max,
            it.value_len_max,
            u8::from(it.may_write),
            u8::from(it.is_ordered),
        );
        line
    }

    /// What a line says. `None` if it is no offer, or one that cannot be kept to. Names that are not known are passed
    /// over.
    pub fn decode(line: &str) -> Option<Offer> {
        let rest = line.strip_prefix(BEGINNING)?;
        let word = |name: &str| {
            rest.split(' ')
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let number = |name: &str, least: usize, most: usize| {
            let number = word(name)?.parse().ok()?;
            (least..=most).contains(&number).then_some(number)
        };
        let provider = word("provider")?;
        let is_name = provider
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_;-".contains(&byte));
        let hex = word("token")?;
        if hex.len() != 2 * TOKEN_LEN || !hex.is_ascii() || !is_name {
            return None;
        }
        let mut token = [0; TOKEN_LEN];
        for (at, byte) in token.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Offer {
            provider: provider.to_owned(),
            address: word("address")?.parse().ok()?,
            token,
            limits: Limits {
                credits: number("credits", 2, 1 << 10)?,
                copy_max: number("copy", 0, 1 << 20)?,
                part_len: number("part", 512, 1 << 24)?,
                read_len: number("read", 512, 1 << 24)?,
                reads_max: number("reads", 1, 1 << 10)?,
                writes_max: number("writes", 1, 1 << 10)?,
                value_len_max: number("value", 1, 1 << 30)?,
                may_write: number("write", 0, 1)? == 1,
                is_ordered: number("ordered", 0, 1)? == 1,
            },
        })
    }
}

/// What a client says when it asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The token of its offer.
    pub token: [u8; TOKEN_LEN],
    /// What it lends.
    pub memory: RemoteMemory,
}

impl Greeting {
    /// As it is sent.
    pub fn encode(&self) -> [u8; GREETING_LEN] {
        let mut bytes = [0; GREETING_LEN];
        bytes[..TOKEN_LEN].copy_from_slice(&self.token);
        let words = [self.memory.key, self.memory.address, self.memory.len];
        for (place, word) in bytes[TOKEN_LEN..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What bytes say; networks may have added zeros behind them. `None` if they are too few, or the memory is none.
    pub fn decode(bytes: &[u8]) -> Option<Greeting> {
        let (token, rest) = bytes
            .get(..GREETING_LEN)?
            .split_first_chunk::<TOKEN_LEN>()?;
        let mut words = rest.chunks_exact(8).map(|word| {
            let word: &[u8; 8] = word.first_chunk().expect("eight bytes");
            u64::from_le_bytes(*word)
        });
        let memory = RemoteMemory {
            key: words.next()?,
            address: words.next()?,
            len: words.next()?,
        };
        memory.address.checked_add(memory.len)?;
        Some(Greeting {
            token: *token,
            memory,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offer() -> Offer {
        Offer {
            provider: "tcp".to_owned(),
            address: "[::1]:4711".parse().expect("an address"),
            token: std::array::from_fn(|at| u8::try_from(at * 17).expect("a byte")),
            limits: Limits::default(),
        }
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        let line = offer().encode();
        assert_eq!(Offer::decode(&line), Some(offer()));
        assert_eq!(Offer::decode(&format!("{line} later=5")), Some(offer()));
        for (right, wrong) in [
            ("credits=32", "credits=0"),
            ("part=4096", "part=99999999999"),
            ("token=00", "token=0g"),
            ("provider=tcp", "provider=a/b"),
            ("version=1", "version=2"),
            ("address=[::1]:4711", "address=somewhere"),
        ] {
            assert!(line.contains(right), "{right}");
            assert_eq!(Offer::decode(&line.replace(right, wrong)), None, "{wrong}");
        }
        assert_eq!(Offer::decode("ERROR"), None);
    }

    proptest! {
        #[test]
        fn a_greeting_is_read_as_it_was_written(token: [u8; TOKEN_LEN], key: u64, address in 0..1u64 << 63,
            len in 0..1u64 << 40, zeros in 0..20usize) {
            let memory = RemoteMemory { key, address, len };
            let greeting = Greeting { token, memory };
            let mut bytes = greeting.encode().to_vec();
            bytes.resize(bytes.len() + zeros, 0);
            prop_assert_eq!(Greeting::decode(&bytes), Some(greeting));
            prop_assert_eq!(Greeting::decode(&bytes[..GREETING_LEN - 1]), None);
        }
    }

    #[test]
    fn memory_beyond_all_addresses_is_none() {
        let memory = RemoteMemory {
            key: 1,
            address: u64::MAX - 5,
            len: 6,
        };
        let greeting = Greeting {
            token: [0; TOKEN_LEN],
            memory,
        };
        assert_eq!(Greeting::decode(&greeting.encode()), None);
    }
}
