//! A stack with open connections gets whatever frames: no panic, memory within its bounds, and
//! nothing left over once everybody is gone. Half of the frames are segments whose numbers are near
//! those that count, since others are dropped at the door.
#![no_main]

#[path = "tcp/card.rs"]
mod card;
#[path = "tcp/input.rs"]
mod input;

use std::time::Duration;

use card::{Card, OUR_MAC};
use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::seq::SeqNumber;
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;
use coua_tcp::wire::tcp::{Flags, Header, Options, Timestamps};
use input::Input;
use libfuzzer_sys::fuzz_target;

const PORT: u16 = 11211;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut config = Config::new(vec!["192.0.2.1/24".parse().expect("an address")], [9; 32]);
    config.connections_max = 16;
    config.half_open_max = 3;
    config.memory_max = 1 << 20;
    config.receive_len_max = 20_000;
    config.send_len_max = 20_000;
    config.keep_alive = Some(Duration::from_secs(10));
    config.trusts_link = true;
    let mut card = Card::new();
    let mut stack = Stack::new(config, card.features(), Instant::default());
    stack.listen(PORT);
    stack.listen_for_datagrams(PORT);
    let mut now_us = 0u64;
    let mut ids: Vec<ConnectionId> = Vec::new();
    while !input.0.is_empty() {
        let what = input.byte();
        match what % 8 {
            0 => now_us += u64::from(input.word()) * u64::from(input.word()),
            1 => {
                let len = usize::from(input.word() % 1600);
                let (frame, rest) = input.0.split_at(len.min(input.0.len()));
                let mut frame = frame.to_vec();
                input.0 = rest;
                // For us, so that it is looked at.
                if let Some(destination) = frame.first_chunk_mut::<6>() {
                    *destination = OUR_MAC.0;
                }
                card.inbox.push(frame);
            }
            2 if ids.len() < 8 => {
                let to = "192.0.2.2:80".parse().expect("an address");
                ids.extend(stack.connect(to, |_| true).ok());
            }
            _ => {
                let frame = segment(&mut input, card.last);
                card.inbox.push(frame);
            }
        }
        if what & 0x40 != 0 && card.inbox.len() < 64 {
            // More frames for the same burst.
            continue;
        }
        now_us += 1;
        turn(&mut stack, &mut card, now_us, &mut ids, what);
        assert!(stack.connections() <= 16);
    }
    for &id in &ids {
        stack.abort(id);
    }
    // Every timer fires sooner or later.
    for _ in 0..64 {
        now_us += 60_000_000;
        card.clear();
        turn(&mut stack, &mut card, now_us, &mut ids, 0x80);
    }
    assert_eq!((stack.connections(), stack.buffers_in_use()), (0, 0));
});

/// A segment whose numbers are near those that the stack goes by.
fn segment(input: &mut Input<'_>, last: Option<Header>) -> Vec<u8> {
    let flags = Flags(input.byte());
    let ports = input.byte();
    let (mut seq, mut ack) = (u32::from(input.word()), u32::from(input.word()));
    if let Some(last) = last {
        let near = |number: u32, step: u32| number.wrapping_add(step).wrapping_sub(1 << 15);
        let exact = |number: u32, step: u32| {
            if step < 1 << 14 {
                number
            } else {
                near(number, step)
            }
        };
        (seq, ack) = (exact(last.ack.0, seq), exact(last.seq.0, ack));
        if last.flags.has(Flags::SYN) {
            ack = ack.wrapping_add(1);
        }
    }
    let mut options = Options::default();
    let kinds = input.byte();
    if kinds & 1 != 0 {
        options.mss = Some(input.word());
    }
    if kinds & 2 != 0 {
        options.window_scale = Some(input.byte());
    }
    options.sack_permitted = kinds & 4 != 0;
    if kinds & 8 != 0 {
        let echo = last
            .and_then(|last| last.options.timestamps)
            .map_or(0, |own| own.value);
        options.timestamps = Some(Timestamps {
            value: u32::from(input.word()),
            echo,
        });
    }
    if kinds & 0x10 != 0 && kinds & 7 == 0 {
        let base = last.map_or(0, |last| last.seq.0);
        for _ in 0..=kinds >> 7 {
            let from = base.wrapping_add(u32::from(input.word()));
            options.sack.push((
                SeqNumber(from),
                SeqNumber(from.wrapping_add(u32::from(input.word()))),
            ));
        }
    }
    let len = usize::from(input.word() % 1400);
    let header = Header {
        // A few ports, so that segments meet connections.
        source: match last {
            Some(last) if ports & 0x80 != 0 => last.destination,
            _ => 1000 + u16::from(ports & 7),
        },
        destination: match last {
            Some(last) if ports & 0x80 != 0 => last.source,
            _ => PORT,
        },
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: input.word(),
        options,
    };
    card::frame(&header, &vec![b'x'; len])
}

/// A turn of a user who reads, writes and closes as the input has it.
fn turn(stack: &mut Stack, card: &mut Card, now_us: u64, ids: &mut Vec<ConnectionId>, what: u8) {
    stack.begin(Instant::from_micros(now_us), card);
    while let Some(id) = stack.next_accepted() {
        ids.push(id);
    }
    let mut space = [0; 3000];
    while let Some((id, readiness)) = stack.next_ready() {
        if what & 0x20 == 0 {
            while let Received::Bytes(len) = stack.receive(card, id, &mut space) {
                assert!(space[..len].iter().all(|&byte| byte == b'x') || what % 8 == 1);
                let _ = stack.send(id, &space[..len]);
            }
        }
        if readiness.failure.is_some() || readiness.ended || what & 0x80 != 0 {
            match what & 0x10 {
                0 => stack.close(id),
                _ => stack.shut_down(id),
            }
        }
    }
    while let Some(datagram) = stack.next_datagram() {
        let len = datagram.bytes(card).len();
        stack.answer(card, &datagram, &[&space[..len.min(1000)]]);
    }
    while stack.next_notice().is_some() {}
    ids.retain(|&id| stack.describe(id).is_some());
    if what & 0x80 != 0 {
        for id in ids.drain(..) {
            stack.close(id);
        }
    }
    stack.end(card);
}
