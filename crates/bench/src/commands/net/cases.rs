//! The loads that `net` measures.

use crate::workload::Popularity;

/// Bytes of a large value, and how many keys have one: that is a few hundred MB of memory.
const LARGE: usize = 100_000;
const LARGE_KEYS: u32 = 1000;

/// Bytes of a request that a mirroring service sends back as it is: `get`, a blank, a key of
/// [`PING_KEY`] bytes and the line end.
pub(super) const PING_LEN: usize = 16;
pub(super) const PING_KEY: usize = PING_LEN - 6;

/// One kind of load.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The name that users read, and that `--cases` takes.
    pub(super) name: String,
    pub(super) connections: usize,
    /// Requests that a connection sends at once.
    pub(super) depth: usize,
    /// Keys; if memory is to be full, twice as many as it holds.
    pub(super) keys: u32,
    pub(super) value_size: usize,
    /// Fraction of requests that are sets.
    pub(super) sets: f64,
    pub(super) popularity: Popularity,
    pub(super) is_full: bool,
    /// Whether coua and the echo are measured on the kernel's TCP too.
    pub(super) has_kernel: bool,
    /// Whether the echoes send back [`PING_LEN`] bytes, rather than a reply as long as a cache's.
    pub(super) is_mirrored: bool,
}

impl Case {
    /// One request at a time, all gets, 8-byte values, uniform.
    fn get(name: impl Into<String>, connections: usize, keys: u32) -> Case {
        Case {
            name: name.into(),
            connections,
            depth: 1,
            keys,
            value_size: 8,
            sets: 0.0,
            popularity: Popularity::Uniform,
            is_full: false,
            has_kernel: false,
            is_mirrored: false,
        }
    }

    /// Gets, beside a ping-pong of [`PING_LEN`] bytes; on the kernel's TCP too.
    pub(super) fn beside_ping() -> Case {
        Case {
            has_kernel: true,
            is_mirrored: true,
            ..Case::get("gain", 64, 1000)
        }
    }

    fn set(name: &str, sets: f64, value_size: usize) -> Case {
        Case {
            value_size,
            sets,
            ..Case::get(name, 64, 1_000_000)
        }
    }

    /// Whether an echo can give the same bytes: all requests are of one kind, and every key is there.
    pub(super) fn has_echo(&self) -> bool {
        self.sets == 1.0 || (self.sets == 0.0 && !self.is_full)
    }
}

/// All cases, in the order in which they are measured.
pub(super) fn all() -> Vec<Case> {
    let mut cases = vec![
        Case {
            has_kernel: true,
            ..Case::get("get64", 64, 1000)
        },
        Case::get("get32", 32, 1000),
        Case {
            depth: 8,
            ..Case::get("deep64", 64, 1000)
        },
    ];
    for (suffix, keys) in [("", 1000), ("-1m", 1_000_000), ("-10m", 10_000_000)] {
        for connections in [64, 256, 4096, 65_536] {
            let name = format!("get{connections}{suffix}");
            if cases.iter().all(|case| case.name != name) {
                cases.push(Case::get(name, connections, keys));
            }
        }
    }
    for value_size in [100, 1000] {
        cases.push(Case {
            value_size,
            ..Case::get(format!("get64-v{value_size}"), 64, 1000)
        });
    }
    cases.push(Case {
        value_size: LARGE,
        ..Case::get("get64-v100k", 64, LARGE_KEYS)
    });
    for connections in [32, 64] {
        cases.push(Case {
            sets: 0.1,
            popularity: Popularity::Zipf(0.9),
            ..Case::get(format!("zipf{connections}"), connections, 1_000_000)
        });
    }
    cases.extend([
        Case::set("set64", 1.0, 64),
        Case::set("set64-50", 0.5, 64),
        Case::set("set64-5", 0.05, 64),
        Case::set("set64-v8", 1.0, 8),
        Case::set("set64-v100", 1.0, 100),
        Case::set("set64-v1000", 1.0, 1000),
        Case {
            keys: LARGE_KEYS,
            ..Case::set("set64-v100k", 1.0, LARGE)
        },
    ]);
    for (name, sets) in [("full-set64", 1.0), ("full-set64-50", 0.5)] {
        cases.push(Case {
            is_full: true,
            ..Case::set(name, sets, 64)
        });
    }
    cases
}

/// The cases of these names; a name that ends in `*` is the beginning of one.
pub(super) fn named(names: &[String]) -> Result<Vec<Case>, String> {
    let is_meant = |name: &String, case: &Case| match name.strip_suffix('*') {
        Some(beginning) => case.name.starts_with(beginning),
        None => case.name == *name,
    };
    let all = all();
    if let Some(name) = names
        .iter()
        .find(|name| !all.iter().any(|case| is_meant(name, case)))
    {
        let known: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
        return Err(format!("no case {name:?}; there are {}", known.join(", ")));
    }
    let wanted = all
        .into_iter()
        .filter(|case| names.iter().any(|name| is_meant(name, case)));
    Ok(wanted.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<String> = all().into_iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn cases_are_found_by_name_and_beginning() {
        let found = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            named(&names).map(|cases| cases.len())
        };
        assert_eq!(found(&["get64"]), Ok(1));
        assert_eq!(found(&["*"]), Ok(all().len()));
        assert_eq!(found(&["full-*", "get32"]), Ok(3));
        assert!(found(&["get64", "nothing"]).is_err());
    }
}
