//! What is usual for a workload on a kind of core. In: samples of calm times. Out: a median and a spread per signal.
//!
//! Both are estimated in the logarithm of the value, because trouble multiplies. The median moves by a step against each new value, whatever its size, so that
//! an outlier counts no more than any other (Robbins and Monro, A Stochastic Approximation Method, 1951, for the quantile 1/2). The step is that of a
//! normal distribution, `sigma / (n * density)` with a density of 0.4 at the median; `n` stops growing at [`SLOWEST`], from where old values fade. The spread is the median of the distances from
//! the median (MAD), estimated the same way; 1.4826 of it is a standard deviation.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_types::CoreKind;

use crate::sample::Signal;
use crate::scene::Workload;

/// So many values have to be seen before a baseline says anything: two minutes of rounds of 5 s.
const KNOWN_AFTER: u32 = 24;
/// An hour of rounds of 5 s: from here on a value counts as much as any before it.
const SLOWEST: u32 = 720;
/// More workloads than this are not remembered; the one not seen for longest goes.
const WORKLOADS_MAX: usize = 1024;
/// A spread is not believed to be smaller than this, in the logarithm: 2 %.
const SPREAD_MIN: f64 = 0.02;
/// Standard deviations per MAD of a normal distribution.
pub(crate) const SIGMA_PER_MAD: f64 = 1.4826;

/// What is usual of one signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// Median of the logarithm.
    pub median: f64,
    /// Median distance of the logarithm from that.
    pub spread: f64,
    /// Values that were seen, at most an hour's worth.
    pub seen: u32,
}

/// One line of all that is known: the form in which baselines are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// The workload.
    pub workload: Workload,
    /// On which cores; `None` on machines with one kind, and for a workload that runs on several.
    pub cores: Option<CoreKind>,
    /// Of what.
    pub signal: Signal,
    /// What is usual.
    pub usual: Usual,
}

impl Usual {
    /// The usual value; `None` as long as too few were seen.
    pub fn value(&self) -> Option<f64> {
        (self.seen >= KNOWN_AFTER).then(|| self.median.exp())
    }

    /// What two standard deviations above the usual are.
    pub(crate) fn two_sigma(&self) -> f64 {
        (self.median + 2.0 * SIGMA_PER_MAD * self.spread).exp()
    }

    fn begin(value: f64) -> Usual {
        Usual { median: value, spread: 0.1, seen: 1 }
    }

    fn learn(&mut self, value: f64) {
        self.seen = (self.seen + 1).min(SLOWEST);
        let step = SIGMA_PER_MAD * self.spread.max(SPREAD_MIN) * 2.5 / f64::from(self.seen);
        let distance = (value - self.median).abs();
        // Half a step up or down; less where that would go beyond the value.
        let toward = |from: f64, to: f64| from + (to - from).clamp(-0.5 * step, 0.5 * step);
        self.spread = toward(self.spread, distance).max(SPREAD_MIN);
        self.median = toward(self.median, value);
    }

    /// As something from outside may be: `None` where it is no baseline.
    fn sane(self) -> Option<Usual> {
        let is_finite = self.median.is_finite() && self.spread.is_finite();
        (is_finite && self.spread > 0.0 && self.seen > 0 && self.median.abs() < 50.0).then(|| {
            Usual {
                spread: self.spread.clamp(SPREAD_MIN, 5.0),
                seen: self.seen.min(SLOWEST),
                ..self
            }
        })
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baselines {
    known: BTreeMap<Key, Entry>,
}

type Key = (Workload, Option<CoreKind>);

#[derive(Clone, Debug, Default)]
struct Entry {
    signals: BTreeMap<Signal, Usual>,
    used: Duration,
}

impl Baselines {
    /// What is usual of one signal.
    pub(crate) fn of(&self, key: &Key, signal: Signal) -> Option<&Usual> {
        self.known.get(key)?.signals.get(&signal)
    }

    /// Takes values of a calm round in. A value below `grain` counts as that, because nothing has a logarithm of 0.
    pub(crate) fn learn(
        &mut self,
        key: &Key,
        values: impl Iterator<Item = (Signal, f64, f64)>,
        at: Duration,
    ) {
        if !self.known.contains_key(key) {
            self.make_room();
        }
        let entry = self.known.entry(key.clone()).or_default();
        entry.used = at;
        for (signal, value, grain) in values {
            let value = value.max(grain).ln();
            let usual = entry.signals.entry(signal).or_insert_with(|| Usual::begin(value));
            usual.learn(value);
        }
    }

    /// Takes over what was known before. What is known already stays.
    pub(crate) fn restore(&mut self, rows: impl IntoIterator<Item = Baseline>) {
        for row in rows {
            let Some(usual) = row.usual.sane() else { continue };
            let key = (row.workload, row.cores);
            if self.known.contains_key(&key) || self.known.len() < WORKLOADS_MAX {
                self.known.entry(key).or_default().signals.entry(row.signal).or_insert(usual);
            }
        }
    }

    /// Everything, in the order of the workloads.
    pub(crate) fn rows(&self) -> Vec<Baseline> {
        let entries = self.known.iter().flat_map(|((workload, cores), entry)| {
            entry.signals.iter().map(|(signal, usual)| Baseline {
                workload: workload.clone(),
                cores: *cores,
                signal: *signal,
                usual: *usual,
            })
        });
        entries.collect()
    }

    fn make_room(&mut self) {
        while self.known.len() >= WORKLOADS_MAX {
            let oldest = self.known.iter().min_by_key(|(_, entry)| entry.used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            self.known.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str) -> Workload {
        Workload {
            namespace: "default".to_owned(),
            owner: name.to_owned(),
            container: "main".to_owned(),
            image: "image".to_owned(),
        }
    }

    fn learnt(values: impl IntoIterator<Item = f64>) -> Usual {
        let mut baselines = Baselines::default();
        let key = (workload("web"), None);
        for value in values {
            let lesson = (Signal::CyclesPerInstruction, value, 0.03);
            baselines.learn(&key, std::iter::once(lesson), Duration::ZERO);
        }
        *baselines.of(&key, Signal::CyclesPerInstruction).unwrap()
    }

    /// Values around one in even steps of the logarithm, up and down in turn.
    fn around(value: f64, spread: f64, count: usize) -> impl Iterator<Item = f64> {
        (0..count).map(move |n| value * (spread * ((n * 7 % 11) as f64 - 5.0) / 5.0).exp())
    }

    #[test]
    fn a_few_values_say_nothing() {
        assert_eq!(learnt(around(2.0, 0.1, 20)).value(), None);
        assert!(learnt(around(2.0, 0.1, 40)).value().is_some());
    }

    #[test]
    fn the_median_and_the_spread_are_found() {
        let usual = learnt(around(2.0, 0.2, 2000));
        assert!((usual.median.exp() - 2.0).abs() < 0.05, "{usual:?}");
        // The distances are 0, 0.04 ... 0.2, each but the first twice: the middle one is 0.12.
        assert!((usual.spread - 0.12).abs() < 0.03, "{usual:?}");
    }

    #[test]
    fn an_outlier_counts_as_any_other_value() {
        let calm = learnt(around(2.0, 0.1, 500));
        let disturbed = learnt(around(2.0, 0.1, 500).chain([1e15; 5]));
        assert!(disturbed.median.exp() < calm.median.exp() * 1.01, "{disturbed:?}");
    }

    #[test]
    fn a_bad_beginning_is_forgotten() {
        let usual = learnt(around(40.0, 0.1, 30).chain(around(2.0, 0.1, 3000)));
        assert!((usual.median.exp() - 2.0).abs() < 0.1, "{usual:?}");
    }

    #[test]
    fn what_was_kept_is_taken_back_and_nonsense_is_not() {
        let good = Usual { median: 0.5, spread: 0.1, seen: 100 };
        let bad = [
            Usual { median: f64::NAN, ..good },
            Usual { median: 1e9, ..good },
            Usual { spread: -1.0, ..good },
            Usual { spread: f64::INFINITY, ..good },
            Usual { seen: 0, ..good },
        ];
        let row = |owner: &str, usual| Baseline {
            workload: workload(owner),
            cores: Some(CoreKind::Efficient),
            signal: Signal::CacheMisses,
            usual,
        };
        let mut baselines = Baselines::default();
        let rows = bad.iter().enumerate().map(|(n, usual)| row(&format!("bad{n}"), *usual));
        baselines.restore(rows.chain([row("good", good)]));
        assert_eq!(baselines.rows(), vec![row("good", good)]);
        let mut again = Baselines::default();
        again.restore(baselines.rows());
        assert_eq!(again.rows(), baselines.rows());
    }

    #[test]
    fn the_workload_that_was_not_seen_for_longest_goes() {
        let mut baselines = Baselines::default();
        for number in 0..WORKLOADS_MAX as u64 + 10 {
            let key = (workload(&number.to_string()), None);
            let lesson = (Signal::CacheMisses, 1.0, 0.1);
            baselines.learn(&key, std::iter::once(lesson), Duration::from_secs(number));
        }
        assert_eq!(baselines.known.len(), WORKLOADS_MAX);
        assert!(!baselines.known.contains_key(&(workload("9"), None)));
        assert!(baselines.known.contains_key(&(workload("10"), None)));
    }
}
