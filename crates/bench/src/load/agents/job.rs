//! What an agent has to prepare, as text and numbers.
//!
//! Sizes, operations and lifetimes travel as the text that the flags take, and the same code reads
//! them; so the agent refuses what the flags refuse. Key numbers that were drawn or recorded in
//! advance travel as they are.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::load::plan::{Dialect, Plan};
use crate::load::requests::Requests;
use crate::load::setup::Setup;
use crate::workload::{Keys, Part, Sampler, Values, sizes};

/// An agent's part of a load.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::load) struct Job {
    target: String,
    connections: usize,
    depth: usize,
    threads: usize,
    dialect: Dialect,
    keys: u32,
    key_size: String,
    value_size: String,
    mix: String,
    ttl: String,
    keys_per_get: u32,
    canned: bool,
    seed: u64,
    source: Source,
}

/// Where key numbers come from; see [`Sampler`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Source {
    Uniform {
        keys: u32,
        seed: u64,
    },
    Hot {
        keys: u32,
        hot: u32,
        below: u64,
        seed: u64,
    },
    /// `numbers` 32-bit words, little-endian, follow the message.
    Table {
        numbers: usize,
        at: usize,
    },
    Sequence {
        start: u32,
        end: u32,
    },
    Draws {
        start: u32,
        end: u32,
        left: u64,
        seed: u64,
    },
}

impl Job {
    /// Most key numbers that may follow a job.
    const NUMBERS_MAX: usize = 1 << 28;
    /// The limits of the flags.
    const CONNECTIONS_MAX: usize = 1_000_000;
    const THREADS_MAX: usize = 1024;
    const DEPTH_MAX: usize = 65_536;
    const KEYS_PER_GET_MAX: u32 = 1000;

    /// The job of a team with this set-up and these requests, and the key numbers to send after it;
    /// an error if there are too many.
    pub(super) fn of<'a>(
        setup: &Setup,
        requests: &'a Requests,
    ) -> Result<(Job, &'a [u32]), String> {
        let (plan, sampler) = (requests.plan(), requests.sampler());
        let seed = |random: &Xoshiro256PlusPlus| random.clone().next_u64();
        let mut numbers: &[u32] = &[];
        let source = match sampler {
            Sampler::Uniform { random, keys } => Source::Uniform {
                keys: *keys,
                seed: seed(random),
            },
            Sampler::Hot {
                random,
                below,
                hot,
                keys,
            } => Source::Hot {
                keys: *keys,
                hot: *hot,
                below: *below,
                seed: seed(random),
            },
            Sampler::Table { numbers: table, at } => {
                numbers = table;
                Source::Table {
                    numbers: table.len(),
                    at: *at,
                }
            }
            Sampler::Sequence(range) => Source::Sequence {
                start: range.start,
                end: range.end,
            },
            Sampler::Draws {
                random,
                range,
                left,
            } => Source::Draws {
                start: range.start,
                end: range.end,
                left: *left,
                seed: seed(random),
            },
        };
        if numbers.len() > Self::NUMBERS_MAX {
            return Err(format!(
                "a trace of {} requests is too long to send, {} are the most",
                numbers.len(),
                Self::NUMBERS_MAX
            ));
        }
        let (key_sizes, keys) = plan.keys.parts();
        let job = Job {
            target: setup.target.to_string(),
            connections: setup.connections,
            depth: setup.depth,
            threads: setup.threads,
            dialect: plan.dialect,
            keys,
            key_size: key_sizes.to_string(),
            value_size: plan.values.sizes().to_string(),
            mix: plan.mix.spell(),
            ttl: plan.ttls.spell(),
            keys_per_get: plan.keys_per_get,
            canned: plan.canned,
            seed: requests.seed(),
            source,
        };
        Ok((job, numbers))
    }

    /// Bytes that follow the job.
    pub(in crate::load) fn payload(&self) -> Result<usize, String> {
        match self.source {
            Source::Table { numbers, .. } if numbers > Self::NUMBERS_MAX => {
                Err(format!("{numbers} key numbers are too many"))
            }
            Source::Table { numbers, .. } => Ok(numbers * size_of::<u32>()),
            _ => Ok(0),
        }
    }

    /// The team's set-up and requests, checked; `payload` is what followed the job.
    pub(in crate::load) fn read(&self, payload: &[u8]) -> Result<(Setup, Requests), String> {
        let within = |name: &str, value: usize, most: usize| match (1..=most).contains(&value) {
            true => Ok(value),
            false => Err(format!("{name}: {value} is not in 1..={most}")),
        };
        let named = |name: &'static str| move |error: String| format!("{name}: {error}");
        let connections = within("connections", self.connections, Self::CONNECTIONS_MAX)?;
        let setup = Setup {
            target: self.target.parse().map_err(named("target"))?,
            connections,
            depth: within("depth", self.depth, Self::DEPTH_MAX)?,
            threads: within("threads", self.threads, connections.min(Self::THREADS_MAX))?,
            core: None,
            agents: Vec::new(),
            net: None,
            gaps: None,
        };
        if !(1..=Self::KEYS_PER_GET_MAX).contains(&self.keys_per_get) {
            return Err(format!(
                "keys_per_get: {} is not in 1..={}",
                self.keys_per_get,
                Self::KEYS_PER_GET_MAX
            ));
        }
        let key_sizes = sizes(&self.key_size, Part::Keys).map_err(named("key_size"))?;
        let value_sizes = sizes(&self.value_size, Part::Values);
        let ttls = self.ttl.parse();
        let plan = Plan {
            dialect: self.dialect,
            keys: Keys::new(key_sizes, self.keys).ok_or("key_size: the keys do not fit")?,
            values: Arc::new(Values::sized(value_sizes.map_err(named("value_size"))?)),
            mix: self.mix.parse().map_err(named("mix"))?,
            ttls: ttls.map_err(|error: &str| format!("ttl: {error}"))?,
            keys_per_get: self.keys_per_get,
            canned: self.canned,
        };
        let sampler = self.source.read(payload).ok_or("source: out of bounds")?;
        Ok((setup, Requests::planned(plan.into(), sampler, self.seed)))
    }
}

impl Source {
    fn read(&self, payload: &[u8]) -> Option<Sampler> {
        let random = Xoshiro256PlusPlus::seed_from_u64;
        Some(match *self {
            Source::Uniform { keys, seed } if keys > 0 => Sampler::Uniform {
                random: random(seed),
                keys,
            },
            Source::Hot {
                keys,
                hot,
                below,
                seed,
            } if (1..=keys).contains(&hot) && (hot < keys || below >= 1 << 32) => Sampler::Hot {
                random: random(seed),
                below,
                hot,
                keys,
            },
            Source::Table { numbers, at } if at < numbers => {
                let (words, rest) = payload.as_chunks();
                if words.len() != numbers || !rest.is_empty() {
                    return None;
                }
                Sampler::Table {
                    numbers: words.iter().map(|&word| u32::from_le_bytes(word)).collect(),
                    at,
                }
            }
            Source::Sequence { start, end } if start <= end => Sampler::Sequence(start..end),
            Source::Draws {
                start,
                end,
                left,
                seed,
            } if start < end => Sampler::Draws {
                random: random(seed),
                range: start..end,
                left,
            },
            _ => return None,
        })
    }
}

/// Key numbers as they travel.
pub(super) fn payload_of(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Mix, Popularity, Ttls};

    fn setup() -> Setup {
        Setup {
            target: "127.0.0.1:11211".parse().unwrap(),
            connections: 5,
            depth: 2,
            threads: 3,
            core: Some(1),
            agents: Vec::new(),
            net: None,
            gaps: None,
        }
    }

    fn requests(sampler: Sampler) -> Requests {
        let plan = Plan {
            dialect: Dialect::Meta,
            keys: Keys::new(sizes("etc", Part::Keys).unwrap(), 1000).unwrap(),
            values: Arc::new(Values::sized(sizes("10-90", Part::Values).unwrap())),
            mix: "get=30,set=1".parse::<Mix>().unwrap(),
            ttls: "60=1,0=2".parse::<Ttls>().unwrap(),
            keys_per_get: 3,
            canned: false,
        };
        Requests::planned(plan.into(), sampler, 7)
    }

    /// What a job becomes when it has travelled.
    fn travelled(requests: &Requests) -> (Setup, Requests) {
        let (job, numbers) = Job::of(&setup(), requests).unwrap();
        let line = serde_json::to_string(&job).unwrap();
        let job: Job = serde_json::from_str(&line).unwrap();
        let payload = payload_of(numbers);
        assert_eq!(job.payload(), Ok(payload.len()));
        job.read(&payload).unwrap()
    }

    fn first(requests: &mut Requests) -> String {
        let (mut out, mut numbers) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            requests.append(0, &mut out, &mut numbers);
        }
        assert!(numbers.iter().all(|&number| number < 1000));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_travel_with_their_seeds() {
        for popularity in ["uniform", "hot:0.1:0.9", "zipf:1.1"] {
            let popularity: Popularity = popularity.parse().unwrap();
            let whole = requests(Sampler::new(popularity, 1000, 3));
            let text = first(&mut travelled(&whole).1);
            assert_eq!(text, first(&mut travelled(&whole).1));
            assert!(text.contains("mg ") && text.lines().count() > 100, "{text}");
            let (one, two) = (whole.for_share(1, 3), whole.for_share(2, 3));
            assert_ne!(first(&mut travelled(&one).1), first(&mut travelled(&two).1));
        }
    }

    #[test]
    fn sequences_and_set_up_arrive_whole() {
        let whole = requests(Sampler::Sequence(10..20));
        let (setup, mut arrived) = travelled(&whole);
        assert_eq!((setup.connections, setup.depth, setup.threads), (5, 2, 3));
        let (mut out, mut numbers) = (Vec::new(), Vec::new());
        while arrived.append(0, &mut out, &mut numbers).is_some() {}
        assert_eq!(numbers, (10..20).collect::<Vec<u32>>());
    }

    #[test]
    fn what_no_flag_would_take_is_refused() {
        let whole = requests(Sampler::new(Popularity::Uniform, 1000, 3));
        let (job, _) = Job::of(&setup(), &whole).unwrap();
        let good = serde_json::to_value(&job).unwrap();
        for (field, wrong) in [
            ("connections", "1000001"),
            ("connections", "0"),
            ("threads", "6"),
            ("depth", "0"),
            ("keys_per_get", "5000"),
            ("key_size", "\"300\""),
            ("value_size", "\"99999999999\""),
            ("mix", "\"got=1\""),
            ("ttl", "\"-1\""),
            ("target", "\"nowhere\""),
            ("source", r#"{"uniform":{"keys":0,"seed":1}}"#),
            (
                "source",
                r#"{"hot":{"keys":9,"hot":10,"below":1,"seed":1}}"#,
            ),
            ("source", r#"{"sequence":{"start":9,"end":1}}"#),
            (
                "source",
                r#"{"draws":{"start":9,"end":9,"left":1,"seed":1}}"#,
            ),
            ("source", r#"{"table":{"numbers":3,"at":3}}"#),
            ("source", r#"{"table":{"numbers":3,"at":0}}"#),
        ] {
            let mut bad = good.clone();
            bad[field] = serde_json::from_str(wrong).unwrap();
            let job: Job = serde_json::from_value(bad).unwrap();
            let error = job.read(&[0; 8]).map(|_| ()).unwrap_err();
            assert!(error.starts_with(field), "{field} {wrong}: {error}");
        }
        let mut bad = good;
        bad["source"] = serde_json::from_str(r#"{"table":{"numbers":300000000,"at":0}}"#).unwrap();
        let job: Job = serde_json::from_value(bad).unwrap();
        assert!(job.payload().is_err());
    }
}
