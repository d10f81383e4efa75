//! How the exporter reads: [`Scrape::read`] fails where it would call the server down, panic or fail the whole scrape.

use std::collections::BTreeMap;

use crate::lines::{GENERAL, Holds, ITEMS, LRU_SETTINGS, SLABS};

pub(crate) type Lines = BTreeMap<String, String>;

/// What the exporter keeps of its four questions.
#[derive(Default)]
pub(crate) struct Scrape {
    pub(crate) general: Lines,
    pub(crate) slabs: BTreeMap<u32, Lines>,
    pub(crate) items: BTreeMap<u32, Lines>,
    pub(crate) settings: Lines,
}

impl Scrape {
    /// Takes the answers to `stats`, `stats slabs`, `stats items` and `stats settings` apart.
    pub(crate) fn read(answers: &[String]) -> Result<Scrape, String> {
        let mut scrape = Scrape::default();
        for (question, answer) in answers.iter().enumerate() {
            if !answer.ends_with("END\r\n") {
                return Err(format!("it waits for END behind {answer}"));
            }
            for (name, value) in pairs(answer) {
                // A value with a blank is no value to it.
                if value.contains(' ') || value.is_empty() {
                    continue;
                }
                if question == 3 {
                    scrape.settings.insert(name, value);
                } else {
                    scrape.keep(&name, value)?;
                }
            }
        }
        scrape.convert()?;
        Ok(scrape)
    }

    fn keep(&mut self, name: &str, value: String) -> Result<(), String> {
        let parts: Vec<&str> = name.split(':').collect();
        let class = |number: &str| {
            number
                .parse::<u32>()
                .map_err(|_| format!("{name}: no class"))
        };
        match parts[..] {
            [name] => self.general.insert(name.to_owned(), value),
            [number, name] => self
                .slabs
                .entry(class(number)?)
                .or_default()
                .insert(name.to_owned(), value),
            [_, number, name] => self
                .items
                .entry(class(number)?)
                .or_default()
                .insert(name.to_owned(), value),
            _ => None,
        };
        Ok(())
    }

    fn convert(&self) -> Result<(), String> {
        for (name, value) in &self.general {
            let known = GENERAL.iter().find(|(known, _)| known == name);
            match known.map(|(_, holds)| *holds) {
                None | Some(Holds::Text) => {}
                Some(Holds::Seconds) => seconds(value)?,
                Some(_) => _ = number(value)?,
            }
        }
        stores_that_are_no_cas(&self.general, &["cas_hits", "cas_misses", "cas_badval"])?;
        for (class, lines) in &self.slabs {
            numbers(lines, SLABS)?;
            stores_that_are_no_cas(lines, &["cas_hits", "cas_badval"])?;
            let twice = self
                .items
                .get(class)
                .is_some_and(|items| items.contains_key("mem_requested"));
            if twice && lines.contains_key("mem_requested") {
                return Err(format!("class {class} has mem_requested twice"));
            }
        }
        for lines in self.items.values() {
            numbers(lines, ITEMS)?;
            if lines.contains_key("store_too_large") || lines.contains_key("store_no_memory") {
                return Err("a class has what only a server has".to_owned());
            }
        }
        number(line(&self.settings, "maxconns")?)?;
        if self
            .settings
            .get("lru_crawler")
            .is_some_and(|value| value == "yes")
        {
            for name in LRU_SETTINGS {
                number(line(&self.settings, name)?)?;
            }
            let thread = line(&self.settings, "lru_maintainer_thread")?;
            if !matches!(thread, "yes" | "no") {
                return Err(format!("lru_maintainer_thread {thread}"));
            }
        }
        Ok(())
    }
}

/// A counter of the exporter's own making, which must not fall below zero.
pub(crate) fn stores_that_are_no_cas(lines: &Lines, cas: &[&str]) -> Result<(), String> {
    let mut rest = number(line(lines, "cmd_set")?)?;
    for name in cas {
        rest -= number(line(lines, name)?)?;
    }
    if rest < 0.0 {
        return Err(format!("cmd_set is {} short of {cas:?}", -rest));
    }
    Ok(())
}

pub(crate) fn line<'l>(lines: &'l Lines, name: &str) -> Result<&'l str, String> {
    lines
        .get(name)
        .map(String::as_str)
        .ok_or_else(|| format!("no {name}"))
}

pub(crate) fn numbers(lines: &Lines, table: &[(&str, Holds)]) -> Result<(), String> {
    for (name, value) in lines {
        if table.iter().any(|(known, _)| known == name) {
            number(value).map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(())
}

pub(crate) fn number(value: &str) -> Result<f64, String> {
    value.parse().map_err(|_| format!("{value} is no number"))
}

pub(crate) fn seconds(value: &str) -> Result<(), String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match value.split_once('.') {
        Some((whole, micros)) if digits(whole) && digits(micros) && micros.len() == 6 => Ok(()),
        _ => Err(format!("{value} is not seconds.microseconds")),
    }
}

pub(crate) fn pairs(answer: &str) -> Vec<(String, String)> {
    let stats = answer
        .lines()
        .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    stats
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
