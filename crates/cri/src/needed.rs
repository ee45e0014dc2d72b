//! A message without the fields that are not read. In: an encoded create call that cannot be decoded as a whole. Out: the same without arguments, paths of logs and whatever else decides nothing. Pure.
//!
//! Problem: kubelet before 1.34 can send strings that are not UTF-8 (of `args`, say); containerd takes them, a strict decoder refuses the whole message, and with it the container's resources.
//! Approach: the message is decoded as it is; only if that fails, what remains is copied without the fields named here and decoded again. The call itself is forwarded with all its bytes.

use bytes::{Buf as _, BufMut as _};
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

/// What of a message is not read.
pub(crate) struct Fields {
    /// Numbers of fields that are left out.
    unread: &'static [u32],
    /// Messages in which something is left out.
    inner: &'static [(u32, &'static Fields)],
}

/// Of a `CreateContainerRequest`.
pub(crate) const CREATE: Fields = Fields { unread: &[], inner: &[(2, &CONTAINER), (3, &SANDBOX)] };
/// Of a `CreateContainerRequest`: `command` and `args`.
pub(crate) const COMMAND: Fields =
    Fields { unread: &[], inner: &[(2, &Fields { unread: &[3, 4], inner: &[] })] };
/// Of a `RunPodSandboxRequest`: `runtime_handler`.
pub(crate) const RUN_POD: Fields = Fields { unread: &[2], inner: &[(1, &SANDBOX)] };

/// Of a `ContainerConfig`: `command`, `args`, `working_dir`, `labels`, `annotations`, `log_path`, `windows`, `stop_signal`.
const CONTAINER: Fields =
    Fields { unread: &[3, 4, 5, 9, 10, 11, 16, 18], inner: &[(15, &CONTAINER_LINUX)] };
/// Of a `LinuxContainerConfig`: `security_context`.
const CONTAINER_LINUX: Fields = Fields { unread: &[2], inner: &[] };
/// Of a `PodSandboxConfig`: `hostname`, `log_directory`, `dns_config`, `port_mappings`, `windows`.
const SANDBOX: Fields = Fields { unread: &[2, 3, 4, 5, 9], inner: &[(8, &SANDBOX_LINUX)] };
/// Of a `LinuxPodSandboxConfig`: `security_context`, `sysctls`.
const SANDBOX_LINUX: Fields = Fields { unread: &[2, 3], inner: &[] };

/// The message without those fields.
///
/// # Errors
/// It is no message: a key or a length is wrong.
pub(crate) fn without(mut message: &[u8], fields: &Fields) -> Result<Vec<u8>, prost::DecodeError> {
    let mut rest = Vec::with_capacity(message.len());
    while message.has_remaining() {
        let field = message;
        let (number, wire) = decode_key(&mut message)?;
        let inner =
            fields.inner.iter().find(|(it, _)| *it == number && wire == WireType::LengthDelimited);
        if let Some((_, inner)) = inner {
            let mut value = message;
            // Refuses one that is longer than what is there.
            skip_field(wire, number, &mut message, DecodeContext::default())?;
            let length = usize::try_from(decode_varint(&mut value)?).unwrap_or(usize::MAX);
            let value = without(value.get(..length).unwrap_or_default(), inner)?;
            encode_key(number, wire, &mut rest);
            encode_varint(value.len() as u64, &mut rest);
            rest.put_slice(&value);
            continue;
        }
        skip_field(wire, number, &mut message, DecodeContext::default())?;
        if !fields.unread.contains(&number) {
            rest.put_slice(field.get(..field.len() - message.len()).unwrap_or_default());
        }
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;
    use prost::Message as _;

    fn create() -> v1::CreateContainerRequest {
        let resources = v1::LinuxContainerResources { cpu_shares: 2048, ..Default::default() };
        let linux = v1::LinuxContainerConfig { resources: Some(resources), ..Default::default() };
        let metadata = v1::ContainerMetadata { name: "main".to_owned(), attempt: 3 };
        let config = v1::ContainerConfig {
            metadata: Some(metadata),
            args: vec!["ARG".to_owned(), "b".to_owned()],
            working_dir: "WORK".to_owned(),
            linux: Some(linux),
            ..Default::default()
        };
        let sandbox = v1::PodSandboxConfig {
            hostname: "HOST".to_owned(),
            annotations: [("a".to_owned(), "b".to_owned())].into(),
            ..Default::default()
        };
        v1::CreateContainerRequest {
            pod_sandbox_id: "pod".to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox),
        }
    }

    /// The encoded message, these bytes of it made other ones.
    fn with_bytes(message: &impl prost::Message, from: &[u8], to: u8) -> Vec<u8> {
        let mut bytes = message.encode_to_vec();
        let at = bytes.windows(from.len()).position(|it| it == from).unwrap();
        bytes[at..at + from.len()].fill(to);
        bytes
    }

    #[test]
    fn what_is_read_stays() {
        for text in [&b"ARG"[..], b"WORK", b"HOST"] {
            let bytes = with_bytes(&create(), text, 0xff);
            v1::CreateContainerRequest::decode(&*bytes).unwrap_err();
            let read =
                v1::CreateContainerRequest::decode(&*without(&bytes, &CREATE).unwrap()).unwrap();
            let mut expected = create();
            let config = expected.config.as_mut().unwrap();
            (config.args, config.working_dir) = Default::default();
            expected.sandbox_config.as_mut().unwrap().hostname.clear();
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn what_decides_is_not_guessed() {
        let bytes = with_bytes(&create(), b"main", 0xff);
        v1::CreateContainerRequest::decode(&*without(&bytes, &CREATE).unwrap()).unwrap_err();
        let whole = create().encode_to_vec();
        for length in 1..whole.len() {
            // Neither a panic nor a message that says more than there was.
            if let Ok(rest) = without(&whole[..length], &CREATE) {
                assert!(rest.len() <= length + 3, "{length}");
            }
        }
    }
}
