//! Responses in pieces: no panic, no standing still, every span inside of its
//! input, and the same answers however the bytes are cut.
#![no_main]

use coua_protocol::response::{LINE_LEN_MAX, Part, ResponseStep, Responses};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[seed], bytes)) = data.split_first_chunk() else {
        return;
    };
    let mut random = u32::from(seed) | 1;
    let mut piece = || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        match seed {
            0 => 1,
            _ => random as usize % 32 + 1,
        }
    };
    let pieces = run(bytes, &mut piece);
    if bytes.len() < LINE_LEN_MAX {
        assert_eq!(pieces, run(bytes, &mut || bytes.len()));
    }
});

/// The lines and values with their bytes, where answers end, and whether it came
/// to no answer.
fn run(bytes: &[u8], piece: &mut impl FnMut() -> usize) -> (Vec<(Vec<u8>, bool)>, bool) {
    let mut responses = Responses::new();
    let mut seen = Vec::new();
    let mut value = Vec::new();
    let (mut front, mut end) = (0, 0);
    loop {
        let input = &bytes[front..end];
        match responses.next(input) {
            ResponseStep::More { at_least } => {
                assert!(at_least as usize > input.len());
                if end == bytes.len() {
                    return (seen, false);
                }
                end = bytes.len().min(end + piece());
            }
            ResponseStep::Part {
                consumed,
                part,
                complete,
            } => {
                assert!(consumed > 0 && consumed as usize <= input.len());
                front += consumed as usize;
                match part {
                    Part::Line { line, .. } => seen.push((line.of(input).to_vec(), complete)),
                    Part::Value { key, .. } => seen.push((key.of(input).to_vec(), complete)),
                    Part::MetaValue { flags, .. } => {
                        seen.push((flags.of(input).to_vec(), complete));
                    }
                    Part::Body { bytes, last } => {
                        value.extend_from_slice(bytes.of(input));
                        if last {
                            seen.push((std::mem::take(&mut value), complete));
                        }
                    }
                }
            }
            ResponseStep::Bad => return (seen, true),
        }
    }
}
