//! What the model says of the protocols. Its times are the same in every run.

use coua_rdma::simulated::peers::{U2, osu_get, osu_set, tcp_get, u2_get, u2_set};
use coua_rdma::simulated::requests::{Asked, Source, rate, time};
use coua_rdma::simulated::{Profile, profiles};

const PROFILES: [Profile; 4] = [
    profiles::DDR,
    profiles::QDR,
    profiles::FDR,
    profiles::ROCE_100,
];

/// From 64 bytes to 512 KiB.
fn lens() -> impl Iterator<Item = usize> {
    (6..20).map(|power| 1 << power)
}

/// How many hundredths of coua's time the other's is.
fn percent(ours: u64, theirs: u64) -> u64 {
    theirs * 100 / ours
}

#[test]
fn the_model_gives_what_osu_has_published() {
    // 12 microseconds on QDR, about 20 on DDR; 10 GigE takes about four times as long.
    let us = |ps: u64| ps / 100_000;
    assert!((115..125).contains(&us(osu_get(profiles::QDR, 4096))));
    assert!((195..206).contains(&us(osu_get(profiles::DDR, 4096))));
    let over_tcp = percent(
        osu_get(profiles::QDR, 4096),
        tcp_get(profiles::TCP_10G, 4096),
    );
    assert!((350..450).contains(&over_tcp), "{over_tcp} %");
}

#[test]
fn no_request_takes_longer_than_osus() {
    for profile in PROFILES {
        for len in lens() {
            let get = time(profile, Asked::Get, len, Source::Registered);
            let set = time(profile, Asked::Set, len, Source::Registered);
            let (their_get, their_set) = (osu_get(profile, len), osu_set(profile, len));
            assert!(
                get <= their_get,
                "{} GET of {len}: {get} {their_get}",
                profile.name
            );
            assert!(
                set <= their_set,
                "{} SET of {len}: {set} {their_set}",
                profile.name
            );
        }
        // Where OSU copies most.
        let get = time(profile, Asked::Get, 8192, Source::Registered);
        assert!(
            percent(get, osu_get(profile, 8192)) >= 115,
            "{}",
            profile.name
        );
    }
}

#[test]
fn a_heap_costs_no_more_than_with_u2cache() {
    for profile in PROFILES {
        for len in lens() {
            let get = time(profile, Asked::Get, len, Source::Heap);
            let their_get = u2_get(profile, len, U2::Chunks);
            let percent_get = percent(get, their_get);
            assert!(
                percent_get >= 98,
                "{} GET of {len}: {percent_get} %",
                profile.name
            );
            let set = time(profile, Asked::Set, len, Source::TrustedHeap);
            let percent_set = percent(set, u2_set(profile, len, U2::Rme));
            assert!(
                percent_set >= 94,
                "{} SET of {len}: {percent_set} %",
                profile.name
            );
            if len <= 128 << 10 {
                let set = time(profile, Asked::Set, len, Source::Heap);
                let percent_set = percent(set, u2_set(profile, len, U2::Chunks));
                assert!(
                    percent_set >= 100,
                    "{} SET of {len}: {percent_set} %",
                    profile.name
                );
            }
        }
    }
}

#[test]
fn two_clients_get_more_than_u2cache_has_published() {
    // 200,000 GETs and 230,000 SETs of 4 KiB a second, one at a time each.
    let gets = rate(profiles::FDR, Asked::Get, 4096, Source::Heap, 2, 1);
    let sets = rate(profiles::FDR, Asked::Set, 4096, Source::Heap, 2, 1);
    assert!(gets > 240_000.0 && sets > 240_000.0, "{gets} {sets}");
}
