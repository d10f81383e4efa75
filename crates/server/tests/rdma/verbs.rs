//! The same over verbs, in the virtual machine: Soft-RoCE on an emulated card.

use std::process::Command;

use super::support::coua_program;
use super::{WHERE, deaths, forged, requests};

/// The card's address.
const PLACE: &str = "10.9.0.1,provider=verbs,clients=8";

/// Makes a device of the card, once.
fn begin() {
    WHERE.get_or_init(|| {
        for line in [
            "ip link set lo up",
            "ip link set eth0 up",
            "ip addr add 10.9.0.1/24 dev eth0",
            "rdma link add rxe0 type rxe netdev eth0",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let status = Command::new(words[0]).args(&words[1..]).status();
            assert!(status.expect("it is installed").success(), "{line}");
        }
        // The program comes through a slow file system, and is in memory then.
        let status = Command::new(coua_program()).arg("-V").status();
        assert!(status.expect("it is built").success());
        PLACE
    });
}

#[test]
fn requests_are_answered() {
    begin();
    requests::every_kind_of_request_is_answered_as_over_tcp();
    requests::values_of_every_length_come_and_go();
    requests::values_come_by_append_and_by_meta_too();
    requests::a_reply_without_room_says_how_much_it_needs();
    requests::many_requests_are_under_way_at_once();
}

#[test]
fn nothing_stays_behind_of_clients_that_die() {
    begin();
    deaths::clients_die(60);
    deaths::the_end_of_the_ordinary_connection_ends_the_other();
    deaths::a_server_that_stops_ends_its_connections();
}

#[test]
fn who_cheats_is_disconnected() {
    begin();
    forged::a_token_is_good_once_and_for_its_own_connection();
    forged::who_cheats_is_disconnected_and_others_notice_nothing();
}
