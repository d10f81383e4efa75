//! What must hold when all clients have left: no memory kept, counters that add up.

use crate::client::Client;
use crate::scene::Scene;

/// Length in bytes of the line that a refused connection gets. No counter includes it.
const TOO_MANY_LEN: u64 = 33;

/// Checks memory, counters and sums.
///
/// # Errors
/// The first rule that does not hold.
pub(crate) fn at_the_end(scene: &Scene, clients: &[Client]) -> Result<(), String> {
    memory(scene)?;
    counters(scene)?;
    sum(scene, clients)
}

/// Checks that nothing is kept for connections, since there are none.
fn memory(scene: &Scene) -> Result<(), String> {
    let shared = &scene.shared;
    let stats = shared.store.stats();
    // Each worker keeps one page for later connections.
    let kept = stats.segment_len * shared.settings.workers as u64;
    for (name, value, right) in [
        (
            "blocks of connection buffers",
            shared.gauges().buffer_blocks,
            0,
        ),
        (
            "bytes lent to connections",
            stats.memory_lent.min(kept),
            stats.memory_lent,
        ),
        ("bytes of uploads", stats.memory_uploads, 0),
        ("bytes held", stats.memory_held, 0),
    ] {
        if value != right {
            return Err(format!("{name}: {value}, not {right}"));
        }
    }
    Ok(())
}

fn counters(scene: &Scene) -> Result<(), String> {
    let counts = scene.shared.counts();
    let stored = scene.shared.store.stats();
    let moved = scene.network.moved();
    let refused = (counts.rejected_connections * TOO_MANY_LEN).min(moved.sent);
    let lookups = counts.get_hits + counts.get_misses;
    let touches = counts.touch_hits + counts.touch_misses;
    let linked = stored.totals.linked - stored.totals.unlinked;
    for (name, value, right) in [
        ("cmd_get against hits and misses", counts.cmd_get, lookups),
        (
            "cmd_touch against hits and misses",
            counts.cmd_touch,
            touches,
        ),
        (
            "bytes_read against the network's",
            counts.bytes_read,
            moved.received,
        ),
        (
            "bytes_written against the network's",
            counts.bytes_written,
            counts.bytes_written.clamp(moved.sent - refused, moved.sent),
        ),
        ("items against linked and unlinked", stored.items, linked),
    ] {
        if value != right {
            return Err(format!("{name}: {value}, not {right}"));
        }
    }
    let plan = &scene.plan;
    if !plan.laxity.refuses && stored.totals.evicted > 0 {
        return Err(format!(
            "{} evictions with room enough",
            stored.totals.evicted
        ));
    }
    Ok(())
}

/// Checks that the shared counter was raised as often as the answers said.
fn sum(scene: &Scene, clients: &[Client]) -> Result<(), String> {
    if scene.plan.laxity.loses {
        return Ok(());
    }
    let counts = clients.iter().map(|client| client.keys.counts);
    let (sure, unsure) = counts.fold((0, 0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
    let highest = clients.iter().filter_map(|client| client.keys.counted());
    let Some(highest) = highest.max() else {
        return Ok(());
    };
    let raised = highest - 1000;
    if raised > sure + unsure {
        return Err(format!(
            "the counter was raised {raised} times, but asked for {sure} and perhaps {unsure}"
        ));
    }
    Ok(())
}
