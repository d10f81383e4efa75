//! The system calls of packet sockets and TAP devices that no crate wraps, each as a safe function.
#![expect(
    unsafe_code,
    reason = "setsockopt, getsockopt, bind and ioctl with kernel structures"
)]

use std::ffi::c_int;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd};

use libc::{ifreq, sockaddr_ll, socklen_t};

/// Marks structures of the kernel's interface that consist of integers.
///
/// # Safety
/// The type has no padding that matters and no pointers, and every bit pattern is a valid value.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: four integers of the same size.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: two integers of the same size.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: integers and an array of bytes, without gaps.
unsafe impl Plain for libc::packet_mreq {}

/// Sets an option of the level `SOL_PACKET`.
pub(super) fn set_option<T: Plain>(socket: impl AsFd, option: c_int, value: &T) -> io::Result<()> {
    let len = length_of::<T>();
    let from = (&raw const *value).cast();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `from` points to `len` readable bytes, and the descriptor is open.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, from, len) };
    checked(result).map(drop)
}

/// Reads an option of the level `SOL_PACKET`.
pub(super) fn option<T: Plain>(socket: impl AsFd, option: c_int) -> io::Result<T> {
    // Zeros are a valid value of a `Plain` type, so bytes that the kernel does not write are
    // defined too.
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = length_of::<T>();
    let fd = socket.as_fd().as_raw_fd();
    let to = value.as_mut_ptr().cast();
    // SAFETY: `to` points to `len` writable bytes, and the descriptor is open.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_PACKET, option, to, &mut len) };
    checked(result)?;
    // SAFETY: all bytes are initialized, and every bit pattern is a valid value of a `Plain` type.
    Ok(unsafe { value.assume_init() })
}

/// Binds a packet socket to an interface: from then on it receives frames of all protocols.
pub(super) fn bind(socket: impl AsFd, interface: c_int) -> io::Result<()> {
    let address = sockaddr_ll {
        sll_family: short(libc::AF_PACKET),
        sll_protocol: short(libc::ETH_P_ALL).to_be(),
        sll_ifindex: interface,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let from = (&raw const address).cast();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `from` points to a whole `sockaddr_ll`, and the descriptor is open.
    let result = unsafe { libc::bind(fd, from, length_of::<sockaddr_ll>()) };
    checked(result).map(drop)
}

/// The interface's number (`SIOCGIFINDEX`).
pub(super) fn index(socket: impl AsFd, name: &str) -> io::Result<c_int> {
    let answer = ask(socket, libc::SIOCGIFINDEX as libc::Ioctl, name)?;
    // SAFETY: the request fills in this member.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
}

/// The interface's flags, such as `IFF_UP` (`SIOCGIFFLAGS`).
pub(super) fn flags(socket: impl AsFd, name: &str) -> io::Result<c_int> {
    let answer = ask(socket, libc::SIOCGIFFLAGS as libc::Ioctl, name)?;
    // SAFETY: the request fills in this member.
    Ok(unsafe { answer.ifr_ifru.ifru_flags }.into())
}

/// The interface's MTU in bytes (`SIOCGIFMTU`).
pub(super) fn mtu(socket: impl AsFd, name: &str) -> io::Result<c_int> {
    let answer = ask(socket, libc::SIOCGIFMTU as libc::Ioctl, name)?;
    // SAFETY: the request fills in this member.
    Ok(unsafe { answer.ifr_ifru.ifru_mtu })
}

/// The type of the interface's link, `ARPHRD_…`, and its address (`SIOCGIFHWADDR`).
pub(super) fn hardware(socket: impl AsFd, name: &str) -> io::Result<(u16, [u8; 6])> {
    let answer = ask(socket, libc::SIOCGIFHWADDR as libc::Ioctl, name)?;
    // SAFETY: the request fills in this member.
    let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
    let mut bytes = [0; 6];
    for (byte, &from) in bytes.iter_mut().zip(&address.sa_data) {
        [*byte] = from.to_ne_bytes();
    }
    Ok((address.sa_family, bytes))
}

/// Makes a descriptor of /dev/net/tun a queue of the named interface (`TUNSETIFF`). The interface
/// is created if it does not exist.
pub(super) fn attach_tap(tun: impl AsFd, name: &str, is_one_of_several: bool) -> io::Result<()> {
    let several = if is_one_of_several {
        libc::IFF_MULTI_QUEUE
    } else {
        0
    };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | several;
    let mut request = named(name)?;
    // The flags field has 16 bits, which is enough for the flags that are set here.
    request.ifr_ifru.ifru_flags = (flags & 0x7fff) as i16;
    ioctl(tun, libc::TUNSETIFF as libc::Ioctl, &mut request)
}

fn ask(socket: impl AsFd, request: libc::Ioctl, name: &str) -> io::Result<ifreq> {
    let mut about = named(name)?;
    ioctl(socket, request, &mut about)?;
    Ok(about)
}

/// A request about an interface; everything but the name is zero.
///
/// For an impossible name it fails as the kernel does for a name that no interface has.
fn named(name: &str) -> io::Result<ifreq> {
    // SAFETY: zeros are a valid value of each member, which are integers and arrays of integers.
    let mut request: ifreq = unsafe { mem::zeroed() };
    let is_possible = !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains('\0');
    if !is_possible {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

/// One of the requests above, all of which read and write an `ifreq`.
fn ioctl(fd: impl AsFd, request: libc::Ioctl, about: &mut ifreq) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the requests in this file access only this `ifreq`.
    checked(unsafe { libc::ioctl(fd, request, &raw mut *about) }).map(drop)
}

/// A constant that is declared wider than the kernel's field for it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "checked in the line before"
)]
pub(super) const fn short(value: c_int) -> u16 {
    assert!(0 <= value && value <= 0xffff);
    value as u16
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn length_of<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).expect("a structure of some bytes")
}
