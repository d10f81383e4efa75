//! Confidence intervals of the ratio of two figures, each measured a few times.
//!
//! Ratios are compared, so the logarithms of the values are assumed to be normally distributed,
//! with a separate variance on each side: Welch's interval (B. L. Welch, Biometrika 34, 1947).

/// A ratio with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    /// The ratio of the geometric means.
    pub(super) ratio: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Interval {
    /// The interval of the ratio of `new` to `old`; the true ratio lies in it with this
    /// probability. None if a side has fewer than two values, or one that is not above 0.
    pub(super) fn of_ratio(old: &[f64], new: &[f64], probability: f64) -> Option<Interval> {
        let (old, new) = (Moments::of(old)?, Moments::of(new)?);
        let ratio = new.mean - old.mean;
        let variance = old.of_mean() + new.of_mean();
        let freedom = variance * variance / (old.per_freedom() + new.per_freedom());
        let reach = match variance > 0.0 {
            true => student(freedom, probability) * variance.sqrt(),
            false => 0.0,
        };
        Some(Interval {
            ratio: ratio.exp(),
            least: (ratio - reach).exp(),
            most: (ratio + reach).exp(),
        })
    }
}

/// Mean and variance of logarithms.
struct Moments {
    mean: f64,
    variance: f64,
    count: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Moments> {
        let is_usable = |value: &f64| *value > 0.0 && value.is_finite();
        if values.len() < 2 || !values.iter().all(is_usable) {
            return None;
        }
        let count = values.len() as f64;
        let logarithms = || values.iter().map(|value| value.ln());
        let mean = logarithms().sum::<f64>() / count;
        let squares: f64 = logarithms().map(|value| (value - mean).powi(2)).sum();
        Some(Moments {
            mean,
            variance: squares / (count - 1.0),
            count,
        })
    }

    /// The variance of the mean.
    fn of_mean(&self) -> f64 {
        self.variance / self.count
    }

    fn per_freedom(&self) -> f64 {
        self.of_mean().powi(2) / (self.count - 1.0)
    }
}

/// How many standard errors to each side contain this probability, with so many degrees of freedom.
fn student(freedom: f64, probability: f64) -> f64 {
    let (mut least, mut most) = (0.0, 1e6);
    // Each step halves a range of a million: the result has ten digits.
    for _ in 0..64 {
        let middle = f64::midpoint(least, most);
        match within(middle, freedom) < probability {
            true => least = middle,
            false => most = middle,
        }
    }
    most
}

/// The probability that Student's t is at most this far from 0.
fn within(t: f64, freedom: f64) -> f64 {
    1.0 - beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The regularized incomplete beta function.
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let ends = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    match x < (a + 1.0) / (a + b + 2.0) {
        true => ends.exp() * fraction(a, b, x) / a,
        false => 1.0 - ends.exp() * fraction(b, a, 1.0 - x) / b,
    }
}

/// Its continued fraction (DLMF 8.17.22), by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const STEPS: u32 = 500;
    let at_least_tiny = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / at_least_tiny(1.0 - (a + b) * x / (a + 1.0));
    let mut product = d;
    for step in 1..=STEPS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for term in [even, odd] {
            d = 1.0 / at_least_tiny(1.0 + term * d);
            c = at_least_tiny(1.0 + term / c);
            factor = c * d;
            product *= factor;
        }
        if (factor - 1.0).abs() < 1e-14 {
            break;
        }
    }
    product
}

/// The logarithm of the gamma function: Stirling's series, where it is good to twelve digits.
fn ln_gamma(x: f64) -> f64 {
    if x < 10.0 {
        return ln_gamma(x + 1.0) - x.ln();
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 1e-3
    }

    /// From the tables of any textbook.
    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, probability, expected) in [
            (1.0, 0.95, 12.706),
            (2.0, 0.95, 4.3027),
            (4.0, 0.95, 2.7764),
            (10.0, 0.95, 2.2281),
            (10.0, 0.99, 3.1693),
            (1000.0, 0.95, 1.9623),
        ] {
            let t = student(freedom, probability);
            assert!(near(t, expected), "{freedom} {probability}: {t}");
        }
    }

    #[test]
    fn equal_runs_hold_one_and_others_do_not() {
        let old = [100.0, 101.0, 99.0, 100.5, 99.5];
        let same = Interval::of_ratio(&old, &old, 0.95).unwrap();
        assert!(near(same.ratio, 1.0) && same.least < 1.0 && same.most > 1.0);
        let new = old.map(|value| value * 0.9);
        let worse = Interval::of_ratio(&old, &new, 0.95).unwrap();
        assert!(near(worse.ratio, 0.9) && worse.most < 0.92 && worse.least > 0.88);
        let wide = [50.0, 150.0];
        let unsure = Interval::of_ratio(&old, &wide, 0.95).unwrap();
        assert!(unsure.least < 0.1 && unsure.most > 10.0);
    }

    #[test]
    fn what_has_no_spread_has_no_doubt() {
        let interval = Interval::of_ratio(&[2.0, 2.0], &[3.0, 3.0], 0.95).unwrap();
        assert!(near(interval.least, 1.5) && near(interval.most, 1.5));
    }

    #[test]
    fn too_little_is_no_interval() {
        for (old, new) in [
            (&[1.0][..], &[1.0, 2.0][..]),
            (&[1.0, 2.0], &[0.0, 1.0]),
            (&[], &[]),
        ] {
            assert_eq!(Interval::of_ratio(old, new, 0.95), None);
        }
    }
}
