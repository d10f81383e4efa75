//! Numbers and sizes in flags.

use super::FlagError;

/// A whole number from `least` to `most`.
pub(super) fn number(flag: &str, text: &str, least: u64, most: u64) -> Result<u64, FlagError> {
    text.parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| FlagError::value(flag, text, &format!("a number from {least} to {most}")))
}

/// A number of bytes, given in units of `unit` bytes or with k, m, g or t behind it.
pub(super) fn bytes(flag: &str, text: &str, unit: u64) -> Result<u64, FlagError> {
    let takes = "a number, or one with k, m, g or t behind it";
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        Some((at, 't' | 'T')) => (&text[..at], 1 << 40),
        _ => (text, unit),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| FlagError::value(flag, text, takes))
}

/// Cores such as `2-5,7`, in the order given.
pub(super) fn cores(flag: &str, text: &str) -> Result<Vec<usize>, FlagError> {
    /// What the kernel's affinity mask has room for.
    const CORE_MAX: usize = 1023;
    let wrong = || FlagError::value(flag, text, "cores and ranges of them, such as 2-5,7");
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last > CORE_MAX {
            return Err(wrong());
        }
        cores.extend(first..=last);
        if cores.len() > CORE_MAX + 1 {
            return Err(wrong());
        }
    }
    Ok(cores)
}
