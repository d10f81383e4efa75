//! What the machine, or the container, gives this process: memory, cores, huge pages, limits.
//!
//! Everything is read from `/proc` and `/sys`, and what is missing there is no error: older kernels and
//! containers lack some of it.
//!
//! # Not here
//! What follows from it: [`conditions`] for a server that starts, [`crate::doctor`] for whoever asks.

mod cgroup;
pub mod conditions;

use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use cgroup::{Bound, Cgroups};

/// Files of a machine.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

/// Whether the kernel gives memory in huge pages to those who ask for it
/// (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransparentHugePages {
    /// To everybody.
    Always,
    /// To who asks, as coua does.
    Madvise,
    /// To nobody.
    Never,
    /// The kernel has none.
    Absent,
}

/// Huge pages of one size that are set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedPages {
    /// Kibibytes of a page.
    pub kib: u64,
    /// How many there are.
    pub all: u64,
    /// How many nobody has.
    pub free: u64,
}

impl Host {
    /// This machine.
    pub fn this() -> Host {
        Host::at("/")
    }

    /// A machine whose `/proc` and `/sys` lie in another folder.
    pub fn at(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into() }
    }

    /// A machine of which only these files are there, in a folder of this name. Who asks removes it.
    #[cfg(test)]
    pub(crate) fn of_files(name: &str, files: &[(&str, &str)]) -> Host {
        let root = format!("coua-host-{name}-{}", std::process::id());
        let host = Host::at(std::env::temp_dir().join(root));
        for (path, text) in files {
            let path = host.path(path);
            let folder = path.parent().expect("it is in a folder");
            std::fs::create_dir_all(folder).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        host
    }

    /// Where a path of the machine lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without the space around it.
    pub fn text(&self, path: &str) -> Option<String> {
        text_of(&self.path(path))
    }

    /// A file that holds one number.
    pub fn number<N: FromStr>(&self, path: &str) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, in order; none where it is missing.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The last part of where a link leads.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// A value of a file with lines of `Name: value`, such as `/proc/meminfo`.
    pub fn value(&self, path: &str, name: &str) -> Option<String> {
        let text = self.text(path)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(line, _)| *line == name)?;
        Some(value.trim().to_owned())
    }

    /// Bytes of an entry of `/proc/meminfo`, which is in kibibytes.
    pub fn memory(&self, name: &str) -> Option<u64> {
        let value = self.value("/proc/meminfo", name)?;
        let kib: u64 = value.split(' ').next()?.parse().ok()?;
        Some(kib << 10)
    }

    /// The limits of the cgroups that this process is in.
    pub fn cgroups(&self) -> Cgroups {
        Cgroups::of(self)
    }

    /// Whether there are transparent huge pages.
    pub fn transparent_huge_pages(&self) -> TransparentHugePages {
        let text = self.text("/sys/kernel/mm/transparent_hugepage/enabled");
        match text.as_deref().map(chosen) {
            None => TransparentHugePages::Absent,
            Some("always") => TransparentHugePages::Always,
            Some("madvise") => TransparentHugePages::Madvise,
            Some(_) => TransparentHugePages::Never,
        }
    }

    /// Huge pages that are set aside, by size.
    pub fn reserved_pages(&self) -> Vec<ReservedPages> {
        let folder = "/sys/kernel/mm/hugepages";
        let sizes = self.names(folder).into_iter().filter_map(|name| {
            let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            let count = |file| self.number(&format!("{folder}/{name}/{file}"));
            Some(ReservedPages {
                kib: kib.parse().ok()?,
                all: count("nr_hugepages")?,
                free: count("free_hugepages")?,
            })
        });
        let mut sizes: Vec<ReservedPages> = sizes.collect();
        sizes.sort_by_key(|size| size.kib);
        sizes
    }

    /// The NUMA nodes from which this process may have memory; one at least.
    pub fn numa_nodes(&self) -> usize {
        let online = self.text("/sys/devices/system/node/online");
        let online = numbers_in(online.as_deref().unwrap_or("0"));
        let allowed = self.value("/proc/self/status", "Mems_allowed_list");
        let nodes = match allowed.as_deref().map(numbers_in) {
            None => online.len(),
            Some(allowed) => online.iter().filter(|node| allowed.contains(node)).count(),
        };
        nodes.max(1)
    }
}

fn text_of(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// The word in brackets of a file that offers several.
fn chosen(text: &str) -> &str {
    let begun = text.split_once('[').map_or(text, |(_, rest)| rest);
    begun.split_once(']').map_or(begun, |(word, _)| word)
}

/// The numbers of a list of the kernel's, such as `0-2,5`.
fn numbers_in(list: &str) -> Vec<usize> {
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No kernel has as many.
        Some(first..=last.min(first + 4096))
    });
    parts.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_choices_of_the_kernel_are_read() {
        assert_eq!(numbers_in("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(numbers_in(""), [0_usize; 0]);
        assert_eq!(numbers_in("3-1,x,9-"), [0_usize; 0]);
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn this_machine_is_read() {
        let host = Host::this();
        assert!(host.memory("MemTotal").is_some_and(|bytes| bytes > 1 << 20));
        assert!(host.numa_nodes() >= 1);
        assert!(host.number::<u64>("/proc/sys/fs/file-max").is_some());
        assert!(host.value("/proc/self/status", "CapEff").is_some());
        assert_eq!(host.text("/proc/none"), None);
    }
}
