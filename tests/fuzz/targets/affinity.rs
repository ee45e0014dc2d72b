//! The value of the annotations for affinity and its contrary, for a container among others of its pod and of other pods.
#![no_main]

use std::collections::BTreeMap;

use bayplan_allocator::ContainerId;
use bayplan_fuzz::{check_request, container, rules};
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::{affinities, read_annotations, relevant};
use libfuzzer_sys::fuzz_target;

/// What `bayplan annotations` promises.
const WEIGHT_MAX: i32 = 1000;

fuzz_target!(|text: &str| {
    let said =
        ["affinity", "anti-affinity"].map(|it| (format!("bayplan.dev/{it}"), text.to_owned()));
    let newcomer = container("c0", relevant(&BTreeMap::from(said)));
    let others = others();
    let (asked, _warnings) = read_annotations(&newcomer, &rules());
    let numbered = (0..).map(ContainerId).zip(&others);
    let weights = affinities(&asked.affinity, &newcomer, numbered);
    assert!(weights.is_sorted_by(|a, b| a.0 < b.0), "one counts twice: {weights:?}");
    for (id, weight) in weights {
        assert!(id.0 < others.len() as u64);
        assert!(weight != 0 && weight.abs() <= WEIGHT_MAX, "{weight}");
    }
    check_request(&newcomer, &others);
});

fn others() -> Vec<NewContainer> {
    let mate = container("c1", None);
    let mut neighbour = container("c0", None);
    neighbour.pod.id = "q".to_owned();
    neighbour.pod.name = "cache-0".to_owned();
    neighbour.pod.labels = [("app".to_owned(), "cache".to_owned())].into();
    let mut stranger = neighbour.clone();
    stranger.pod.id = "r".to_owned();
    stranger.pod.namespace = "batch".to_owned();
    vec![mate, neighbour, stranger]
}
