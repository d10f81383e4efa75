//! What flags change for clients, and for the process that serves them.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::process::{Client, Process, coua, poll, wrapped};
use crate::support::{Server, is_root};

#[test]
fn connections_beyond_the_limit_are_told_so() {
    for flags in [
        &["-c", "3"][..],
        &["-c", "3", "-o", "no_modern,maxconns_fast"],
    ] {
        let process = Process::start(coua(flags));
        let address = process.address();
        let mut inside: Vec<Client> = (0..3).map(|_| admitted(address)).collect();
        let mut outside = Client::connect(address);
        assert_eq!(outside.line(), "ERROR Too many open connections");
        assert_eq!(outside.line(), "", "it stays open");
        let rejected = inside[0].stat("stats", "rejected_connections");
        assert_eq!(rejected, "1");
        inside.pop();
        poll("room for another one", || {
            (Client::connect(address).ask("mn\r\n") == "MN").then_some(())
        });
    }
}

#[test]
fn connections_beyond_the_limit_wait_without_maxconns_fast() {
    for flag in ["no_maxconns_fast", "no_modern"] {
        let process = Process::start(coua(&["-c", "3", "-t", "1", "-o", flag]));
        let address = process.address();
        let mut inside: Vec<Client> = (0..3).map(|_| admitted(address)).collect();
        let mut outside = Client::connect(address);
        outside.send("mn\r\n");
        poll("a pause in accepting", || {
            let pauses = inside[0].stat("stats", "listen_disabled_num");
            (pauses != "0").then_some(())
        });
        assert_eq!(inside[0].stat("stats", "curr_connections"), "3");
        assert_eq!(inside[0].stat("stats", "accepting_conns"), "0");
        assert_eq!(inside[0].stat("stats", "rejected_connections"), "0");
        inside.pop();
        assert_eq!(outside.line(), "MN", "{flag}");
    }
}

/// A connection that the server has taken.
fn admitted(address: std::net::SocketAddr) -> Client {
    let mut client = Client::connect(address);
    assert_eq!(client.ask("mn\r\n"), "MN");
    client
}

#[test]
fn memory_is_lowered_and_raised_while_it_serves() {
    let process = Process::start(coua(&["-m", "32", "--memory-max", "64", "-t", "2"]));
    let mut client = Client::connect(process.address());
    let value = "v".repeat(10_000);
    let fill = |client: &mut Client| {
        for number in 0..8000 {
            let set = format!("set key-{number} 0 0 10000\r\n{value}\r\n");
            assert_eq!(client.ask(&set), "STORED");
        }
        let memory = client.stat("stats", "coua_memory");
        memory.parse::<u64>().expect("a number") >> 20
    };
    let items = |client: &mut Client| -> u64 {
        let count = client.stat("stats", "curr_items");
        count.parse().expect("a number")
    };
    assert!(fill(&mut client) <= 32);
    let at_start = items(&mut client);
    assert_eq!(
        client.stat("stats", "limit_maxbytes"),
        (32 << 20).to_string()
    );

    assert_eq!(client.ask("cache_memlimit 16\r\n"), "OK");
    poll("memory given back, without a request that stores", || {
        let memory = client.stat("stats", "coua_memory");
        (memory.parse::<u64>().expect("a number") <= 16 << 20).then_some(())
    });
    let lowered = items(&mut client);
    assert!(
        lowered > at_start / 3 && lowered < at_start * 2 / 3,
        "{lowered} of {at_start}"
    );
    assert_eq!(
        client.stat("stats settings", "maxbytes"),
        (16 << 20).to_string()
    );

    assert_eq!(client.ask("cache_memlimit 64\r\n"), "OK");
    let memory = fill(&mut client);
    assert!((48..=64).contains(&memory), "{memory}");
    assert!(items(&mut client) > at_start * 3 / 2);

    let refused = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust";
    assert_eq!(client.ask("cache_memlimit 65\r\n"), refused);
    assert_eq!(
        client.stat("stats", "limit_maxbytes"),
        (64 << 20).to_string()
    );
}

#[test]
fn idle_connections_are_closed() {
    let process = Process::start(coua(&["-o", "idle_timeout=1"]));
    let address = process.address();
    let (mut idle, mut silent) = (admitted(address), Client::connect(address));
    let mut busy = admitted(address);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| (idle.line(), silent.line()));
        while !waiting.is_finished() {
            assert_eq!(busy.ask("mn\r\n"), "MN", "a busy one is closed");
            thread::sleep(Duration::from_millis(50));
        }
        let lines = waiting.join().expect("the reader does not panic");
        assert_eq!(lines, (String::new(), String::new()));
    });
    assert_eq!(busy.stat("stats", "idle_kicks"), "2");
}

#[test]
fn rights_are_refused_in_the_words_of_memcached() {
    let server = Server::coua(&["-F", "-W", "-X"]);
    let mut client = Client::new(server.connect());
    for (request, answer) in [
        ("flush_all", "CLIENT_ERROR flush_all not allowed"),
        ("watch fetchers", "CLIENT_ERROR watch commands not allowed"),
        (
            "stats cachedump 1 1",
            "CLIENT_ERROR stats cachedump not allowed",
        ),
    ] {
        assert_eq!(client.ask(&format!("{request}\r\n")), answer, "{request}");
    }
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    let server = Server::coua(&[]);
    let mut client = Client::new(server.connect());
    assert_eq!(client.ask("flush_all\r\n"), "OK");
}

#[test]
fn a_delimiter_counts_by_prefix_from_the_start() {
    let server = Server::coua(&["-D", "/"]);
    let mut client = Client::new(server.connect());
    assert_eq!(client.ask("set shop/1 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(
        client.ask("stats detail dump\r\n"),
        "PREFIX shop get 0 hit 0 set 1 del 0"
    );
    assert_eq!(client.line(), "END");
    // Without it, counting is asked for, and a colon ends the prefix.
    let server = Server::coua(&[]);
    let mut client = Client::new(server.connect());
    assert_eq!(client.ask("set shop:1 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(client.ask("stats detail dump\r\n"), "END");
    assert_eq!(client.ask("stats detail on\r\n"), "OK");
    assert_eq!(client.ask("set shop:2 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(
        client.ask("stats detail dump\r\n"),
        "PREFIX shop get 0 hit 0 set 1 del 0"
    );
}

#[test]
fn limits_of_items_and_cas_are_followed() {
    let server = Server::coua(&["-I", "1k", "-C"]);
    let mut client = Client::new(server.connect());
    let large = format!("set k 0 0 2000\r\n{}\r\n", "x".repeat(2000));
    assert_eq!(
        client.ask(&large),
        "SERVER_ERROR object too large for cache"
    );
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(client.ask("gets k\r\n"), "VALUE k 0 1 0");
}

#[test]
fn verbosity_tells_of_requests_from_two_on() {
    for (flags, tells) in [
        (&["-v"][..], false),
        (&["-vv"], true),
        (&["-vvv"], true),
        (&["-v", "-v"], true),
    ] {
        let process = Process::start(coua(flags));
        let mut client = Client::connect(process.address());
        assert_eq!(client.ask("get gone\r\n"), "END");
        let level = client.stat("stats settings", "verbosity");
        let given: usize = flags.iter().map(|flag| flag.len() - 1).sum();
        assert_eq!(level, given.to_string());
        process.signal(rustix::process::Signal::TERM);
        let said = process.end().said;
        assert_eq!(said.contains("get gone"), tells, "{flags:?}: {said}");
    }
}

#[test]
fn threads_and_connections_are_as_many_as_asked_for() {
    let server = Server::coua(&["-t", "3", "-c", "77", "-b", "99", "-R", "5"]);
    let mut client = Client::new(server.connect());
    for (key, value) in [
        ("num_threads", "3"),
        ("maxconns", "77"),
        ("tcp_backlog", "99"),
        ("reqs_per_event", "5"),
    ] {
        assert_eq!(client.stat("stats settings", key), value, "{key}");
    }
}

#[test]
fn locked_memory_is_locked() {
    let process = Process::start(coua(&["-k", "-m", "16"]));
    let mut client = Client::connect(process.address());
    let locked: u64 = line_of(&process, "status", "VmLck:")
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .expect("a number of kilobytes");
    // A user who may not lock so much is told, and served all the same.
    match client.stat("stats settings", "coua_memory_locked").as_str() {
        "yes" => assert!(locked >= 15 << 10, "{locked} kB"),
        _ => drop(process.hear("-k has no effect")),
    }
}

#[test]
fn core_files_may_be_as_large_as_the_system_allows() {
    // The soft limit is 0, as most systems have it.
    let limited = ["prlimit", "--core=0:4096"];
    let process = Process::start(wrapped(&limited, &["-r"]));
    process.listening();
    let limits = line_of(&process, "limits", "Max core file size");
    let soft = limits.split_whitespace().next().unwrap_or_default();
    assert!(["4096", "unlimited"].contains(&soft), "{limits}");
}

#[test]
fn root_becomes_the_user_that_it_names() {
    let process = Process::start(coua(&["-u", "nobody", "-r"]));
    process.listening();
    let user = if is_root() { "65534" } else { "" };
    let ids = line_of(&process, "status", "Uid:");
    let all_are = ids
        .split_whitespace()
        .all(|id| user.is_empty() || id == user);
    assert!(all_are, "{ids}");
    if is_root() {
        assert_eq!(line_of(&process, "status", "Groups:").trim(), "");
    }
}

#[test]
fn threads_are_pinned_to_the_cores_that_are_named() {
    let own = fs::read_to_string("/proc/self/status").expect("/proc");
    let allowed = own
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.and_then(|list| list.trim().split([',', '-']).next());
    let core = first.expect("there is a core");
    let process = Process::start(coua(&["--cores", core, "-t", "1"]));
    process.listening();
    let tasks = format!("/proc/{}/task", process.child.id());
    poll("a thread on that core alone", || {
        let mut threads = fs::read_dir(&tasks).ok()?.filter_map(Result::ok);
        threads.find(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let is_worker = status.starts_with("Name:\tcoua-0\n");
            is_worker && status.contains(&format!("Cpus_allowed_list:\t{core}\n"))
        })
    });
}

/// What stands behind a name in a file of `/proc` about the process.
fn line_of(process: &Process, file: &str, name: &str) -> String {
    let path = format!("/proc/{}/{file}", process.child.id());
    let text = fs::read_to_string(path).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{file} has no {name}"))
        .to_owned()
}

/// The kernel spreads connections by a hash, which gives one worker twice as many as another.
#[test]
fn connections_are_dealt_evenly_over_the_threads() {
    let process = Process::start(coua(&["-t", "4"]));
    let address = process.address();
    let mut clients: Vec<Client> = (0..8).map(|_| admitted(address)).collect();
    for worker in 0..4 {
        let name = format!("worker:{worker}:connections");
        assert_eq!(clients[0].stat("stats threads", &name), "2", "{name}");
    }
    // Those that come after others have gone take their places.
    clients.truncate(1);
    poll("the others are gone", || {
        (clients[0].stat("stats", "curr_connections") == "1").then_some(())
    });
    let more: Vec<Client> = (0..7).map(|_| admitted(address)).collect();
    for worker in 0..4 {
        let name = format!("worker:{worker}:connections");
        assert_eq!(clients[0].stat("stats threads", &name), "2", "{name}");
    }
    drop(more);
}
