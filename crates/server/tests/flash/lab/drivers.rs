//! Each driver: what is stored is found, the kernel gets its device back, and a device may be slow.

use rustix::process::Signal;

use super::{Controller, Driver, found, from_outside, start, stop, store_and_read};
use crate::process::{Folder, Process};
use crate::scene::{Client, value};

/// Starts a server, stores and reads everything; the server is given back.
fn serve(controller: &Controller, driver: Driver, flags: &[&str]) -> Process {
    let place = controller.place(driver);
    let process = start(&place, flags);
    let line = process.hear("sectors of");
    println!("{line}");
    let mut client = Client::connect(process.address());
    store_and_read(&mut client);
    process
}

#[test]
fn the_block_device() {
    drop(serve(&Controller::find(0), Driver::Block, &[]));
}

#[test]
fn commands_through_the_kernel() {
    drop(serve(&Controller::find(0), Driver::Passthrough, &[]));
}

/// By coua's own driver, which gives the device back after a clean stop and after its death. What it has left on flash
/// is found by the next one, also through the kernel's driver.
#[test]
fn the_own_driver() {
    let controller = Controller::find(0);
    let folder = Folder::new();
    let memory = folder.text("memory");
    let flags = ["-e", memory.as_str()];
    let process = serve(&controller, Driver::Own, &flags);
    assert!(!controller.is_the_kernels());
    stop(process);
    controller.wait_for_the_kernel();

    let process = start(&controller.place(Driver::Own), &flags);
    process.hear("flash: all of it is found again");
    let mut client = Client::connect(process.address());
    let before = client.stat("get_extstore");
    assert!(found(&mut client) > 1000);
    assert!(client.stat("get_extstore") - before > 1000);
    process.signal(Signal::KILL);
    drop(process);
    controller.wait_for_the_kernel();

    let process = start(&controller.place(Driver::Block), &flags);
    let mut client = Client::connect(process.address());
    assert!(found(&mut client) > 1000);
    assert!(client.stat("get_extstore") > 1000);
}

/// A device that does twenty requests a second: what it cannot take is evicted, and nobody waits for it to store.
#[test]
fn throttled() {
    let controller = Controller::find(0);
    for driver in [Driver::Block, Driver::Passthrough, Driver::Own] {
        let process = start(&controller.place(driver), &[]);
        let mut client = Client::connect(process.address());
        client.fill("k", 40_000, 1000);
        from_outside("block_set_io_throttle nvme0 0 0 0 20 0 0");
        client.fill("other", 60_000, 1000);
        assert!(client.stat("coua_flash_items_refused") > 100, "{driver:?}");
        assert_eq!(client.stat("coua_flash_devices_gone"), 0);
        // What is in memory is answered while reads of the device wait.
        let mut slow = Client::connect(process.address());
        slow.send("get k1 k2 k3 k4 k5 k6 k7 k8 k9\r\n");
        client.set("here", b"1");
        assert!(client.get("here").is_some());
        for (key, bytes, _) in slow.values() {
            let number = key[1..].parse().expect("a number");
            assert!(bytes == value(number, 1000), "{key}");
        }
        from_outside("block_set_io_throttle nvme0 0 0 0 0 0 0");
        let said = process.said();
        assert_eq!(said.matches("do not keep up").count(), 1, "{said}");
        stop(process);
        controller.wait_for_the_kernel();
    }
}
