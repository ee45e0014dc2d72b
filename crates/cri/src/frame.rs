//! The gRPC frame around a message. In: the body of a unary call. Out: its one message, or why it is left alone; and the way back.
//! Pure.
//!
//! A frame is a flag byte (1: compressed), the length as a big-endian `u32`, and the message.

use bytes::{BufMut, Bytes, BytesMut};

/// Flag byte and length.
pub const HEADER_LEN: usize = 5;

/// Longest message that is decoded; kubelet and containerd both stop at 16 MiB.
pub const MESSAGE_LEN_MAX: usize = 16 << 20;

/// Why a body is not one readable message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOneMessage {
    /// The flag byte says compressed.
    #[error("the message is compressed")]
    Compressed,
    /// Shorter than its header says, an unknown flag, or nothing at all.
    #[error("the frame is malformed")]
    Malformed,
    /// Bytes follow the first message.
    #[error("more than one message")]
    Several,
}

impl NotOneMessage {
    /// One short fixed word, for a metric's label.
    pub fn word(self) -> &'static str {
        match self {
            NotOneMessage::Compressed => "compressed",
            NotOneMessage::Malformed => "malformed",
            NotOneMessage::Several => "several",
        }
    }
}

/// The one message of a body. Shares the memory of `body`.
pub fn parse(body: &Bytes) -> Result<Bytes, NotOneMessage> {
    let (flag, rest) = body.split_first().ok_or(NotOneMessage::Malformed)?;
    match flag {
        0 => {}
        1 => return Err(NotOneMessage::Compressed),
        _ => return Err(NotOneMessage::Malformed),
    }
    let (length, message) = rest.split_first_chunk::<4>().ok_or(NotOneMessage::Malformed)?;
    let length =
        usize::try_from(u32::from_be_bytes(*length)).map_err(|_| NotOneMessage::Malformed)?;
    match message.len().cmp(&length) {
        std::cmp::Ordering::Less => Err(NotOneMessage::Malformed),
        std::cmp::Ordering::Equal => Ok(body.slice(HEADER_LEN..)),
        std::cmp::Ordering::Greater => Err(NotOneMessage::Several),
    }
}

/// An uncompressed frame around a message and what follows it. `None` for more than 4 GiB, which the format cannot say.
pub fn wrap(message: &[u8], more: &[u8]) -> Option<Bytes> {
    let length = message.len() + more.len();
    let mut body = BytesMut::with_capacity(HEADER_LEN + length);
    body.put_u8(0);
    body.put_u32(u32::try_from(length).ok()?);
    body.put_slice(message);
    body.put_slice(more);
    Some(body.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_one_plain_message_is_named() {
        for (body, expected) in [
            (&b""[..], NotOneMessage::Malformed),
            (b"\0\0\0", NotOneMessage::Malformed),
            (b"\0\0\0\0\x02a", NotOneMessage::Malformed),
            (b"\x02\0\0\0\0", NotOneMessage::Malformed),
            (b"\x01\0\0\0\x01a", NotOneMessage::Compressed),
            (b"\0\0\0\0\x01ab", NotOneMessage::Several),
            (b"\0\0\0\0\0\0\0\0\0\0", NotOneMessage::Several),
            (b"\0\xff\xff\xff\xffa", NotOneMessage::Malformed),
        ] {
            assert_eq!(parse(&Bytes::from_static(body)), Err(expected), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn a_wrapped_message_comes_back(message in prop::collection::vec(any::<u8>(), 0..300)) {
            let (first, second) = message.split_at(message.len() / 3);
            let body = wrap(first, second).unwrap();
            prop_assert_eq!(parse(&body), Ok(Bytes::from(message)));
        }

        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..50)) {
            let _ = parse(&Bytes::from(body));
        }
    }
}
