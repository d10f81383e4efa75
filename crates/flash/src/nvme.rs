//! NVMe: commands through the kernel ([`PassthroughDevice`]), and a driver in user space ([`NvmeDevice`]).
//!
//! The specification is NVM Express Base 2.0 and its NVM command set; what is used is in 1.0 already.

pub mod binding;
mod command;
mod controller;
mod device;
mod dma;
#[cfg(any(test, feature = "simulated"))]
mod fake;
mod hardware;
mod identify;
mod passthrough;
mod prp;
mod queue;
mod registers;
mod rings;
mod shared;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod vfio;

pub use device::NvmeDevice;
#[cfg(any(test, feature = "simulated"))]
pub use fake::Latency;
pub use passthrough::PassthroughDevice;
pub use shared::NvmeOptions;
