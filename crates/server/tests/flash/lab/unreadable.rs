//! A medium with errors in many places, which are found only when they are read.

use super::{COUNT, Controller, Driver, missing, start, stop, store_all};
use crate::scene::Client;

/// Items on unreadable sectors are misses, and are not asked for again; everything else is right.
#[test]
fn items_on_bad_sectors_are_misses() {
    let controller = Controller::find(0);
    for driver in [Driver::Block, Driver::Passthrough, Driver::Own] {
        let process = start(&controller.place(driver), &[]);
        let mut client = Client::connect(process.address());
        // As many as fill the part of the device with errors.
        for prefix in ["a", "b", "c"] {
            client.fill(prefix, COUNT, 1000);
        }
        store_all(&mut client);
        let lost = missing(&mut client, 0..COUNT);
        let first = COUNT - lost.len();
        let failed = client.stat("miss_from_extstore");
        assert!(failed > 50, "{driver:?}: {failed}");
        assert!(first > COUNT / 2, "{driver:?}: {first}");
        assert!(client.stat("get_extstore") > 1000);
        assert_eq!(client.stat("badcrc_from_extstore"), 0);
        assert_eq!(client.stat("coua_flash_devices_gone"), 0);
        process.hear("flash: reads have failed");
        // What could not be read is not asked for again.
        assert_eq!(missing(&mut client, lost.iter().copied()), lost);
        let again = client.stat("miss_from_extstore") - failed;
        assert!(again <= failed / 20, "{driver:?}: {again} of {failed}");
        let said = process.said();
        assert_eq!(said.matches("reads have failed").count(), 1, "{said}");
        println!("{driver:?}: {first} of {COUNT} found, {failed} could not be read");
        stop(process);
        controller.wait_for_the_kernel();
    }
}
