use super::{Got, Manner, Network, Peer};
use crate::{Accepted, Events, Listener, Poller, Readiness, Received, Sent, Stream, Token};
use std::time::Duration;

const WHOLE: Manner = Manner {
    up_room: 1 << 20,
    down_room: 64,
    piece_max: 1 << 20,
    short_send_one_in: 0,
    refused_send_one_in: 0,
};

struct Scene {
    network: Network,
    poller: Poller,
    events: Events,
    stream: Stream,
    peer: Peer,
}

impl Scene {
    fn new(manner: Manner) -> Scene {
        let network = Network::new(7, 0);
        let listener = Listener::from(network.listen_unix());
        let (poller, _) = network.poller();
        let poller = Poller::from(poller);
        let peer = network.connect(manner);
        let Accepted::Stream(stream) = listener.accept() else {
            panic!("a connection waits");
        };
        poller.add_stream(&stream, Token(3)).expect("it is new");
        let mut scene = Scene {
            network,
            poller,
            events: Events::new(),
            stream,
            peer,
        };
        assert!(
            scene
                .wait()
                .is_some_and(|event| event.writable && !event.readable)
        );
        scene
    }

    fn wait(&mut self) -> Option<Readiness> {
        let wait = self.poller.wait(&mut self.events, Duration::ZERO, || {});
        wait.expect("it waits").next()
    }

    fn deliver(&self) {
        for _ in 0..64 {
            self.network.pass_time();
        }
    }
}

#[test]
fn an_edge_is_told_of_once() {
    let mut scene = Scene::new(WHOLE);
    assert_eq!(scene.peer.send(b"hello"), Some(5));
    assert!(scene.wait().is_none(), "it has not arrived");
    scene.deliver();
    assert!(scene.wait().is_some_and(|event| event.readable));
    assert!(scene.wait().is_none());
    let mut room = [0; 16];
    assert_eq!(scene.stream.receive(&mut room), Received::Bytes(5));
    assert_eq!(scene.stream.receive(&mut room), Received::Nothing);
    scene.peer.end();
    scene.deliver();
    assert!(scene.wait().is_some_and(|event| event.end_of_stream));
    assert_eq!(scene.stream.receive(&mut room), Received::Ended);
}

#[test]
fn room_is_told_of_when_there_is_enough() {
    let mut scene = Scene::new(WHOLE);
    assert_eq!(scene.stream.send(&[b'x'; 100]), Sent::Bytes(64));
    assert_eq!(scene.stream.send(&[b'x'; 36]), Sent::Full);
    let mut got = Vec::new();
    assert_eq!(scene.peer.receive(&mut got, 20), Got::Bytes(20));
    assert!(scene.wait().is_none(), "less than a third is free");
    assert_eq!(scene.peer.receive(&mut got, 1), Got::Bytes(1));
    assert!(scene.wait().is_some_and(|event| event.writable));
    assert_eq!(scene.stream.send(&[b'x'; 36]), Sent::Bytes(21));
}

#[test]
fn a_refused_send_is_made_good() {
    let manner = Manner {
        refused_send_one_in: 1,
        ..WHOLE
    };
    let mut scene = Scene::new(manner);
    assert_eq!(scene.stream.send(b"x"), Sent::Full);
    assert!(scene.wait().is_none());
    scene.deliver();
    assert!(scene.wait().is_some_and(|event| event.writable));
}

#[test]
fn a_reset_breaks_both_directions() {
    let mut scene = Scene::new(WHOLE);
    assert_eq!(scene.stream.send(b"lost"), Sent::Bytes(4));
    scene.peer.reset();
    let event = scene.wait().expect("an edge");
    assert!(event.readable && event.writable && event.end_of_stream);
    assert_eq!(scene.stream.receive(&mut [0; 4]), Received::Ended);
    assert_eq!(scene.stream.send(b"x"), Sent::Broken);
    assert_eq!(scene.peer.receive(&mut Vec::new(), 9), Got::Ended);
    assert_eq!(scene.peer.send(b"x"), None);
}
