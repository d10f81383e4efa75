//! Strangers that do their worst do not keep users from being served.

use std::thread;

use crate::{Connection, Guarded, login};

/// Connections of each attacker.
const CONNECTIONS: usize = 50;

#[test]
fn guesses_are_held_and_users_are_served() {
    let server = Guarded::start("alice:secret\n", &["-S", "-t", "1", "-c", "200"]);
    let mut user = Connection::log_in(server.address, "alice", "secret");
    let guess = login("alice", "guess");
    let many = guess.repeat(200);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut attackers: Vec<Connection> = (0..CONNECTIONS)
                .map(|_| Connection::to(server.address))
                .collect();
            for attacker in &mut attackers {
                attacker.send(&many);
            }
            for attacker in &mut attackers {
                attacker.ask("", "CLIENT_ERROR authentication failure\r\n");
            }
        });
        scope.spawn(|| {
            for _ in 0..CONNECTIONS {
                let mut attacker = Connection::to(server.address);
                attacker.ask(&guess, "CLIENT_ERROR authentication failure\r\n");
            }
        });
        for _ in 0..1000 {
            user.ask("get k\r\n", "END\r\n");
        }
    });
    // Two hundred guesses in one piece take a pause each.
    let mut client = crate::process::Client::new(user.0);
    let errors: usize = client
        .stat("stats", "auth_errors")
        .parse()
        .expect("a number");
    assert!(
        (2 * CONNECTIONS..50 * CONNECTIONS).contains(&errors),
        "{errors}"
    );
    Connection::log_in(server.address, "alice", "secret").end();
}

#[test]
fn huge_names_and_endless_lines_are_bounded() {
    let server = Guarded::start("alice:secret\n", &[]);
    let name = "u".repeat(900);
    let mut connection = Connection::to(server.address);
    connection.ask(login(&name, "x"), "CLIENT_ERROR authentication failure\r\n");
    let mut connection = Connection::to(server.address);
    connection.send("x".repeat(1 << 20));
    assert_eq!(connection.rest(), b"");
    // Byte by byte, and slowly, it is a login all the same.
    let mut connection = Connection::to(server.address);
    for byte in login("alice", "secret").bytes() {
        connection.send([byte]);
    }
    connection.ask("", "STORED\r\n");
    connection.end();
}

/// A client whose login is held can hang up, and its place is free.
#[test]
fn held_connections_end() {
    let server = Guarded::start("alice:secret\n", &["-t", "1", "-c", "4"]);
    for _ in 0..20 {
        let mut connection = Connection::to(server.address);
        let answer = connection.0.peer_addr().map(|_| {
            connection.send(login("a", "b"));
            connection.receive(37)
        });
        // Where four are held there is no place; then the server says so.
        assert!(!answer.expect("an address").is_empty());
    }
    crate::poll("a place", || {
        let mut connection = Connection::to(server.address);
        connection.send(login("alice", "secret"));
        (connection.receive(8) == b"STORED\r\n").then_some(())
    });
}
