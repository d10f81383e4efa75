//! Where items lie that memory has no room for: `-o ext_path`, `--flash`, and the options beside them.

use std::fmt;
use std::path::{Path, PathBuf};

use coua_store::Admission;

use super::extended::Extended;
use super::{FlagError, Raw, no_effect};

/// Bytes of all files together, at least: enough segments for the oldest to be dropped in small parts.
const LEN_MIN: u64 = 16 << 20;

/// Bytes that an item takes at least for it to go to flash, unless `ext_item_size` says otherwise. Reading a shorter one
/// costs as much as a long one, and its slot in the index is a good part of what it took in memory.
const ITEM_LEN_MIN: usize = 128;

/// What the flags say about flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashSettings {
    /// What the items lie on, in the order given.
    pub places: Vec<FlashPath>,
    /// Shorter items are evicted (`ext_item_size`).
    pub item_len_min: usize,
    /// Longer ones too (`ext_item_size_max`).
    pub item_len_max: Option<usize>,
    /// Which of the others go there (`ext_admission`).
    pub admission: Admission,
    /// Bytes that may be written a day (`ext_write_budget`).
    pub write_budget: Option<u64>,
}

/// A file or device that items lie on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlashPath {
    /// A regular file, which is made so long, or that much of a block device (`ext_path`).
    File {
        /// Where it is.
        path: PathBuf,
        /// Its bytes.
        len: u64,
    },
    /// A whole block device.
    Block(PathBuf),
    /// The character device of an NVMe namespace.
    Passthrough(PathBuf),
    /// An NVMe controller that the server drives itself.
    Pci {
        /// Its address: `0000:01:00.0`.
        address: String,
        /// Which of its namespaces.
        namespace: u32,
    },
}

impl fmt::Display for FlashPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashPath::File { .. } => write!(f, "-o ext_path: {}", self.name()),
            _ => write!(f, "--flash: {}", self.name()),
        }
    }
}

impl FlashPath {
    /// The path or address, without the flag.
    pub fn name(&self) -> String {
        match self {
            FlashPath::File { path, .. }
            | FlashPath::Block(path)
            | FlashPath::Passthrough(path) => path.display().to_string(),
            FlashPath::Pci { address, namespace } => format!("{address}/{namespace}"),
        }
    }

    /// The path, where it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            FlashPath::File { path, .. }
            | FlashPath::Block(path)
            | FlashPath::Passthrough(path) => Some(path),
            FlashPath::Pci { .. } => None,
        }
    }

    /// The path, to change it.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            FlashPath::File { path, .. }
            | FlashPath::Block(path)
            | FlashPath::Passthrough(path) => Some(path),
            FlashPath::Pci { .. } => None,
        }
    }
}

impl FlashSettings {
    /// What the flags say; `None` where there is no flash.
    pub(super) fn resolve(
        raw: &Raw,
        extended: &Extended,
        without_effect: &mut Vec<String>,
    ) -> Result<Option<FlashSettings>, FlagError> {
        let mut places = Vec::new();
        for text in &extended.flash_paths {
            places.push(file(text)?);
        }
        let of_files = places.iter().map(|place| match place {
            FlashPath::File { len, .. } => *len,
            _ => 0,
        });
        if !places.is_empty() && of_files.sum::<u64>() < LEN_MIN {
            return Err(FlagError::new(
                "-o ext_path: the files have less than 16m together; give more",
            ));
        }
        for text in raw.flash.iter().flat_map(|texts| texts.split(',')) {
            places.push(device(text)?);
        }
        for (number, place) in places.iter().enumerate() {
            if places[..number].contains(place)
                || place.path().is_some_and(|path| {
                    places[..number]
                        .iter()
                        .any(|other| other.path() == Some(path))
                })
            {
                return Err(FlagError::new(format!("{place} is given twice")));
            }
        }
        let admission = extended.flash_admission.as_deref().map(admission);
        let admission = admission.transpose()?;
        let write_budget = extended.flash_write_budget.as_deref().map(|text| {
            let takes = "bytes a day, such as 500g, with m, g, t or p behind the number";
            len(text).ok_or_else(|| FlagError::value("-o ext_write_budget", text, takes))
        });
        let write_budget = write_budget.transpose()?;
        if places.is_empty() {
            for (option, is_given) in [
                ("-o ext_item_size", extended.flash_item_size.is_some()),
                (
                    "-o ext_item_size_max",
                    extended.flash_item_size_max.is_some(),
                ),
                ("-o ext_admission", admission.is_some()),
                ("-o ext_write_budget", write_budget.is_some()),
            ] {
                if is_given {
                    let why = "there is no flash (ext_path, --flash)";
                    without_effect.push(no_effect(option, why));
                }
            }
            return Ok(None);
        }
        if raw.disable_evictions {
            return Err(FlagError::new(
                "-M: what memory evicts goes to flash, and with -M nothing is evicted; leave -M, or \
                 ext_path and --flash, out",
            ));
        }
        Ok(Some(FlashSettings {
            places,
            item_len_min: extended.flash_item_size.unwrap_or(ITEM_LEN_MIN),
            item_len_max: extended.flash_item_size_max,
            admission: admission.unwrap_or_default(),
            write_budget,
        }))
    }
}

/// The names of the rules for what goes to flash.
pub const ADMISSIONS: [(&str, Admission); 3] = [
    ("all", Admission::All),
    ("read", Admission::Read),
    ("twice", Admission::Twice),
];

fn admission(text: &str) -> Result<Admission, FlagError> {
    let found = ADMISSIONS.iter().find(|(name, _)| *name == text);
    let takes = "all, read or twice";
    found
        .map(|(_, admission)| *admission)
        .ok_or_else(|| FlagError::value("-o ext_admission", text, takes))
}

/// `FILE:SIZE`, as memcached takes it, or `FILE:SIZE:default`.
fn file(text: &str) -> Result<FlashPath, FlagError> {
    let takes =
        "FILE:SIZE, such as /mnt/flash/coua:64g, where SIZE has m, g, t or p behind the number";
    let wrong = || FlagError::value("-o ext_path", text, takes);
    let (head, last) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (path, size) = match last {
        "default" => head.rsplit_once(':').ok_or_else(wrong)?,
        "compact" | "lowttl" | "chunked" | "coldcompact" | "old" => {
            return Err(FlagError::new(format!(
                "-o ext_path: items are not sorted into files by kind, for flash is written in turn; \
                 leave :{last} out"
            )));
        }
        _ => (head, last),
    };
    let len = len(size).filter(|_| !path.is_empty()).ok_or_else(wrong)?;
    let path = PathBuf::from(path);
    Ok(FlashPath::File { path, len })
}

fn len(text: &str) -> Option<u64> {
    let (at, unit) = text.char_indices().next_back()?;
    let unit: u64 = match unit.to_ascii_lowercase() {
        'm' => 1 << 20,
        'g' => 1 << 30,
        't' => 1 << 40,
        'p' => 1 << 50,
        _ => return None,
    };
    let number: u64 = text[..at].parse().ok()?;
    number.checked_mul(unit).filter(|&len| len > 0)
}

/// A block device, `/dev/ng…`, or a PCI address with or without a namespace.
fn device(text: &str) -> Result<FlashPath, FlagError> {
    let takes = "a block device (/dev/nvme0n1), a namespace's character device (/dev/ng0n1) or a \
                 PCI address (0000:01:00.0, or 0000:01:00.0/2 for its namespace 2)";
    let wrong = || FlagError::value("--flash", text, takes);
    if let Some(name) = text.strip_prefix("/dev/") {
        let is_passthrough = name
            .strip_prefix("ng")
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
        let path = PathBuf::from(text);
        return match is_passthrough {
            true => Ok(FlashPath::Passthrough(path)),
            false => Ok(FlashPath::Block(path)),
        };
    }
    if text.contains(':') && !text.starts_with('/') {
        let (address, namespace) = text.split_once('/').unwrap_or((text, "1"));
        let namespace = namespace.parse().ok().filter(|&it: &u32| it > 0);
        let namespace = namespace
            .filter(|_| is_pci_address(address))
            .ok_or_else(wrong)?;
        let address = address.to_ascii_lowercase();
        return Ok(FlashPath::Pci { address, namespace });
    }
    match text.starts_with('/') {
        true => Err(FlagError::new(format!(
            "--flash: {text} is not below /dev; for a file give -o ext_path={text}:SIZE"
        ))),
        false => Err(wrong()),
    }
}

/// `DDDD:BB:DD.F`, in hexadecimal.
fn is_pci_address(text: &str) -> bool {
    let mut parts = text.split([':', '.']);
    let mut has = |digits| {
        parts
            .next()
            .is_some_and(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    has(4) && has(2) && has(2) && has(1) && parts.next().is_none() && text.as_bytes()[10] == b'.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_size_with_a_unit() {
        let file_of = |path: &str, len| FlashPath::File {
            path: PathBuf::from(path),
            len,
        };
        assert_eq!(file("/a/b:64m"), Ok(file_of("/a/b", 64 << 20)));
        assert_eq!(file("/a:b:2G:default"), Ok(file_of("/a:b", 2 << 30)));
        assert_eq!(file("/a:1t"), Ok(file_of("/a", 1 << 40)));
        for wrong in [
            "/a",
            "/a:",
            ":1g",
            "/a:64",
            "/a:0m",
            "/a:m",
            "/a:99999999p",
            "/a:1g:warm",
            "/a:-1m",
        ] {
            assert!(file(wrong).is_err(), "{wrong}");
        }
        let error = file("/a:1g:compact").expect_err("no buckets");
        assert!(error.to_string().contains("leave :compact out"), "{error}");
    }

    #[test]
    fn devices_are_told_apart_by_their_names() {
        assert_eq!(
            device("/dev/nvme1n1"),
            Ok(FlashPath::Block(PathBuf::from("/dev/nvme1n1")))
        );
        assert_eq!(
            device("/dev/ng1n1"),
            Ok(FlashPath::Passthrough(PathBuf::from("/dev/ng1n1")))
        );
        let pci = |address: &str, namespace| FlashPath::Pci {
            address: address.to_owned(),
            namespace,
        };
        assert_eq!(device("0000:0A:00.0"), Ok(pci("0000:0a:00.0", 1)));
        assert_eq!(device("0000:01:00.1/3"), Ok(pci("0000:01:00.1", 3)));
        for wrong in [
            "",
            "nvme0n1",
            "0000:01:00",
            "0000:01:00.0/0",
            "0000.01:00:0",
            "0000:01:00.0.0",
            "/mnt/file",
            "000g:01:00.0",
        ] {
            assert!(device(wrong).is_err(), "{wrong}");
        }
    }
}
