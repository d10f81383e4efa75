//! AF_XDP on cards with drivers of their own, rather than on a veth pair: an emulated machine's,
//! with the kernel's TCP on a second card at the other end.
//!
//! It needs that machine: `cargo xtask test lab` boots it.

use crate::netns::Cards;
use crate::scene::Scene;
use crate::{conversations, ends, large_values, two_workers};

const VIRTIO: Cards = Cards {
    driver: "virtio_net",
    merging: "rx-gro-hw",
};
const VMXNET3: Cards = Cards {
    driver: "vmxnet3",
    merging: "lro",
};

/// What `ss` shows of a socket whose frames the card reaches itself.
const ZERO_COPY: &str = "zc:1";

/// How many of the server's sockets are so.
fn zero_copies(scene: &Scene) -> usize {
    let words = "--xdp --extended --no-header";
    let text = scene.pair.ours.run("ss", words);
    eprintln!("{text}");
    text.matches(ZERO_COPY).count()
}

fn everyday_life(scene: &Scene) {
    conversations(scene);
    large_values(scene);
    ends(scene);
    scene.ping();
}

#[test]
fn virtio_without_copies() {
    let scene = Scene::at(VIRTIO.pair(), "xdp", &[]);
    // Both queues are the one worker's.
    assert_eq!(zero_copies(&scene), 2);
    everyday_life(&scene);
}

#[test]
fn virtio_with_two_workers() {
    let scene = Scene::at(VIRTIO.pair(), "xdp", &["-t", "2"]);
    assert_eq!(zero_copies(&scene), 2);
    two_workers(&scene);
}

/// The emulated card has two queues and fills only the first; its driver copies.
#[test]
fn vmxnet3() {
    let scene = Scene::at(VMXNET3.pair(), "xdp", &["-t", "2"]);
    assert_eq!(zero_copies(&scene), 0);
    everyday_life(&scene);
}
