//! Connections that an attacker has opened by hand.

use std::collections::BTreeMap;

use coua_tcp::wire::tcp::{Flags, Options};

use crate::forger::{Forger, Heard, header};

/// The number of a forged SYN.
pub(crate) const ISS: u32 = 1000;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forged {
    pub(crate) host: u8,
    pub(crate) port: u16,
    /// The next number that it sends.
    pub(crate) seq: u32,
    /// The first that it has not acknowledged, and the one behind the last that has come.
    pub(crate) ack: u32,
    pub(crate) nxt: u32,
    /// The window that it offers, as it stands in the segments.
    pub(crate) window: u16,
    pub(crate) is_open: bool,
}

impl Forged {
    /// Sends a segment with its numbers.
    pub(crate) fn send(&mut self, forger: &mut Forger, flags: Flags, payload: &[u8]) {
        let header = header(self.port, flags, self.seq, self.ack, self.window);
        forger.send(self.host, &header, payload);
        self.seq = self
            .seq
            .wrapping_add(u32::try_from(payload.len()).expect("short"))
            .wrapping_add(u32::from(flags.has(Flags::FIN)));
    }

    /// Bytes that have come and are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u32 {
        self.nxt.wrapping_sub(self.ack)
    }
}

/// All of an attacker's.
pub(crate) struct Connections {
    all: BTreeMap<(u8, u16), Forged>,
    options: Options,
    window: u16,
}

impl Connections {
    /// Connections whose SYNs have these options and which offer that window.
    pub(crate) fn new(options: Options, window: u16) -> Connections {
        Connections {
            all: BTreeMap::new(),
            options,
            window,
        }
    }

    /// Asks for one.
    pub(crate) fn open(&mut self, forger: &mut Forger, host: u8, port: u16) {
        let mut syn = header(port, Flags::SYN, ISS, 0, self.window);
        syn.options = self.options;
        forger.send(host, &syn, b"");
        let forged = Forged {
            host,
            port,
            seq: ISS + 1,
            ack: 0,
            nxt: 0,
            window: self.window,
            is_open: false,
        };
        self.all.insert((host, port), forged);
    }

    /// Whose segment that is, with its numbers brought up to date. The handshake is done by `request`,
    /// which it sends.
    pub(crate) fn hear(
        &mut self,
        forger: &mut Forger,
        heard: &Heard,
        request: &[u8],
    ) -> Option<&mut Forged> {
        let Heard { host, header, len } = heard;
        let key = (*host, header.destination);
        if header.flags.has(Flags::RST) {
            self.all.remove(&key);
        }
        let forged = self.all.get_mut(&key)?;
        if header.flags.has(Flags::SYN) {
            forged.ack = header.seq.0.wrapping_add(1);
            forged.nxt = forged.ack;
            if !std::mem::replace(&mut forged.is_open, true) {
                forged.send(forger, Flags::ACK, request);
            }
            return Some(forged);
        }
        let end = header
            .seq
            .0
            .wrapping_add(*len)
            .wrapping_add(u32::from(header.flags.has(Flags::FIN)));
        if end.wrapping_sub(forged.nxt).cast_signed() > 0 {
            forged.nxt = end;
        }
        Some(forged)
    }

    /// Those that are open.
    pub(crate) fn open_ones(&mut self) -> impl Iterator<Item = &mut Forged> {
        self.all.values_mut().filter(|forged| forged.is_open)
    }

    /// Whether that one is not there any more.
    pub(crate) fn has(&self, host: u8, port: u16) -> bool {
        self.all.contains_key(&(host, port))
    }

    pub(crate) fn forget(&mut self, host: u8, port: u16) {
        self.all.remove(&(host, port));
    }
}
