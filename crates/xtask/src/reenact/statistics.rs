//! Median, quartiles, whiskers and outliers of a few figures. Pure.

use serde::Serialize;

/// What a box plot shows of figures in any order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// How many figures there are; at least one.
    pub(crate) count: usize,
    pub(crate) median: f64,
    /// 25th percentile.
    pub(crate) lower: f64,
    /// 75th percentile.
    pub(crate) upper: f64,
    /// The lowest figure that is no outlier.
    pub(crate) low_whisker: f64,
    /// The highest figure that is no outlier.
    pub(crate) high_whisker: f64,
    /// Figures further than one and a half interquartile ranges below the lower or above the upper quartile.
    pub(crate) outliers: Vec<f64>,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without a figure, and with one that is no number.
    pub(crate) fn of(figures: &[f64]) -> Option<Spread> {
        if figures.iter().any(|it| !it.is_finite()) {
            return None;
        }
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (lower, median, upper) =
            (quartile(&sorted, 1)?, quartile(&sorted, 2)?, quartile(&sorted, 3)?);
        let reach = 1.5 * (upper - lower);
        let is_inside = |it: &f64| (lower - reach..=upper + reach).contains(it);
        let inside: Vec<f64> = sorted.iter().copied().filter(is_inside).collect();
        Some(Spread {
            count: sorted.len(),
            median,
            lower,
            upper,
            low_whisker: inside.first().copied().unwrap_or(min),
            high_whisker: inside.last().copied().unwrap_or(max),
            outliers: sorted.iter().copied().filter(|it| !is_inside(it)).collect(),
            min,
            max,
        })
    }

    /// Whether the two ranges between quartiles have a value in common: then the figures do not tell the two apart.
    pub(crate) fn overlaps(&self, other: &Spread) -> bool {
        self.lower <= other.upper && other.lower <= self.upper
    }
}

/// Between the two nearest figures in proportion (type 7 of Hyndman and Fan, as spreadsheets and R do it).
fn quartile(sorted: &[f64], quarter: usize) -> Option<f64> {
    let scaled = sorted.len().checked_sub(1)? * quarter;
    let below = *sorted.get(scaled / 4)?;
    let above = sorted.get(scaled / 4 + 1).copied().unwrap_or(below);
    Some(below + (above - below) * [0.0, 0.25, 0.5, 0.75][scaled % 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(figures: &[f64], quartiles: [f64; 3], whiskers: [f64; 2], outliers: &[f64]) {
        let spread = Spread::of(figures).unwrap();
        assert_eq!([spread.lower, spread.median, spread.upper], quartiles);
        assert_eq!([spread.low_whisker, spread.high_whisker], whiskers);
        assert_eq!(spread.outliers, outliers);
        assert_eq!(spread.count, figures.len());
    }

    #[test]
    fn quartiles_lie_between_the_nearest_figures() {
        check(&[7.0], [7.0, 7.0, 7.0], [7.0, 7.0], &[]);
        check(&[1.0, 3.0], [1.5, 2.0, 2.5], [1.0, 3.0], &[]);
        check(&[5.0, 1.0, 3.0, 2.0, 4.0], [2.0, 3.0, 4.0], [1.0, 5.0], &[]);
    }

    #[test]
    fn a_figure_far_away_is_an_outlier_and_no_whisker() {
        check(&[1.0, 2.0, 3.0, 4.0, 90.0], [2.0, 3.0, 4.0], [1.0, 4.0], &[90.0]);
    }

    #[test]
    fn there_is_no_spread_of_nothing_and_of_what_is_no_number() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn ranges_that_touch_overlap() {
        let of = |figures: &[f64]| Spread::of(figures).unwrap();
        assert!(of(&[1.0, 2.0, 3.0]).overlaps(&of(&[2.0, 3.0, 4.0])));
        assert!(!of(&[1.0, 1.1, 1.2]).overlaps(&of(&[1.3, 1.4, 1.5])));
        assert!(!of(&[1.3, 1.4, 1.5]).overlaps(&of(&[1.0, 1.1, 1.2])));
    }
}
