//! What libfabric's queues say: of completions, and of events of connections.

#![allow(unsafe_code, reason = "calls through the library's tables")]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through a table is one operation, whatever it takes to reach it"
)]

use std::ptr::NonNull;

use super::bindings::{
    CqDataEntry, CqErrEntry, EqCmEntry, EqErrEntry, FI_CONNECTED, FI_CONNREQ, FI_EAVAIL,
    FI_SHUTDOWN, FidCq, FidEq,
};
use super::library::OwnedInfo;
use super::objects::Object;

/// What a queue of completions has said.
pub(super) enum Taken {
    /// So many entries.
    Entries(usize),
    /// Work has failed, with this context.
    Failed(u64),
    Nothing,
}

impl Object<FidCq> {
    /// Takes entries out.
    pub(super) fn take(&self, room: &mut [CqDataEntry]) -> Taken {
        // SAFETY: it is open, and writes as many entries as there is room for at most.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).ops).read)(
                self.at.as_ptr(),
                room.as_mut_ptr().cast(),
                room.len(),
            )
        };
        match returned {
            1.. => Taken::Entries(returned.cast_unsigned()),
            _ if returned == -FI_EAVAIL => self.failed(),
            _ => Taken::Nothing,
        }
    }

    fn failed(&self) -> Taken {
        // SAFETY: all of its fields are numbers and pointers.
        let mut entry: CqErrEntry = unsafe { std::mem::zeroed() };
        // SAFETY: it is open, and writes one entry. No room for details is offered.
        let returned =
            unsafe { ((*(*self.at.as_ptr()).ops).readerr)(self.at.as_ptr(), &raw mut entry, 0) };
        match returned {
            1.. => Taken::Failed(entry.op_context as u64),
            _ => Taken::Nothing,
        }
    }
}

/// What a queue of events has said.
pub(super) enum Told {
    /// A client asks for a connection, with these data.
    Asked(OwnedInfo, Vec<u8>),
    /// The connection of the endpoint of this name is there.
    Connected(usize),
    /// It has ended, or never came about.
    Ended(usize),
    Nothing,
}

/// Bytes that come with a client's request, at most.
const DATA_MAX: usize = 512;

/// An event with its data.
#[repr(C)]
struct CmRoom {
    entry: EqCmEntry,
    data: [u8; DATA_MAX],
}

impl Object<FidEq> {
    pub(super) fn take(&self) -> Told {
        let mut event = 0;
        // SAFETY: all of its fields are numbers and pointers.
        let mut room: CmRoom = unsafe { std::mem::zeroed() };
        // SAFETY: it is open, and writes no more than there is room for.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).ops).read)(
                self.at.as_ptr(),
                &raw mut event,
                (&raw mut room).cast(),
                size_of::<CmRoom>(),
                0,
            )
        };
        if returned == -FI_EAVAIL {
            return self.failed();
        }
        if returned < 0 {
            return Told::Nothing;
        }
        let name = room.entry.fid as usize;
        match (event, NonNull::new(room.entry.info)) {
            (FI_CONNREQ, Some(info)) => {
                let len = returned
                    .cast_unsigned()
                    .saturating_sub(size_of::<EqCmEntry>());
                let data = room.data[..len.min(DATA_MAX)].to_vec();
                // SAFETY: the library hands it over with this event.
                let info = unsafe { OwnedInfo::of_event(info, self.library) };
                Told::Asked(info, data)
            }
            (FI_CONNECTED, _) => Told::Connected(name),
            (FI_SHUTDOWN, _) => Told::Ended(name),
            _ => Told::Ended(0),
        }
    }

    fn failed(&self) -> Told {
        // SAFETY: all of its fields are numbers and pointers.
        let mut entry: EqErrEntry = unsafe { std::mem::zeroed() };
        // SAFETY: it is open, and writes one entry.
        let returned =
            unsafe { ((*(*self.at.as_ptr()).ops).readerr)(self.at.as_ptr(), &raw mut entry, 0) };
        match returned {
            1.. => Told::Ended(entry.fid as usize),
            _ => Told::Nothing,
        }
    }
}
