//! Rates of an open loop, as the values of flags.

use std::str::FromStr;

/// Rates in requests a second, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates(Vec<f64>);

impl Rates {
    /// How many rates a range has if no number is given.
    const COUNT: u32 = 8;
    const COUNT_MAX: u32 = 1000;

    /// The rates, in ascending order.
    pub(crate) fn each(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// `count` rates, each in the same proportion to the one before.
    fn between(first: f64, last: f64, count: u32) -> Rates {
        let steps = f64::from(count.saturating_sub(1).max(1));
        let rate = |place: u32| first * (last / first).powf(f64::from(place) / steps);
        // Rounded to four digits, for people.
        let rounded = |rate: f64| {
            let unit = 10f64.powf(rate.log10().floor() - 3.0);
            (rate / unit).round() * unit
        };
        Rates((0..count).map(|place| rounded(rate(place))).collect())
    }
}

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Rates, String> {
        let expected = || {
            "expected rates in requests a second, as in 10000,20000,50000, or from which to which and how \
             many, as in 10000-200000 or 10000-200000:12"
                .to_owned()
        };
        let rate = |text: &str| self::rate(text.trim()).map_err(|_| expected());
        let Some((first, rest)) = text.split_once('-') else {
            let mut rates = text.split(',').map(rate).collect::<Result<Vec<f64>, _>>()?;
            rates.sort_by(f64::total_cmp);
            rates.dedup();
            return Ok(Rates(rates));
        };
        let (last, count) = match rest.split_once(':') {
            Some((last, count)) => (last, count.parse().map_err(|_| expected())?),
            None => (rest, Self::COUNT),
        };
        let (first, last) = (rate(first)?, rate(last)?);
        match first < last && (2..=Self::COUNT_MAX).contains(&count) {
            true => Ok(Rates::between(first, last, count)),
            false => Err(expected()),
        }
    }
}

/// Requests a second, as the value of a flag.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    rate.filter(|rate| (1e-3..=1e9).contains(rate))
        .ok_or_else(|| "expected requests a second, from 0.001 to 1e9".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_list_or_a_range() {
        let read = |text: &str| text.parse::<Rates>().unwrap().0;
        assert_eq!(read("500,100,100"), [100.0, 500.0]);
        assert_eq!(read("100-10000:3"), [100.0, 1000.0, 10_000.0]);
        let eight = read("1000-128000");
        assert_eq!((eight.len(), eight[1], eight[7]), (8, 2000.0, 128_000.0));
        for text in ["", "x", "2-1", "1-2:1", "1-2:x", "0-5", "1,,2"] {
            assert!(text.parse::<Rates>().is_err(), "{text}");
        }
    }
}
