//! The messages of the control channel, byte by byte.
//!
//! ```text
//! each has 128 bytes, numbers in the machine's own order, without gaps; what is not drawn is zero
//!
//! 0      2
//! │ 1    │                                                                        acknowledge
//! │ 2    │ name 32 │ version min 2, max 2 │ region max 2 │ to client max 2 │
//! │      │                                  to server max 2 │ log2 of a ring's length max 1 │  hello
//! │ 3    │ version 2 │ id 4 │ mode 1 │ secret 24 │ name 32 │                          init
//! │ 4    │ number 2 │ bytes 8 │                                                      region
//! │ 5    │ flags 2 │ number 2 │ region 2 │ offset 4 │ log2 of its length 1 │ private header 2 │  ring
//! │ 6, 7 │ name of the interface 32 │                                          connect, connected
//! │ 8    │ code 4 │ why 96 │                                                         disconnect
//! ```
//! A region's message carries the descriptor of its memory, a ring's that of its event.

/// Bytes of each message.
pub(super) const MESSAGE_LEN: usize = 128;

/// Bytes of a secret.
pub(super) const SECRET_LEN: usize = 24;

/// The only version that is supported: 2.0.
const VERSION: u16 = 0x0200;

/// Frames with Ethernet headers.
const MODE_ETHERNET: u8 = 0;

/// The flag of a ring for frames to the server.
const TO_SERVER: u16 = 1;

const NAME_LEN: usize = 32;
const REASON_LEN: usize = 96;

/// What the two ends tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The client's last message has been handled.
    Acknowledge,
    /// The server's first message.
    Hello(Hello),
    /// The client's first message.
    Init(Init),
    /// Memory of the client. A descriptor comes with it.
    AddRegion {
        /// Regions are numbered from 0.
        number: u16,
        /// Its length in bytes.
        len: u64,
    },
    /// A ring in one of the regions. A descriptor comes with it.
    AddRing(AddRing),
    /// The client has described everything.
    Connect,
    /// The server is ready.
    Connected,
    /// The end, with the reason.
    Disconnect(String),
}

/// What a server supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// What the server calls itself.
    pub(super) name: String,
    /// Whether it supports the version that is supported here.
    pub(super) is_known_version: bool,
    /// The highest number that a region may have.
    pub(super) region_max: u16,
    /// The highest number that a ring for frames to the client may have.
    pub(super) to_client_max: u16,
    /// The highest number that a ring for frames to the server may have.
    pub(super) to_server_max: u16,
    /// The binary logarithm of the entries of the longest ring.
    pub(super) log2_len_max: u8,
}

/// Which of the server's interfaces a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Init {
    /// What the client calls itself.
    pub(super) name: String,
    /// Whether it supports the version that is supported here.
    pub(super) is_known_version: bool,
    /// The interface's number on this socket.
    pub(super) id: u32,
    /// Whether its frames are to have Ethernet headers.
    pub(super) is_ethernet: bool,
    /// Its secret, padded with zeros.
    pub(super) secret: [u8; SECRET_LEN],
}

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddRing {
    /// Whether its frames are for the server.
    pub(super) to_server: bool,
    /// The rings of each direction are numbered from 0.
    pub(super) number: u16,
    /// The region.
    pub(super) region: u16,
    /// Bytes from the region's beginning.
    pub(super) offset: u32,
    /// The binary logarithm of its entries.
    pub(super) log2_len: u8,
}

impl Message {
    /// The message as bytes.
    pub(super) fn encode(&self) -> [u8; MESSAGE_LEN] {
        let mut out = MessageWriter {
            bytes: [0; MESSAGE_LEN],
            at: 0,
        };
        match self {
            Message::Acknowledge => out.number(1_u16.to_ne_bytes()),
            Message::Hello(hello) => {
                out.number(2_u16.to_ne_bytes());
                out.text::<NAME_LEN>(&hello.name);
                out.number(VERSION.to_ne_bytes());
                out.number(VERSION.to_ne_bytes());
                out.number(hello.region_max.to_ne_bytes());
                out.number(hello.to_client_max.to_ne_bytes());
                out.number(hello.to_server_max.to_ne_bytes());
                out.number([hello.log2_len_max]);
            }
            Message::Init(init) => {
                out.number(3_u16.to_ne_bytes());
                out.number(VERSION.to_ne_bytes());
                out.number(init.id.to_ne_bytes());
                out.number([MODE_ETHERNET]);
                out.number(init.secret);
                out.text::<NAME_LEN>(&init.name);
            }
            Message::AddRegion { number, len } => {
                out.number(4_u16.to_ne_bytes());
                out.number(number.to_ne_bytes());
                out.number(len.to_ne_bytes());
            }
            Message::AddRing(ring) => {
                out.number(5_u16.to_ne_bytes());
                out.number((u16::from(ring.to_server) * TO_SERVER).to_ne_bytes());
                out.number(ring.number.to_ne_bytes());
                out.number(ring.region.to_ne_bytes());
                out.number(ring.offset.to_ne_bytes());
                out.number([ring.log2_len]);
            }
            Message::Connect | Message::Connected => {
                let kind: u16 = if *self == Message::Connect { 6 } else { 7 };
                out.number(kind.to_ne_bytes());
                out.text::<NAME_LEN>("coua");
            }
            Message::Disconnect(why) => {
                out.number(8_u16.to_ne_bytes());
                out.number(0_u32.to_ne_bytes());
                out.text::<REASON_LEN>(why);
            }
        }
        out.bytes
    }

    /// The message that the bytes are; `None` if they are none.
    pub(super) fn decode(bytes: &[u8; MESSAGE_LEN]) -> Option<Message> {
        let mut from = Reader { bytes, at: 0 };
        Some(match from.u16() {
            1 => Message::Acknowledge,
            2 => {
                let name = from.text::<NAME_LEN>();
                let (oldest, newest) = (from.u16(), from.u16());
                Message::Hello(Hello {
                    name,
                    is_known_version: (oldest..=newest).contains(&VERSION),
                    region_max: from.u16(),
                    to_client_max: from.u16(),
                    to_server_max: from.u16(),
                    log2_len_max: from.number::<1>()[0],
                })
            }
            3 => {
                let is_known_version = from.u16() == VERSION;
                let id = from.u32();
                let is_ethernet = from.number::<1>()[0] == MODE_ETHERNET;
                Message::Init(Init {
                    is_known_version,
                    id,
                    is_ethernet,
                    secret: from.number(),
                    name: from.text::<NAME_LEN>(),
                })
            }
            4 => Message::AddRegion {
                number: from.u16(),
                len: u64::from_ne_bytes(from.number()),
            },
            5 => Message::AddRing(AddRing {
                to_server: from.u16() & TO_SERVER != 0,
                number: from.u16(),
                region: from.u16(),
                offset: from.u32(),
                log2_len: from.number::<1>()[0],
            }),
            6 => Message::Connect,
            7 => Message::Connected,
            8 => {
                from.u32();
                Message::Disconnect(from.text::<REASON_LEN>())
            }
            _ => return None,
        })
    }
}

struct MessageWriter {
    bytes: [u8; MESSAGE_LEN],
    at: usize,
}

impl MessageWriter {
    fn number<const LEN: usize>(&mut self, bytes: [u8; LEN]) {
        self.bytes[self.at..][..LEN].copy_from_slice(&bytes);
        self.at += LEN;
    }

    /// A text. It is at least one byte shorter than its field, and ends with a zero.
    fn text<const LEN: usize>(&mut self, text: &str) {
        let len = text.len().min(LEN - 1);
        self.bytes[self.at..][..len].copy_from_slice(&text.as_bytes()[..len]);
        self.at += LEN;
    }
}

struct Reader<'b> {
    bytes: &'b [u8; MESSAGE_LEN],
    at: usize,
}

impl Reader<'_> {
    fn number<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut number = [0; LEN];
        number.copy_from_slice(&self.bytes[self.at..][..LEN]);
        self.at += LEN;
        number
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.number())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.number())
    }

    /// A text from the peer, made safe for a log.
    fn text<const LEN: usize>(&mut self) -> String {
        let bytes: [u8; LEN] = self.number();
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(LEN);
        bytes[..len].escape_ascii().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let hello = Hello {
            name: "somebody".to_owned(),
            is_known_version: true,
            region_max: 15,
            to_client_max: 3,
            to_server_max: 7,
            log2_len_max: 14,
        };
        let init = Init {
            name: "coua".to_owned(),
            is_known_version: true,
            id: 70_000,
            is_ethernet: true,
            secret: *b"abcdefghijklmnopqrstuvwx",
        };
        let ring = AddRing {
            to_server: true,
            number: 2,
            region: 1,
            offset: 1 << 20,
            log2_len: 10,
        };
        for message in [
            Message::Acknowledge,
            Message::Hello(hello),
            Message::Init(init),
            Message::AddRegion {
                number: 3,
                len: 1 << 33,
            },
            Message::AddRing(ring),
            Message::Connect,
            Message::Connected,
            Message::Disconnect("gone".to_owned()),
        ] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    /// The offsets are those of the protocol, not only the same in both directions.
    #[test]
    fn fields_are_where_others_look_for_them() {
        let ring = AddRing {
            to_server: true,
            number: 0x0302,
            region: 0x0504,
            offset: 0x0908_0706,
            log2_len: 0x0a,
        };
        let bytes = Message::AddRing(ring).encode();
        assert_eq!(
            bytes[0..4],
            [5_u16.to_ne_bytes(), 1_u16.to_ne_bytes()].concat()
        );
        assert_eq!(bytes[8..12], 0x0908_0706_u32.to_ne_bytes());
        assert_eq!(bytes[12], 0x0a);
        let init = Message::Init(Init {
            name: "me".to_owned(),
            is_known_version: true,
            id: 9,
            is_ethernet: true,
            secret: [7; SECRET_LEN],
        });
        let bytes = init.encode();
        assert_eq!(bytes[4..8], 9_u32.to_ne_bytes());
        assert_eq!(bytes[9..33], [7; 24]);
        assert_eq!(&bytes[33..36], b"me\0");
    }

    #[test]
    fn what_is_none_is_no_message() {
        assert_eq!(Message::decode(&[0; MESSAGE_LEN]), None);
        assert_eq!(Message::decode(&[0xff; MESSAGE_LEN]), None);
        let mut bytes = Message::Disconnect(String::new()).encode();
        bytes[6..102].fill(b'\n');
        let Some(Message::Disconnect(why)) = Message::decode(&bytes) else {
            panic!("a disconnect");
        };
        assert!(why.starts_with("\\n"), "fit for a log");
    }
}
