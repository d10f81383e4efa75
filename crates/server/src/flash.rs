//! Flash from start to stop: its devices are opened, the volume on them is given to the store, and closed in the end.
//!
//! Devices need root's rights, and are opened before those are given up; files are made after that, so that they belong
//! to the user. The memory that devices read and write is known to their drivers from the start, so everything is
//! measured first.

mod troubles;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use coua_flash::files::{FileDevice, Options};
use coua_flash::log::{Start, Volume, VolumeError, VolumeOptions, WorkerMemory};
use coua_flash::nvme::{NvmeDevice, NvmeOptions, PassthroughDevice};
use coua_flash::{BlockDevice, Buffer, Identity, OpenError, Region};
use coua_memory_errors as memory_errors;
use coua_store::{FlashKeeper, FlashOptions, Store, UnixSeconds};

use crate::fetches::Fetches;
use crate::flags::{FlashPath, Settings};
use crate::shared::{FlashDeviceInfo, Shared};
use crate::worker::WorkerFlash;

use troubles::Troubles;

/// Segments that a worker has memory for: one that is filled while two are written.
const SEGMENTS_PER_WORKER: usize = 3;

/// The part of `-m` that the workers' reads take together, and the bytes that one worker's take.
const READS_SHARE: usize = 16;
const READS_LEN_MIN: usize = 1 << 20;
const READS_LEN_MAX: usize = 64 << 20;

/// The part of `-m` that segments in memory take at most, before they are made shorter.
const SEGMENTS_SHARE: usize = 8;

/// Bytes of memory that a read takes at least.
const READ_LEN: usize = 12 << 10;

/// Requests that one worker has under way on one device, at most.
const DEPTH_MAX: usize = 4096;

/// Requests that are under way beside reads: pieces of segments.
const DEPTH_OF_WRITES: usize = 16;

/// How often it is looked whether segments must be dropped, at least.
const KEEPER_SLEEP: Duration = Duration::from_millis(10);

/// Why there is no flash.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// A device.
    #[error("{place}: {error}{}", remedy(.error))]
    Device {
        /// The flag, and what it names.
        place: String,
        /// What is wrong.
        error: OpenError,
    },
    /// The volume on them.
    #[error("-o ext_path, --flash: {0}")]
    Volume(#[from] VolumeError),
    /// There is not enough memory.
    #[error(
        "-m: flash takes {takes} MiB of memory for {workers} threads, which leaves less than {least} MiB for items; \
         give more, or fewer threads (-t)"
    )]
    Memory {
        /// Megabytes for buffers.
        takes: usize,
        /// How many threads.
        workers: usize,
        /// Megabytes that the store needs.
        least: usize,
    },
    /// The store does not take it.
    #[error("-o ext_path, --flash: {0}")]
    Store(#[from] coua_store::FlashRefused),
    /// Something else that the system refuses.
    #[error("-o ext_path, --flash: cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What to do about it.
fn remedy(error: &OpenError) -> &'static str {
    match error {
        OpenError::System { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
            "; give the user (-u) the right to it, or start as root"
        }
        OpenError::System { error, .. } if error.kind() == io::ErrorKind::StorageFull => {
            "; give a smaller size"
        }
        OpenError::InUse => "; is another coua running, or a file system mounted?",
        _ => "",
    }
}

/// What there is of memory for flash, by worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    segment_len: usize,
    reads_len: usize,
}

impl Plan {
    /// For a volume of `len` bytes.
    fn new(len: u64, memory: usize, workers: usize) -> Plan {
        let mut segment_len = VolumeOptions::for_len(len).segment_len;
        while segment_len > 1 << 20
            && segment_len * SEGMENTS_PER_WORKER * workers > memory / SEGMENTS_SHARE
        {
            segment_len /= 2;
        }
        let reads_len = (memory / READS_SHARE / workers).clamp(READS_LEN_MIN, READS_LEN_MAX);
        Plan {
            segment_len,
            reads_len: reads_len.next_multiple_of(4096),
        }
    }

    fn memory(&self) -> usize {
        SEGMENTS_PER_WORKER * self.segment_len + self.reads_len
    }

    fn reads(&self) -> usize {
        self.reads_len / READ_LEN + 1
    }

    fn depth(&self) -> usize {
        self.reads().min(DEPTH_MAX) + DEPTH_OF_WRITES
    }
}

/// The devices of a server that has not started.
pub struct Flash {
    plan: Plan,
    places: Vec<FlashPath>,
    devices: Vec<Option<Box<dyn BlockDevice>>>,
    /// Each worker's memory.
    memory: Vec<Buffer>,
    options: FlashOptions,
}

impl Flash {
    /// Opens the devices and takes the memory, which the settings then count. To be called before root's rights are
    /// given up. `None` where the flags ask for no flash.
    ///
    /// # Errors
    /// [`FlashError`]: a device cannot be used, or there is too little memory.
    pub fn open_devices(settings: &mut Settings) -> Result<Option<Flash>, FlashError> {
        let Some(flags) = settings.flash.clone() else {
            return Ok(None);
        };
        let workers = settings.workers;
        let mut len = 0;
        for place in &flags.places {
            len += match place {
                FlashPath::File { len, .. } => *len,
                _ => open(place, settings, &[])?.identity().len(),
            };
        }
        let plan = Plan::new(len, settings.memory, workers);
        let takes = plan.memory() * workers;
        let tables = Fetches::memory(plan.reads()) * workers + flags.admission.memory(len);
        let least = coua_store::MEMORY_MIN;
        if settings.memory.saturating_sub(settings.stacks_memory()) < takes + tables + least {
            return Err(FlashError::Memory {
                takes: (takes + tables) >> 20,
                workers,
                least: least >> 20,
            });
        }
        settings.flash_memory = takes + tables;
        let mut rest = Region::watched(takes);
        let region = Arc::clone(rest.region());
        let mut memory = Vec::with_capacity(workers);
        for _ in 0..workers {
            let behind = rest.split_off(plan.memory());
            memory.push(std::mem::replace(&mut rest, behind));
        }
        let mut flash = Flash {
            plan,
            devices: flags.places.iter().map(|_| None).collect(),
            places: flags.places,
            memory,
            options: FlashOptions {
                item_len_min: flags.item_len_min,
                item_len_max: flags.item_len_max.unwrap_or(usize::MAX),
                admission: flags.admission,
                write_budget: flags.write_budget,
            },
        };
        for (place, device) in flash.places.iter().zip(&mut flash.devices) {
            if !matches!(place, FlashPath::File { .. }) || is_device(place) {
                *device = Some(open(place, settings, &[Arc::clone(&region)])?);
            }
        }
        Ok(Some(flash))
    }

    /// Opens the files, and makes those that are not there.
    ///
    /// # Errors
    /// [`FlashError::Device`]: one of them cannot be used.
    pub fn open_files(&mut self, settings: &Settings) -> Result<(), FlashError> {
        let region = self
            .memory
            .first()
            .map(|buffer| Arc::clone(buffer.region()));
        let regions: Vec<Arc<Region>> = region.into_iter().collect();
        for (place, device) in self.places.iter().zip(&mut self.devices) {
            if device.is_none() {
                *device = Some(open(place, settings, &regions)?);
            }
        }
        Ok(())
    }

    /// Opens the volume and gives it to the store, which has no workers yet.
    pub(crate) fn attach(self, store: &Arc<Store>) -> Result<AttachedFlash, FlashError> {
        let devices: Vec<Box<dyn BlockDevice>> = self.devices.into_iter().flatten().collect();
        let borrowed: Vec<&dyn BlockDevice> = devices.iter().map(|device| &**device).collect();
        let options = VolumeOptions {
            segment_len: self.plan.segment_len,
            keeps_tombstones: false,
        };
        let believed = store.flash_sequences();
        let start = match believed.is_empty() {
            true => Start::Fresh,
            false => Start::Index(&believed),
        };
        let began = Instant::now();
        let opened = Volume::open(&borrowed, options, start, random()?, &mut clock(began))?;
        let volume = opened.volume;
        store.attach_flash(Arc::clone(&volume), self.options)?;
        let region = self.memory.first().map(Buffer::region);
        let watched = region.and_then(|region| region.watch().map(Arc::clone));
        let mut by_worker = Vec::with_capacity(self.memory.len());
        for memory in self.memory {
            let memory = WorkerMemory::carve(memory, &volume, SEGMENTS_PER_WORKER);
            by_worker.push(WorkerFlash {
                volume: volume.worker(&borrowed, self.plan.depth(), memory)?,
                reads: self.plan.reads(),
            });
        }
        let kept = (!believed.is_empty()).then(|| {
            opened
                .kept
                .map(|()| opened.lost_segments)
                .map_err(|cold| cold.to_string())
        });
        Ok(AttachedFlash {
            devices,
            volume,
            memory: watched,
            by_worker,
            kept,
        })
    }
}

/// The volume of a server whose workers have not begun.
pub(crate) struct AttachedFlash {
    devices: Vec<Box<dyn BlockDevice>>,
    volume: Arc<Volume>,
    memory: Option<Arc<memory_errors::WatchedMemory>>,
    /// Each worker's part.
    pub(crate) by_worker: Vec<WorkerFlash>,
    /// Where items were to be found again: how many segments are lost, or why nothing was.
    kept: Option<Result<usize, String>>,
}

impl AttachedFlash {
    /// Tells statistics what there is.
    pub(crate) fn tell(&self, shared: &mut Shared) {
        let devices = self.devices.iter().map(|device| {
            let identity = device.identity();
            FlashDeviceInfo {
                name: identity.name.clone(),
                driver: identity.driver.clone(),
                len: identity.len(),
            }
        });
        shared.flash_devices = devices.collect();
        shared.flash_memory = self.memory.clone();
        shared.flash_volume = Some(Arc::downgrade(&self.volume));
    }

    /// Starts what keeps segments free.
    pub(crate) fn start(self, shared: &Arc<Shared>) -> Result<RunningFlash, FlashError> {
        announce(&self);
        let has_ended = Arc::new(AtomicBool::new(false));
        let names = self.devices.iter().map(|it| it.identity().name.clone());
        let troubles = Troubles::new(Arc::clone(&self.volume), names.collect());
        let keeper = match shared.store.flash_keeper() {
            Some(keeper) => Some(
                start_keeper(keeper, troubles, Arc::clone(shared), Arc::clone(&has_ended))
                    .map_err(|source| FlashError::System {
                        action: "start a thread",
                        source,
                    })?,
            ),
            None => None,
        };
        Ok(RunningFlash {
            devices: self.devices,
            _volume: self.volume,
            keeper,
            has_ended,
        })
    }
}

/// The flash of a server that runs.
pub(crate) struct RunningFlash {
    devices: Vec<Box<dyn BlockDevice>>,
    _volume: Arc<Volume>,
    keeper: Option<JoinHandle<()>>,
    has_ended: Arc<AtomicBool>,
}

impl RunningFlash {
    /// Ends it, after all workers have left.
    pub(crate) fn end(mut self) {
        self.has_ended.store(true, Relaxed);
        if let Some(keeper) = self.keeper.take()
            && keeper.join().is_err()
        {
            tracing::error!("the keeper of flash has panicked");
        }
        drop(self.devices);
    }
}

fn start_keeper(
    mut keeper: FlashKeeper,
    mut troubles: Troubles,
    shared: Arc<Shared>,
    has_ended: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    let keep = move || {
        let _stack = memory_errors::install_thread();
        let now = || -> UnixSeconds { shared.clock.now().unix };
        while !has_ended.load(Relaxed) {
            while keeper.keep(now()) && !has_ended.load(Relaxed) {}
            troubles.tell(&shared);
            keeper.wait(KEEPER_SLEEP);
        }
    };
    thread::Builder::new()
        .name("coua-flash".to_owned())
        .spawn(keep)
}

fn announce(flash: &AttachedFlash) {
    let volume = &flash.volume;
    tracing::info!(
        "flash: {} MiB in {} segments; items up to {} KiB in one record, longer ones in pieces up to {} MiB in all",
        (u64::from(volume.segments()) * volume.segment_len() as u64) >> 20,
        volume.segments(),
        volume.item_len_max() >> 10,
        // As much as can be written at once, when a segment is full.
        (2 * volume.segment_len()) >> 20,
    );
    for device in &flash.devices {
        let Identity {
            name,
            driver,
            sector_len,
            ..
        } = device.identity();
        let mib = device.identity().len() >> 20;
        tracing::info!("flash: {name}: {mib} MiB, sectors of {sector_len} bytes, by {driver}");
    }
    match &flash.kept {
        None => {}
        Some(Ok(0)) => tracing::info!("flash: all of it is found again"),
        Some(Ok(lost)) => {
            tracing::warn!("flash: found again, but for {lost} segments, whose items are gone");
        }
        Some(Err(why)) => tracing::info!("flash: it begins empty: {why}"),
    }
}

/// Whether something that is named like a file is a device.
fn is_device(place: &FlashPath) -> bool {
    let kind = place.path().and_then(|path| std::fs::metadata(path).ok());
    kind.is_some_and(|kind| !kind.is_file())
}

fn open(
    place: &FlashPath,
    settings: &Settings,
    regions: &[Arc<Region>],
) -> Result<Box<dyn BlockDevice>, FlashError> {
    let opened: Result<Box<dyn BlockDevice>, OpenError> = match place {
        FlashPath::File { path, len } => file(path, Some(*len), regions),
        FlashPath::Block(path) => file(path, None, regions),
        FlashPath::Passthrough(path) => {
            PassthroughDevice::open(path, false, regions).map(|device| Box::new(device) as _)
        }
        FlashPath::Pci { address, namespace } => {
            let options = NvmeOptions {
                namespace: *namespace,
                // One more to open and close the volume with.
                queues: u16::try_from(settings.workers + 1).unwrap_or(u16::MAX),
                ..NvmeOptions::default()
            };
            NvmeDevice::open(address, options, regions).map(|device| Box::new(device) as _)
        }
    };
    opened.map_err(|error| FlashError::Device {
        place: place.to_string(),
        error,
    })
}

fn file(
    path: &Path,
    len: Option<u64>,
    regions: &[Arc<Region>],
) -> Result<Box<dyn BlockDevice>, OpenError> {
    let options = Options {
        len,
        ..Options::default()
    };
    FileDevice::open(path, options, regions).map(|device| Box::new(device) as _)
}

/// The time since `began`, for who waits for a device; so it sleeps a little.
fn clock(began: Instant) -> impl FnMut() -> u64 {
    move || {
        thread::sleep(Duration::from_micros(20));
        u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What no other volume is called.
fn random() -> Result<u64, FlashError> {
    let mut bytes = [0; 8];
    let failed = |source: io::Error| FlashError::System {
        action: "get a random number",
        source,
    };
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| failed(error.into()))?;
    match got == bytes.len() {
        true => Ok(u64::from_ne_bytes(bytes)),
        false => Err(failed(io::ErrorKind::UnexpectedEof.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_flash_stays_a_small_part_of_all() {
        for (gib, mib, workers) in [(1, 64, 1), (1, 64, 2), (256, 1024, 4), (4096, 65536, 32)] {
            let plan = Plan::new(gib << 30, mib << 20, workers);
            let takes = plan.memory() * workers;
            assert!(takes <= (mib << 20) / 4, "{plan:?}");
            assert!(plan.segment_len >= 1 << 20 && plan.reads() > 80, "{plan:?}");
        }
        // Segments on a device of 1 TiB are long where there is memory for them.
        assert_eq!(Plan::new(1 << 40, 16 << 30, 8).segment_len, 16 << 20);
        assert!(Plan::new(1 << 40, 64 << 30, 8).reads() > 5000);
    }
}
