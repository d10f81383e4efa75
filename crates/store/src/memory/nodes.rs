//! Which memory is near which processor (NUMA), and which pages of the arena lie in whose.
//!
//! A machine with several sockets has a *node* of memory at each, and a core reads that of another
//! socket more slowly. The arena's pages are divided into one range a node. What every worker reads, the
//! tables and the index, is spread over all nodes; segments and lent pages come from the node of whoever
//! takes them, as long as there are any.
//!
//! On a machine with one node, and where whoever starts the process has chosen a policy himself
//! (`numactl`), there is one range, and nothing here costs anything.

use super::mapping::Mapping;
use super::page_table::PageId;
use super::policy::{self, Policy};
use std::io;
use std::path::Path;

/// Weights are kept small enough to multiply.
const WEIGHT_MAX: u64 = 1 << 20;

/// The nodes of a machine's memory.
#[derive(Clone, Debug)]
pub struct Topology {
    /// In ascending order of their numbers; one at least.
    nodes: Vec<Node>,
    /// Which core the calling thread is on.
    core: fn() -> usize,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    /// The system's number of it.
    number: u32,
    /// The cores whose memory this is.
    cores: Vec<usize>,
    /// How much memory it has, beside the others.
    weight: u64,
    /// How far it is to each node, itself included.
    distances: Vec<u32>,
}

impl Default for Topology {
    /// All memory is as near as any other.
    fn default() -> Topology {
        let node = Node {
            number: 0,
            cores: Vec::new(),
            weight: 1,
            distances: Vec::new(),
        };
        Topology {
            nodes: vec![node],
            core: || 0,
        }
    }
}

impl Topology {
    /// This machine's, as far as this process may use it. All memory is alike where the system does not
    /// say, or where the process was started with a policy of its own.
    pub fn of_machine() -> Topology {
        if policy::is_chosen() {
            return Topology::default();
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Mems_allowed_list:"));
        let allowed = allowed.and_then(|list| numbers(list.trim()));
        Topology::read(
            Path::new("/sys/devices/system/node"),
            allowed.as_deref(),
            policy::current_core,
        )
        .unwrap_or_default()
    }

    /// The topology that a folder describes as `/sys/devices/system/node` does, of the nodes that are
    /// `allowed`; all of them where that is not said. `core` says which core the calling thread is on.
    ///
    /// # Errors
    /// When a file is missing or says nothing that can be understood.
    pub fn read(
        folder: &Path,
        allowed: Option<&[usize]>,
        core: fn() -> usize,
    ) -> io::Result<Topology> {
        let read = |name: &str| std::fs::read_to_string(folder.join(name));
        let unclear = || io::Error::from(io::ErrorKind::InvalidData);
        let list = |text: &str| numbers(text.trim()).ok_or_else(unclear);
        let online = list(&read("has_memory").or_else(|_| read("online"))?)?;
        let mut nodes = Vec::new();
        for number in &online {
            let cores = list(&read(&format!("node{number}/cpulist"))?)?;
            let is_allowed = allowed.is_none_or(|allowed| allowed.contains(number));
            // Memory without cores is nobody's nearest, and mostly a slower kind.
            if cores.is_empty() || !is_allowed {
                continue;
            }
            let memory = read(&format!("node{number}/meminfo"))?;
            let total = memory.lines().find(|line| line.contains("MemTotal:"));
            let mut words = total.unwrap_or_default().split_whitespace().rev();
            let kib = words.nth(1).and_then(|word| word.parse::<u64>().ok());
            let distances = read(&format!("node{number}/distance")).unwrap_or_default();
            let distances: Vec<u32> = distances
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect();
            // They follow the numbers of all nodes.
            let all = list(&read("online")?)?;
            let distances = online.iter().map(|other| {
                let at = all.iter().position(|one| one == other);
                at.and_then(|at| distances.get(at)).copied().unwrap_or(20)
            });
            nodes.push(Node {
                number: u32::try_from(*number).map_err(|_| unclear())?,
                cores,
                weight: kib.ok_or_else(unclear)?.max(1),
                distances: distances.collect(),
            });
        }
        let used: Vec<usize> = nodes.iter().map(|node| node.number as usize).collect();
        for node in &mut nodes {
            let distances = online.iter().zip(&node.distances);
            let distances = distances.filter(|(number, _)| used.contains(number));
            node.distances = distances.map(|(_, distance)| *distance).collect();
        }
        // Only their proportion counts.
        let most = nodes.iter().map(|node| node.weight).max();
        let divisor = most.unwrap_or(1).div_ceil(WEIGHT_MAX);
        for node in &mut nodes {
            node.weight = (node.weight / divisor).max(1);
        }
        match nodes.len() {
            0 | 1 => Ok(Topology::default()),
            _ => Ok(Topology { nodes, core }),
        }
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether all memory is alike. There is one node at least.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The numbers of a list such as "0-3,8".
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        // No machine has more cores or nodes.
        if last < first || last > 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Which pages of the arena lie in which node.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// The first page of each node; that of the first one is 0, since the tables are nobody's.
    starts: Box<[PageId]>,
    end: PageId,
    /// The node of each core.
    of_core: Box<[u8]>,
    /// For each node all nodes, the nearest first, which is itself.
    order: Box<[Box<[u8]>]>,
    /// The system's numbers of the nodes.
    numbers: Box<[u32]>,
    core: fn() -> usize,
}

impl Spread {
    /// Divides pages from `first` on so that each node has as many as it has of the machine's memory, in
    /// multiples of `unit` pages. Where there are too few for that, all memory is alike.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "page numbers are 32 bits, and nodes are few"
    )]
    pub(crate) fn new(topology: &Topology, first: usize, pages: usize, unit: usize) -> Spread {
        let alike = Topology::default();
        let first = first.next_multiple_of(unit);
        let units = pages.saturating_sub(first) / unit;
        let is_enough = units >= 2 * topology.nodes.len() && topology.nodes.len() <= 256;
        let topology = if is_enough { topology } else { &alike };
        let nodes = &topology.nodes;
        let all: u64 = nodes.iter().map(|node| node.weight).sum();
        let mut before = 0;
        let starts = nodes.iter().map(|node| {
            let at = (units as u64 * before / all) as usize * unit;
            before += node.weight;
            if at == 0 { 0 } else { (first + at) as PageId }
        });
        let starts = starts.collect();
        let cores = nodes.iter().flat_map(|node| &node.cores);
        let mut of_core = vec![0; cores.max().map_or(0, |last| last + 1)];
        for (at, node) in nodes.iter().enumerate() {
            node.cores.iter().for_each(|&core| of_core[core] = at as u8);
        }
        let order = (0..nodes.len()).map(|node| {
            let mut order: Vec<u8> = (0..nodes.len() as u8).collect();
            let distance = |&other: &u8| {
                let distances = &nodes[node].distances;
                let distance = distances.get(usize::from(other)).copied();
                // Of two that are as far the next one, so that not all nodes turn to the first.
                let behind = (usize::from(other) + nodes.len() - node) % nodes.len();
                (usize::from(other) != node, distance, behind)
            };
            order.sort_by_key(distance);
            order.into()
        });
        Spread {
            starts,
            end: pages as PageId,
            of_core: of_core.into(),
            order: order.collect(),
            numbers: nodes.iter().map(|node| node.number).collect(),
            core: topology.core,
        }
    }

    /// How many nodes there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The node in whose range a page lies.
    pub(crate) fn node_of(&self, page: PageId) -> usize {
        match self.starts.len() {
            1 => 0,
            _ => self.starts.partition_point(|start| *start <= page) - 1,
        }
    }

    /// The node of the core that the calling thread is on; the first where nobody knows.
    pub(crate) fn here(&self) -> usize {
        match self.starts.len() {
            1 => 0,
            _ => self.of_core.get((self.core)()).copied().unwrap_or(0).into(),
        }
    }

    /// All nodes, those nearest to one first.
    pub(crate) fn from(&self, node: usize) -> impl Iterator<Item = usize> {
        self.order[node].iter().map(|&node| node.into())
    }

    /// The pages of a node.
    pub(crate) fn pages_of(&self, node: usize) -> std::ops::Range<PageId> {
        let end = self.starts.get(node + 1).copied();
        self.starts[node]..end.unwrap_or(self.end)
    }

    /// The system's number of a node.
    pub(crate) fn number(&self, node: usize) -> u32 {
        self.numbers[node]
    }

    /// Asks for memory of each node's for its pages of `page_len` bytes, and for the first `tables` bytes in
    /// turns from all.
    pub(crate) fn place(&self, mapping: &Mapping, tables: usize, page_len: usize) {
        const UNIT: usize = 2 << 20;
        if self.len() == 1 {
            return;
        }
        let tables = tables.next_multiple_of(UNIT).min(mapping.len());
        mapping.bind(0..tables, Policy::Interleaved, &self.numbers);
        for (node, number) in self.numbers.iter().enumerate() {
            let pages = self.pages_of(node);
            // What is left behind the last page is of no use to anybody.
            let end = (pages.end as usize * page_len).next_multiple_of(UNIT);
            let (start, end) = (pages.start as usize * page_len, end.min(mapping.len()));
            if start.max(tables) < end {
                mapping.bind(start.max(tables)..end, Policy::Preferred, &[*number]);
            }
        }
    }
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A folder as the system has it: for each node its cores, its memory, and its distances.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, nodes: &[(usize, &str, u64, &str)]) -> Folder {
            let name = format!("coua-nodes-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let list: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
            for (number, cores, memory, distances) in nodes {
                let node = path.join(format!("node{number}"));
                std::fs::create_dir_all(&node).unwrap();
                std::fs::write(node.join("cpulist"), format!("{cores}\n")).unwrap();
                let memory = format!("\nNode {number} MemTotal:  {memory} kB\n");
                std::fs::write(node.join("meminfo"), memory).unwrap();
                std::fs::write(node.join("distance"), distances).unwrap();
            }
            std::fs::write(path.join("online"), list.join(",")).unwrap();
            std::fs::write(path.join("has_memory"), list.join(",")).unwrap();
            Folder(path)
        }

        fn read(&self, allowed: Option<&[usize]>) -> Topology {
            Topology::read(&self.0, allowed, || 5).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn lists_of_numbers() {
        assert_eq!(numbers("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("7"), Some(vec![7]));
        assert_eq!(numbers(""), Some(vec![]));
        assert_eq!(numbers("3-1"), None);
        assert_eq!(numbers("0-99999999999"), None);
        assert_eq!(numbers("x"), None);
    }

    #[test]
    fn pages_are_divided_as_memory_is() {
        let folder = Folder::new(
            "divided",
            &[(0, "0-3", 1000, "10 21"), (1, "4-7", 3000, "21 10")],
        );
        let spread = Spread::new(&folder.read(None), 3, 1000, 8);
        assert_eq!(spread.len(), 2);
        // Of 124 units behind the first 8 pages a quarter is the first node's, with the tables.
        assert_eq!(spread.pages_of(0), 0..256);
        assert_eq!(spread.pages_of(1), 256..1000);
        for page in 0..1000 {
            let node = spread.node_of(page);
            assert!(spread.pages_of(node).contains(&page), "{page}");
        }
        assert_eq!(spread.here(), 1);
    }

    #[test]
    fn nearer_nodes_come_first() {
        let folder = Folder::new(
            "order",
            &[
                (0, "0", 1, "10 40 20 20"),
                (2, "1", 1, "40 10 20 20"),
                (3, "2", 1, "20 20 10 30"),
                (7, "3", 1, "20 20 30 10"),
            ],
        );
        let spread = Spread::new(&folder.read(None), 0, 1000, 1);
        let order = |node| spread.from(node).collect::<Vec<_>>();
        assert_eq!(order(0), [0, 2, 3, 1]);
        assert_eq!(order(1), [1, 2, 3, 0]);
        assert_eq!(order(3), [3, 0, 1, 2]);
        assert_eq!((0..4).map(|node| spread.number(node)).max(), Some(7));
    }

    #[test]
    fn all_is_alike_where_there_is_nothing_to_choose() {
        let both: [(usize, &str, u64, &str); 2] = [(0, "0-3", 9, "10 20"), (1, "4", 9, "20 10")];
        let folder = Folder::new("alike", &both);
        assert_eq!(folder.read(Some(&[1])).len(), 1);
        assert_eq!(folder.read(Some(&[0, 1])).len(), 2);
        // Memory without a core.
        let folder = Folder::new("slow", &[(0, "0-3", 9, "10 20"), (1, "", 9, "20 10")]);
        assert_eq!(folder.read(None).len(), 1);
        // Too few pages.
        let folder = Folder::new("few", &both);
        let spread = Spread::new(&folder.read(None), 1, 24, 8);
        assert_eq!((spread.len(), spread.here(), spread.node_of(23)), (1, 0, 0));
        assert!(Topology::read(Path::new("/nowhere"), None, || 0).is_err());
    }
}
