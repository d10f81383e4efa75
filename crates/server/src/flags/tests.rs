use super::{Asked, FlagError, Settings, read};

fn settings(words: &str) -> Result<Box<Settings>, FlagError> {
    let words = std::iter::once("coua").chain(words.split_whitespace());
    match read(words.map(Into::into))? {
        Asked::Serve(settings) => Ok(settings),
        Asked::Print(text) => panic!("a text: {text}"),
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
    assert_eq!(given.without_effect, ["-o modern"]);
    assert_eq!((given.verbosity, given.prefix_delimiter), (2, b'/'));
    assert!(given.permissions.shutdown && !given.permissions.watch);
    let any = settings("-p -1").expect("any port");
    assert!(any.listen.iter().all(|listen| listen.address.port() == 0));
    let unix = settings("-s /run/coua.sock -a 770").expect("a unix socket");
    assert!(unix.listen.is_empty() && unix.unix_mask == 0o770);
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
        ("-m 4", "-m cannot be '4': it takes megabytes, at least 8"),
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
            "-U 11211",
            "-U: coua does not speak UDP yet; leave it out or give 0",
        ),
        (
            "-o idle_timeot=3",
            "-o: unknown option idle_timeot: did you mean idle_timeout?",
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
