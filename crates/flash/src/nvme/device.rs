//! A namespace as a device.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::binding::Binding;
use super::controller::Controller;
use super::hardware::Hardware;
use super::identify::{ControllerFacts, NamespaceFacts};
use super::prp::PAGE_LEN;
use super::queue::NvmeQueue;
use super::shared::{Mapped, NvmeOptions, Shared, elapsed_ns};
use super::vfio::Vfio;
use crate::device::{BlockDevice, Identity, OPENING_LEN, OpenError, Queue};
use crate::{Buffer, Region};

/// A transfer is never longer: what is left of a list whose first page is not whole.
const TRANSFER_LEN_MAX: usize = 1 << 20;

/// A namespace of an NVMe controller that this process drives itself.
///
/// Memory outside of the regions that it was opened with is refused: nothing is mapped while requests are made.
pub struct NvmeDevice {
    identity: Identity,
    shared: Arc<Shared>,
    /// Mapped beside what the caller wanted mapped, for [`BlockDevice::opening_memory`].
    opening: Mutex<Vec<Buffer>>,
}

/// How often a device may be asked for such memory: to open, recover and close a volume, and once more.
const OPENINGS: usize = 4;

impl NvmeDevice {
    /// Takes the controller at a PCI address (`0000:01:00.0`) from the kernel's driver, brings it up, and maps
    /// `regions` for it. The kernel's driver gets it back when the device and its queues are dropped, or this process
    /// ends, however it does: see [`Binding`].
    ///
    /// # Errors
    /// Where there is no such device or no IOMMU, something uses it, or it does not come up in time.
    pub fn open(
        pci_address: &str,
        options: NvmeOptions,
        regions: &[Arc<Region>],
    ) -> Result<NvmeDevice, OpenError> {
        let binding = Binding::take(pci_address)?;
        let hardware = Arc::new(Vfio::open(&binding, options.queues.saturating_add(1))?);
        let opening: Vec<Buffer> = (0..OPENINGS)
            .map(|_| Region::allocate(OPENING_LEN))
            .collect();
        let own = opening.iter().map(|buffer| Arc::clone(buffer.region()));
        let regions: Vec<Arc<Region>> = regions.iter().map(Arc::clone).chain(own).collect();
        let begin = Instant::now();
        let mut clock = || {
            std::thread::sleep(Duration::from_micros(100));
            elapsed_ns(begin)
        };
        let device = NvmeDevice::over(
            hardware,
            Some(binding),
            pci_address,
            options,
            &regions,
            &mut clock,
        )?;
        Ok(NvmeDevice {
            opening: Mutex::new(opening),
            ..device
        })
    }

    /// A controller in this process, driven in the same way: for measurements of the driver. With a latency, a thread
    /// that never sleeps plays the device.
    ///
    /// # Errors
    /// None but those of a fault.
    #[cfg(any(test, feature = "simulated"))]
    pub fn simulated(
        sectors: usize,
        sector_len: usize,
        latency: Option<super::Latency>,
        regions: &[Arc<Region>],
    ) -> Result<NvmeDevice, OpenError> {
        let fake = super::fake::Fake::new(sectors, sector_len, super::fake::Manners::default());
        if let Some(latency) = latency {
            fake.take_time(latency);
        }
        let begin = Instant::now();
        let mut clock = || elapsed_ns(begin);
        let options = NvmeOptions::default();
        NvmeDevice::over(fake, None, "simulated", options, regions, &mut clock)
    }

    /// Brings up whatever hardware there is.
    pub(super) fn over(
        hardware: Arc<dyn Hardware>,
        binding: Option<Binding>,
        name: &str,
        options: NvmeOptions,
        regions: &[Arc<Region>],
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<NvmeDevice, OpenError> {
        let controller = Controller::new(Arc::clone(&hardware), options.queues, clock())?;
        let queues = controller.start(clock)?;
        let facts = ControllerFacts::read(&*controller.identify(0, 1, clock)?)?;
        if options.namespace == 0 || options.namespace > facts.namespaces {
            return Err(OpenError::Misbehaves("no such namespace"));
        }
        let namespace = controller.identify(options.namespace, 0, clock)?;
        let namespace = NamespaceFacts::read(&namespace)?;
        let mut mapped = Vec::with_capacity(regions.len());
        for region in regions {
            let address = hardware.map(region).map_err(OpenError::at("map memory"))?;
            mapped.push(Mapped {
                region: Arc::clone(region),
                address,
            });
        }
        let of_controller = match facts.transfer_pages_log2 {
            0 => TRANSFER_LEN_MAX,
            log2 => PAGE_LEN
                .checked_shl(u32::from(log2))
                .unwrap_or(TRANSFER_LEN_MAX),
        };
        let identity = Identity {
            name: format!("{name} ({} {})", facts.model, facts.serial),
            driver: format!("NVMe in user space, {queues} queues"),
            sectors: namespace.sectors,
            sector_len: namespace.sector_len,
            transfer_len_max: of_controller.clamp(PAGE_LEN, TRANSFER_LEN_MAX),
            has_volatile_cache: facts.has_volatile_cache,
        };
        let shared = Shared {
            controller,
            regions: mapped,
            options,
            can_discard: facts.can_discard,
            _binding: binding,
        };
        Ok(NvmeDevice {
            identity,
            shared: Arc::new(shared),
            opening: Mutex::default(),
        })
    }
}

impl BlockDevice for NvmeDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, OpenError> {
        let queue = NvmeQueue::open(&self.shared, &self.identity, depth)?;
        Ok(Box::new(queue))
    }

    fn opening_memory(&self) -> Buffer {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // Beyond what is mapped its requests are refused.
        let mapped = opening.pop();
        mapped.unwrap_or_else(|| Region::allocate(OPENING_LEN))
    }
}
