//! The programs, cores and network of a comparison.

use std::str::FromStr;

use clap::Args;

use crate::commands::programs::{CouaFlag, MemcachedFlag};
use crate::cpu;
use crate::report::require;

/// Flags of all commands that start servers by their recipes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Ground {
    #[command(flatten)]
    pub(crate) coua: CouaFlag,
    #[command(flatten)]
    pub(crate) memcached: MemcachedFlag,
    /// Memory of coua and of memcached (-m), in MiB
    #[arg(long, default_value_t = 1024)]
    pub(crate) memory: u64,
    /// Cores of the servers, as in 0-3 or 0,2; the load has the others [default: the first half]
    #[arg(long, value_name = "CORES")]
    server_cores: Option<Cores>,
    /// Reach all servers over a veth cable between two network namespaces rather than loopback, as
    /// is done anyway if one has a TCP stack of its own
    #[arg(long)]
    pub(crate) veth: bool,
}

impl Ground {
    /// The same, with `memory` MiB for each server.
    pub(crate) fn with_memory(&self, memory: u64) -> Ground {
        Ground {
            memory,
            ..self.clone()
        }
    }

    /// Cores of the servers.
    pub(crate) fn server_cores(&self) -> anyhow::Result<Vec<usize>> {
        let all = cpu::allowed()?;
        let Some(Cores(cores)) = &self.server_cores else {
            return Ok(all[..all.len().div_ceil(2)].to_vec());
        };
        let absent = cores.iter().find(|core| !all.contains(core));
        require!(
            absent.is_none(),
            "--server-cores takes cores that this machine allows: {all:?}"
        );
        Ok(cores.clone())
    }

    /// Cores of the load unless flags say otherwise: those that the servers do not have, or all if none
    /// is left.
    pub(crate) fn load_cores(&self) -> anyhow::Result<Vec<usize>> {
        let servers = self.server_cores()?;
        let all = cpu::allowed()?;
        let others = all.iter().copied().filter(|core| !servers.contains(core));
        let others: Vec<usize> = others.collect();
        Ok(if others.is_empty() { all } else { others })
    }
}

/// A set of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(Vec<usize>);

impl Cores {
    /// Their numbers, in ascending order.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.0
    }
}

impl FromStr for Cores {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Cores, &'static str> {
        const EXPECTED: &str = "expected numbers of cores, as in 0, 0-3 or 0,2";
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<u16>().map(usize::from);
            let (first, last) = number(first)
                .and_then(|first| Ok((first, number(last)?)))
                .map_err(|_| EXPECTED)?;
            if first > last {
                return Err(EXPECTED);
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        cores.dedup();
        Ok(Cores(cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!("0-2,5".parse(), Ok(Cores(vec![0, 1, 2, 5])));
        assert_eq!("3,1".parse(), Ok(Cores(vec![1, 3])));
        for wrong in ["", "a", "2-1", "-1", "0,"] {
            assert!(wrong.parse::<Cores>().is_err(), "{wrong}");
        }
    }
}
