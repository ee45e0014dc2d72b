//! What rounds of a measurement have in common: the median and its quartiles.

use std::fmt;

/// Some values.
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// The first and the third.
    quartiles: [f64; 2],
}

impl Spread {
    /// Between two values the mean of them.
    pub(crate) fn of(values: Vec<f64>) -> Spread {
        let mut values = values;
        values.sort_by(f64::total_cmp);
        let at = |quarters: usize| {
            let place = quarters * values.len().saturating_sub(1);
            let of = |it: usize| values.get(it).copied().unwrap_or(f64::NAN);
            (of(place / 4) + of(place.div_ceil(4))) / 2.0
        };
        Spread { median: at(2), quartiles: [at(1), at(3)] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { median, quartiles: [first, third] } = self;
        let places = f.precision().unwrap_or(2);
        write!(f, "{median:.places$} ({first:.places$} to {third:.places$})")
    }
}
