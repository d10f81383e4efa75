//! How often a stack answers what may be an attack: with challenge ACKs (RFC 5961, section 7),
//! resets and echo replies.
//!
//! An attacker who counts the answers to itself must learn nothing about the answers to others: a
//! shared limit tells it whether a guess at somebody else's connection was right (CVE-2016-5696).
//! So each kind of answer has budgets of its own, drawn anew each second, and each budget serves
//! only a part of the senders: a sender that uses one up affects few others. Which senders share a
//! budget changes each second too.

use crate::secrets::Secrets;
use crate::time::Instant;
use crate::wire::Address;

/// Parts into which senders are divided.
const PARTS: usize = 16;

/// Answers to one part in a second: the minimum, and the number of different values.
const BUDGET_MIN: u64 = 128;
const BUDGET_SPAN: u64 = 257;

/// Kinds of what is answered.
const KINDS: usize = 4;

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Challenge,
    Reset,
    Echo,
    /// A segment is passed on to another stack.
    Pass,
}

/// Budgets for passing on are this many times as large: all segments of a connection may be passed
/// on for a long time.
const PASS_TIMES: u16 = 32;

/// What is left of the budgets of this second.
pub(crate) struct Limits {
    left: [[u16; PARTS]; KINDS],
    second: Option<u64>,
}

impl Limits {
    /// Limits whose budgets are drawn at the first use.
    pub(crate) const fn new() -> Limits {
        Limits {
            left: [[0; PARTS]; KINDS],
            second: None,
        }
    }

    /// Whether another answer of this kind may be sent to `remote`. If so, it is counted.
    pub(crate) fn may(
        &mut self,
        secrets: &Secrets,
        now: Instant,
        answer: Answer,
        remote: Address,
    ) -> bool {
        let second = now.micros() / 1_000_000;
        if self.second != Some(second) {
            self.second = Some(second);
            self.draw(secrets, second);
        }
        let part = secrets.drawn(second, remote.bits()) % PARTS as u64;
        let left = &mut self.left[answer as usize][usize::try_from(part).expect("below 16")];
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    /// Draws the budgets of a second.
    fn draw(&mut self, secrets: &Secrets, second: u64) {
        for (number, budget) in (0..).zip(self.left.as_flattened_mut()) {
            // No sender has an address with so many leading ones, so these numbers are not those
            // that assign senders to parts.
            let drawn = secrets.drawn(second, u128::MAX - number) % BUDGET_SPAN;
            *budget = u16::try_from(BUDGET_MIN + drawn).expect("a few hundred");
        }
        for budget in &mut self.left[Answer::Pass as usize] {
            *budget *= PASS_TIMES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn address(last: u8) -> Address {
        Address::v4([192, 0, 2, last])
    }

    /// How many answers there are in a second.
    fn count(limits: &mut Limits, second: u64, answer: Answer, remote: Address) -> u64 {
        let secrets = Secrets::new(&[7; 32]);
        let now = Instant::from_micros(second * 1_000_000);
        (0..1000)
            .map(|_| u64::from(limits.may(&secrets, now, answer, remote)))
            .sum()
    }

    #[test]
    fn budgets_are_drawn_anew_each_second() {
        const SECONDS: u64 = if cfg!(miri) { 4 } else { 50 };
        let mut limits = Limits::new();
        let counts: Vec<u64> = (0..SECONDS)
            .map(|second| count(&mut limits, second, Answer::Reset, address(2)))
            .collect();
        let range = BUDGET_MIN..BUDGET_MIN + BUDGET_SPAN;
        assert!(
            counts.iter().all(|count| range.contains(count)),
            "{counts:?}"
        );
        let mut values = counts;
        values.sort_unstable();
        values.dedup();
        assert!(values.len() as u64 > SECONDS * 3 / 5, "{values:?}");
    }

    #[test]
    fn no_kind_tells_of_another() {
        for second in 0..if cfg!(miri) { 1 } else { 20 } {
            let alone = count(&mut Limits::new(), second, Answer::Reset, address(2));
            let mut limits = Limits::new();
            count(&mut limits, second, Answer::Challenge, address(2));
            count(&mut limits, second, Answer::Echo, address(2));
            assert_eq!(count(&mut limits, second, Answer::Reset, address(2)), alone);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a hundred thousand answers")]
    fn one_sender_silences_few_others() {
        let mut silenced = 0;
        for second in 0..100 {
            let mut limits = Limits::new();
            count(&mut limits, second, Answer::Reset, address(2));
            silenced += u64::from(count(&mut limits, second, Answer::Reset, address(3)) == 0);
        }
        // One in sixteen.
        assert!((1..20).contains(&silenced), "{silenced}");
    }
}
