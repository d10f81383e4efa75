//! Rings between both roles, and both ends of links in one process.

mod links;
mod rings;
