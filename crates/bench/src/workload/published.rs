//! Workloads that others have published, by name.
//!
//! `etc`, `usr`, `sys`, `var`: pools of memcached at Facebook. Atikoglu, Xu, Frachtenberg, Jiang,
//! Paleczny, "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012, and the
//! authors' talk on it. They publish these figures:
//!
//! - ETC, the pool for everything without a pool of its own: a model. Key sizes follow a
//!   generalized extreme value distribution; value sizes follow a table up to 14 bytes, and a
//!   generalized Pareto distribution above. There are 30 gets for each update; deletes are left out
//!   here. Gaps between requests follow a generalized Pareto distribution (scale 16.0292 µs, shape
//!   0.154971) with a mean of 19 µs; here the user chooses the rate, and gaps are exponential or
//!   equal.
//! - USR: keys have 16 or 21 bytes, values have 2, and more than 99.8 % of requests are gets.
//! - VAR: nine of ten keys have 31 bytes.
//! - Popularity, for ETC: one key in a hundred gets 55 % of the requests, and the less popular half
//!   of the keys gets 1 %. With a million keys, Zipf's 0.99 gives them 66 % and 5 %.
//!
//! Everything else about `sys` and `var` below is an estimate.
//!
//! `twitter1` to `twitter54`: see [`super::twitter`].

use super::sampler::Popularity;
use super::sizes::Sizes;
use super::ttls::Ttls;
use super::{Workload, twitter};

/// The names, as users read them.
pub(crate) const NAMES: &str = "etc, usr, sys, var, twitter1 to twitter54";

/// The skew of all of Facebook's pools; the shares above are the reason.
const FACEBOOK_POPULARITY: Popularity = Popularity::Zipf(0.99);
/// Bytes of the longest key.
const KEY_MAX: usize = 250;
/// Bytes of the largest value; the paper's servers took items of 1 MB.
const VALUE_MAX: usize = 1_000_000;

/// The workload of this name.
pub(crate) fn find(name: &str) -> Option<Workload> {
    let facebook = |key_sizes, value_sizes, mix: &str| {
        Some(Workload {
            key_sizes,
            value_sizes,
            mix: mix.parse().expect("a mix of this table"),
            popularity: FACEBOOK_POPULARITY,
            ttls: Ttls::never(),
        })
    };
    match name {
        // The ratio of the paper's abstract.
        "etc" => facebook(etc_keys(), etc_values(), "get=30,set=1"),
        // How many keys have which of the two sizes is not published.
        "usr" => facebook(
            Sizes::of_quantiles(name, 1, KEY_MAX, |at| if at < 0.5 { 16.0 } else { 21.0 }),
            Sizes::Fixed(2),
            "get=99.8,set=0.2",
        ),
        // Estimates: a third of the requests are updates, keys have 16 to 29 bytes, seven of ten
        // values have 500 bytes, and the others are spread evenly below that.
        "sys" => facebook(
            Sizes::of_quantiles(name, 1, KEY_MAX, |at| 16.0 + 14.0 * at),
            Sizes::of_quantiles(name, 1, VALUE_MAX, |at| {
                if at < 0.3 {
                    10.0 + 480.0 * at / 0.3
                } else {
                    500.0
                }
            }),
            "get=67.5,set=32.5",
        ),
        // The share of 31-byte keys is published. Estimates: four of five requests are updates,
        // four of five values have 50 bytes, and the rest is spread evenly.
        "var" => facebook(
            Sizes::of_quantiles(name, 1, KEY_MAX, |at| if at < 0.1 { 20.0 } else { 31.0 }),
            Sizes::of_quantiles(name, 1, VALUE_MAX, |at| {
                if at < 0.8 {
                    50.0
                } else {
                    50.0 + 450.0 * (at - 0.8) / 0.2
                }
            }),
            "get=18,set=82",
        ),
        _ => twitter::find(name.strip_prefix("twitter")?.parse().ok()?),
    }
}

/// Which sizes of a workload to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those of its keys.
    Keys,
    /// Those of its values.
    Values,
}

/// Reads sizes from a flag: what [`Sizes::parse`] takes, or the name of a workload, whose sizes of
/// `part` are taken.
pub(crate) fn sizes(text: &str, part: Part) -> Result<Sizes, String> {
    if let Some(workload) = find(text) {
        return Ok(match part {
            Part::Keys => workload.key_sizes,
            Part::Values => workload.value_sizes,
        });
    }
    Sizes::parse(text)
        .ok_or_else(|| format!("expected bytes (100), a range (10-1000) or one of {NAMES}"))
}

/// Location 30.7984, scale 8.20449, shape 0.078688.
fn etc_keys() -> Sizes {
    Sizes::of_quantiles("etc", 1, KEY_MAX, |at| {
        30.7984 + 8.20449 * ((-at.ln()).powf(-0.078688) - 1.0) / 0.078688
    })
}

/// Scale 214.476, shape 0.348238. The published location is 0, although the distribution begins at
/// 15 bytes; so here, as in mutilate, it describes the bytes of a value beyond 15.
fn etc_values() -> Sizes {
    /// The probability of each size from 0.
    const SMALL: [f64; 15] = [
        0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
        0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
    ];
    let small: f64 = SMALL.iter().sum();
    Sizes::of_quantiles("etc", 0, VALUE_MAX, |at| {
        let mut below = 0.0;
        for (size, share) in SMALL.iter().enumerate() {
            below += share;
            if at < below {
                return size as f64;
            }
        }
        let rest = (at - small) / (1.0 - small);
        15.0 + 214.476 * ((1.0 - rest).powf(-0.348238) - 1.0) / 0.348238
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(is: f64, should: f64, share: f64) {
        assert!((is / should - 1.0).abs() < share, "{is}, expected {should}");
    }

    /// The means of the paper's formulas, worked out by hand: for keys, location + scale × (gamma(1
    /// − shape) − 1) / shape, with gamma(0.921312) = 1.05302; for values the table's 2.30 bytes and
    /// 0.55845 × (location + scale / (1 − shape)). Rounding a continuous size down takes off half a
    /// byte.
    #[test]
    fn etc_has_the_means_of_its_model() {
        let etc = find("etc").unwrap();
        near(
            etc.key_sizes.mean() + 0.5,
            30.7984 + 8.20449 * 0.05302 / 0.078688,
            0.01,
        );
        let above = 15.0 + 214.476 / (1.0 - 0.348238);
        near(etc.value_sizes.mean(), 2.30 + 0.55845 * (above - 0.5), 0.02);
    }

    #[test]
    fn small_values_of_etc_come_in_their_shares() {
        let values = find("etc").unwrap().value_sizes;
        let share = |size| {
            let count = (0..100_000).filter(|&number| values.of(number) == size);
            count.count() as f64 / 100_000.0
        };
        near(share(2), 0.1782, 0.05);
        near(share(11), 0.08989, 0.05);
    }

    #[test]
    fn the_other_pools_have_their_shares() {
        let usr = find("usr").unwrap();
        assert_eq!((usr.key_sizes.mean(), usr.value_sizes.mean()), (18.5, 2.0));
        let sys = find("sys").unwrap();
        assert!(sys.key_sizes.max() < 30);
        let near_500 = (0..100_000).filter(|&number| sys.value_sizes.of(number) == 500);
        near(near_500.count() as f64, 70_000.0, 0.02);
        let var = find("var").unwrap();
        let keys_31 = (0..100_000).filter(|&number| var.key_sizes.of(number) == 31);
        near(keys_31.count() as f64, 90_000.0, 0.02);
    }

    #[test]
    fn sizes_are_read_from_text() {
        assert_eq!(sizes("100", Part::Keys).unwrap().of(7), 100);
        assert!(sizes("etc", Part::Values).unwrap().max() > 1000);
        for text in ["7", "10-1000", "sys", "twitter52"] {
            let of_name = sizes(text, Part::Values).unwrap();
            let again = sizes(&of_name.to_string(), Part::Values).unwrap();
            assert_eq!(again.mean(), of_name.mean(), "{text}");
        }
        for wrong in ["", "-1", "10-5", "a", "1-", "99999999999"] {
            let error = sizes(wrong, Part::Keys).unwrap_err();
            assert!(error.contains("etc"), "{wrong}: {error}");
        }
    }
}
