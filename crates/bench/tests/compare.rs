//! Servers that the load generator starts and compares.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use support::{bench, bench_of, coua, generator};

/// Compares servers, and gives the outcome for programs.
fn compare(servers: &[&str], arguments: &str) -> Value {
    let program = coua();
    let mut all = vec!["compare", "--json", "--coua", program.to_str().unwrap()];
    all.extend(servers);
    all.extend(arguments.split_whitespace());
    let output = bench_of(&all);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{servers:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The median of a figure's ratio to the first server, of what is compared second.
fn ratio<'a>(outcome: &'a Value, server: &str, figure: &str) -> &'a Value {
    let ratios = outcome["ratios"].as_array().unwrap();
    let is_it = |ratio: &&Value| ratio["server"] == server && ratio["figure"] == figure;
    let found = ratios.iter().find(is_it);
    found.unwrap_or_else(|| panic!("{figure} of {server} in {outcome}"))
}

const BRIEF: &str = "--memory 64 --keys 300 --value-size 10-500 --connections 6 --seconds 0.2 \
                     --warm-up 0.05 --repetitions 3";

#[test]
fn servers_are_compared_in_turns() {
    let other = format!(
        "other={} -l {{host}} -p {{port}} -m 64 -u root",
        coua().display()
    );
    let servers = ["coua", "two=coua -t 2", "coua -s {socket}", &other];
    let outcome = compare(&servers, &format!("{BRIEF} --mix get=9,set=1 --threads 2"));
    let names: Vec<_> = outcome["servers"].as_array().unwrap().iter().collect();
    let name = |index: usize| names[index]["name"].as_str().unwrap();
    assert_eq!(
        (name(0), name(1), name(2)),
        ("coua", "two", "coua -s {socket}")
    );
    for server in names {
        let samples = server["outcome"]["repetitions"].as_array().unwrap();
        assert_eq!(samples.len(), 3);
        for sample in samples {
            assert!(sample["hits"].as_u64().unwrap() > 0, "{sample}");
            for count in ["wrong", "errors", "misses"] {
                assert_eq!(sample[count], 0, "{sample}");
            }
            assert!(sample["server_cores"].is_number(), "{sample}");
        }
    }
    for server in ["two", "other"] {
        let rates = ratio(&outcome, server, "requests/s");
        let of = |name: &str| rates[name].as_f64().unwrap();
        assert!(
            of("least") > 0.0 && of("least") <= of("greatest"),
            "{rates}"
        );
    }
}

#[test]
fn the_highest_rates_are_compared() {
    let bound = "--find-max --bound p50=50ms --repetitions 1";
    let flags = BRIEF.replace("--repetitions 3", bound);
    let outcome = compare(&["coua"], &flags);
    let server = &outcome["servers"][0];
    assert!(server["requests_per_second"][0].is_number(), "{server}");
    assert!(server["searches"][0]["trials"].is_array(), "{server}");
}

#[test]
fn a_mirror_plays_ping_pong() {
    let flags = format!("{BRIEF} --dialect mirror --key-size 16");
    let outcome = compare(&["echo", "two=echo --workers 2"], &flags);
    for server in outcome["servers"].as_array().unwrap() {
        let sample = &server["outcome"]["repetitions"][0];
        assert!(sample["hits"].as_u64().unwrap() > 0, "{sample}");
        assert_eq!((&sample["wrong"], &sample["lost"]), (&0.into(), &0.into()));
    }
}

#[test]
fn servers_are_swept_beside_each_other() {
    let folder = std::env::temp_dir();
    let [svg, log] = ["svg", "hlog"].map(|kind| {
        let name = format!("coua-bench-compare-{}.{kind}", std::process::id());
        folder.join(name)
    });
    let flags = BRIEF.replace("--repetitions 3", "--repetitions 1");
    let servers = ["first=coua", "second=coua -t 2"];
    let swept = compare(
        &servers,
        &format!("{flags} --sweep 300,600 --plot {}", svg.display()),
    );
    for (server, name) in swept["servers"]
        .as_array()
        .unwrap()
        .iter()
        .zip(["first", "second"])
    {
        assert_eq!(server["name"], name);
        let rates = server["rates"].as_array().unwrap();
        let rates = rates.iter().map(|one| one["rate"].as_f64().unwrap());
        assert_eq!(rates.collect::<Vec<f64>>(), [300.0, 600.0]);
    }
    let drawn = std::fs::read_to_string(&svg).unwrap();
    for text in ["first", "second", "p99", "offered load, requests/s"] {
        assert!(drawn.contains(text), "{text}: {drawn}");
    }
    compare(&servers, &format!("{flags} --histogram {}", log.display()));
    let latencies = std::fs::read_to_string(&log).unwrap();
    for tag in ["Tag=first,", "Tag=second,"] {
        assert!(latencies.contains(tag), "{latencies}");
    }
    for file in [svg, log] {
        std::fs::remove_file(file).unwrap();
    }
}

/// coua takes memcached's place, which need not be installed.
#[test]
fn the_first_screen_has_a_row_for_each_server_and_work() {
    let program = coua();
    let program = program.to_str().unwrap();
    let flags = "--small --repetitions 1 --seconds 0.05 --no-sweep --only large --json";
    let mut words = vec!["first-screen", "--coua", program, "--memcached", program];
    words.extend(flags.split_whitespace());
    let output = bench_of(&words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = outcome["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{outcome}");
    for row in rows {
        let bytes = row["bytes_an_item"].as_f64().unwrap();
        assert!((16_384.0..32_768.0).contains(&bytes), "{row}");
        // On a machine that is slow enough nothing is answered in time; what is, is there.
        assert!(row["hits"] == 1.0 || row["hits"].is_null(), "{row}");
    }
}

#[test]
fn servers_are_rows_with_commas() {
    let program = coua();
    let mut words = vec!["compare", "coua", "two=coua -t 2", "--csv", "--coua"];
    words.push(program.to_str().unwrap());
    words.extend(BRIEF.split_whitespace());
    let output = bench_of(&words);
    let rows = String::from_utf8_lossy(&output.stdout).into_owned();
    let servers = rows.lines().map(|row| row.split(',').next().unwrap());
    let servers: Vec<&str> = servers.collect();
    let expected = ["server", "coua", "coua", "coua", "two", "two", "two"];
    assert_eq!(servers, expected, "{rows}");
}

/// Over cables between network namespaces, which only root may lay.
#[test]
fn stacks_are_compared_with_the_kernels() {
    if !rustix::process::geteuid().is_root() {
        let output = bench_of(&["compare", "coua --net packet"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("needs root"), "{error}");
        return;
    }
    let servers = ["coua", "coua --net packet -t 2", "coua --net xdp -t 2"];
    for load in ["", "--net xdp --threads 2"] {
        let outcome = compare(&servers, &format!("{BRIEF} --mix get=9,set=1 {load}"));
        for server in outcome["servers"].as_array().unwrap() {
            let sample = &server["outcome"]["repetitions"][2];
            assert!(sample["hits"].as_u64().unwrap() > 0, "{sample}");
            assert_eq!(
                (&sample["wrong"], &sample["errors"]),
                (&0.into(), &0.into())
            );
        }
    }
    let flags = format!("{BRIEF} --dialect mirror --key-size 16");
    compare(
        &["echo", "echo --net xdp", "echo --net packet --workers 2"],
        &flags,
    );
}

/// Both servers are coua, which takes memcached's flags too.
#[test]
fn figures_are_written_with_what_was_published() {
    let folder = std::env::temp_dir().join(format!("coua-bench-figures-{}", std::process::id()));
    let out = folder.display();
    let program = coua().display().to_string();
    for (name, flags, published) in [
        ("recovery", "--seconds 2 --rate 500", "by 82 %"),
        ("latency", "--seconds 0.2", "published: Pan 2018, figure 9"),
        ("requests-by-workers", "--seconds 0.2", "slide 32: iip"),
        ("gain", "--seconds 0.2", "slide 7: memcached"),
    ] {
        let all = format!(
            "figure {name} {flags} --repetitions 1 --workers 1 --keys 200 --memory 64 --out {out} \
             --coua {program} --memcached {program}"
        );
        let output = bench(&all);
        let errors = String::from_utf8_lossy(&output.stderr);
        if !["recovery", "gain"].contains(&name) && !rustix::process::geteuid().is_root() {
            assert!(errors.contains("needs root"), "{errors}");
            continue;
        }
        assert!(output.status.success(), "{name}: {errors}");
        let read = |kind: &str| std::fs::read_to_string(folder.join(format!("{name}.{kind}")));
        let (csv, svg) = (read("csv").unwrap(), read("svg").unwrap());
        assert!(csv.contains(",measured,") && csv.contains("coua"), "{csv}");
        assert!(svg.contains(published) && !svg.contains("NaN"), "{svg}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_server_that_does_not_start_is_named() {
    let output = bench_of(&["compare", "coua", "gone=/no/such/program {port}"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("gone") && error.contains("cannot be started"),
        "{error}"
    );
    let output = bench_of(&["compare", "redis-server"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // `id (name) state parent …`
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_ascii_whitespace().nth(1) == Some(&parent.to_string())
    };
    ids.filter(is_child).collect()
}

/// Whether a process does something still, rather than being remembered for who waits for it.
fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z"))
}

/// As root the server is another user's, and not its starter's to kill by the kernel's own means.
#[test]
fn servers_end_with_a_comparison_that_is_killed() {
    let user = match rustix::process::geteuid().is_root() {
        true => "coua -u nobody",
        false => "coua",
    };
    let mut command = generator("compare --memory 64 --keys 300 --seconds 3600");
    command.arg("--coua").arg(coua()).arg(user);
    let mut comparison = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(comparison.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("-l 127.0.0.1") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it starts nothing");
    }
    let started = children(comparison.id());
    assert_eq!(started.len(), 2, "a server and the guard");
    assert!(started.iter().all(|id| is_alive(*id)));
    comparison.kill().unwrap();
    comparison.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while started.iter().any(|id| is_alive(*id)) {
        assert!(Instant::now() < deadline, "servers are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn memaslap_sees_what_the_load_generator_sees_where_it_is() {
    let program = coua();
    let words =
        "memaslap --rounds 1 --seconds 1 --connections 8 --server-core 0 --load-core 0 --json";
    let mut arguments: Vec<&str> = words.split(' ').collect();
    arguments.extend(["--memcached", program.to_str().unwrap()]);
    let output = bench_of(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("libmemcached-tools") {
        assert_eq!(output.status.code(), Some(1));
        return;
    }
    assert!(output.status.success(), "{said}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    for side in ["memaslap", "coua_bench"] {
        let sample = &outcome[side][0];
        let of = |name: &str| sample[name].as_f64().unwrap();
        assert!(of("requests_per_second") > 0.0, "{sample}");
        assert!(of("least_us") <= of("mean_us") && of("mean_us") <= of("longest_us"));
    }
    let wrong = bench("memaslap --seconds 0.5");
    assert_eq!(wrong.status.code(), Some(2));
    let wrong = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.lines().count(), 1, "{wrong}");
}
