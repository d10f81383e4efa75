//! A fleet: three servers behind proxies and clients that spread keys; one is killed, replaced, added, under load.

use std::time::Duration;

use anyhow::Result;

use super::proxies::has_proxy;
use super::under_test::coua;
use super::{Context, Outcome};
use crate::commands::{program, read, run, run_within};

/// Five scenarios take some seconds each; one that hangs is stopped.
const LIMIT: Duration = Duration::from_secs(600);

/// What `packaging/fleet` says, by its own recipes.
pub(crate) fn fleet(context: &Context) -> Result<Outcome> {
    let memcached = &context.tools.memcached;
    if !has_proxy(memcached)? {
        let why = format!("{} is built without its proxy", memcached.display());
        return Ok(Outcome::LeftOut(why));
    }
    let nutcracker = read(program("which").arg("nutcracker"))?;
    // mcrouter cannot be had; that its recipes are JSON is all that is seen here.
    run(program(&context.tools.python).arg("packaging/fleet/test/recipes.py"))?;
    run_within(
        LIMIT,
        program(&context.tools.python)
            .arg("packaging/fleet/test/check.py")
            .arg(coua(context)?)
            .arg(memcached)
            .arg(nutcracker),
    )?;
    Ok(Outcome::Passed)
}
