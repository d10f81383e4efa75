//! What is done about memory pressure: `-o memory_pressure` and the options beside it.

use super::FlagError;
use super::extended::Extended;

/// What `-o memory_pressure` and the options beside it say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureSettings {
    /// Bytes of memory that coua keeps at least.
    pub floor: usize,
    /// Bytes of a step, down or up.
    pub step: usize,
    /// Milliseconds of two seconds for which some task waits for memory: from then on it is pressure.
    pub stall_ms: u32,
}

/// What is done about memory pressure.
pub(super) fn pressure(
    extended: &Extended,
    memory: usize,
) -> Result<Option<PressureSettings>, FlagError> {
    let Some(floor) = extended.pressure_floor else {
        return Ok(None);
    };
    if floor << 20 > memory {
        let flag = "-o memory_pressure";
        return Err(FlagError::value(
            flag,
            &floor.to_string(),
            "no more than -m",
        ));
    }
    Ok(Some(PressureSettings {
        floor: floor << 20,
        step: memory / 100 * extended.pressure_step_percent,
        stall_ms: extended.pressure_stall_ms,
    }))
}
