use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;

use super::{EXTENDED, LEN_MAX, ONLY_FLAGS, parse};
use crate::flags::extended::{ALL, Effect};
use crate::flags::{Raw, check_text};

/// The words that a file stands for.
fn words(text: &str) -> Vec<String> {
    let parsed = parse(Path::new("f"), text);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let words = parsed.keys.into_iter().flat_map(|key| key.words);
    words
        .map(|word| word.into_string().expect("text"))
        .collect()
}

/// What is said about a file.
fn complaints(text: &str) -> String {
    match check_text(text) {
        Ok(()) => String::new(),
        Err(refused) => refused.to_string(),
    }
}

/// The example has every flag and every option, and every line of it can be uncommented.
#[test]
fn the_example_is_complete_and_right() {
    let example = include_str!("../../../../../packaging/coua.toml");
    let mut shown = BTreeSet::new();
    let mut table = "";
    for line in example.lines() {
        if line == "[extended]" {
            table = "[extended]\n";
        }
        let text = line.strip_prefix('#').unwrap_or(line);
        let Some((key, _)) = text.split_once(" = ") else {
            continue;
        };
        if key.contains(' ') {
            continue;
        }
        let parsed = parse(Path::new("f"), &format!("{table}{text}\n"));
        assert!(parsed.errors.is_empty(), "{line}: {:?}", parsed.errors);
        shown.extend(parsed.keys.into_iter().map(|key| key.name));
    }
    let command = Raw::command();
    let flags = command.get_arguments().filter_map(|flag| flag.get_long());
    let flags = flags.filter(|flag| !ONLY_FLAGS.contains(flag) && *flag != EXTENDED);
    let options = ALL.iter().filter(|option| option.effect == Effect::Works);
    let options = options.map(|option| format!("{EXTENDED}.{}", option.name));
    let all: BTreeSet<String> = flags.map(str::to_owned).chain(options).collect();
    assert_eq!(shown, all);
    assert_eq!(complaints(example), "");
}

#[test]
fn values_become_words() {
    assert_eq!(
        words(
            "memory-limit = 64\nport=-1\nunix-mask = 0o770\nconn-limit = 0x10\nverbose = 2\n\
             disable-cas = true\nlock-memory = false\nlisten = ['::1', \"a,b\"]\n\
             slab-growth-factor = 1.25\n[extended]\nidle_timeout = 5\nno_modern = true\nmodern = false\n"
        ),
        [
            "--memory-limit=64",
            "--port=-1",
            "--unix-mask=770",
            "--conn-limit=16",
            "--verbose",
            "--verbose",
            "--disable-cas",
            "--listen=::1",
            "--listen=a,b",
            "--slab-growth-factor=1.25",
            "--extended=idle_timeout=5",
            "--extended=no_modern",
        ]
    );
}

#[test]
fn each_mistake_has_a_line_with_its_place() {
    let text = "prot = 1\nconn-limit = [1]\nverbose = 4\nlisten = 1979-05-27\ndisable-cas = 1\nman = true\n\
                user = true\nthreads = 99999999999999999999\n[extended]\nidle_timout = 1\nssl_key = 'a,b'\nmodern.x = 1\n";
    let expected = [
        "file.toml:1: unknown key prot: did you mean port?",
        "file.toml:2: conn-limit takes one value, not a list",
        "file.toml:3: verbose takes a number from 0 to 3",
        "file.toml:4: listen takes a string or a number, not a date",
        "file.toml:5: disable-cas takes true or false",
        "file.toml:6: man is for the command line only",
        "file.toml:7: user takes a value, not true or false",
        "file.toml:8: threads cannot be 99999999999999999999: it is too large",
        "file.toml:10: unknown option idle_timout: did you mean idle_timeout?",
        "file.toml:11: ssl_key cannot have a comma in its value",
        "file.toml:12: modern takes a string or a number, not a table",
    ];
    assert_eq!(complaints(text), expected.join("\n"));
}

/// All values that are wrong are told, and none that only follows from another.
#[test]
fn wrong_values_are_all_told() {
    let text = "port = 'x'\nconn-limit = 0\nnet = 'eth0'\naddress = '192.0.2.7/24'\nmemory-limit = 'x'\n\
                [extended]\nidle_timeout = -1\nmemory_pressure = 100\nproxy_config = 'x'\n";
    let said = complaints(text);
    let lines: Vec<&str> = said.lines().collect();
    let begins = [
        "file.toml:7: extended.idle_timeout cannot be '-1': it takes a number from 0 to 4294967295",
        "file.toml:9: extended.proxy_config: coua is no proxy;",
        "file.toml:3: net eth0: give xdp:INTERFACE",
        "file.toml:1: port cannot be 'x'",
        "file.toml:5: memory-limit cannot be 'x'",
        "file.toml:2: conn-limit cannot be '0': it takes a number from 1 to 10000000",
    ];
    assert_eq!(lines.len(), begins.len(), "{said}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
}

#[test]
fn what_is_no_toml_is_told_by_line() {
    let said = complaints("port = 1\nport = 2\n");
    assert!(said.starts_with("file.toml:2: duplicate key"), "{said}");
    let said = complaints("port = \n\nlisten = [\n");
    assert!(said.starts_with("file.toml:1: "), "{said}");
    assert!(said.contains("\nfile.toml:3: unclosed array"), "{said}");
    let said = complaints("user = \"a\\u0000\"");
    assert_eq!(
        said,
        "file.toml:1: user cannot have a zero byte in its value"
    );
    let said = complaints("\"a\\nb\" = 1");
    assert!(
        said.starts_with("file.toml:1: unknown key a\\nb: "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
    let said = complaints("port = 'a'\nthreads = \"x\\n\\u001b[2J\"\n");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.contains("threads cannot be 'x\\n\\u{1b}[2J'"),
        "{said}"
    );
    let said = complaints(&format!("cores = '{}0'", "0-1023,".repeat(9)));
    assert!(said.starts_with("file.toml:1: cores cannot be '"), "{said}");
}

/// What is built to use up stack or time is refused or read.
#[test]
fn hostile_texts_do_no_harm() {
    let len = usize::try_from(LEN_MAX).expect("it fits");
    for text in [
        "[".repeat(len),
        format!("a = {}", "[".repeat(len)),
        format!("a = {}", "{a=".repeat(len / 3)),
        "a.".repeat(len / 2),
        format!("{} = 1", "a.".repeat(len / 2) + "a"),
        "[a]\n".repeat(len / 4),
        "[[extended]]\n".repeat(len / 13),
        (0..len / 8).map(|n| format!("k{n}=1\n")).collect(),
        format!("listen = [{}]", "1,".repeat(len / 2)),
        format!("verbose = {}", "9".repeat(len)),
        "\u{feff}port = 1".to_owned() + "\0",
    ] {
        let said = complaints(&text);
        assert!(said.lines().count() <= 21, "{said}");
        assert!(said.len() < 1 << 20);
    }
}
