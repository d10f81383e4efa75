//! Times of GETs and SETs with coua's protocol beside OSU's and U2cache's, in a model of their fabrics.
//!
//! `cargo run --release -p coua-rdma --features simulated --example rdma_figures`

#![allow(clippy::print_stdout, reason = "it prints tables")]

use coua_rdma::simulated::peers::{U2, osu_get, osu_set, tcp_get, u2_get, u2_set};
use coua_rdma::simulated::requests::{Asked, Source, rate, time};
use coua_rdma::simulated::{Profile, profiles};

const SIZES: [usize; 11] = [
    64,
    512,
    1024,
    4096,
    8192,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
];

fn us(ps: u64) -> String {
    format!("{}.{:02}", ps / 1_000_000, ps % 1_000_000 / 10_000)
}

fn ratio(ours: u64, theirs: u64) -> String {
    let hundredths = theirs * 100 / ours.max(1);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn table(profile: Profile) {
    println!("## {}\n", profile.name);
    println!("Microseconds; in brackets how many times as long as coua's.\n");
    println!(
        "| bytes | GET, coua | OSU | GET to a heap, coua | U2cache | SET, coua | OSU | SET from a heap, coua | coua, trusted | U2cache, chunks | U2cache, RME |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for len in SIZES {
        let get = time(profile, Asked::Get, len, Source::Registered);
        let get_heap = time(profile, Asked::Get, len, Source::Heap);
        let set = time(profile, Asked::Set, len, Source::Registered);
        let set_heap = time(profile, Asked::Set, len, Source::Heap);
        let trusted = time(profile, Asked::Set, len, Source::TrustedHeap);
        let theirs = |ours: u64, ps: u64| format!("{} ({})", us(ps), ratio(ours, ps));
        println!(
            "| {len} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            us(get),
            theirs(get, osu_get(profile, len)),
            us(get_heap),
            theirs(get_heap, u2_get(profile, len, U2::Chunks)),
            us(set),
            theirs(set, osu_set(profile, len)),
            us(set_heap),
            us(trusted),
            theirs(set_heap, u2_set(profile, len, U2::Chunks)),
            theirs(trusted, u2_set(profile, len, U2::Rme)),
        );
    }
    println!();
}

fn main() {
    for profile in [
        profiles::DDR,
        profiles::QDR,
        profiles::FDR,
        profiles::ROCE_100,
    ] {
        table(profile);
    }
    println!("## Two clients, 4 KiB, FDR\n");
    println!("| | one request at a time | 8 at a time |\n|---|---|---|");
    for (name, asked) in [("GET", Asked::Get), ("SET", Asked::Set)] {
        let rate = |window| rate(profiles::FDR, asked, 4096, Source::Heap, 2, window);
        println!("| {name} | {:.0} | {:.0} |", rate(1), rate(8));
    }
    println!("\n## GET over TCP\n");
    println!(
        "| bytes | {} | {} | coua, QDR |\n|---|---|---|---|",
        profiles::TCP_10G.name,
        profiles::IPOIB.name
    );
    for len in SIZES.into_iter().take(6) {
        let ours = time(profiles::QDR, Asked::Get, len, Source::Registered);
        let theirs = |profile| {
            let ps = tcp_get(profile, len);
            format!("{} ({})", us(ps), ratio(ours, ps))
        };
        println!(
            "| {len} | {} | {} | {} |",
            theirs(profiles::TCP_10G),
            theirs(profiles::IPOIB),
            us(ours)
        );
    }
}
