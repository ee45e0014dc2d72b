//! Which classes give less.

use bayplan_types::QosClass;

use super::*;

/// Rows of a class, a QoS class, what there is to be less of, and the classes for that.
#[track_caller]
fn check_narrower(name: &str, text: &str, rows: &[(&str, QosClass, Scarce, &str)]) {
    let (config, info) = (config(text), machine(name));
    let resolved = resolve(&config, &info).unwrap();
    let here = ClassesHere { config: &config, resolved: &resolved, info: &info };
    for (current, qos, scarce, expected) in rows {
        let found = here.narrower(&current.parse().unwrap(), Some(*qos), *scarce);
        let found: Vec<&str> = found.into_iter().map(ClassName::as_str).collect();
        assert_eq!(found.join(" "), *expected, "{current} {qos} {scarce:?}");
    }
}

const CLASSES: &str = "
    partition fast l3 60% mb 100%
      class gold
      class Guaranteed l3 50%
    partition slow l3 40% mb 100%
      class besteffort
      class half l3 50%
      class tenth l3 10% mb 50%
      class quiet mb 20%";

#[test]
fn a_container_in_a_partition_stays_there_and_the_widest_comes_first() {
    use Scarce::{Bandwidth, Cache};
    let (low, high) = (QosClass::BestEffort, QosClass::Guaranteed);
    let rows = [
        ("besteffort", low, Cache, "half tenth"),
        ("besteffort", low, Bandwidth, "tenth quiet"),
        ("half", low, Cache, "tenth"),
        ("half", low, Bandwidth, "tenth"),
        ("tenth", low, Cache, ""),
        // It has less bandwidth, and more of the cache.
        ("tenth", low, Bandwidth, ""),
        ("quiet", low, Cache, ""),
        ("gold", high, Cache, "Guaranteed"),
        ("gold", high, Bandwidth, ""),
    ];
    check_narrower("full", CLASSES, &rows);
}

#[test]
fn a_container_in_the_root_may_go_where_none_more_important_is() {
    use Scarce::Cache;
    let rows = [
        ("", QosClass::BestEffort, Cache, "besteffort quiet half tenth"),
        ("", QosClass::Guaranteed, Cache, "gold besteffort quiet Guaranteed half tenth"),
    ];
    check_narrower("full", CLASSES, &rows);
}

#[test]
fn a_class_that_has_less_here_and_more_there_is_none() {
    let text = "partition all l3 100%
                  class a l3 0=50% 1-3=20%
                  class b l3 0=20% 1-3=50%
                  class c l3 20%";
    let rows = [
        ("a", QosClass::BestEffort, Scarce::Cache, "c"),
        ("b", QosClass::BestEffort, Scarce::Cache, "c"),
        ("c", QosClass::BestEffort, Scarce::Cache, ""),
    ];
    check_narrower("without MB", text, &rows);
}

#[test]
fn without_classes_there_is_none() {
    let rows = [
        ("", QosClass::BestEffort, Scarce::Cache, ""),
        ("", QosClass::BestEffort, Scarce::Bandwidth, ""),
    ];
    check_narrower("full", "", &rows);
}
