//! Annotations of a pod, one a line: `name value`. The own prefix need not be hit by chance.
#![no_main]

use bayplan_fuzz::{check_request, check_shown, container, rules};
use bayplan_workload::annotations::{read_annotations, relevant};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines = text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
    let said = lines.flat_map(|(name, value)| {
        [name.to_owned(), format!("bayplan.dev/{name}")]
            .map(|name| (name, value.replace("\\n", "\n")))
    });
    let said: std::collections::BTreeMap<String, String> = said.collect();
    let kept = relevant(&said);
    assert_eq!(relevant(&kept), kept);
    let container = container("c0", kept);
    let (_asked, warnings) = read_annotations(&container, &rules());
    warnings.iter().for_each(|it| check_shown(&it.text));
    check_request(&container, &[]);
});
