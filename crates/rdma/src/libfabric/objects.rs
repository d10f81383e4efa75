//! libfabric's objects. Each closes when it is dropped; who uses several drops those first that were opened last.

#![allow(unsafe_code, reason = "calls through the library's tables")]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through a table is one operation, whatever it takes to reach it"
)]

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};

use super::Error;
use super::bindings::*;
use super::library::{Library, OwnedInfo};
use super::memory::Memory;

/// An object of libfabric, whose first field is a `fid`.
pub(super) struct Object<T> {
    pub(super) at: NonNull<T>,
    pub(super) library: &'static Library,
}

impl<T> Object<T> {
    /// What a function has opened.
    fn opened(
        library: &'static Library,
        doing: &'static str,
        returned: c_int,
        at: *mut T,
    ) -> Result<Object<T>, Error> {
        NonNull::new(at)
            .filter(|_| returned == 0)
            .map(|at| Object { at, library })
            .ok_or_else(|| library.error(doing, returned as isize))
    }

    fn fid(&self) -> *mut Fid {
        self.at.as_ptr().cast()
    }

    /// Its address, by which events name it.
    pub(super) fn name(&self) -> usize {
        self.fid() as usize
    }

    fn check(&self, doing: &'static str, returned: c_int) -> Result<(), Error> {
        match returned {
            0 => Ok(()),
            _ => Err(self.library.error(doing, returned as isize)),
        }
    }

    /// Ties another object to it, which stays open longer.
    pub(super) fn bind<B>(&self, other: &Object<B>, flags: u64) -> Result<(), Error> {
        // SAFETY: both are open, and begin with a `fid`, whose operations are those of its kind.
        let returned = unsafe { ((*(*self.fid()).ops).bind)(self.fid(), other.fid(), flags) };
        self.check("bind", returned)
    }

    /// Makes an endpoint ready.
    pub(super) fn enable(&self) -> Result<(), Error> {
        // SAFETY: it is open; this command takes nothing.
        let returned = unsafe { ((*(*self.fid()).ops).control)(self.fid(), FI_ENABLE, null_mut()) };
        self.check("enable an endpoint", returned)
    }

    /// The descriptor that becomes readable when there is something in a queue.
    pub(super) fn descriptor(&self) -> Result<RawFd, Error> {
        let mut fd: RawFd = -1;
        // SAFETY: a queue that was opened with FI_WAIT_FD writes its descriptor there.
        let returned =
            unsafe { ((*(*self.fid()).ops).control)(self.fid(), FI_GETWAIT, (&raw mut fd).cast()) };
        self.check("wait for a queue", returned)?;
        Ok(fd)
    }

    /// That descriptor, for as long as the queue is there.
    pub(super) fn borrow(&self, fd: RawFd) -> BorrowedFd<'_> {
        // SAFETY: the queue keeps it open.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The address of an endpoint, as bytes.
    fn address_bytes(&self, cm: *mut CmOps) -> Result<Vec<u8>, Error> {
        let mut room = vec![0; 256];
        let mut len = room.len();
        // SAFETY: it writes as many bytes at most as `len` says.
        let returned =
            unsafe { ((*cm).getname)(self.fid(), room.as_mut_ptr().cast(), &raw mut len) };
        self.check("learn the own address", returned)?;
        room.truncate(len);
        Ok(room)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: it is open, and nobody uses it any more.
        unsafe {
            ((*(*self.fid()).ops).close)(self.fid());
        }
    }
}

/// What was found of a provider.
pub(super) struct Way {
    pub(super) library: &'static Library,
    pub(super) info: OwnedInfo,
}

impl Way {
    /// Looks for a way to listen at `address`, or to reach it, with a provider of this name.
    pub(super) fn find(provider: &str, address: SocketAddr, listens: bool) -> Result<Way, Error> {
        let library = Library::get()?;
        let hints = library.hints()?;
        let name =
            std::ffi::CString::new(provider).map_err(|_| Error::NoDevice(provider.to_owned()))?;
        // SAFETY: hints have all of their parts. The name is allocated as `freeinfo` frees it.
        unsafe {
            let hints = hints.info.as_ptr();
            (*hints).caps = FI_MSG | FI_RMA;
            (*hints).mode = FI_RX_CQ_DATA;
            (*(*hints).ep_attr).ep_type = FI_EP_MSG;
            (*(*hints).domain_attr).threading = FI_THREAD_DOMAIN;
            (*(*hints).domain_attr).mr_mode =
                FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
            (*(*hints).fabric_attr).prov_name = libc::strdup(name.as_ptr());
        }
        let text = |text: String| std::ffi::CString::new(text).expect("numbers and points");
        let node = text(address.ip().to_string());
        let service = text(address.port().to_string());
        let flags = if listens { FI_SOURCE } else { 0 };
        let info = library.info(Some((&node, &service)), flags, &hints);
        let info = info.map_err(|_| Error::NoDevice(provider.to_owned()))?;
        Ok(Way { library, info })
    }

    fn domain_attr(&self) -> &DomainAttr {
        // SAFETY: an info has all of its parts.
        unsafe { &*(*self.info.info.as_ptr()).domain_attr }
    }

    /// Whether memory of this side's own must be registered.
    pub(super) fn registers_own(&self) -> bool {
        self.domain_attr().mr_mode & FI_MR_LOCAL != 0
    }

    /// Whether the other side names this side's memory by its address here, not by offsets.
    pub(super) fn has_addresses(&self) -> bool {
        self.domain_attr().mr_mode & FI_MR_VIRT_ADDR != 0
    }

    /// Whether this side chooses its keys, and how many bytes they have.
    pub(super) fn own_key_len(&self) -> Option<usize> {
        let attr = self.domain_attr();
        (attr.mr_mode & FI_MR_PROV_KEY == 0).then_some(attr.mr_key_size.min(8))
    }

    /// Whether a word that comes with a write has room for the write's length, which such a provider does not tell
    /// otherwise.
    pub(super) fn words_are_wide(&self) -> bool {
        self.domain_attr().cq_data_size >= 8
    }

    /// Whether a word that comes with a write uses up a buffer for receiving.
    pub(super) fn words_need_buffers(&self) -> bool {
        // SAFETY: the info is there.
        unsafe { (*self.info.info.as_ptr()).mode & FI_RX_CQ_DATA != 0 }
    }
}

impl Object<FidFabric> {
    pub(super) fn open(way: &Way) -> Result<Object<FidFabric>, Error> {
        let at = way.library.open(&way.info)?;
        let library = way.library;
        Ok(Object { at, library })
    }

    pub(super) fn domain(&self, way: &Way) -> Result<Object<FidDomain>, Error> {
        let mut at = null_mut();
        // SAFETY: the fabric is open; the info is of it.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).ops).domain)(
                self.at.as_ptr(),
                way.info.info.as_ptr(),
                &raw mut at,
                null_mut(),
            )
        };
        Object::opened(self.library, "open the device", returned, at)
    }

    pub(super) fn events(&self) -> Result<Object<FidEq>, Error> {
        let mut at = null_mut();
        let mut attr = EqAttr {
            size: 0,
            flags: 0,
            wait_obj: FI_WAIT_FD,
            signaling_vector: 0,
            wait_set: null_mut(),
        };
        // SAFETY: the fabric is open.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).ops).eq_open)(
                self.at.as_ptr(),
                &raw mut attr,
                &raw mut at,
                null_mut(),
            )
        };
        Object::opened(self.library, "open a queue of events", returned, at)
    }

    pub(super) fn listener(&self, way: &Way) -> Result<Object<FidPep>, Error> {
        let mut at = null_mut();
        // SAFETY: the fabric is open; the info is of it.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).ops).passive_ep)(
                self.at.as_ptr(),
                way.info.info.as_ptr(),
                &raw mut at,
                null_mut(),
            )
        };
        Object::opened(self.library, "listen", returned, at)
    }

    /// Whether the descriptors of both queues may be waited for: there is nothing in them that no descriptor tells of.
    pub(super) fn may_wait(&self, events: &Object<FidEq>, completions: &Object<FidCq>) -> bool {
        let mut fids = [events.fid(), completions.fid()];
        // SAFETY: all are open; the list has two.
        let returned =
            unsafe { ((*(*self.at.as_ptr()).ops).trywait)(self.at.as_ptr(), fids.as_mut_ptr(), 2) };
        returned == 0
    }
}

/// Memory that is registered.
pub(super) struct Registration {
    object: Object<FidMr>,
}

impl Registration {
    pub(super) fn desc(&self) -> *mut c_void {
        // SAFETY: it is open.
        unsafe { (*self.object.at.as_ptr()).mem_desc }
    }

    pub(super) fn key(&self) -> u64 {
        // SAFETY: it is open.
        unsafe { (*self.object.at.as_ptr()).key }
    }
}

impl Object<FidDomain> {
    pub(super) fn completions(&self, size: usize) -> Result<Object<FidCq>, Error> {
        let mut at = null_mut();
        let mut attr = CqAttr {
            size,
            flags: 0,
            format: FI_CQ_FORMAT_DATA,
            wait_obj: FI_WAIT_FD,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: null_mut(),
        };
        // SAFETY: the domain is open.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).ops).cq_open)(
                self.at.as_ptr(),
                &raw mut attr,
                &raw mut at,
                null_mut(),
            )
        };
        Object::opened(self.library, "open a queue of completions", returned, at)
    }

    /// Opens an endpoint, by what was found or by what has come with a client's request.
    pub(super) fn endpoint(&self, info: &OwnedInfo) -> Result<Endpoint, Error> {
        let mut at = null_mut();
        // SAFETY: the domain is open; the info is of the same fabric.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).ops).endpoint)(
                self.at.as_ptr(),
                info.info.as_ptr(),
                &raw mut at,
                null_mut(),
            )
        };
        let object = Object::opened(self.library, "open an endpoint", returned, at)?;
        Ok(Endpoint { object })
    }

    /// Registers memory. It stays where it is as long as the registration is there: the caller keeps both.
    pub(super) fn register(
        &self,
        memory: &Memory,
        access: u64,
        key: u64,
    ) -> Result<Registration, Error> {
        let mut at = null_mut();
        // SAFETY: the domain is open; the memory is there.
        let returned = unsafe {
            ((*(*self.at.as_ptr()).mr).reg)(
                self.fid(),
                memory.base().as_ptr().cast(),
                memory.len(),
                access,
                0,
                key,
                0,
                &raw mut at,
                null_mut(),
            )
        };
        let object = Object::opened(self.library, "register memory", returned, at)?;
        Ok(Registration { object })
    }
}

impl Object<FidPep> {
    pub(super) fn listen(&self) -> Result<(), Error> {
        // SAFETY: it is open and bound to a queue.
        let returned = unsafe { ((*(*self.at.as_ptr()).cm).listen)(self.at.as_ptr()) };
        self.check("listen", returned)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> Result<SocketAddr, Error> {
        // SAFETY: it is open.
        let cm = unsafe { (*self.at.as_ptr()).cm };
        let bytes = self.address_bytes(cm)?;
        socket_address(&bytes).ok_or_else(|| self.library.error("learn the own address", -22))
    }

    /// Refuses a client.
    pub(super) fn reject(&self, request: &OwnedInfo) {
        // SAFETY: it is open, and has handed the request over. If it cannot be refused, the client has gone.
        unsafe {
            let handle = (*request.info.as_ptr()).handle;
            ((*(*self.at.as_ptr()).cm).reject)(self.at.as_ptr(), handle, std::ptr::null(), 0);
        }
    }
}

/// One connection's endpoint.
pub(super) struct Endpoint {
    pub(super) object: Object<FidEp>,
}

/// Pieces of memory as the network takes them.
pub(super) struct Pieces<const N: usize> {
    pub(super) iov: [IoVec; N],
    pub(super) desc: [*mut c_void; N],
    pub(super) count: usize,
}

impl<const N: usize> Pieces<N> {
    pub(super) fn new() -> Pieces<N> {
        Pieces {
            iov: std::array::from_fn(|_| IoVec {
                base: null_mut(),
                len: 0,
            }),
            desc: [null_mut(); N],
            count: 0,
        }
    }

    pub(super) fn push(&mut self, at: NonNull<u8>, len: usize, desc: *mut c_void) {
        self.iov[self.count] = IoVec {
            base: at.as_ptr().cast(),
            len,
        };
        self.desc[self.count] = desc;
        self.count += 1;
    }
}

impl Endpoint {
    fn at(&self) -> *mut FidEp {
        self.object.at.as_ptr()
    }

    /// Asks the other side for a connection.
    pub(super) fn connect(&self, to: &OwnedInfo, data: &[u8]) -> Result<(), Error> {
        // SAFETY: it is enabled; the address is the info's; the data are copied.
        let returned = unsafe {
            let address = (*to.info.as_ptr()).dest_addr;
            ((*(*self.at()).cm).connect)(self.at(), address, data.as_ptr().cast(), data.len())
        };
        self.object.check("connect", returned)
    }

    /// Takes a client's request on.
    pub(super) fn accept(&self) -> Result<(), Error> {
        // SAFETY: it is enabled, and was opened by the request.
        let returned = unsafe { ((*(*self.at()).cm).accept)(self.at(), std::ptr::null(), 0) };
        self.object.check("accept a connection", returned)
    }

    /// Tells the other side that this one ends.
    pub(super) fn shut_down(&self) {
        // SAFETY: it is open. If it fails, the connection has ended already.
        unsafe {
            ((*(*self.at()).cm).shutdown)(self.at(), 0);
        }
    }

    /// Makes memory ready for a message.
    ///
    /// # Safety
    /// The memory is there until the completion, or until the endpoint is closed, and nobody has a reference to it.
    pub(super) unsafe fn receive(
        &self,
        memory: Option<(NonNull<u8>, usize)>,
        desc: *mut c_void,
        context: u64,
    ) -> isize {
        let (at, len) = memory.map_or((null_mut(), 0), |(at, len)| (at.as_ptr().cast(), len));
        // SAFETY: it is enabled; the caller vouches for the memory.
        unsafe { ((*(*self.at()).msg).recv)(self.at(), at, len, desc, 0, context as *mut c_void) }
    }

    /// Sends a message.
    ///
    /// # Safety
    /// The memory is there and does not change until the completion, or until the endpoint is closed.
    pub(super) unsafe fn send<const N: usize>(&self, from: &mut Pieces<N>, context: u64) -> isize {
        let message = Msg {
            msg_iov: from.iov.as_ptr(),
            desc: from.desc.as_mut_ptr(),
            iov_count: from.count,
            addr: 0,
            context: context as *mut c_void,
            data: 0,
        };
        // SAFETY: it is enabled; the caller vouches for the memory.
        unsafe { ((*(*self.at()).msg).sendmsg)(self.at(), &raw const message, FI_COMPLETION) }
    }

    /// Writes the other side's memory, or reads it.
    ///
    /// # Safety
    /// As of [`Endpoint::send`]; of what is read, nobody has a reference to the memory.
    pub(super) unsafe fn access<const N: usize>(
        &self,
        own: &mut Pieces<N>,
        remote: RmaIov,
        how: Access,
        context: u64,
    ) -> isize {
        let (word, flags) = match how {
            Access::Write(Some(word)) => (word, FI_COMPLETION | FI_REMOTE_CQ_DATA),
            Access::Write(None) | Access::Read => (0, FI_COMPLETION),
        };
        let message = MsgRma {
            msg_iov: own.iov.as_ptr(),
            desc: own.desc.as_mut_ptr(),
            iov_count: own.count,
            addr: 0,
            rma_iov: &raw const remote,
            rma_iov_count: 1,
            context: context as *mut c_void,
            data: word,
        };
        // SAFETY: it is enabled; the caller vouches for the memory.
        unsafe {
            let rma = (*self.at()).rma;
            let call = match how {
                Access::Write(_) => (*rma).writemsg,
                Access::Read => (*rma).readmsg,
            };
            call(self.at(), &raw const message, flags)
        }
    }
}

/// What is done to the other side's memory.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// It is written, and the other side is told this word.
    Write(Option<u64>),
    Read,
}

/// What a `sockaddr` of IP says.
fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}
