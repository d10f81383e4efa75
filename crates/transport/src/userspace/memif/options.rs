//! What is to be opened, and how.

use std::path::PathBuf;
use std::str::FromStr;

use coua_tcp::nic::Mac;

use super::Role;
use super::message::SECRET_LEN;
use super::ring::LOG2_LEN_MAX;

/// The least MTU of a link with IPv6 (RFC 8200), as `Features::mtu` requires.
const MTU_MIN: u16 = 1280;

/// The MTU for jumbo frames.
const MTU_MAX: u16 = 9216;

/// Entries of the shortest ring: one burst.
const RING_LEN_MIN: u16 = 64;

/// What is to be opened, and how. As text: `SOCKET[,role=client][,id=N][,secret=S][,mac=M][,mtu=N]
/// [,ring=N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The unix socket by which the ends find each other.
    pub socket: PathBuf,
    /// Which end this is.
    pub role: Role,
    /// Which of the interfaces at the server's socket.
    pub id: u32,
    /// The secret that a client has to know.
    pub secret: Option<String>,
    /// The MAC address of this end; if none is given, a random one.
    pub mac: Option<Mac>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// Entries of each ring, a power of two; the client's value counts.
    pub ring_len: u16,
    /// How many [`super::MemifNic`] to make, each with a ring for each direction if the peer has as
    /// many.
    pub queues: usize,
}

/// Why a text cannot be read as [`Options`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no socket.
    #[error("give a unix socket: memif:SOCKET[,OPTION=VALUE...]")]
    Socket,
    /// There is no such option.
    #[error("the options are role=, id=, secret=, mac=, mtu= and ring=")]
    Unknown,
    /// There is no such role.
    #[error("role= takes server or client")]
    Role,
    /// The id is not a number.
    #[error("id= takes a number from 0 to 4294967295")]
    Id,
    /// The secret is too long.
    #[error("secret= takes 1 to 24 bytes")]
    Secret,
    /// The MAC address is not that of a single station.
    #[error("mac= takes an address of one station, such as 02:00:00:00:00:01")]
    Mac,
    /// The MTU is too small or too large.
    #[error("mtu= takes a number from {MTU_MIN} to {MTU_MAX}")]
    Mtu,
    /// The length of the rings is not a power of two within the bounds.
    #[error("ring= takes a power of two from {RING_LEN_MIN} to {}", 1 << LOG2_LEN_MAX)]
    Ring,
}

impl Options {
    /// A server for one worker.
    pub fn new(socket: impl Into<PathBuf>) -> Options {
        Options {
            socket: socket.into(),
            role: Role::Server,
            id: 0,
            secret: None,
            mac: None,
            mtu: 1500,
            ring_len: 1024,
            queues: 1,
        }
    }

    /// The secret as it is sent.
    pub(super) fn secret_bytes(&self) -> [u8; SECRET_LEN] {
        let mut bytes = [0; SECRET_LEN];
        let secret = self.secret.as_deref().unwrap_or_default().as_bytes();
        let len = secret.len().min(SECRET_LEN);
        bytes[..len].copy_from_slice(&secret[..len]);
        bytes
    }
}

impl FromStr for Options {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Options, OptionError> {
        let mut words = text.split(',');
        let socket = words.next().filter(|socket| !socket.is_empty());
        let mut options = Options::new(socket.ok_or(OptionError::Socket)?);
        for word in words {
            let (name, value) = word.split_once('=').ok_or(OptionError::Unknown)?;
            match name {
                "role" => {
                    options.role = match value {
                        "server" => Role::Server,
                        "client" => Role::Client,
                        _ => return Err(OptionError::Role),
                    }
                }
                "id" => options.id = value.parse().map_err(|_| OptionError::Id)?,
                "secret" => {
                    let is_fit = (1..=SECRET_LEN).contains(&value.len());
                    let secret = is_fit.then(|| value.to_owned());
                    options.secret = Some(secret.ok_or(OptionError::Secret)?);
                }
                "mac" => options.mac = Some(mac(value).ok_or(OptionError::Mac)?),
                "mtu" => {
                    let mtu = value.parse().ok();
                    let mtu = mtu.filter(|mtu| (MTU_MIN..=MTU_MAX).contains(mtu));
                    options.mtu = mtu.ok_or(OptionError::Mtu)?;
                }
                "ring" => {
                    let len = value.parse().ok();
                    let len = len.filter(|len| is_ring_len(*len));
                    options.ring_len = len.ok_or(OptionError::Ring)?;
                }
                _ => return Err(OptionError::Unknown),
            }
        }
        Ok(options)
    }
}

/// Whether a ring may have so many entries.
fn is_ring_len(len: u16) -> bool {
    len.is_power_of_two() && (RING_LEN_MIN..=1 << LOG2_LEN_MAX).contains(&len)
}

/// The MAC address of a single station, in hexadecimal with colons.
fn mac(text: &str) -> Option<Mac> {
    let mut octets = [0; 6];
    let mut words = text.split(':');
    for octet in &mut octets {
        let word = words.next().filter(|word| word.len() == 2)?;
        *octet = u8::from_str_radix(word, 16).ok()?;
    }
    let mac = Mac(octets);
    let is_fit = words.next().is_none() && !mac.is_group() && mac != Mac::default();
    is_fit.then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_is_to_be_opened() {
        let read = |text: &str| text.parse::<Options>();
        assert_eq!(read("/run/link"), Ok(Options::new("/run/link")));
        let words = "l,role=client,id=7,secret=a,mac=02:00:00:00:00:0a,mtu=9000,ring=256";
        let expected = Options {
            role: Role::Client,
            id: 7,
            secret: Some("a".to_owned()),
            mac: Some(Mac([2, 0, 0, 0, 0, 10])),
            mtu: 9000,
            ring_len: 256,
            ..Options::new("l")
        };
        assert_eq!(read(words), Ok(expected));
        for (text, error) in [
            ("", OptionError::Socket),
            (",role=client", OptionError::Socket),
            ("l,role=master", OptionError::Role),
            ("l,id=-1", OptionError::Id),
            ("l,secret=", OptionError::Secret),
            ("l,secret=abcdefghijklmnopqrstuvwxy", OptionError::Secret),
            ("l,mac=01:00:00:00:00:01", OptionError::Mac),
            ("l,mac=00:00:00:00:00:00", OptionError::Mac),
            ("l,mac=02:00:00:00:00", OptionError::Mac),
            ("l,mtu=1279", OptionError::Mtu),
            ("l,mtu=65536", OptionError::Mtu),
            ("l,ring=100", OptionError::Ring),
            ("l,ring=32768", OptionError::Ring),
            ("l,queues=2", OptionError::Unknown),
            ("l,role", OptionError::Unknown),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
    }
}
