//! Create calls of a node, one after the other: what is read of each is placed, and what is written into it changes nothing else.
#![no_main]

use bayplan_cri::delta::{Additions, for_create};
use bayplan_cri::translate::new_container;
use bayplan_cri::v1;
use bayplan_fuzz::{Call, check_request};
use bayplan_types::{CpuSet, NodeSet};
use bayplan_workload::Pinning;
use bayplan_workload::mates::has_ended_mates;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fuzz_target!(|calls: [Call; 3]| {
    let messages = calls.iter().map(Call::encode);
    let requests: Vec<v1::CreateContainerRequest> =
        messages.filter_map(|it| check_pinned(&it)).collect();
    let containers: Vec<_> = requests.iter().map(new_container).collect();
    let Some((newcomer, others)) = containers.split_last() else { return };
    let mates = others.iter().filter(|it| it.pod.is(&newcomer.pod));
    let _is_any = has_ended_mates(newcomer, mates);
    check_request(newcomer, others);
});

/// The message as it was, unless it is none.
fn check_pinned(message: &[u8]) -> Option<v1::CreateContainerRequest> {
    let request = v1::CreateContainerRequest::decode(message).ok()?;
    let pinning =
        Pinning { cpus: CpuSet::first_n(3), mems: "0-1".parse::<NodeSet>().expect("a list") };
    let pinned = [message, &for_create(&pinning, &Additions::default())].concat();
    let pinned = v1::CreateContainerRequest::decode(&*pinned).expect("two whole messages");
    let mut expected = request.clone();
    let config = expected.config.get_or_insert_default();
    let resources = config.linux.get_or_insert_default().resources.get_or_insert_default();
    resources.cpuset_cpus = "0-2".to_owned();
    resources.cpuset_mems = "0-1".to_owned();
    assert_eq!(pinned, expected);
    Some(request)
}
