//! Datagrams that ask for items on flash.

use std::net::UdpSocket;

use crate::process::PATIENCE;
use crate::scene::{Scene, value};

#[test]
fn datagrams_wait_for_flash() {
    const COUNT: usize = 500;
    let scene = Scene::new(&["-U", "-1", "--udp-reply-rate", "0"]);
    let line = scene.process.listening();
    let port = line.split("udp:").nth(1).expect("a UDP address");
    let address = port
        .split_whitespace()
        .next()
        .expect("an address")
        .to_owned();
    let mut client = scene.client();
    client.fill("k", COUNT, 1000);
    client.push_out();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(&address).expect("an address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut found = 0;
    for number in 0..COUNT {
        let id = u16::try_from(number).expect("a small number").to_be_bytes();
        let request = format!("get k{number}\r\n");
        let datagram = [&id[..], &[0, 0, 0, 1, 0, 0], request.as_bytes()].concat();
        socket.send(&datagram).expect("it is sent");
        let mut room = [0; 2000];
        let len = socket.recv(&mut room).expect("a reply");
        assert_eq!(room[..2], id);
        let reply = &room[8..len];
        if reply != b"END\r\n" {
            let head = format!("VALUE k{number} 0 1000\r\n");
            let due = [head.as_bytes(), &value(number, 1000), b"\r\nEND\r\n"];
            assert!(reply == due.concat(), "k{number}");
            found += 1;
        }
    }
    assert!(found > COUNT / 10, "{found}");
    assert!(client.stat("get_extstore") > 10);
}
