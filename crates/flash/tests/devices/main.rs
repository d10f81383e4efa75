//! Every driver passes the same suite: the simulated device, files and loop devices here, NVMe in a virtual machine.

#![allow(
    clippy::cast_possible_truncation,
    reason = "bytes of patterns, and sectors of small devices"
)]
#![allow(
    clippy::print_stdout,
    reason = "tests say which drivers they had, and what was left out"
)]

mod files;
mod loops;
#[cfg(feature = "lab")]
mod nvme;
mod suite;

use coua_flash::simulated::{Settings, SimulatedDevice};

#[test]
fn simulated() {
    let device = SimulatedDevice::new(Settings::default(), 1);
    suite::run(&device, None);
    let sectors_of_4096 = Settings {
        sectors: 4096,
        sector_len: 4096,
        cache_sectors: 0,
        ..Settings::default()
    };
    suite::run(&SimulatedDevice::new(sectors_of_4096, 2), None);
}
