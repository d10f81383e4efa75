//! Datagrams: no panic, every span inside of the datagram, and replies that can be put together.
#![no_main]

use coua_protocol::datagram::{Frame, PART_LEN};
use coua_protocol::{Dialect, Limits, Parser, Step};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((frame, mut request)) = Frame::read(data) else {
        return;
    };
    let limits = Limits {
        gather_max: 1 << 16,
        ..Limits::default()
    };
    let mut parser = Parser::of(Dialect::Unknown);
    let mut reply = Vec::new();
    while !request.is_empty() {
        match parser.next(request, &limits) {
            Step::Op { consumed, op } => {
                // A request of some length has a reply of some length.
                reply.extend(request[..consumed as usize].iter().rev());
                request = &request[consumed as usize..];
                if op.closes() {
                    break;
                }
            }
            Step::Skip { consumed } => request = &request[consumed as usize..],
            Step::More { .. } | Step::Close { .. } => break,
        }
    }
    let mut joined = Vec::new();
    for (at, (head, part)) in frame.parts(&reply, PART_LEN).enumerate() {
        assert_eq!(usize::from(u16::from_be_bytes([head[2], head[3]])), at);
        assert_eq!(u16::from_be_bytes([head[0], head[1]]), frame.request_id);
        assert!(!part.is_empty() && part.len() <= PART_LEN);
        joined.extend_from_slice(part);
    }
    assert_eq!(joined, reply);
});
