//! memcached's help, read as a list of flags.

use std::path::Path;
use std::process::Command;

/// One form of one flag or option.
pub(crate) struct Flag {
    /// As it is given: `-p -1`, `--port=-1`, `-o modern`.
    pub(crate) words: Vec<String>,
    /// As a line about it calls it: its letter with a hyphen, or `-o` and the option's name.
    pub(crate) name: String,
    /// It prints a text instead of starting a server.
    pub(crate) prints: bool,
}

impl Flag {
    /// Whether a line is about it.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        let name = &self.name;
        line.contains(&format!(" {name}: ")) || line.contains(&format!(" {name} has no effect"))
    }

    /// The name alone: `-p`, `--port`, `modern`.
    pub(crate) fn bare_name(&self) -> String {
        let last = if self.words[0] == "-o" {
            &self.words[1]
        } else {
            &self.words[0]
        };
        last.split('=').next().unwrap_or_default().to_owned()
    }
}

/// Values for the flags that take one. FOLDER is to be replaced by a folder that there is.
const VALUES: &[(&str, &str)] = &[
    ("-p", "-1"),
    ("-U", "0"),
    ("-s", "FOLDER/socket"),
    ("-a", "770"),
    ("-l", "127.0.0.1"),
    ("-u", "root"),
    ("-m", "64"),
    ("-c", "64"),
    ("-P", "FOLDER/pid"),
    ("-f", "1.5"),
    ("-n", "64"),
    ("-D", "/"),
    ("-t", "1"),
    ("-R", "20"),
    ("-b", "128"),
    ("-B", "auto"),
    ("-I", "2m"),
    ("-Y", "FOLDER/users"),
    ("-e", "FOLDER/memory"),
    ("-o", "modern"),
    ("-N", "1"),
    ("hash_algorithm", "xxh3"),
    ("ext_path", "FOLDER/flash:64m"),
    ("proxy_config", "routelib"),
    ("ssl_chain_cert", "FOLDER/certificate"),
    ("ssl_key", "FOLDER/key"),
    ("ssl_ca_cert", "FOLDER/authority"),
    ("hashpower", "20"),
    ("slab_chunk_max", "512"),
    ("tail_repair_time", "20"),
];

/// Options whose names alone switch something; all others get the value 1 where they need one.
const SWITCHES: &[&str] = &[
    "maxconns_fast",
    "no_lru_crawler",
    "no_lru_maintainer",
    "track_sizes",
    "no_hashexpand",
    "modern",
    "no_modern",
    "ext_drop_unread",
    "ssl_session_cache",
    "ssl_kernel_tls",
];

/// All forms of all flags of which `memcached -h` tells, but for `-d`, which leaves a process behind.
///
/// # Panics
/// When the program cannot be run.
pub(crate) fn flags(program: &Path) -> Vec<Flag> {
    let output = Command::new(program).arg("-h").output();
    let output = output.unwrap_or_else(|error| panic!("{} -h: {error}", program.display()));
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(
        help.starts_with("memcached 1.6.45"),
        "{} is not memcached 1.6.45: {help}",
        program.display()
    );
    let mut flags: Vec<Flag> = Vec::new();
    for line in help.lines() {
        if line.starts_with('-') {
            flags.extend(flags_of(line));
        } else if let Some(option) = line.strip_prefix("   - ")
            && let Some((name, _)) = option.split_once(':')
            && !name.contains(' ')
        {
            flags.push(option_named(name));
        }
    }
    flags.retain(|flag| flag.name != "-d");
    flags
}

/// The short and the long form of a line such as `-p, --port=<num>    TCP port`.
fn flags_of(line: &str) -> Vec<Flag> {
    let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
    let short = words.next().unwrap_or_default();
    let name = short[..2].to_owned();
    let value = VALUES
        .iter()
        .find(|(of, _)| *of == name)
        .map(|(_, value)| *value);
    let prints = ["-h", "-i", "-V"].contains(&short);
    let mut forms = vec![Flag {
        words: [Some(short), value]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .collect(),
        name: name.clone(),
        prints,
    }];
    if let Some(long) = words.next().filter(|word| word.starts_with("--")) {
        let long = long.split('=').next().unwrap_or_default();
        let word = value.map_or_else(|| long.to_owned(), |value| format!("{long}={value}"));
        forms.push(Flag {
            words: vec![word],
            name,
            prints,
        });
    }
    forms
}

fn option_named(name: &str) -> Flag {
    let given = VALUES
        .iter()
        .find(|(of, _)| *of == name)
        .map(|(_, value)| *value);
    let word = match given {
        _ if SWITCHES.contains(&name) => name.to_owned(),
        Some(value) => format!("{name}={value}"),
        None => format!("{name}=1"),
    };
    Flag {
        words: vec!["-o".to_owned(), word],
        name: format!("-o {name}"),
        prints: false,
    }
}
