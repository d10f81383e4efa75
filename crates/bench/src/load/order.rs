//! The orders that a team carries out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schedule::Pace;

/// One stretch of load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// All connections are busy for a time. Replies to requests of that time count whenever they
    /// come.
    Closed(Duration),
    /// Requests leave at their own times, for a time. Replies count likewise.
    Open(Pace, Duration),
    /// All requests that a finite workload has left.
    Finish,
}

impl Order {
    /// One machine's part of the order: its share of the rate, with gaps of its own.
    pub(super) fn for_machine(self, machine: usize, machines: usize) -> Order {
        match self {
            Order::Open(pace, time) => Order::Open(
                Pace {
                    rate: pace.rate / machines as f64,
                    seed: pace.seed ^ (machine as u64) << 52,
                    ..pace
                },
                time,
            ),
            other => other,
        }
    }

    /// The same order, if it can be carried out; an agent gets its orders over the network.
    pub(super) fn checked(self) -> Result<Order, String> {
        const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
        const RATE_MAX: f64 = 1e9;
        match self {
            Order::Closed(time) | Order::Open(_, time) if time > TIME_MAX => {
                Err("an order takes a year at most".to_owned())
            }
            Order::Open(pace, _) if !(pace.rate > 0.0 && pace.rate <= RATE_MAX) => {
                Err(format!("{} requests a second are no rate", pace.rate))
            }
            order => Ok(order),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::schedule::Arrivals;

    #[test]
    fn machines_share_the_rate_with_gaps_of_their_own() {
        let pace = Pace {
            rate: 300.0,
            arrivals: Arrivals::Poisson,
            seed: 1,
        };
        let time = Duration::from_secs(1);
        let part = |machine| match Order::Open(pace, time).for_machine(machine, 3) {
            Order::Open(pace, _) => pace,
            other => panic!("{other:?}"),
        };
        assert_eq!((part(0).rate, part(0).seed), (100.0, 1));
        assert_ne!(part(1).seed, part(2).seed);
    }

    #[test]
    fn orders_that_nobody_can_carry_out_are_refused() {
        let open = |rate, seconds| {
            let pace = Pace {
                rate,
                arrivals: Arrivals::Constant,
                seed: 1,
            };
            Order::Open(pace, Duration::from_secs(seconds)).checked()
        };
        assert!(open(1e6, 60).is_ok());
        for (rate, seconds) in [
            (0.0, 1),
            (-1.0, 1),
            (1e12, 1),
            (f64::NAN, 1),
            (1.0, u64::MAX),
        ] {
            assert!(open(rate, seconds).is_err(), "{rate} {seconds}");
        }
    }
}
