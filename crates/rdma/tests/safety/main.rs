//! The protocol is safe whatever the network does: no wrong value, nothing that stays behind.

#![expect(
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    reason = "keys are few, and a failing seed is told"
)]

mod attacker;
mod run;
mod user;

use coua_rdma::simulated::{Faults, profiles};

use run::{Run, Scene};

/// Runs with many seeds, and says which one failed.
fn seeds(scene: Scene, count: u64) {
    let mut requests = 0;
    let mut lost = 0;
    for seed in 0..count {
        let run = std::panic::catch_unwind(|| Run::new(scene, seed).run_to_the_end());
        match run {
            Ok(counts) => {
                requests += counts.answered;
                lost += counts.lost;
            }
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(requests > count * 10, "{requests} requests answered");
    assert_eq!(lost > 0, scene.faults.breaks > 0, "{lost} requests lost");
}

#[test]
fn all_is_well_on_a_network_without_faults() {
    seeds(Scene::default(), 150);
}

#[test]
fn messages_may_come_late() {
    let faults = Faults {
        late: 5,
        ..Faults::default()
    };
    seeds(
        Scene {
            faults,
            ..Scene::default()
        },
        150,
    );
}

#[test]
fn messages_may_overtake_each_other() {
    let scene = Scene {
        profile: profiles::EFA,
        ..Scene::default()
    };
    seeds(scene, 150);
}

#[test]
fn connections_may_break_at_any_message() {
    let faults = Faults {
        breaks: 60,
        late: 20,
        ..Faults::default()
    };
    seeds(
        Scene {
            faults,
            ..Scene::default()
        },
        500,
    );
}

#[test]
fn clients_may_die_at_any_message() {
    let faults = Faults {
        dies: 200,
        late: 20,
        ..Faults::default()
    };
    seeds(
        Scene {
            faults,
            ..Scene::default()
        },
        300,
    );
}

#[test]
fn trusted_clients_write_where_values_will_lie() {
    let scene = Scene {
        may_write: true,
        ..Scene::default()
    };
    seeds(scene, 200);
    // Most of them are told that the server will read their values.
    seeds(Scene { keys: 1, ..scene }, 100);
    let faults = Faults {
        breaks: 60,
        late: 20,
        ..Faults::default()
    };
    seeds(Scene { faults, ..scene }, 300);
    let scene = Scene {
        attackers: 2,
        ..scene
    };
    seeds(scene, 100);
}

#[test]
fn attackers_harm_themselves_alone() {
    let scene = Scene {
        attackers: 2,
        ..Scene::default()
    };
    seeds(scene, 300);
}
