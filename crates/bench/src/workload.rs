//! What a load asks for: keys numbered from 0, the values that belong to them, and which key comes
//! next.

mod keys;
mod mix;
mod published;
mod sampler;
mod sizes;
mod ttls;
mod twitter;
mod values;
mod weighted;

pub(crate) use keys::{KeyFormat, Keys};
pub(crate) use mix::{Mix, Op};
pub(crate) use published::{NAMES as WORKLOAD_NAMES, Part, find as workload, sizes};
pub(crate) use sampler::{Popularity, Ranks, Sampler, below, scattered};
pub(crate) use sizes::Sizes;
pub(crate) use ttls::Ttls;
pub(crate) use values::Values;

/// A published workload: everything about the requests except how many there are.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Sizes of the keys, in bytes.
    pub(crate) key_sizes: Sizes,
    /// Sizes of the values, in bytes.
    pub(crate) value_sizes: Sizes,
    /// The operations.
    pub(crate) mix: Mix,
    /// How often each key is asked for.
    pub(crate) popularity: Popularity,
    /// How long stored values live.
    pub(crate) ttls: Ttls,
}
