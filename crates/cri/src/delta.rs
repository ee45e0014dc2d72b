//! Writes a pinning into an encoded message. In: a pinning. Out: the bytes that have to follow those of a create or update call. Pure.
//!
//! Protobuf merges what is repeated: of a scalar the last one counts, messages are merged field by field (protobuf's "Encoding",
//! "Last One Wins"). So a message that says only `cpuset_cpus` and `cpuset_mems`, appended to the original, changes these two and
//! nothing else. Decoding and encoding again would lose every field that is newer than our copy of the protocol file.

use bayplan_workload::{Mount, Pinning};
use prost::Message;

use crate::{needed, v1};

/// What else of a container is another one than kubelet says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// Directories that are mounted besides its own.
    pub mounts: Vec<Mount>,
    /// Added to its environment.
    pub variables: Vec<(String, String)>,
    /// Its command, in a message that has none ([`without_command`]).
    pub command: Vec<String>,
}

/// An encoded `CreateContainerRequest` without the container's command and arguments: what is repeated adds up, so those cannot be changed by what follows.
///
/// # Errors
/// It is no message.
pub fn without_command(message: &[u8]) -> Result<Vec<u8>, prost::DecodeError> {
    needed::without(message, &needed::COMMAND)
}

/// What pins the container of an encoded `CreateContainerRequest` when it follows it, and adds these to it.
pub fn for_create(pinning: &Pinning, additions: &Additions) -> Vec<u8> {
    if *pinning == Pinning::default() && *additions == Additions::default() {
        return Vec::new();
    }
    let Additions { mounts, variables, command } = additions;
    let linux = (*pinning != Pinning::default()).then(|| v1::LinuxContainerConfig {
        resources: Some(resources(pinning)),
        ..Default::default()
    });
    let mounts = mounts.iter().map(|mount| v1::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: true,
        // Where SELinux separates containers from the host, they could not read it otherwise.
        selinux_relabel: true,
        ..Default::default()
    });
    let variable = |(key, value): &(String, String)| v1::KeyValue {
        key: key.clone(),
        value: value.clone().into(),
    };
    let config = v1::ContainerConfig {
        linux,
        mounts: mounts.collect(),
        envs: variables.iter().map(variable).collect(),
        command: command.clone(),
        ..Default::default()
    };
    let delta = v1::CreateContainerRequest { config: Some(config), ..Default::default() };
    delta.encode_to_vec()
}

/// What pins the container of an encoded `UpdateContainerResourcesRequest` when it follows it.
pub fn for_update(pinning: &Pinning) -> Vec<u8> {
    if *pinning == Pinning::default() {
        return Vec::new();
    }
    let delta = v1::UpdateContainerResourcesRequest {
        linux: Some(resources(pinning)),
        ..Default::default()
    };
    delta.encode_to_vec()
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

#[cfg(test)]
mod tests {
    use super::*;
    use bayplan_types::{CpuId, CpuSet, NodeId, NodeSet};
    use proptest::prelude::*;
    use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

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

    fn mounting(mount: &Mount) -> Additions {
        Additions { mounts: vec![mount.clone()], ..Additions::default() }
    }

    /// The command is another one, the environment has more, and all else is as it was.
    #[test]
    fn a_command_is_replaced_and_fields_that_are_not_known_stay() {
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect();
        let config = v1::ContainerConfig {
            command: words(&["bash", "-c"]),
            args: words(&["cmk isolate --pool=exclusive app"]),
            envs: vec![v1::KeyValue { key: "A".into(), value: "1".into() }],
            working_dir: "/w".to_owned(),
            ..Default::default()
        };
        let create = v1::CreateContainerRequest { config: Some(config), ..Default::default() };
        let newer = NewerCreate { new: vec![b"new".to_vec()], ..NewerCreate::default() };
        let bytes = [create.encode_to_vec(), newer.encode_to_vec()].concat();
        let additions = Additions {
            command: words(&["bash", "-c", "app"]),
            variables: vec![("CMK_CPUS_ASSIGNED".to_owned(), "2,10".to_owned())],
            ..Additions::default()
        };
        let delta = for_create(&Pinning::default(), &additions);
        let made = [without_command(&bytes).unwrap(), delta].concat();
        let config = v1::CreateContainerRequest::decode(&*made).unwrap().config.unwrap();
        assert_eq!(config.command, ["bash", "-c", "app"]);
        assert_eq!((config.args.len(), config.working_dir.as_str()), (0, "/w"));
        let keys: Vec<&str> = config.envs.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, ["A", "CMK_CPUS_ASSIGNED"]);
        assert_eq!(NewerCreate::decode(&*made).unwrap().new, [b"new".to_vec()]);
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

    /// A message as every parser has to merge it: what is beside the path, in order, and what lies on it.
    #[derive(Debug, Default, PartialEq)]
    struct Merged {
        beside: Vec<(u32, Vec<u8>)>,
        on_path: Option<Box<Merged>>,
    }

    fn merged(bytes: &[u8], path: &[u32]) -> Merged {
        let mut merged = Merged::default();
        let mut inner: Option<Vec<u8>> = None;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, wire) = decode_key(&mut rest).unwrap();
            let length = match wire {
                WireType::Varint => rest.iter().position(|byte| *byte < 0x80).unwrap() + 1,
                WireType::SixtyFourBit => 8,
                WireType::ThirtyTwoBit => 4,
                WireType::LengthDelimited => {
                    usize::try_from(decode_varint(&mut rest).unwrap()).unwrap()
                }
                other => panic!("{other:?}"),
            };
            let (value, behind) = rest.split_at(length);
            rest = behind;
            match path.first() == Some(&number) {
                true => inner.get_or_insert_default().extend_from_slice(value),
                false => merged.beside.push((number, value.to_vec())),
            }
        }
        merged.on_path = inner.map(|inner| Box::new(self::merged(&inner, &path[1..])));
        merged
    }

    fn any_number(known: &'static [u32]) -> impl Strategy<Value = u32> {
        let all = prop_oneof![1..40u32, 1..(1u32 << 29)];
        all.prop_filter("has a meaning here", |number| !known.contains(number))
    }

    /// Any field that is none of these, as it is encoded.
    fn any_field(known: &'static [u32]) -> impl Strategy<Value = Vec<u8>> {
        let value = prop_oneof![
            any::<u64>().prop_map(|value| {
                let mut bytes = Vec::new();
                encode_varint(value, &mut bytes);
                (WireType::Varint, bytes)
            }),
            any::<[u8; 8]>().prop_map(|bytes| (WireType::SixtyFourBit, bytes.to_vec())),
            any::<[u8; 4]>().prop_map(|bytes| (WireType::ThirtyTwoBit, bytes.to_vec())),
            prop::collection::vec(any::<u8>(), 0..200)
                .prop_map(|bytes| { (WireType::LengthDelimited, with_length(&bytes)) }),
        ];
        (any_number(known), value).prop_map(|(number, (wire, bytes))| {
            let mut field = Vec::new();
            encode_key(number, wire, &mut field);
            field.extend(bytes);
            field
        })
    }

    fn with_length(bytes: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        encode_varint(bytes.len() as u64, &mut all);
        all.extend_from_slice(bytes);
        all
    }

    fn delimited(number: u32, bytes: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        encode_key(number, WireType::LengthDelimited, &mut field);
        field.extend(with_length(bytes));
        field
    }

    /// Fields in any order, `inner` in any number of pieces between them as field `number`.
    fn message_around(
        number: u32,
        known: &'static [u32],
        inner: BoxedStrategy<Vec<u8>>,
    ) -> BoxedStrategy<Vec<u8>> {
        let piece = inner.prop_map(move |inner| delimited(number, &inner));
        let field = prop_oneof![any_field(known), piece];
        prop::collection::vec(field, 0..5).prop_map(|fields| fields.concat()).boxed()
    }

    const PATH_OF_CREATE: [u32; 3] = [2, 15, 1];
    const PATH_OF_UPDATE: [u32; 1] = [2];

    fn any_resources() -> BoxedStrategy<Vec<u8>> {
        let set = (6..8u32, "[0-9,-]{0,5}").prop_map(|(n, set)| delimited(n, set.as_bytes()));
        let field = prop_oneof![any_field(&[6, 7]), set];
        prop::collection::vec(field, 0..5).prop_map(|fields| fields.concat()).boxed()
    }

    fn any_create() -> BoxedStrategy<Vec<u8>> {
        let linux = message_around(1, &[1], any_resources());
        message_around(2, &[2], message_around(15, &[15], linux))
    }

    /// The two fields are as pinned, and everything else is in its place.
    fn check_pinned(before: &[u8], delta: &[u8], path: &[u32], pinning: &Pinning) {
        let mut expected = merged(before, path);
        if *pinning != Pinning::default() {
            let mut at = &mut expected;
            for _ in path {
                at = at.on_path.get_or_insert_default();
            }
            let sets = [(6, pinning.cpus.to_string()), (7, pinning.mems.to_string())];
            let said = sets.into_iter().filter(|(_, set)| !set.is_empty());
            at.beside.extend(said.map(|(number, set)| (number, set.into_bytes())));
        }
        assert_eq!(merged(&[before, delta].concat(), path), expected);
    }

    proptest! {
        #[test]
        fn whatever_fields_there_are_stay_where_they_are(
            create in any_create(),
            update in message_around(2, &[2], any_resources()),
            pinning in pinning(),
        ) {
            check_pinned(&create, &for_create(&pinning, &Additions::default()), &PATH_OF_CREATE, &pinning);
            check_pinned(&update, &for_update(&pinning), &PATH_OF_UPDATE, &pinning);
        }

        #[test]
        fn a_pinned_create_differs_in_the_two_fields_only(mut create in newer_create(), pinning in pinning()) {
            let bytes = [create.encode_to_vec(), for_create(&pinning, &Additions::default())].concat();
            if pinning != Pinning::default() {
                let linux = create.config.get_or_insert_default().linux.get_or_insert_default();
                edit(linux.resources.get_or_insert_default(), &pinning);
            }
            prop_assert_eq!(NewerCreate::decode(&*bytes).unwrap(), create);
        }

        #[test]
        fn kubelets_mounts_stay_before_ours(create in any_create(), pinning in pinning()) {
            let ours = Mount { container_path: "/a".to_owned(), host_path: "/b".to_owned() };
            let Ok(before) = v1::CreateContainerRequest::decode(&*create) else { return Ok(()) };
            let bytes = [create, for_create(&pinning, &mounting(&ours))].concat();
            let mut after = v1::CreateContainerRequest::decode(&*bytes).unwrap().config.unwrap();
            let last = after.mounts.pop().unwrap();
            prop_assert_eq!((last.container_path, last.host_path, last.readonly), (ours.container_path, ours.host_path, true));
            prop_assert_eq!(after.mounts, before.config.unwrap_or_default().mounts);
        }

        #[test]
        fn a_pinned_update_differs_in_the_two_fields_only(
            container_id in ".{0,9}",
            linux in prop::option::of(newer_resources()),
            new in ".{0,9}",
            pinning in pinning(),
        ) {
            let mut update = NewerUpdate { container_id, linux, new };
            let bytes = [update.encode_to_vec(), for_update(&pinning)].concat();
            if pinning != Pinning::default() {
                edit(update.linux.get_or_insert_default(), &pinning);
            }
            prop_assert_eq!(NewerUpdate::decode(&*bytes).unwrap(), update);
        }

        #[test]
        fn the_known_fields_read_the_same_with_our_protocol_file(create in newer_create(), pinning in pinning()) {
            prop_assume!(!pinning.cpus.is_empty());
            let bytes = [create.encode_to_vec(), for_create(&pinning, &Additions::default())].concat();
            let read = v1::CreateContainerRequest::decode(&*bytes).unwrap();
            let written = read.config.unwrap().linux.unwrap().resources.unwrap();
            prop_assert_eq!(written.cpuset_cpus, pinning.cpus.to_string());
        }
    }
}
