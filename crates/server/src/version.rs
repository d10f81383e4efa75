//! What this server and the memcached that it behaves as are called.

/// The version of coua.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version with the commit that it was built from, where the build knew that.
pub const BUILD: &str = match option_env!("COUA_BUILD") {
    Some(build) => build,
    None => VERSION,
};

/// The memcached whose behaviour this is.
pub const MEMCACHED_VERSION: &str = "1.6.45";

/// What `version` answers: clients read the number in front.
pub const PROTOCOL_VERSION: &str = concat!("1.6.45 coua-", env!("CARGO_PKG_VERSION"));
