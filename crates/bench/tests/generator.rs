//! The load generator as people run it, on coua.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use support::{Server, bench, count};

const SIZES: &str = "--key-size 10-40 --value-size 0-900 --connections 8";
const ITEMS: &str = "--key-size 10-40 --value-size 0-900 --connections 8 --keys 500";

#[test]
fn each_dialect_loads_runs_and_verifies() {
    let server = Server::at_port();
    for dialect in ["text", "meta", "binary", "udp"] {
        let items = format!("{ITEMS} --dialect {dialect}");
        let loaded = server.measure(&format!("load {items} --counters"));
        assert_eq!(loaded["stored"], 500, "{dialect}");
        // One in eleven keys was not loaded.
        for (keys_per_get, keys) in [(1, 500), (10, 550)] {
            let run = server.measure(&format!(
                "run {SIZES} --dialect {dialect} --keys {keys} --keys-per-get {keys_per_get} --depth 4 --seconds 0.3 \
                 --warm-up 0.1"
            ));
            let of = |name| count(&run, name);
            assert!(of("requests") > 0 && of("hits") > 0, "{dialect}: {run}");
            assert_eq!((of("wrong"), of("errors")), (0, 0), "{dialect}: {run}");
            assert!(dialect == "udp" || of("lost") == 0, "{run}");
            match keys {
                500 => assert_eq!((of("hits"), of("misses")), (of("requests"), 0)),
                _ => {
                    let asked = of("requests") * keys_per_get;
                    assert_eq!(of("hits") + of("misses"), asked, "{dialect}: {run}");
                    assert!(of("misses") > 0 && of("misses") < of("hits"), "{dialect}");
                }
            }
        }
        let verified = server.measure(&format!("verify {items}"));
        assert_eq!(
            (&verified["right"], &verified["missing"]),
            (&500.into(), &0.into())
        );
    }
}

#[test]
fn all_operations_are_understood() {
    let server = Server::at_socket();
    let mix = "get=4,gets=1,gat=1,set=1,add=1,replace=1,delete=1,incr=1,decr=1,touch=1";
    for dialect in ["text", "meta", "binary"] {
        let items = format!("{ITEMS} --dialect {dialect} --ttl 60=1,3600=1");
        server.measure(&format!("load {items} --counters"));
        let run = server.measure(&format!(
            "run {items} --mix {mix} --depth 8 --seconds 0.3 --warm-up 0 --popularity hot:0.1:0.9"
        ));
        for name in ["wrong", "errors"] {
            assert_eq!(count(&run, name), 0, "{dialect}: {run}");
        }
        let by_operation = run["repetitions"][0]["by_operation"].as_object().unwrap();
        assert_eq!(by_operation.len(), 10, "{dialect}: {run}");
        assert!(
            count(&run, "stored") > 0 && count(&run, "not_stored") > 0,
            "{run}"
        );
    }
}

#[test]
fn open_loops_keep_their_rate_and_write_histograms() {
    let server = Server::at_socket();
    server.measure(&format!("load {ITEMS}"));
    let file = std::env::temp_dir().join(format!("coua-bench-log-{}", std::process::id()));
    for arrivals in ["poisson", "constant"] {
        let run = server.measure(&format!(
            "run {ITEMS} --threads 2 --rate 2000 --arrivals {arrivals} --seconds 1 --warm-up 0.1 \
             --repetitions 2 --histogram {}",
            file.display()
        ));
        assert_eq!(run["repetitions"].as_array().unwrap().len(), 2);
        // Four deviations of a Poisson count; each request that was due is counted as something.
        let due = count(&run, "requests") + count(&run, "unsent");
        assert!(due.abs_diff(2000) < 180, "{arrivals}: {run}");
        assert!(run["repetitions"][0]["server_cores"].is_number(), "{run}");
        let log = std::fs::read_to_string(&file).unwrap();
        assert!(log.contains(",HISTFAAAA") || log.contains(",HIST"), "{log}");
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn verify_finds_a_value_that_was_overwritten() {
    let server = Server::at_port();
    let items = "--keys 100 --key-size 8 --value-size 50";
    server.measure(&format!("load {items}"));
    let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    // Of another size, of the right size with one wrong byte, and no more there.
    let same = String::from_utf8(get(&mut client, "00000011")).unwrap();
    let other = format!("{}!", &same[..same.len() - 1]);
    for (key, value) in [("00000010", "x"), ("00000011", &other)] {
        let request = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(line(&mut client), "STORED");
    }
    client.write_all(b"delete 00000012\r\n").unwrap();
    assert_eq!(line(&mut client), "DELETED");
    for dialect in ["text", "meta", "binary", "udp"] {
        let output = server.bench(&format!("verify {items} --dialect {dialect}"));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.starts_with("97 values right, 1 missing, 2 wrong"),
            "{dialect}: {said}"
        );
        assert_eq!(output.status.code(), Some(1), "{dialect}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("0000001"), "{error}");
    }
}

#[test]
fn the_highest_rate_of_a_known_server_is_found() {
    // One request at a time, 2 ms each: 500 a second at most.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let turn = std::sync::Arc::new(std::sync::Mutex::new(()));
        for stream in listener.incoming() {
            let turn = turn.clone();
            std::thread::spawn(move || {
                let mut writer = stream.as_ref().unwrap().try_clone().unwrap();
                for line in BufReader::new(stream.unwrap()).lines() {
                    if line.is_err() {
                        break;
                    }
                    let _turn = turn.lock().unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                    if writer.write_all(b"END\r\n").is_err() {
                        break;
                    }
                }
            });
        }
    });
    let output = bench(&format!(
        "run --target {target} --connections 8 --find-max --bound avg=50ms --seconds 0.5 --warm-up \
         0.1 --json"
    ));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = outcome["search"]["rate"].as_f64().unwrap();
    // In half a second a queue may hide a rate somewhat above the capacity.
    assert!((50.0..750.0).contains(&rate), "{outcome}");
    let held = |trial: &Value| trial["held"].as_bool().unwrap();
    let trials = outcome["search"]["trials"].as_array().unwrap();
    assert!(
        trials.iter().any(held) && !trials.iter().all(held),
        "{outcome}"
    );
}

#[test]
fn a_wrong_flag_gets_one_line() {
    let output = bench("run --mix got=1");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("--mix") && said.contains("get=90,set=10"),
        "{said}"
    );
}

fn line(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

fn get(client: &mut TcpStream, key: &str) -> Vec<u8> {
    client
        .write_all(format!("get {key}\r\n").as_bytes())
        .unwrap();
    let header = line(client);
    let size: usize = header.rsplit(' ').next().unwrap().parse().unwrap();
    let mut value = vec![0; size];
    client.read_exact(&mut value).unwrap();
    assert_eq!(
        (line(client), line(client)),
        (String::new(), "END".to_owned())
    );
    value
}
