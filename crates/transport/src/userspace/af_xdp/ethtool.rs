//! What a card's driver reports about itself: its queues and its offloads.
#![expect(
    unsafe_code,
    reason = "ethtool's questions are ioctls with buffers of their own sizes"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_STRINGS: u32 = 0x1b;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;

/// The set of strings that names the offloads.
const FEATURES: u32 = 4;

/// Bytes of each such name.
const NAME_LEN: usize = 32;

/// More offloads than any card has.
const FEATURES_MAX: usize = 512;

/// Which offloads are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offloads {
    /// The card removes VLAN tags from frames.
    pub(super) strips_tags: bool,
    /// Large receive offload.
    pub(super) lro: bool,
    /// Generic receive offload, done by the card.
    pub(super) gro_hw: bool,
}

/// A socket for questions to the drivers of this network namespace.
pub(super) struct Ethtool {
    fd: OwnedFd,
}

impl Ethtool {
    /// Opens the socket.
    pub(super) fn open() -> io::Result<Ethtool> {
        let fd = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Ethtool { fd })
    }

    /// How many receive queues are in use. An error if the driver does not say.
    pub(super) fn queues(&self, interface: &str) -> io::Result<u32> {
        // struct ethtool_channels: command, 4 maxima; receive, transmit, other, combined.
        let mut channels = [0u32; 9];
        channels[0] = GET_CHANNELS;
        // SAFETY: for this question the buffer is a struct ethtool_channels, which is nine numbers.
        unsafe { self.ask(interface, &mut channels) }?;
        Ok(channels[5] + channels[8])
    }

    /// Which of the offloads that matter here are on; none if the driver does not say.
    pub(super) fn offloads(&self, interface: &str) -> Offloads {
        let (Ok(names), Ok(active)) = (self.names(interface), self.active(interface)) else {
            return Offloads::default();
        };
        let is_on = |wanted: &str| {
            names
                .iter()
                .position(|name| name == wanted)
                .is_some_and(|at| {
                    active
                        .get(at / 32)
                        .is_some_and(|bits| bits >> (at % 32) & 1 == 1)
                })
        };
        Offloads {
            strips_tags: is_on("rx-vlan-hw-parse"),
            lro: is_on("rx-lro"),
            gro_hw: is_on("rx-gro-hw"),
        }
    }

    /// The names of all offloads, in the order of their bits.
    fn names(&self, interface: &str) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: command, reserved, 64 bits of wanted sets, and a length each.
        let mut info = [GET_SET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << FEATURES).to_ne_bytes();
        for (word, bytes) in info[2..4].iter_mut().zip(mask.chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        }
        // SAFETY: for this question the buffer is a struct ethtool_sset_info for one set.
        unsafe { self.ask(interface, &mut info) }?;
        let count = info[4] as usize;
        if count > FEATURES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // struct ethtool_gstrings: command, set, count, and the names.
        let mut strings = vec![0u32; 3 + FEATURES_MAX * NAME_LEN / 4];
        strings[..3].copy_from_slice(&[GET_STRINGS, FEATURES, info[4]]);
        // SAFETY: for this question the buffer is a struct ethtool_gstrings. The kernel writes as
        // many names as it has just announced, and there is room for them.
        unsafe { self.ask(interface, &mut strings) }?;
        let bytes: Vec<u8> = strings[3..]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let names = bytes.chunks_exact(NAME_LEN).take(count).map(|name| {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
        Ok(names.collect())
    }

    /// Which offloads are on, one bit each.
    fn active(&self, interface: &str) -> io::Result<Vec<u32>> {
        const BLOCKS: u32 = 16;
        const LEN: usize = 2 + 4 * BLOCKS as usize;
        // struct ethtool_gfeatures: command, count, and blocks of four numbers: available,
        // requested, active, never changed.
        let mut features = [0u32; LEN];
        features[..2].copy_from_slice(&[GET_FEATURES, BLOCKS]);
        // SAFETY: for this question the buffer is a struct ethtool_gfeatures. The kernel writes at
        // most as many blocks as the buffer says it has room for.
        unsafe { self.ask(interface, &mut features) }?;
        Ok(features[2..]
            .chunks_exact(4)
            .map(|block| block[2])
            .collect())
    }

    /// Asks a question.
    ///
    /// # Safety
    /// `buffer` begins with the number of a question, and is as long as what the kernel reads and
    /// writes for it.
    unsafe fn ask(&self, interface: &str, buffer: &mut [u32]) -> io::Result<()> {
        let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let mut request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: buffer.as_mut_ptr().cast(),
            },
        };
        // SAFETY: the request is a struct ifreq that points to the buffer; the caller vouches for
        // the rest.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}
