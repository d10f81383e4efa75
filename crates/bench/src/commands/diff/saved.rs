//! Reads what `run --json` and `compare --json` have printed.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// A load on one server, with all its measurements.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    /// The server's name; empty if there is only one.
    pub(super) name: String,
    /// The settings of the load.
    load: Map<String, Value>,
    rate: Option<f64>,
    repetitions: Vec<Value>,
    /// Rates that a search found.
    found: Vec<f64>,
}

/// The setting that may differ between comparable runs: where the server was.
const PLACE: &str = "target";

impl Saved {
    /// All servers of a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Saved>> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let value: Value = serde_json::from_str(&text).with_context(|| {
            format!(
                "{}: not the JSON of coua-bench run or compare",
                path.display()
            )
        })?;
        Saved::all(&value).with_context(|| path.display().to_string())
    }

    fn all(value: &Value) -> anyhow::Result<Vec<Saved>> {
        let Some(servers) = value["servers"].as_array() else {
            return Ok(vec![Saved::one("", value)?]);
        };
        let each = servers.iter().map(|server| {
            let name = server["name"].as_str().unwrap_or_default();
            if server["rates"].is_array() {
                bail!("a --sweep cannot be compared; give one --rate");
            }
            let mut saved = Saved::one(name, &server["outcome"])?;
            if server["searches"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
            {
                let rates = server["requests_per_second"].as_array();
                saved.found = rates
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_f64)
                    .collect();
            }
            Ok(saved)
        });
        each.collect()
    }

    fn one(name: &str, outcome: &Value) -> anyhow::Result<Saved> {
        let parts = outcome["load"]
            .as_object()
            .zip(outcome["repetitions"].as_array());
        let (load, repetitions) = parts.context("not the JSON of coua-bench run or compare")?;
        Ok(Saved {
            name: name.to_owned(),
            load: load.clone(),
            // Each search ends at another rate; its bound is the setting.
            rate: outcome["rate"]
                .as_f64()
                .filter(|_| outcome["search"].is_null()),
            repetitions: repetitions.clone(),
            found: Vec::new(),
        })
    }

    /// Measurements.
    pub(super) fn len(&self) -> usize {
        self.repetitions.len()
    }

    /// The settings that differ, as text.
    pub(super) fn differences(&self, other: &Saved) -> Vec<String> {
        let keys = self.load.keys().chain(other.load.keys());
        let mut keys: Vec<&String> = keys.filter(|key| *key != PLACE).collect();
        keys.sort();
        keys.dedup();
        let of =
            |saved: &Saved, key: &str| saved.load.get(key).map_or("not given".to_owned(), shown);
        let pairs = keys
            .into_iter()
            .map(|key| (key.clone(), of(self, key), of(other, key)));
        let rate = |saved: &Saved| {
            saved
                .rate
                .map_or("none".to_owned(), |rate| rate.to_string())
        };
        let all = pairs.chain([("rate".to_owned(), rate(self), rate(other))]);
        let differing = all.filter(|(_, old, new)| old != new);
        differing
            .map(|(key, old, new)| format!("{key}: {old} and {new}"))
            .collect()
    }

    /// A figure of each measurement; empty if one lacks it.
    pub(super) fn values(&self, of: fn(&Value) -> Option<f64>) -> Vec<f64> {
        let values: Option<Vec<f64>> = self.repetitions.iter().map(of).collect();
        values.unwrap_or_default()
    }

    /// The highest rates that a search found, or the rates of the measurements.
    pub(super) fn rates(&self) -> Vec<f64> {
        match self.found.is_empty() {
            true => self.values(|sample| sample["requests_per_second"].as_f64()),
            false => self.found.clone(),
        }
    }

    /// The share of requests that failed.
    pub(super) fn failures(&self) -> f64 {
        let sum = |name: &str| -> f64 {
            let counts = self.repetitions.iter();
            counts.filter_map(|sample| sample[name].as_f64()).sum()
        };
        (sum("errors") + sum("wrong") + sum("lost")) / sum("requests").max(1.0)
    }
}

/// A value as people write it.
fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
