//! Devices that are pulled out of the machine, one a test.
//!
//! They need a newer kernel: that of Debian 12 dies of a fault of its own when the last file of a device is closed that is
//! no longer there (`nvme_dbbuf_dma_free`), and the server's process with it.

use super::{Controller, Driver, found, start, stop, store_all, wait};
use crate::scene::{Client, value};

/// The device is pulled out while clients store and read: what lay there is a miss, everything else goes on, and one
/// line says so.
fn pulled_out(number: usize, driver: Driver) {
    let controller = Controller::find(number);
    let process = start(&controller.place(driver), &[]);
    let mut client = Client::connect(process.address());
    store_all(&mut client);
    assert!(client.stat("extstore_objects_used") > 2000);
    let mut asked = Client::connect(process.address());
    let load = std::thread::spawn(move || {
        let mut rounds = 0;
        while asked.stat("coua_flash_devices_gone") == 0 {
            // Wrong values are noticed.
            found(&mut asked);
            rounds += 1;
            assert!(rounds < 100, "nobody notices");
        }
    });
    controller.pull_out();
    load.join().expect("clients are answered all the time");
    wait("the items are misses", || {
        client.stat("extstore_objects_used") == 0
    });
    let left = found(&mut client);
    client.fill("k", 20_000, 500);
    for key in (0..20_000).step_by(100) {
        if let Some(bytes) = client.get(&format!("k{key}")) {
            assert!(bytes == value(key, 500), "k{key}");
        }
    }
    assert_eq!(client.stat("coua_flash_devices_gone"), 1);
    println!("{driver:?}: {left} left in memory");
    process.hear("is gone; what lay there is a miss");
    let said = process.said();
    let lines = said
        .lines()
        .filter(|line| line.contains("flash: ") && line.contains("miss"));
    assert_eq!(lines.count(), 1, "{said}");
    stop(process);
}

#[test]
fn from_the_own_driver() {
    pulled_out(0, Driver::Own);
}

#[test]
fn from_the_block_device() {
    pulled_out(1, Driver::Block);
}

#[test]
fn from_commands_through_the_kernel() {
    pulled_out(2, Driver::Passthrough);
}
