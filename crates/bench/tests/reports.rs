//! What the load generator tells of a run: by the second, as a table, as a picture, and by its exit
//! status.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use support::{Server, bench, bench_of, count};

const SHORT: &str = "--connections 4 --seconds 0.2 --warm-up 0 --keys 100";

/// A file that is gone at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let name = format!("coua-bench-{}-{name}", std::process::id());
        File(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }

    fn json(name: &str, value: &Value) -> File {
        let file = File::new(name);
        std::fs::write(&file.0, value.to_string()).unwrap();
        file
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The README builds with `cargo build` and starts the server with `cargo run`.
#[test]
fn one_command_builds_the_load_generator_and_another_starts_the_server() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]);
    let output = command.current_dir(root).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let members = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let built = packages
        .iter()
        .filter(|package| members.contains(&package["id"]));
    let mut names: Vec<&str> = Vec::new();
    let mut run: Vec<&str> = Vec::new();
    for package in built {
        names.extend(package["name"].as_str());
        run.extend(package["default_run"].as_str());
    }
    names.sort_unstable();
    assert_eq!(
        (&names[..], &run[..]),
        (&["coua", "coua-bench", "coua-top"][..], &["coua"][..])
    );
}

/// A server that knows no key, and stands still for a time before its 100th request.
fn stalling(stall: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::new(Mutex::new(0u32));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let served = served.clone();
            std::thread::spawn(move || {
                let mut writer = stream.as_ref().unwrap().try_clone().unwrap();
                for _ in BufReader::new(stream.unwrap())
                    .lines()
                    .map_while(Result::ok)
                {
                    let mut served = served.lock().unwrap();
                    *served += 1;
                    if *served == 100 {
                        std::thread::sleep(stall);
                    }
                    drop(served);
                    if writer.write_all(b"END\r\n").is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_stall_shows_in_its_second() {
    let target = stalling(Duration::from_millis(1500));
    let run =
        format!("run --target {target} --connections 4 --rate 200 --seconds 4 --warm-up 0 --gaps");
    let output = bench(&format!("{run} --json"));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seconds = outcome["repetitions"][0]["by_second"].as_array().unwrap();
    let of = |name: &str| -> Vec<f64> {
        let values = seconds.iter().map(|second| second[name].as_f64().unwrap());
        values.collect()
    };
    let (rates, lengths) = (of("requests_per_second"), of("seconds"));
    let sum: f64 = rates
        .iter()
        .zip(&lengths)
        .map(|(rate, length)| rate * length)
        .sum();
    let requests = count(&outcome, "requests") as f64;
    assert!((sum - requests).abs() < 1.0, "{outcome}");
    let stalled = of("latency_us_max")
        .iter()
        .filter(|longest| **longest > 1.4e6)
        .count();
    assert!((1..seconds.len()).contains(&stalled), "{outcome}");
    // The server slept, so nobody waited for a core.
    let absences = &outcome["repetitions"][0]["absences"];
    assert!(absences["other"].as_u64().unwrap() > 0, "{outcome}");
    let (table, _) = said(&bench(
        &format!("{run} --seconds 0.5").replace("--seconds 4", ""),
    ));
    assert!(
        table.contains("slow replies: the load had no core for "),
        "{table}"
    );
}

#[test]
fn gaps_are_told_of_each_core() {
    let output = bench("gaps --seconds 0.05 --json");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cores = outcome["cores"].as_array().unwrap();
    let allowed = std::thread::available_parallelism().unwrap().get();
    assert_eq!(cores.len(), allowed, "{outcome}");
    for core in cores {
        let lost = core["lost"].as_f64().unwrap();
        assert!(lost >= core["delayed"].as_f64().unwrap(), "{outcome}");
    }
}

#[test]
fn each_second_has_a_row_and_a_point() {
    let server = Server::at_socket();
    let file = File::new("run.svg");
    let run = format!(
        "run --connections 4 --seconds 2 --warm-up 0 --rate 500 --plot {} --by-second",
        file.path()
    );
    let (table, error) = said(&server.bench(&run));
    assert!(table.contains("| second |"), "{table} {error}");
    for second in ["| 0 ", "| 1 "] {
        assert!(table.contains(second), "{table}");
    }
    let svg = file.text();
    for text in ["requests and errors, by the second", "longest", "99 %"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn measurements_are_rows_with_commas() {
    let server = Server::at_socket();
    let rows = |flags: &str| -> Vec<Vec<String>> {
        let (text, error) =
            said(&server.bench(&format!("run {SHORT} --repetitions 3 --csv {flags}")));
        assert_eq!(error, "");
        let split = |line: &str| line.split(',').map(str::to_owned).collect();
        text.lines().map(split).collect()
    };
    for (flags, names) in [
        ("", ["misses", "latency_us_p99", "server_cores"]),
        (
            "--by-second",
            ["from_seconds", "latency_us_max", "errors_per_second"],
        ),
    ] {
        let rows = rows(flags);
        assert_eq!(rows.len(), 4, "{rows:?}");
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        for name in names {
            let column = rows[0].iter().position(|other| other == name).unwrap();
            assert!(rows[1][column].parse::<f64>().is_ok(), "{name}: {rows:?}");
        }
        assert_eq!(
            (&rows[3][0], &rows[3][2]),
            (&server.target(), &"3".to_owned())
        );
    }
}

#[test]
fn a_condition_that_holds_is_an_exit_status_and_a_line() {
    let server = Server::at_socket();
    server.measure("load --connections 4 --keys 50");
    // Every other key is not there.
    for (conditions, status, line) in [
        ("p99>1us", 3, "failed: p99>1us, it is "),
        ("p99>50s,errors>0,rate<1", 0, ""),
        (
            "misses>90% --fail-if misses>10%,p50>0us",
            3,
            "failed: misses>10%, it is ",
        ),
        ("wrong>0 --fail-if hits<1 --fail-if max>50s", 0, ""),
    ] {
        let output = server.bench(&format!("run {SHORT} --fail-if {conditions}"));
        let (table, error) = said(&output);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{conditions}: {table} {error}"
        );
        assert!(table.contains("requests/s"), "{table}");
        assert_eq!(error.lines().count(), usize::from(status > 0), "{error}");
        assert!(error.contains(line), "{conditions}: {error}");
    }
}

#[test]
fn a_sweep_has_a_row_for_each_rate_and_a_picture() {
    let server = Server::at_socket();
    let file = File::new("sweep.svg");
    let flags = format!("run {SHORT} --sweep 200-800:3 --plot {}", file.path());
    let outcome = server.measure(&flags);
    let rates = outcome["servers"][0]["rates"].as_array().unwrap();
    let rates: Vec<f64> = rates
        .iter()
        .map(|one| one["rate"].as_f64().unwrap())
        .collect();
    assert_eq!(rates, [200.0, 400.0, 800.0]);
    assert!(file.text().contains("offered load, requests/s"));
    let (table, _) = said(&server.bench(&flags));
    assert_eq!(
        table
            .lines()
            .filter(|line| line.starts_with("| unix:"))
            .count(),
        3,
        "{table}"
    );
}

#[test]
fn a_later_run_is_the_same_or_worse() {
    let server = Server::at_socket();
    let run = format!("run {SHORT} --rate 1000 --repetitions 3");
    let measured = server.measure(&run);
    // No machine measures the same twice, so the spread is made here.
    let saved = |name: &str, p99s: [f64; 3], errors: u64| {
        let mut outcome = measured.clone();
        for (sample, p99) in outcome["repetitions"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .zip(p99s)
        {
            sample["latency_us_p99"] = p99.into();
            sample["errors"] = errors.into();
        }
        File::json(name, &outcome)
    };
    let old = saved("old.json", [100.0, 101.0, 99.0], 0);
    let same = saved("same.json", [100.5, 99.0, 101.0], 0);
    let slow = saved("slow.json", [150.0, 151.0, 149.0], 0);
    let broken = saved("broken.json", [100.0, 101.0, 99.0], 100);
    let other = server.measure(&format!("{run} --depth 2"));
    let other = File::json("other.json", &other);
    let single = File::json(
        "single.json",
        &server.measure(&format!("run {SHORT} --rate 1000")),
    );
    for (new, flags, status, says) in [
        (&old, "", 0, "the same or better"),
        (&same, "", 0, "the same or better"),
        (&slow, "", 1, "worse: p99 is +5"),
        (&slow, "--tolerance 60", 0, "better"),
        (&broken, "", 1, "of the requests failed, 0.000 % before"),
        (&other, "", 2, "depth: 1 and 2"),
        (&single, "", 2, "--repetitions 5"),
    ] {
        let mut words = vec!["diff", old.path(), new.path()];
        words.extend(flags.split_whitespace());
        let output = bench_of(&words);
        let (table, error) = said(&output);
        let all = format!("{table}{error}");
        assert_eq!(output.status.code(), Some(status), "{flags} {all}");
        assert!(all.contains(says), "{says}: {all}");
    }
    let forced = bench_of(&["diff", old.path(), other.path(), "--force"]);
    assert!(said(&forced).0.contains("depth: 1 and 2"), "{forced:?}");
    let back = bench_of(&["diff", slow.path(), old.path(), "--json"]);
    let back: Value = serde_json::from_slice(&back.stdout).unwrap();
    let changes = back["changes"].as_array().unwrap();
    let p99 = changes
        .iter()
        .find(|change| change["figure"] == "p99")
        .unwrap();
    assert_eq!(p99["verdict"], "better", "{p99}");
    let nowhere = bench_of(&["diff", old.path(), "/nowhere.json"]);
    assert_eq!(nowhere.status.code(), Some(2));
}
