//! What the configuration says about containers that use wide vectors. In: a QoS class, how many such containers there are. Out: where they are to go.

use bayplan_allocator::ClockStrategy;
use bayplan_types::QosClass;

/// Where containers of a QoS class go that use wide vectors and share CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VectorStrategy {
    /// Where they would go otherwise.
    #[default]
    Off,
    /// To the clock domain with fewest of them.
    Spread,
    /// To the one with most.
    Squeeze,
    /// As `Spread`, and as `Squeeze` from so many on that each domain would have several.
    Auto,
}

/// The section `wideVectors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideVectors {
    /// Of Guaranteed pods.
    pub guaranteed: VectorStrategy,
    /// Of Burstable pods.
    pub burstable: VectorStrategy,
    /// Of BestEffort pods.
    pub best_effort: VectorStrategy,
    /// Up to so many for each clock domain are spread by `Auto`.
    pub per_domain: usize,
    /// What is found by measuring counts where a pod says nothing.
    pub is_measured: bool,
}

impl Default for WideVectors {
    fn default() -> WideVectors {
        let off = VectorStrategy::Off;
        WideVectors {
            guaranteed: off,
            burstable: off,
            best_effort: off,
            per_domain: 2,
            is_measured: true,
        }
    }
}

impl WideVectors {
    /// Whether there is a strategy for any class.
    pub fn is_on(&self) -> bool {
        self.classes().next().is_some()
    }

    /// QoS classes with a strategy.
    pub fn classes(&self) -> impl Iterator<Item = QosClass> {
        QosClass::ALL.into_iter().filter(|it| self.of(*it) != VectorStrategy::Off)
    }

    fn of(&self, qos: QosClass) -> VectorStrategy {
        match qos {
            QosClass::Guaranteed => self.guaranteed,
            QosClass::Burstable => self.burstable,
            QosClass::BestEffort => self.best_effort,
        }
    }

    /// Where a container of this class goes when there are so many of its kind, itself included. `None`: that says nothing of it; so it is where the class is not known.
    pub fn strategy(
        &self,
        qos: Option<QosClass>,
        containers: usize,
        domains: usize,
    ) -> Option<ClockStrategy> {
        match self.of(qos?) {
            VectorStrategy::Off => None,
            VectorStrategy::Spread => Some(ClockStrategy::Spread),
            VectorStrategy::Squeeze => Some(ClockStrategy::Squeeze),
            VectorStrategy::Auto => Some(match containers > domains * self.per_domain {
                true => ClockStrategy::Squeeze,
                false => ClockStrategy::Spread,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_types::QosClass::{self, BestEffort, Burstable, Guaranteed};

    use super::*;

    /// With so many containers on two domains, by class.
    fn check(wide: WideVectors, containers: usize, expected: [Option<ClockStrategy>; 3]) {
        let classes: [QosClass; 3] = [Guaranteed, Burstable, BestEffort];
        let found = classes.map(|qos| wide.strategy(Some(qos), containers, 2));
        assert_eq!(found, expected);
        assert_eq!(wide.strategy(None, containers, 2), None);
        assert_eq!(wide.is_on(), found != [None; 3]);
        let with = |qos: &QosClass| wide.strategy(Some(*qos), containers, 2).is_some();
        let with: Vec<QosClass> = QosClass::ALL.into_iter().filter(with).collect();
        assert_eq!(wide.classes().collect::<Vec<_>>(), with);
    }

    #[test]
    fn each_class_has_its_strategy_and_too_many_are_squeezed() {
        let (spread, squeeze) = (Some(ClockStrategy::Spread), Some(ClockStrategy::Squeeze));
        check(WideVectors::default(), 9, [None; 3]);
        let wide = WideVectors {
            burstable: VectorStrategy::Auto,
            best_effort: VectorStrategy::Squeeze,
            ..WideVectors::default()
        };
        check(wide, 1, [None, spread, squeeze]);
        check(wide, 4, [None, spread, squeeze]);
        check(wide, 5, [None, squeeze, squeeze]);
        let wide = WideVectors { guaranteed: VectorStrategy::Spread, ..WideVectors::default() };
        check(wide, 99, [spread, None, None]);
    }
}
