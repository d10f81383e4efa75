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

/// A published workload: everything about the requests to a server but their number.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Of keys, in bytes.
    pub(crate) key_sizes: Sizes,
    /// Of values, in bytes.
    pub(crate) value_sizes: Sizes,
    /// What is done.
    pub(crate) mix: Mix,
    /// To which keys.
    pub(crate) popularity: Popularity,
    /// How long stored values live.
    pub(crate) ttls: Ttls,
}
