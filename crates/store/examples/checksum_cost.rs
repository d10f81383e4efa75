//! What a checksum over each value would cost a GET, by rapidhash, the hash of keys:
//! `cargo run --release -p coua-store --example checksum_cost`.
#![allow(clippy::print_stdout, reason = "it reports")]

use std::hint::black_box;
use std::time::Instant;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

/// Values of all that is hashed in turn: more than a core's caches hold.
const ALL: usize = 64 << 20;

fn main() {
    let secrets = RapidSecrets::seed(1);
    let bytes = vec![7_u8; ALL];
    for len in [100, 4096] {
        for (what, window) in [("in the cache", 8 * len), ("copied from memory first", ALL)] {
            let mut copy = vec![0; len];
            let time = |is_hashed: bool, copy: &mut [u8]| {
                let rounds = (256 << 20) / len;
                let began = Instant::now();
                for round in 0..rounds {
                    let at = round * len % (window - len + 1);
                    copy.copy_from_slice(&bytes[at..at + len]);
                    black_box(&mut *copy);
                    if is_hashed {
                        black_box(rapidhash_v3_inline::<true, false, false>(copy, &secrets));
                    }
                }
                #[expect(clippy::cast_precision_loss, reason = "it is an average")]
                let each = began.elapsed().as_nanos() as f64 / rounds as f64;
                each
            };
            let (without, with) = (time(false, &mut copy), time(true, &mut copy));
            println!(
                "{len:5} bytes {what}: {without:.1} ns copied, {with:.1} ns copied and hashed"
            );
        }
    }
}
