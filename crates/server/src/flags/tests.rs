use std::collections::BTreeSet;

use coua_transport::userspace::Algorithm;
use coua_transport::userspace::memif::Role;

use super::{Driver, Invocation, Refused, Settings, extended, help, read};

fn settings(words: &str) -> Result<Box<Settings>, Refused> {
    let words = std::iter::once("coua").chain(words.split_whitespace());
    match read(words.map(Into::into))? {
        Invocation::Serve(settings) => Ok(settings),
        Invocation::Print(text) => panic!("a text: {text}"),
        Invocation::Check(_) => panic!("a check"),
    }
}

fn line(words: &str) -> String {
    settings(words)
        .err()
        .unwrap_or_else(|| panic!("{words} is taken"))
        .to_string()
}

#[test]
fn defaults_are_those_of_memcached() {
    let settings = settings("").expect("no flags");
    let ports: Vec<String> = settings
        .listen
        .iter()
        .map(|l| l.address.to_string())
        .collect();
    assert_eq!(ports, ["0.0.0.0:11211", "[::]:11211"]);
    assert_eq!(settings.memory, 64 << 20);
    assert_eq!(settings.connections_max, 1024);
    assert_eq!(settings.limits.item_size_max, 1 << 20);
    assert!(settings.evict && settings.refuses_at_once && settings.permissions.flush);
    assert!(!settings.permissions.shutdown);
}

#[test]
fn values_are_read_in_all_their_forms() {
    let given = settings(
        "-m1024 --max-item-size=2m -l 127.0.0.1,[::1]:7 -l 10.0.0.1:8 -p 9 --cores 2-4,7 -vv \
         -o idle_timeout=5,no_maxconns_fast -o modern -A -F -X -W -D /",
    )
    .expect("good flags");
    let addresses: Vec<String> = given.listen.iter().map(|l| l.address.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:9", "[::1]:7", "10.0.0.1:8"]);
    assert_eq!(given.memory, 1 << 30);
    assert_eq!(given.limits.item_size_max, 2 << 20);
    assert_eq!((given.cores, given.workers), (vec![2, 3, 4, 7], 4));
    assert_eq!((given.idle_timeout_s, given.refuses_at_once), (5, false));
    let expected = ["-o modern has no effect: nothing is held back for it"];
    assert_eq!(given.without_effect, expected);
    assert_eq!((given.verbosity, given.prefix_delimiter), (2, b'/'));
    assert!(given.permissions.shutdown && !given.permissions.watch);
    let any = settings("-p -1").expect("any port");
    assert!(any.listen.iter().all(|listen| listen.address.port() == 0));
    let unix = settings("-s /run/coua.sock -a 770").expect("a unix socket");
    assert!(unix.listen.is_empty() && unix.unix_mask == 0o770);
}

#[test]
fn a_stack_of_its_own_has_the_ports() {
    let ports = |words: &str| {
        let words = format!("--net packet:eth1 --address 192.0.2.7/24 {words}");
        let given = settings(&words).expect("good flags");
        let net = given.net.expect("a stack");
        let by_kernel = (given.listen.len(), given.listen_udp.len());
        (net.port, net.udp_port, by_kernel)
    };
    assert_eq!(ports(""), (11211, None, (0, 0)));
    assert_eq!(ports("-U 11311"), (11311, Some(11311), (0, 0)));
    assert_eq!(
        ports("-U 11311 -p 9 -l 127.0.0.1"),
        (9, Some(11311), (1, 1))
    );
    assert_eq!(
        line("--net packet:eth1 --address 192.0.2.7/24 -p 9 -U -1"),
        "-U cannot be '-1': it takes a port from 1 to 65535, or 0, with --net"
    );
    assert_eq!(line("--allow 10.0.0.0/8"), "--allow needs --net");
    assert_eq!(line("--pcap frames"), "--pcap needs --net");
}

#[test]
fn a_stack_has_the_congestion_control_that_is_named() {
    let net = "--net packet:eth1 --address 192.0.2.7/24";
    let chosen = |words: &str| {
        let given = settings(&format!("{net} {words}")).expect("good flags");
        given.net.expect("a stack").congestion
    };
    assert_eq!(chosen(""), Algorithm::Cubic);
    assert_eq!(chosen("--congestion cubic"), Algorithm::Cubic);
    assert_eq!(chosen("--congestion newreno"), Algorithm::NewReno);
    assert_eq!(
        line(&format!("{net} --congestion bbr")),
        "--congestion bbr: give cubic or newreno"
    );
    assert_eq!(line("--congestion cubic"), "--congestion needs --net");
}

#[test]
fn a_memif_link_has_options() {
    let address = "--address 192.0.2.7/24";
    let given = settings(&format!("--net memif:/run/l,role=client,id=3 {address}"));
    let net = given.expect("good flags").net.expect("a stack");
    let Driver::Memif(options) = net.driver else {
        panic!("another driver");
    };
    assert_eq!(options.socket.to_str(), Some("/run/l"));
    assert_eq!((options.role, options.id), (Role::Client, 3));
    for (words, why) in [
        (
            "memif:",
            "give a unix socket: memif:SOCKET[,OPTION=VALUE...]",
        ),
        ("memif:l,role=x", "role= takes server or client"),
        ("memif:l,mtu=9", "mtu= takes a number from 1280 to 9216"),
        (
            "memif:l,a=b",
            "the options are role=, id=, secret=, mac=, mtu= and ring=",
        ),
    ] {
        let line = line(&format!("--net {words} {address}"));
        assert_eq!(line, format!("--net {words}: {why}"));
    }
    assert_eq!(
        line("--net memif:l"),
        "--net needs --address: an address for it alone, such as 192.0.2.7/24"
    );
}

#[test]
fn stacks_take_their_memory_from_the_stores() {
    let net = "--net packet:eth1 --address 192.0.2.7/24";
    let shares = |words: &str| {
        let given = settings(&format!("{net} {words}")).expect("good flags");
        (given.stack_memory >> 20, given.store_memory() >> 20)
    };
    assert_eq!(shares("-m 1024 -t 4"), (32, 896));
    assert_eq!(shares("-m 64 -t 8"), (4, 32));
    assert_eq!(shares("-m 12 -t 1"), (4, 8));
    for words in ["-m 11 -t 1", "-m 64 -t 15", "-m 64 -t 1024"] {
        let line = line(&format!("{net} {words}"));
        assert!(line.contains("at least") && line.contains("-t"), "{line}");
    }
    assert_eq!(
        line(&format!("{net} -m 64 -t 15")),
        "-m 64: with --net, 15 threads need at least 68 megabytes; give more, or fewer threads (-t)"
    );
    assert_eq!(
        line(&format!("{net} -m 64 -t 8 -I 17m")),
        "-I cannot be '17m': it takes at most half of what --net leaves of the memory (-m)"
    );
    let alone = settings("-m 64 -t 8").expect("good flags");
    assert_eq!((alone.stack_memory, alone.store_memory()), (0, 64 << 20));
}

#[test]
fn addresses_are_listened_on_once() {
    let addresses = |words: &str| -> Vec<String> {
        let given = settings(words).expect("good flags");
        given.listen.iter().map(|l| l.address.to_string()).collect()
    };
    assert_eq!(
        addresses("-l 127.0.0.1;::1 -l 127.0.0.1,[::1]:11211,127.0.0.1:-1,127.0.0.1:0"),
        [
            "127.0.0.1:11211",
            "[::1]:11211",
            "127.0.0.1:0",
            "127.0.0.1:0"
        ]
    );
    assert_eq!(
        addresses("-B ascii -l proto[ascii]:tag[a]:127.0.0.1:7,tag_12345678_:[::1]:8,*:9"),
        ["127.0.0.1:7", "[::1]:8", "0.0.0.0:9", "[::]:9"]
    );
    assert_eq!(addresses("-s /run/socket -p 0 -l 127.0.0.1").len(), 0);
}

#[test]
fn the_last_of_several_options_holds() {
    for (list, refuses_at_once) in [
        ("maxconns_fast", true),
        ("no_maxconns_fast", false),
        ("no_maxconns_fast,maxconns_fast", true),
        ("no_modern", false),
        ("no_modern,maxconns_fast", true),
        ("maxconns_fast,,no_modern", false),
    ] {
        let given = settings(&format!("-o {list}")).expect("good options");
        assert_eq!(given.refuses_at_once, refuses_at_once, "{list}");
    }
    let given = settings("-o idle_timeout=9 -o idle_timeout=0").expect("good options");
    assert_eq!(given.idle_timeout_s, 0);
}

#[test]
fn no_option_stands_in_the_table_twice() {
    let names: BTreeSet<&str> = extended::ALL.iter().map(|option| option.name).collect();
    assert_eq!(names.len(), extended::ALL.len());
}

#[test]
fn the_help_fits_a_terminal() {
    let text = help::after_flags();
    let longest = text.lines().max_by_key(|line| line.len()).expect("lines");
    assert!(longest.len() <= 90, "{longest}");
    assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
}

/// memcached takes any size, and scripts say very small ones.
#[test]
fn less_than_the_least_memory_becomes_the_least() {
    let given = settings("-m 2").expect("it is taken");
    assert_eq!(given.memory, 8 << 20);
    let line = "-m 2: coua takes 8 MiB, the least that it works with";
    assert_eq!(given.unmet, [line]);
    let enough = settings("-m 8").expect("it is enough");
    assert!(enough.unmet.is_empty(), "{:?}", enough.unmet);
}

#[test]
fn pressure_is_watched_where_it_is_asked_for() {
    assert_eq!(settings("-m 64").expect("plain").pressure, None);
    let given = settings("-m 100 -o memory_pressure=20").expect("a floor");
    let pressure = given.pressure.expect("it is watched");
    assert_eq!((pressure.floor, pressure.step), (20 << 20, 10 << 20));
    assert_eq!(pressure.stall_ms, 150);
    let given = "-m 100 -o memory_pressure=20,memory_pressure_step=25,memory_pressure_stall=9";
    let pressure = settings(given).expect("all of it").pressure;
    let pressure = pressure.expect("it is watched");
    assert_eq!((pressure.step, pressure.stall_ms), (25 << 20, 9));
    for flags in [
        "-m 64 -o memory_pressure=65",
        "-m 64 -o memory_pressure=7",
        "-m 64 -o memory_pressure",
        "-m 64 -o memory_pressure=8,memory_pressure_step=0",
        "-m 64 -o memory_pressure=8,memory_pressure_stall=2001",
    ] {
        let line = settings(flags).expect_err(flags).to_string();
        assert!(line.contains("-o memory_pressure"), "{line}");
    }
}

#[test]
fn memory_may_grow_as_far_as_is_said() {
    assert_eq!(settings("-m 64").expect("plain").memory_max, 64 << 20);
    let given = settings("-m 64 --memory-max 1024").expect("more than -m");
    assert_eq!((given.memory, given.memory_max), (64 << 20, 1 << 30));
    settings("-k --memory-max 128").expect("what comes into use is locked then");
    for flags in ["-m 64 --memory-max 32", "--memory-max x"] {
        let error = match settings(flags) {
            Ok(_) => panic!("{flags} is taken"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("--memory-max"), "{error}");
    }
}

/// What is shown by `stats settings` although it has no effect.
#[test]
fn values_without_effect_are_kept_as_memcached_shows_them() {
    let given = settings("-f 1.08 -n 72 -o hot_max_factor=0.3,lru_crawler_sleep=50,slab_automove");
    let given = given.expect("good flags");
    let shown = |name| given.given_or(name, "-");
    assert_eq!(shown("growth_factor"), "1.08");
    assert_eq!(shown("chunk_size"), "72");
    assert_eq!(shown("hot_max_factor"), "0.30");
    assert_eq!(shown("lru_crawler_sleep"), "50");
    assert_eq!(shown("warm_lru_pct"), "-");
    assert_eq!(given.without_effect.len(), 5, "{:?}", given.without_effect);
}

/// Tools that test a server look for memcached's name and version, and at the status of the rest.
#[test]
fn help_and_version_are_as_tools_look_for_them() {
    let text = |words: &str| {
        let words = std::iter::once("coua").chain(words.split_whitespace());
        read(words.map(Into::into)).map(|asked| match asked {
            Invocation::Print(text) => text,
            Invocation::Serve(_) | Invocation::Check(_) => panic!("a server"),
        })
    };
    let help = text("-h").expect("a text");
    assert!(
        help.starts_with("memcached 1.6.45 compatible: coua "),
        "{help}"
    );
    let version = text("--version").expect("a text");
    assert!(version.starts_with("coua ") && version.ends_with(" (memcached 1.6.45)\n"));
    for words in ["--enable-ssl --version", "-V -Z"] {
        // So they ask whether there is TLS.
        assert_eq!(text(words).expect("there is TLS"), version, "{words}");
    }
}

#[test]
fn wrong_flags_get_one_line_that_names_them() {
    let table = [
        (
            "--thread 4",
            "unknown flag --thread: did you mean --threads? (-h lists all)",
        ),
        ("--frobnicate", "unknown flag --frobnicate (-h lists all)"),
        ("word", "'word' is no flag (-h lists all)"),
        (
            "-p 65536",
            "-p cannot be '65536': it takes a port from 1 to 65535, 0 or -1",
        ),
        (
            "-p 0",
            "-p 0 leaves nothing to listen on: give -s or a port",
        ),
        (
            "-m x",
            "-m cannot be 'x': it takes a number, or one with k, m, g or t behind it",
        ),
        ("-I 2g", "-I cannot be '2g': it takes 1k to 1024m"),
        (
            "-I 64m",
            "-I cannot be '64m': it takes at most half of the memory (-m)",
        ),
        ("-t 0", "-t cannot be '0': it takes a number from 1 to 1024"),
        (
            "--cores 5-2",
            "--cores cannot be '5-2': it takes cores and ranges of them, such as 2-5,7",
        ),
        (
            "-U 65536",
            "-U cannot be '65536': it takes a port from 1 to 65535, 0 or -1",
        ),
        (
            "-o idle_timeot=3",
            "-o: unknown option idle_timeot: did you mean idle_timeout?",
        ),
        (
            "-o idle_timeout",
            "-o idle_timeout needs a value: idle_timeout=SECONDS",
        ),
        (
            "-o idle_timeout=x",
            "-o idle_timeout cannot be 'x': it takes a number from 0 to 4294967295",
        ),
        (
            "-o hot_lru_pct",
            "-o hot_lru_pct needs a value: hot_lru_pct=VALUE",
        ),
        (
            "-o slab_chunk_max=abc",
            "-o slab_chunk_max cannot be 'abc': it takes a number from 1 to 4294967295",
        ),
        (
            "-o hashpower=99",
            "-o hashpower cannot be '99': it takes a number from 12 to 32",
        ),
        (
            "-o hash_algorithm=crc",
            "-o hash_algorithm cannot be 'crc': it takes jenkins, murmur3, xxh3",
        ),
        (
            "-o hot_max_factor=-1",
            "-o hot_max_factor cannot be '-1': it takes a number above 0, such as 0.8",
        ),
        (
            "-o slab_sizes=100-x",
            "-o slab_sizes cannot be '100-x': it takes numbers with - between them",
        ),
        (
            "-o lru_crawler=5",
            "-o lru_crawler is a switch: leave =5 out",
        ),
        (
            "-o slab_automove=3",
            "-o slab_automove cannot be '3': it takes a number from 0 to 2",
        ),
        (
            "-o drop_privileges --net packet:eth1 --address 192.0.2.7/24",
            "-o drop_privileges does not go with --net, whose cards need other system calls; leave \
             one of them out",
        ),
        (
            "-o drop_privileges,ext_path=/flash:1g",
            "-o drop_privileges does not go with flash (--flash, -o ext_path), which needs other system \
             calls; leave one of them out",
        ),
        (
            "-o slow_us=0",
            "-o slow_us cannot be '0': it takes a number from 1 to 60000000",
        ),
        (
            "-o watcher_logbuf_size=0",
            "-o watcher_logbuf_size cannot be '0': it takes a number from 1 to 1048576",
        ),
        (
            "-o modern,ext_path=/flash",
            "-o ext_path cannot be '/flash': it takes FILE:SIZE, such as /mnt/flash/coua:64g, where SIZE \
             has m, g, t or p behind the number",
        ),
        (
            "-o ext_path=/flash:1m",
            "-o ext_path: the files have less than 16m together; give more",
        ),
        (
            "-o ext_path=/flash:1g,ext_path=/flash:2g",
            "-o ext_path: /flash is given twice",
        ),
        (
            "--flash /flash",
            "--flash: /flash is not below /dev; for a file give -o ext_path=/flash:SIZE",
        ),
        (
            "-M -o ext_path=/flash:1g",
            "-M: what memory evicts goes to flash, and with -M nothing is evicted; leave -M, or \
             ext_path and --flash, out",
        ),
        ("-f 1", "-f cannot be '1': it takes a number above 1"),
        (
            "-n 0",
            "-n cannot be '0': it takes a number from 1 to 4294967295",
        ),
        (
            "-p 0 -l 127.0.0.1:1",
            "-p 0 leaves nothing to listen on: give -s or a port",
        ),
        (
            "-l mtls:127.0.0.1",
            "-l cannot be 'mtls:127.0.0.1': there is no TLS without -Z; leave mtls: out",
        ),
        (
            "-l proto[proxy]:127.0.0.1",
            "-l cannot be 'proto[proxy]:127.0.0.1': coua speaks the same on all addresses; leave \
             proto[proxy]: out and see -B",
        ),
        (
            "-l tag[123456789]:127.0.0.1",
            "-l cannot be 'tag[123456789]:127.0.0.1': a tag has 1 to 8 letters",
        ),
        (
            "-l tag[]127.0.0.1",
            "-l cannot be 'tag[]127.0.0.1': it takes an address such as 127.0.0.1, \
             127.0.0.1:11311, [::1]:11311 or localhost",
        ),
        (
            "-a 888",
            "-a cannot be '888': it takes access bits in octal, 0 to 777",
        ),
    ];
    for (words, expected) in table {
        assert_eq!(line(words), expected, "{words}");
    }
    for words in ["-p", "-m", "-Q"] {
        let line = line(words);
        assert!(line.contains(words) && line.lines().count() == 1, "{line}");
    }
}

/// `docs/memcached-surface.md` has what memcached has as well; what only coua has is not in its tables.
#[test]
fn the_page_about_memcacheds_options_says_what_becomes_of_them() {
    let page = include_str!("../../../../docs/memcached-surface.md");
    for option in extended::ALL {
        let name = format!("`{}`", option.name);
        let mut rows = page.lines().map(|line| line.split('|').map(str::trim));
        let verdict = rows.find_map(|mut columns| {
            columns.nth(1).filter(|names| names.contains(&name))?;
            columns.next()
        });
        let is_right = match option.effect {
            extended::Effect::Works => matches!(verdict, None | Some("same" | "differs")),
            extended::Effect::None => verdict == Some("no effect"),
            extended::Effect::Refused => verdict == Some("refused"),
        };
        assert!(is_right, "{name} is said to be {verdict:?}");
    }
}
