//! The limits of the cgroups that a process is in, of version 2 and of version 1.
//!
//! A limit holds for all cgroups below it, so the lowest one from the process's own up to the root
//! counts. In a container the root may be the container's own.

use std::path::{Path, PathBuf};

use super::{Host, text_of};

/// A limit, and the file that sets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound<T> {
    /// How much there may be.
    pub most: T,
    /// The file.
    pub file: PathBuf,
}

/// What the cgroups allow; `None` for any amount.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cgroups {
    /// Bytes of memory.
    pub memory: Option<Bound<u64>>,
    /// Processors, on average over a period.
    pub processors: Option<Bound<f64>>,
}

/// Where version 2 is mounted, alone or beside version 1.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Version 1 says that there is no limit by a number beyond all memory.
const NO_LIMIT: u64 = 1 << 60;

impl Cgroups {
    pub(super) fn of(host: &Host) -> Cgroups {
        let text = host.text("/proc/self/cgroup").unwrap_or_default();
        let mut cgroups = Cgroups::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let has = |name| controllers.split(',').any(|one| one == name);
            if controllers.is_empty() {
                for mount in UNIFIED {
                    cgroups.lower(host, mount, path, memory_of_2, processors_of_2);
                }
            } else if has("memory") {
                let mount = "/sys/fs/cgroup/memory";
                cgroups.lower(host, mount, path, memory_of_1, |_| None);
            } else if has("cpu") {
                for mount in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"] {
                    cgroups.lower(host, mount, path, |_| None, processors_of_1);
                }
            }
        }
        cgroups
    }

    /// Takes over what a cgroup and those around it set, where it is less.
    fn lower(
        &mut self,
        host: &Host,
        mount: &str,
        path: &str,
        memory: impl Fn(&Path) -> Option<Bound<u64>>,
        processors: impl Fn(&Path) -> Option<Bound<f64>>,
    ) {
        let mount = host.path(mount);
        let own = mount.join(path.trim_start_matches('/'));
        for folder in own.ancestors().take_while(|one| one.starts_with(&mount)) {
            lower(&mut self.memory, memory(folder));
            lower(&mut self.processors, processors(folder));
        }
    }
}

fn lower<T: PartialOrd>(least: &mut Option<Bound<T>>, other: Option<Bound<T>>) {
    if let Some(other) = other
        && least.as_ref().is_none_or(|least| other.most < least.most)
    {
        *least = Some(other);
    }
}

fn memory_of_2(folder: &Path) -> Option<Bound<u64>> {
    let file = folder.join("memory.max");
    let most = text_of(&file)?.parse().ok()?;
    Some(Bound { most, file })
}

fn memory_of_1(folder: &Path) -> Option<Bound<u64>> {
    let file = folder.join("memory.limit_in_bytes");
    let most = text_of(&file)?
        .parse()
        .ok()
        .filter(|most| *most < NO_LIMIT)?;
    Some(Bound { most, file })
}

fn processors_of_2(folder: &Path) -> Option<Bound<f64>> {
    let file = folder.join("cpu.max");
    let text = text_of(&file)?;
    let (quota, period) = text.split_once(' ')?;
    let most = part(quota, period)?;
    Some(Bound { most, file })
}

fn processors_of_1(folder: &Path) -> Option<Bound<f64>> {
    let file = folder.join("cpu.cfs_quota_us");
    let period = text_of(&folder.join("cpu.cfs_period_us"))?;
    let most = part(&text_of(&file)?, &period)?;
    Some(Bound { most, file })
}

/// How many processors a quota of microseconds a period stands for. `max` and -1 are no quota.
fn part(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (u32, u32) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| f64::from(quota) / f64::from(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(name: &str, files: &[(&str, &str)]) -> (Option<u64>, Option<f64>) {
        let host = Host::of_files(name, files);
        let cgroups = host.cgroups();
        std::fs::remove_dir_all(host.path("/")).expect("its files");
        let memory = cgroups.memory.map(|bound| bound.most);
        (memory, cgroups.processors.map(|bound| bound.most))
    }

    #[test]
    fn the_lowest_limit_on_the_way_to_the_root_holds() {
        let found = limits(
            "v2",
            &[
                ("/proc/self/cgroup", "0::/a/b\n"),
                ("/sys/fs/cgroup/a/memory.max", "1000\n"),
                ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("/sys/fs/cgroup/a/cpu.max", "max 100000\n"),
                ("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"),
                ("/sys/fs/cgroup/c/memory.max", "1\n"),
            ],
        );
        assert_eq!(found, (Some(1000), Some(1.5)));
    }

    #[test]
    fn the_first_version_is_read_too() {
        let found = limits(
            "v1",
            &[
                ("/proc/self/cgroup", "4:memory:/a\n2:cpu,cpuacct:/\n0::/\n"),
                ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000"),
                (
                    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712",
                ),
                ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
            ],
        );
        assert_eq!(found, (Some(5000), Some(0.5)));
    }

    #[test]
    fn without_limits_there_are_none() {
        let found = limits(
            "none",
            &[
                ("/proc/self/cgroup", "2:cpu:/\nnonsense\n0::/../..\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
                ("/sys/fs/cgroup/cpu.max", "max 0"),
            ],
        );
        assert_eq!(found, (None, None));
    }
}
