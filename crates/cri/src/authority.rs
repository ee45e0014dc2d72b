//! Makes a client's `:authority` one that h2 accepts. In: a whole HEADERS frame of HTTP/2. Out: the frame to read in its place, if any. Pure.
//!
//! Problem: gRPC clients of the C core (Python, C++, Ruby), Java and Swift send the path of the Unix socket as `:authority` (`/run/bayplan/cri.sock`, `run%2Fbayplan%2Fcri.sock`). grpc-go's
//! server, and so containerd, takes any text; h2 resets the stream with `PROTOCOL_ERROR` (hyperium/h2#442) and has no setting for it. The value is never used here.
//!
//! Approach: the header block is walked, not decoded (RFC 7541, section 6). Where a literal field is named `:authority` and h2 would refuse its value, each byte that may not stand in a host
//! becomes `-`. The decoded length stays, so the tables of both ends stay equal (section 4.1 counts decoded lengths); an indexed field later on finds the changed value.
//!
//! Guarantees: a frame is left alone if its `:authority` is accepted, if it has none, or if it cannot be walked. Only the frame's first fragment is
//! walked: clients send `:authority` among the first fields, and no header block of a CRI call needs a CONTINUATION.

use httlib_huffman::DecoderSpeed;
use http::uri::Authority;

/// Length (24 bits), type, flags, stream (RFC 9113, section 4.1).
pub(crate) const FRAME_HEADER_LEN: usize = 9;

/// Type of a HEADERS frame (RFC 9113, section 6.2).
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Largest payload that a client may send: the default of `SETTINGS_MAX_FRAME_SIZE`, which the server does not raise.
const PAYLOAD_LEN_MAX: usize = 1 << 14;

/// Index of `:authority` in the static table (RFC 7541, appendix A), and its name in full.
const AUTHORITY_INDEX: usize = 1;
const AUTHORITY: &[u8] = b":authority";

/// What a frame's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes that follow the header.
    pub(crate) payload_len: usize,
    /// Its payload begins a header block.
    pub(crate) is_headers: bool,
}

impl FrameHeader {
    pub(crate) fn parse(bytes: [u8; FRAME_HEADER_LEN]) -> FrameHeader {
        let [a, b, c, kind, ..] = bytes;
        let payload_len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        FrameHeader { payload_len, is_headers: kind == HEADERS }
    }

    /// A frame that has to be complete before it is handed on.
    pub(crate) fn is_to_be_read(self) -> bool {
        self.is_headers && self.payload_len <= PAYLOAD_LEN_MAX
    }
}

/// The frame to read in place of this HEADERS frame; `None`: the frame as it is.
pub(crate) fn accepted(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = frame.split_first_chunk::<FRAME_HEADER_LEN>()?;
    let flags = header[4];
    let has = |flag: u8| flags & flag != 0;
    let skipped = usize::from(has(PADDED)) + if has(PRIORITY) { 5 } else { 0 };
    let padding = if has(PADDED) { usize::from(*payload.first()?) } else { 0 };
    let block = payload.get(skipped..payload.len().checked_sub(padding)?)?;
    let field = authority(block)?;
    let value = accepted_value(field.text)?;
    let mut changed = Vec::with_capacity(frame.len() + value.len());
    changed.extend_from_slice(header);
    changed.extend_from_slice(payload.get(..skipped + field.start)?);
    write_integer(&mut changed, value.len(), 7);
    changed.extend_from_slice(&value);
    changed.extend_from_slice(payload.get(skipped + field.end..)?);
    let payload_len = changed.len() - FRAME_HEADER_LEN;
    if payload_len > PAYLOAD_LEN_MAX {
        return None;
    }
    let [.., a, b, c] = u64::try_from(payload_len).ok()?.to_be_bytes();
    changed.get_mut(..3)?.copy_from_slice(&[a, b, c]);
    Some(changed)
}

/// A value of the same length that h2 accepts; `None`: it accepts this one, or there is none.
fn accepted_value(text: Text<'_>) -> Option<Vec<u8>> {
    let value = text.decode()?;
    if Authority::try_from(value.as_slice()).is_ok() {
        return None;
    }
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let value: Vec<u8> =
        value.into_iter().map(|byte| if in_host(byte) { byte } else { b'-' }).collect();
    Authority::try_from(value.as_slice()).is_ok().then_some(value)
}

/// A string of a header block as it is encoded.
#[derive(Clone, Copy, Debug)]
struct Text<'a> {
    bytes: &'a [u8],
    is_huffman: bool,
}

impl Text<'_> {
    fn decode(self) -> Option<Vec<u8>> {
        if !self.is_huffman {
            return Some(self.bytes.to_vec());
        }
        let mut decoded = Vec::new();
        httlib_huffman::decode(self.bytes, &mut decoded, DecoderSpeed::OneBit).ok()?;
        Some(decoded)
    }
}

/// A literal value of `:authority`, with its place in the block, its length included.
struct Field<'a> {
    text: Text<'a>,
    start: usize,
    end: usize,
}

/// The first literal `:authority` of a header block.
fn authority(block: &[u8]) -> Option<Field<'_>> {
    let mut at = 0;
    while let Some(first) = block.get(at) {
        // Bits of the integer that begins in the first byte (RFC 7541, sections 6.1 to 6.3).
        let prefix = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let index = read_integer(block, &mut at, prefix)?;
        if matches!(prefix, 5 | 7) {
            continue;
        }
        let is_authority = match index {
            0 => read_text(block, &mut at)?.decode()? == AUTHORITY,
            index => index == AUTHORITY_INDEX,
        };
        let start = at;
        let text = read_text(block, &mut at)?;
        if is_authority {
            return Some(Field { text, start, end: at });
        }
    }
    None
}

fn read_text<'a>(block: &'a [u8], at: &mut usize) -> Option<Text<'a>> {
    let is_huffman = block.get(*at)? & 0x80 != 0;
    let length = read_integer(block, at, 7)?;
    let end = at.checked_add(length)?;
    let bytes = block.get(*at..end)?;
    *at = end;
    Some(Text { bytes, is_huffman })
}

/// An integer that begins with the `prefix` low bits of the byte at `at` (RFC 7541, section 5.1). No string is longer than a frame, so three more
/// bytes are enough.
fn read_integer(block: &[u8], at: &mut usize, prefix: u32) -> Option<usize> {
    let mask = (1usize << prefix) - 1;
    let mut value = usize::from(*block.get(*at)?) & mask;
    *at += 1;
    if value < mask {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = usize::from(*block.get(*at)?);
        *at += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The counterpart of [`read_integer`], the bits above the prefix being 0.
fn write_integer(to: &mut Vec<u8>, value: usize, prefix: u32) {
    let mask = (1usize << prefix) - 1;
    let byte = |value: usize| u8::try_from(value & 0xff).unwrap_or(u8::MAX);
    if value < mask {
        return to.push(byte(value));
    }
    to.push(byte(mask));
    let mut rest = value - mask;
    while rest >= 0x80 {
        to.push(byte(rest & 0x7f | 0x80));
        rest >>= 7;
    }
    to.push(byte(rest));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const METHOD_POST: u8 = 0x83;
    const SCHEME_HTTP: u8 = 0x86;

    fn text(value: &[u8], is_huffman: bool) -> Vec<u8> {
        let mut encoded = Vec::new();
        if !is_huffman {
            write_integer(&mut encoded, value.len(), 7);
            encoded.extend_from_slice(value);
            return encoded;
        }
        let mut packed = Vec::new();
        httlib_huffman::encode(value, &mut packed).unwrap();
        write_integer(&mut encoded, packed.len(), 7);
        encoded[0] |= 0x80;
        encoded.extend_from_slice(&packed);
        encoded
    }

    fn frame(flags: u8, payload: &[u8]) -> Vec<u8> {
        let [.., a, b, c] = payload.len().to_be_bytes();
        [&[a, b, c, HEADERS, flags | 0x4, 0, 0, 0, 1], payload].concat()
    }

    /// A block as gRPC clients send it: method, scheme, path, authority under its static name, content type.
    fn block(field: u8, value: &[u8], is_huffman: bool) -> Vec<u8> {
        let start = [&[METHOD_POST, SCHEME_HTTP, 0x44][..], &text(b"/a.B/C", is_huffman)].concat();
        let end = [&[0x5f][..], &text(b"application/grpc", is_huffman)].concat();
        [&start[..], &[field], &text(value, is_huffman), &end].concat()
    }

    fn read(frame: &[u8], skipped: usize) -> String {
        let field = authority(&frame[FRAME_HEADER_LEN + skipped..]).unwrap();
        String::from_utf8(field.text.decode().unwrap()).unwrap()
    }

    #[test]
    fn paths_of_sockets_become_hosts_of_the_same_length() {
        for (value, expected) in [
            ("/run/bayplan/cri.sock", Some("-run-bayplan-cri.sock")),
            ("run%2Fbayplan%2Fcri.sock", Some("run-2Fbayplan-2Fcri.sock")),
            ("unix:///run/cri.sock", Some("unix----run-cri.sock")),
            ("a b", Some("a-b")),
            ("[::1", Some("---1")),
            ("localhost", None),
            ("localhost:80", None),
            ("[::1]:80", None),
            // Nothing of that length is accepted.
            ("", None),
        ] {
            // With indexing, without, and never indexed.
            for (field, is_huffman) in [(0x41, false), (0x41, true), (0x01, false), (0x11, true)] {
                let before = frame(0, &block(field, value.as_bytes(), is_huffman));
                let after = accepted(&before).map(|after| read(&after, 0));
                assert_eq!(after.as_deref(), expected, "{value} {field:#x} {is_huffman}");
            }
        }
    }

    #[test]
    fn only_the_value_changes() {
        let rest = block(0x41, b"-run-x", false);
        assert_eq!(accepted(&frame(0, &block(0x41, b"/run/x", false))), Some(frame(0, &rest)));
        let named = [&[0x40][..], &text(b":authority", true), &text(b"/x", false)].concat();
        let named = accepted(&frame(0, &named)).unwrap();
        assert!(named.ends_with(b"\x02-x"), "{named:?}");
        // Priority and padding stay around it, and are not counted as fields.
        let around = |value| [&[2, 0, 0, 0, 0, 9][..], &block(0x41, value, false), b"/\0"].concat();
        let before = frame(PADDED | PRIORITY, &around(b"/run/x"));
        assert_eq!(accepted(&before), Some(frame(PADDED | PRIORITY, &around(b"-run-x"))));
    }

    #[test]
    fn a_long_value_has_a_long_length() {
        let value = vec![b'/'; 3000];
        let after = accepted(&frame(0, &block(0x41, &value, true))).unwrap();
        assert_eq!(read(&after, 0), "-".repeat(3000));
        assert_eq!(
            after.len() - FRAME_HEADER_LEN,
            FrameHeader::parse(after[..9].try_into().unwrap()).payload_len
        );
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_it(flags: u8, payload in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(after) = accepted(&frame(flags, &payload)) {
                let header = FrameHeader::parse(after[..FRAME_HEADER_LEN].try_into().unwrap());
                prop_assert_eq!(header.payload_len, after.len() - FRAME_HEADER_LEN);
            }
        }

        #[test]
        fn integers_are_read_as_they_are_written(value in 0usize..1 << 14, prefix in 4u32..8) {
            let (mut bytes, mut at) = (Vec::new(), 0);
            write_integer(&mut bytes, value, prefix);
            prop_assert_eq!(read_integer(&bytes, &mut at, prefix), Some(value));
            prop_assert_eq!(at, bytes.len());
        }
    }
}
