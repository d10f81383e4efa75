//! What a load asks for: keys numbered from 0, the values that belong to them, and which key comes
//! next.

mod keys;
mod sampler;
mod values;

pub(crate) use keys::KeyFormat;
pub(crate) use sampler::{Popularity, Ranks, Sampler, scattered};
pub(crate) use values::Values;
