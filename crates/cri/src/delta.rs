//! Writes a pinning into an encoded message. In: the bytes of a create or update call. Out: the same bytes with a few more at the
//! end. Pure.
//!
//! Protobuf merges what is repeated: of a scalar the last one counts, messages are merged field by field (protobuf's "Encoding",
//! "Last One Wins"). So a message that says only `cpuset_cpus` and `cpuset_mems`, appended to the original, changes these two and
//! nothing else. Decoding and encoding again would lose every field that is newer than our copy of the protocol file.

use prost::Message;

use crate::agent::Pinning;
use crate::v1;

/// Pins the container of an encoded `CreateContainerRequest`.
pub fn append_to_create(message: &[u8], pinning: &Pinning) -> Vec<u8> {
    if *pinning == Pinning::default() {
        return message.to_vec();
    }
    let delta = v1::CreateContainerRequest {
        config: Some(v1::ContainerConfig {
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(resources(pinning)),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    append(message, &delta)
}

/// Pins the container of an encoded `UpdateContainerResourcesRequest`.
pub fn append_to_update(message: &[u8], pinning: &Pinning) -> Vec<u8> {
    if *pinning == Pinning::default() {
        return message.to_vec();
    }
    let delta = v1::UpdateContainerResourcesRequest {
        linux: Some(resources(pinning)),
        ..Default::default()
    };
    append(message, &delta)
}

/// The two fields that make up a pinning. An empty set is left out by the encoding, and so leaves the original as it is; of a message
/// about neither, nothing is changed at all.
pub(crate) fn resources(pinning: &Pinning) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpuset_cpus: pinning.cpus.to_string(),
        cpuset_mems: pinning.mems.to_string(),
        ..Default::default()
    }
}

fn append(message: &[u8], delta: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.len() + delta.encoded_len());
    bytes.extend_from_slice(message);
    bytes.extend_from_slice(&delta.encode_to_vec());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use bayplan_types::{CpuId, CpuSet, NodeId, NodeSet};
    use proptest::prelude::*;

    /// A newer create call: every message on the way to the resources has a field that our protocol file does not know.
    #[derive(Clone, PartialEq, Message)]
    struct NewerCreate {
        #[prost(string, tag = "1")]
        pod_sandbox_id: String,
        #[prost(message, optional, tag = "2")]
        config: Option<NewerConfig>,
        #[prost(bytes, repeated, tag = "900")]
        new: Vec<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct NewerConfig {
        #[prost(string, tag = "5")]
        working_dir: String,
        #[prost(message, optional, tag = "15")]
        linux: Option<NewerLinux>,
        #[prost(uint64, tag = "901")]
        new: u64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct NewerLinux {
        #[prost(message, optional, tag = "1")]
        resources: Option<NewerResources>,
        #[prost(double, tag = "902")]
        new: f64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct NewerResources {
        #[prost(int64, tag = "3")]
        cpu_shares: i64,
        #[prost(string, tag = "6")]
        cpuset_cpus: String,
        #[prost(string, tag = "7")]
        cpuset_mems: String,
        #[prost(btree_map = "string, string", tag = "9")]
        unified: std::collections::BTreeMap<String, String>,
        #[prost(fixed32, tag = "903")]
        new: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    struct NewerUpdate {
        #[prost(string, tag = "1")]
        container_id: String,
        #[prost(message, optional, tag = "2")]
        linux: Option<NewerResources>,
        #[prost(string, tag = "904")]
        new: String,
    }

    fn newer_resources() -> impl Strategy<Value = NewerResources> {
        let unified = prop::collection::btree_map("[a-z.]{1,9}", ".{0,9}", 0..3);
        (any::<i64>(), "[0-9,-]{0,5}", "[0-9]{0,2}", unified, any::<u32>()).prop_map(
            |(cpu_shares, cpuset_cpus, cpuset_mems, unified, new)| NewerResources {
                cpu_shares,
                cpuset_cpus,
                cpuset_mems,
                unified,
                new,
            },
        )
    }

    fn newer_create() -> impl Strategy<Value = NewerCreate> {
        let linux = (prop::option::of(newer_resources()), -1e9..1e9f64)
            .prop_map(|(resources, new)| NewerLinux { resources, new });
        let config = (".{0,9}", prop::option::of(linux), any::<u64>())
            .prop_map(|(working_dir, linux, new)| NewerConfig { working_dir, linux, new });
        let new = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4);
        (".{0,9}", prop::option::of(config), new)
            .prop_map(|(pod_sandbox_id, config, new)| NewerCreate { pod_sandbox_id, config, new })
    }

    fn pinning() -> impl Strategy<Value = Pinning> {
        let cpus = prop::collection::vec(0u32..2000, 0..20);
        let mems = prop::collection::vec(0u32..20, 0..4);
        (cpus, mems).prop_map(|(cpus, mems)| Pinning {
            cpus: cpus.into_iter().map(CpuId).collect::<CpuSet>(),
            mems: mems.into_iter().map(NodeId).collect::<NodeSet>(),
        })
    }

    fn edit(resources: &mut NewerResources, pinning: &Pinning) {
        if !pinning.cpus.is_empty() {
            resources.cpuset_cpus = pinning.cpus.to_string();
        }
        if !pinning.mems.is_empty() {
            resources.cpuset_mems = pinning.mems.to_string();
        }
    }

    proptest! {
        #[test]
        fn a_pinned_create_differs_in_the_two_fields_only(mut create in newer_create(), pinning in pinning()) {
            let bytes = append_to_create(&create.encode_to_vec(), &pinning);
            if pinning != Pinning::default() {
                let linux = create.config.get_or_insert_default().linux.get_or_insert_default();
                edit(linux.resources.get_or_insert_default(), &pinning);
            }
            prop_assert_eq!(NewerCreate::decode(&*bytes).unwrap(), create);
        }

        #[test]
        fn a_pinned_update_differs_in_the_two_fields_only(
            container_id in ".{0,9}",
            linux in prop::option::of(newer_resources()),
            new in ".{0,9}",
            pinning in pinning(),
        ) {
            let mut update = NewerUpdate { container_id, linux, new };
            let bytes = append_to_update(&update.encode_to_vec(), &pinning);
            if pinning != Pinning::default() {
                edit(update.linux.get_or_insert_default(), &pinning);
            }
            prop_assert_eq!(NewerUpdate::decode(&*bytes).unwrap(), update);
        }

        #[test]
        fn the_known_fields_read_the_same_with_our_protocol_file(create in newer_create(), pinning in pinning()) {
            prop_assume!(!pinning.cpus.is_empty());
            let bytes = append_to_create(&create.encode_to_vec(), &pinning);
            let read = v1::CreateContainerRequest::decode(&*bytes).unwrap();
            let written = read.config.unwrap().linux.unwrap().resources.unwrap();
            prop_assert_eq!(written.cpuset_cpus, pinning.cpus.to_string());
        }
    }
}
