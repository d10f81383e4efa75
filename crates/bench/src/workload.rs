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
pub(crate) use published::{NAMES as WORKLOAD_NAMES, Workload, find as workload};
pub(crate) use sampler::{Popularity, Ranks, Sampler, below, scattered};
pub(crate) use sizes::{Part, Sizes};
pub(crate) use ttls::Ttls;
pub(crate) use values::Values;
