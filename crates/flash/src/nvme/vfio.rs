//! A PCI device through VFIO: its registers mapped, memory mapped for it behind the IOMMU, its interrupts as descriptors.
#![expect(unsafe_code, reason = "maps registers and asks by ioctl")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::binding::Binding;
use super::hardware::Hardware;
use crate::Region;
use crate::device::OpenError;

/// `_IO(';', 100 + n)`.
const fn request(number: libc::c_ulong) -> libc::c_ulong {
    0x3b64 + number
}

const SET_IOMMU: libc::c_ulong = request(2);
const GROUP_GET_STATUS: libc::c_ulong = request(3);
const GROUP_SET_CONTAINER: libc::c_ulong = request(4);
const GROUP_GET_DEVICE_FD: libc::c_ulong = request(6);
const GET_REGION_INFO: libc::c_ulong = request(8);
const GET_IRQ_INFO: libc::c_ulong = request(9);
const SET_IRQS: libc::c_ulong = request(10);
const DEVICE_RESET: libc::c_ulong = request(11);
const MAP_DMA: libc::c_ulong = request(13);

const TYPE1V2_IOMMU: libc::c_ulong = 3;
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const MSI_X: u32 = 2;
const REQUEST: u32 = 4;
const DATA_EVENTFD: u32 = 1 << 2;
const ACTION_TRIGGER: u32 = 1 << 5;
const MAP_READ_WRITE: u32 = 3;

/// Of the PCI command register: memory, and reaching memory by itself.
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 6;

/// Where the device's addresses begin: outside of what is reserved for interrupts, inside of what each IOMMU has.
const FIRST_ADDRESS: u64 = 1 << 32;

#[repr(C)]
#[derive(Default)]
struct Status {
    len: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    len: u32,
    flags: u32,
    index: u32,
    capabilities: u32,
    size: u64,
    offset: u64,
}

#[repr(C)]
#[derive(Default)]
struct IrqInfo {
    len: u32,
    flags: u32,
    index: u32,
    count: u32,
}

#[repr(C)]
#[derive(Default)]
struct DmaMap {
    len: u32,
    flags: u32,
    memory: u64,
    address: u64,
    size: u64,
}

/// The most vectors that are set in one request.
const VECTORS_MAX: usize = 128;

#[repr(C)]
struct IrqSet {
    len: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    events: [RawFd; VECTORS_MAX],
}

/// A device that is opened through VFIO.
pub(super) struct Vfio {
    registers: NonNull<u8>,
    registers_len: usize,
    events: Vec<OwnedFd>,
    request: Option<OwnedFd>,
    device: File,
    container: File,
    _group: File,
    mapped: Mutex<Mappings>,
}

struct Mappings {
    next: u64,
    /// The device may reach them as long as it is open.
    regions: Vec<Arc<Region>>,
}

// SAFETY: registers are read and written by single volatile accesses, which any thread may make.
unsafe impl Send for Vfio {}
// SAFETY: as above.
unsafe impl Sync for Vfio {}

/// Asks a descriptor with a structure.
fn ask<T>(file: &File, number: libc::c_ulong, argument: &mut T) -> io::Result<i32> {
    // SAFETY: each request of this file is given the structure that the kernel's header has for it.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), number, std::ptr::from_mut(argument)) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn len_of<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

impl Vfio {
    /// Opens a device with up to `vectors` interrupts.
    ///
    /// # Errors
    /// Where VFIO or the IOMMU refuses, as when others have devices of its group.
    pub(super) fn open(binding: &Binding, vectors: u16) -> Result<Vfio, OpenError> {
        let open = |path: &std::path::Path| OpenOptions::new().read(true).write(true).open(path);
        let container = open("/dev/vfio/vfio".as_ref()).map_err(OpenError::at("VFIO"))?;
        let group = open(&binding.node()).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => OpenError::InUse,
            _ => OpenError::System {
                what: "VFIO group",
                error,
            },
        })?;
        let mut status = Status {
            len: len_of::<Status>(),
            flags: 0,
        };
        ask(&group, GROUP_GET_STATUS, &mut status).map_err(OpenError::at("VFIO group"))?;
        if status.flags & 1 == 0 {
            return Err(OpenError::InUse);
        }
        let mut descriptor = container.as_raw_fd();
        ask(&group, GROUP_SET_CONTAINER, &mut descriptor).map_err(OpenError::at("VFIO group"))?;
        // SAFETY: this request takes a number.
        let result = unsafe { libc::ioctl(container.as_raw_fd(), SET_IOMMU, TYPE1V2_IOMMU) };
        if result < 0 {
            return Err(OpenError::System {
                what: "IOMMU",
                error: io::Error::last_os_error(),
            });
        }
        let mut name = [0u8; 32];
        let address = std::ffi::OsStr::new(binding.address()).as_bytes();
        name[..address.len()].copy_from_slice(address);
        let descriptor =
            ask(&group, GROUP_GET_DEVICE_FD, &mut name).map_err(OpenError::at("VFIO device"))?;
        // SAFETY: the kernel has just made it for us.
        let device = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });

        let config = region(&device, CONFIG)?;
        let mut command = [0; 2];
        let at = config.offset + COMMAND;
        device
            .read_exact_at(&mut command, at)
            .map_err(OpenError::at("PCI command"))?;
        let command = (u16::from_le_bytes(command) | MEMORY_AND_MASTER).to_le_bytes();
        device
            .write_all_at(&command, at)
            .map_err(OpenError::at("PCI command"))?;

        let bar = region(&device, BAR0)?;
        let registers_len =
            usize::try_from(bar.size).map_err(|_| OpenError::Misbehaves("its registers"))?;
        if registers_len < 0x2000 {
            return Err(OpenError::Misbehaves("its registers"));
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                registers_len,
                protection,
                flags,
                &device,
                bar.offset,
            )
        };
        let base = base.map_err(OpenError::at("map registers"))?;
        let registers = NonNull::new(base.cast()).ok_or(OpenError::Misbehaves("its registers"))?;
        let mut vfio = Vfio {
            registers,
            registers_len,
            events: Vec::new(),
            request: None,
            device,
            container,
            _group: group,
            mapped: Mutex::new(Mappings {
                next: FIRST_ADDRESS,
                regions: Vec::new(),
            }),
        };
        vfio.prepare_interrupts(vectors)
            .map_err(OpenError::at("interrupts"))?;
        Ok(vfio)
    }

    /// Makes a descriptor for each vector. All are set once: some kernels take no more later.
    fn prepare_interrupts(&mut self, vectors: u16) -> io::Result<()> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let mut info = IrqInfo {
            len: len_of::<IrqInfo>(),
            index: MSI_X,
            ..IrqInfo::default()
        };
        ask(&self.device, GET_IRQ_INFO, &mut info)?;
        let count = usize::from(vectors)
            .min(info.count as usize)
            .min(VECTORS_MAX);
        for _ in 0..count {
            self.events.push(event()?);
        }
        if count > 0 {
            let events: Vec<RawFd> = self.events.iter().map(AsRawFd::as_raw_fd).collect();
            self.set_irqs(MSI_X, 0, &events)?;
            self.set_irqs(MSI_X, 0, &vec![-1; count])?;
        }
        let mut info = IrqInfo {
            len: len_of::<IrqInfo>(),
            index: REQUEST,
            ..IrqInfo::default()
        };
        if ask(&self.device, GET_IRQ_INFO, &mut info).is_ok() && info.count > 0 {
            let wanted = event()?;
            self.set_irqs(REQUEST, 0, &[wanted.as_raw_fd()])?;
            self.request = Some(wanted);
        }
        Ok(())
    }

    fn set_irqs(&self, index: u32, start: u16, descriptors: &[RawFd]) -> io::Result<()> {
        let mut set = IrqSet {
            len: 0,
            flags: DATA_EVENTFD | ACTION_TRIGGER,
            index,
            start: u32::from(start),
            count: u32::try_from(descriptors.len()).unwrap_or(0),
            events: [-1; VECTORS_MAX],
        };
        set.len = 20 + 4 * set.count;
        set.events[..descriptors.len()].copy_from_slice(descriptors);
        ask(&self.device, SET_IRQS, &mut set).map(drop)
    }

    fn register(&self, at: usize) -> *mut u32 {
        assert!(
            at.is_multiple_of(4) && at + 4 <= self.registers_len,
            "outside of the registers"
        );
        // SAFETY: inside the mapping.
        unsafe { self.registers.as_ptr().add(at).cast() }
    }
}

fn region(device: &File, index: u32) -> Result<RegionInfo, OpenError> {
    let mut info = RegionInfo {
        len: len_of::<RegionInfo>(),
        index,
        ..RegionInfo::default()
    };
    ask(device, GET_REGION_INFO, &mut info).map_err(OpenError::at("PCI regions"))?;
    Ok(info)
}

impl Hardware for Vfio {
    fn load(&self, at: usize) -> u32 {
        // SAFETY: a register of the mapping, aligned.
        let value = unsafe { self.register(at).read_volatile() };
        u32::from_le(value)
    }

    fn store(&self, at: usize, value: u32) {
        // The device reads memory after it sees the doorbell.
        fence(Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { self.register(at).write_volatile(value.to_le()) };
    }

    fn len(&self) -> usize {
        self.registers_len
    }

    fn map(&self, region: &Arc<Region>) -> io::Result<u64> {
        if !region.address().is_multiple_of(4096) || !region.len().is_multiple_of(4096) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let address = mapped.next;
        let size = region.len() as u64;
        let mut map = DmaMap {
            len: len_of::<DmaMap>(),
            flags: MAP_READ_WRITE,
            memory: region.address() as u64,
            address,
            size,
        };
        ask(&self.container, MAP_DMA, &mut map)?;
        // An unmapped page between two regions stops a device that runs over the end of one.
        mapped.next = address + size + 4096;
        mapped.regions.push(Arc::clone(region));
        Ok(address)
    }

    fn signal(&self, vector: u16) -> Option<BorrowedFd<'_>> {
        self.events.get(usize::from(vector)).map(AsFd::as_fd)
    }

    fn set_signalled(&self, vector: u16, is_signalled: bool) -> io::Result<()> {
        let event = self
            .events
            .get(usize::from(vector))
            .ok_or(io::ErrorKind::NotFound)?;
        let descriptor = if is_signalled { event.as_raw_fd() } else { -1 };
        self.set_irqs(MSI_X, vector, &[descriptor])
    }

    fn is_wanted_back(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|it| rustix::io::read(it, &mut [0; 8]).is_ok())
    }

    fn reset(&self) -> io::Result<()> {
        let mut nothing = 0u32;
        ask(&self.device, DEVICE_RESET, &mut nothing).map(drop)
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        // SAFETY: nobody has the hardware any more. The device's descriptor is closed after this, which resets it.
        let _ = unsafe { munmap(self.registers.as_ptr().cast(), self.registers_len) };
    }
}
