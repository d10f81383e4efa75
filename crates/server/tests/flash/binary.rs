//! The binary protocol over items on flash.

use crate::scene::{Client, Scene, value};

const GET: u8 = 0x00;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const NOOP: u8 = 0x0a;
const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
const APPEND: u8 = 0x0e;

fn frame(opcode: u8, opaque: u32, cas: u64, extras: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend_from_slice(&u16::try_from(key.len()).expect("a key").to_be_bytes());
    bytes.push(u8::try_from(extras.len()).expect("extras"));
    bytes.extend_from_slice(&[0; 3]);
    let body = extras.len() + key.len() + value.len();
    bytes.extend_from_slice(&u32::try_from(body).expect("a body").to_be_bytes());
    bytes.extend_from_slice(&opaque.to_be_bytes());
    bytes.extend_from_slice(&cas.to_be_bytes());
    bytes.extend_from_slice(extras);
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(value);
    bytes
}

struct Answer {
    opcode: u8,
    status: u16,
    opaque: u32,
    cas: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

fn answer(client: &mut Client) -> Answer {
    let head = client.take(24);
    let short = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let long = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!(head[0], 0x81);
    let body = client.take(long(8) as usize);
    let key_from = usize::from(head[4]);
    let value_from = key_from + short(2);
    Answer {
        opcode: head[1],
        status: u16::try_from(short(6)).expect("a status"),
        opaque: long(12),
        cas: u64::from_be_bytes(head[16..24].try_into().expect("8 bytes")),
        key: body[key_from..value_from].to_vec(),
        value: body[value_from..].to_vec(),
    }
}

#[test]
fn binary_requests() {
    const COUNT: usize = 200;
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    for number in 0..COUNT {
        client.set(&format!("k{number}"), &value(number, 300));
        client.set(
            &format!("{}{number}", "n".repeat(150)),
            number.to_string().as_bytes(),
        );
    }
    client.push_out();
    let mut binary = scene.client();
    // Quiet gets of many keys, and a noop that ends them.
    let mut request = Vec::new();
    for number in 0..COUNT {
        let opaque = u32::try_from(number).expect("a small number");
        request.extend(frame(GETKQ, opaque, 0, &[], &format!("k{number}"), &[]));
    }
    request.extend(frame(NOOP, u32::MAX, 0, &[], "", &[]));
    binary.send(request);
    let mut found = 0;
    let mut last = None;
    loop {
        let got = answer(&mut binary);
        if got.opcode == NOOP {
            assert_eq!(got.opaque, u32::MAX);
            break;
        }
        assert_eq!((got.opcode, got.status), (GETKQ, 0));
        assert!(last < Some(got.opaque), "out of order");
        last = Some(got.opaque);
        assert_eq!(got.key, format!("k{}", got.opaque).into_bytes());
        assert!(got.value == value(got.opaque as usize, 300));
        found += 1;
    }
    assert!(found > COUNT / 10, "{found}");
    assert!(client.stat("get_extstore") > 0);

    for number in 0..COUNT {
        let key = format!("k{number}");
        binary.send(frame(APPEND, 1, 0, &[], &key, b"end"));
        if answer(&mut binary).status != 0 {
            // The device did not keep up, and it was evicted.
            continue;
        }
        binary.send(frame(GETK, 2, 0, &[], &key, &[]));
        let got = answer(&mut binary);
        assert!(
            got.value == [&*value(number, 300), b"end"].concat(),
            "{key}"
        );
        binary.send(frame(DELETE, 3, got.cas + 1, &[], &key, &[]));
        assert_eq!(
            answer(&mut binary).status,
            2,
            "{key} exists with another CAS"
        );
        binary.send(frame(DELETE, 4, got.cas, &[], &key, &[]));
        assert_eq!(answer(&mut binary).status, 0, "{key}");
        binary.send(frame(GET, 5, 0, &[], &key, &[]));
        assert_eq!(answer(&mut binary).status, 1, "{key} is gone");

        let key = format!("{}{number}", "n".repeat(150));
        let extras = [
            &7u64.to_be_bytes()[..],
            &0u64.to_be_bytes(),
            &u32::MAX.to_be_bytes(),
        ]
        .concat();
        binary.send(frame(INCREMENT, 6, 0, &extras, &key, &[]));
        let got = answer(&mut binary);
        if got.status == 0 {
            assert_eq!(got.value, (number as u64 + 7).to_be_bytes());
        }
    }
    assert!(client.stat("recache_from_extstore") > COUNT as u64 / 10);
}
