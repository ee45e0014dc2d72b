//! The bytes of an NRI connection. In: messages, or bytes as they come. Out: bytes, or whole messages. Pure.
//!
//! One Unix socket carries two ttrpc connections, because both ends call the other one. A *frame* is `connection u32, length u32, payload`; the payloads
//! of one connection are a stream of *messages*, `length u32, stream u32, kind u8, flags u8, body`. All numbers are big-endian (`pkg/net/multiplex` of
//! NRI, `channel.go` of ttrpc).
//!
//! The Go side hands out one frame per read, and its first read of a message has room for 4,096 bytes: a longer frame at the beginning of a message ends the connection. So
//! a message leaves as a frame of at most 4,096 bytes and, where it is longer, one frame with the rest. On the way in, frames may be cut anywhere.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// Of a frame: connection and length.
pub const FRAME_HEADER: usize = 8;
/// Of a message: length, stream, kind, flags.
pub const MESSAGE_HEADER: usize = 10;
/// The longest body that ttrpc takes.
pub const BODY_MAX: usize = 4 << 20;
/// The longest payload of a frame.
pub const PAYLOAD_MAX: usize = BODY_MAX + MESSAGE_HEADER;
/// The longest first frame of a message that the Go side can read.
pub const FIRST_FRAME_MAX: usize = 4096;

/// One of the two ttrpc connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Connection {
    /// The runtime calls the plugin.
    Plugin,
    /// The plugin calls the runtime.
    Runtime,
}

impl Connection {
    fn number(self) -> u32 {
        match self {
            Connection::Plugin => 1,
            Connection::Runtime => 2,
        }
    }

    fn of(number: u32) -> Option<Connection> {
        [Connection::Plugin, Connection::Runtime].into_iter().find(|it| it.number() == number)
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call.
    Request,
    /// The answer to one.
    Response,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Request => 1,
            Kind::Response => 2,
        }
    }

    fn of(number: u8) -> Option<Kind> {
        [Kind::Request, Kind::Response].into_iter().find(|it| it.number() == number)
    }
}

/// One ttrpc message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it goes.
    pub connection: Connection,
    /// Counted by the caller, odd; the response has the request's.
    pub stream: u32,
    /// What it is.
    pub kind: Kind,
    /// An encoded [`crate::ttrpc::Request`] or [`crate::ttrpc::Response`].
    pub body: Bytes,
}

/// Why a connection cannot be read on, or a message not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame claims to be longer than any.
    #[error("a frame of {0} bytes; the longest has {PAYLOAD_MAX}")]
    LongFrame(u32),
    /// A frame for which the Go side has no room, as it tells with ENOMEM; only looked for at the runtime's end.
    #[error("a frame of {length} bytes where {room} can be read")]
    NoRoom {
        /// Of the payload.
        length: usize,
        /// What can be read.
        room: usize,
    },
    /// A message claims to be longer than any, or is.
    #[error("a ttrpc message of {0} bytes; the longest has {BODY_MAX}")]
    LongMessage(usize),
}

impl Message {
    /// As frames.
    ///
    /// # Errors
    /// [`FrameError::LongMessage`].
    pub fn encode(&self) -> Result<Bytes, FrameError> {
        let too_long = FrameError::LongMessage(self.body.len());
        let length = u32::try_from(self.body.len()).map_err(|_| too_long)?;
        if self.body.len() > BODY_MAX {
            return Err(too_long);
        }
        let mut message = BytesMut::with_capacity(MESSAGE_HEADER + self.body.len());
        message.put_u32(length);
        message.put_u32(self.stream);
        message.put_u8(self.kind.number());
        message.put_u8(0);
        message.put_slice(&self.body);
        let mut out = BytesMut::with_capacity(2 * FRAME_HEADER + message.len());
        let rest = message.split_off(message.len().min(FIRST_FRAME_MAX));
        for payload in [message, rest] {
            if !payload.is_empty() {
                out.put_u32(self.connection.number());
                out.put_u32(u32::try_from(payload.len()).map_err(|_| too_long)?);
                out.put_slice(&payload);
            }
        }
        Ok(out.freeze())
    }
}

/// Puts messages together from bytes that come in any pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes of frames that are not whole.
    bytes: BytesMut,
    /// What came of messages that are not whole, by connection.
    plugin: BytesMut,
    runtime: BytesMut,
    reads_as_go: bool,
}

impl Decoder {
    /// One that refuses what the Go side cannot read: a frame is read into a buffer of 4,096 bytes, or straight into the message where more of that is missing.
    pub fn as_go() -> Decoder {
        Decoder { reads_as_go: true, ..Decoder::default() }
    }

    /// Takes bytes from the socket.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.put_slice(bytes);
    }

    /// The next whole message; `None` until more bytes have come. Frames of connections that are not known, and messages of kinds that are not (streams of ttrpc), are skipped.
    ///
    /// # Errors
    /// [`FrameError`]: nothing that follows can be read.
    pub fn next_message(&mut self) -> Result<Option<Message>, FrameError> {
        loop {
            for connection in [Connection::Plugin, Connection::Runtime] {
                while let Some(message) = cut_message(connection, self.part(connection))? {
                    if let Some(message) = message {
                        return Ok(Some(message));
                    }
                }
            }
            let Some((connection, payload)) = cut_frame(&mut self.bytes)? else { return Ok(None) };
            if let Some(connection) = Connection::of(connection) {
                let (length, room) = (payload.len(), room_of_go(self.part(connection)));
                if self.reads_as_go && length > room {
                    return Err(FrameError::NoRoom { length, room });
                }
                self.part(connection).unsplit(payload);
            }
        }
    }

    fn part(&mut self, connection: Connection) -> &mut BytesMut {
        match connection {
            Connection::Plugin => &mut self.plugin,
            Connection::Runtime => &mut self.runtime,
        }
    }
}

/// The longest frame that the Go side can read next, after this much of a message.
fn room_of_go(part: &[u8]) -> usize {
    let missing = part.split_at_checked(MESSAGE_HEADER).map_or(0, |(mut header, body)| {
        let length = usize::try_from(header.get_u32()).unwrap_or(usize::MAX);
        length.saturating_sub(body.len())
    });
    missing.max(FIRST_FRAME_MAX)
}

/// Takes the first frame off; `None` if it is not whole.
fn cut_frame(bytes: &mut BytesMut) -> Result<Option<(u32, BytesMut)>, FrameError> {
    let Some((mut header, _)) = bytes.split_at_checked(FRAME_HEADER) else { return Ok(None) };
    let (connection, length) = (header.get_u32(), header.get_u32());
    let payload = usize::try_from(length).unwrap_or(usize::MAX);
    if payload > PAYLOAD_MAX {
        return Err(FrameError::LongFrame(length));
    }
    if bytes.len() < FRAME_HEADER + payload {
        return Ok(None);
    }
    bytes.advance(FRAME_HEADER);
    Ok(Some((connection, bytes.split_to(payload))))
}

/// Takes the first message off; the outer `None` if it is not whole, the inner one if it is of no known kind.
fn cut_message(
    connection: Connection,
    bytes: &mut BytesMut,
) -> Result<Option<Option<Message>>, FrameError> {
    let Some((mut header, _)) = bytes.split_at_checked(MESSAGE_HEADER) else { return Ok(None) };
    let length = usize::try_from(header.get_u32()).unwrap_or(usize::MAX);
    let (stream, kind, _flags) = (header.get_u32(), header.get_u8(), header.get_u8());
    if length > BODY_MAX {
        return Err(FrameError::LongMessage(length));
    }
    if bytes.len() < MESSAGE_HEADER + length {
        return Ok(None);
    }
    bytes.advance(MESSAGE_HEADER);
    let body = bytes.split_to(length).freeze();
    let message = Kind::of(kind).map(|kind| Message { connection, stream, kind, body });
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(connection: Connection, stream: u32, kind: Kind, length: usize) -> Message {
        let body = (0..length).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        Message { connection, stream, kind, body }
    }

    fn plugin(length: usize) -> Message {
        message(Connection::Plugin, 1, Kind::Request, length)
    }

    fn decode(pieces: &[&[u8]]) -> Result<Vec<Message>, FrameError> {
        let (mut decoder, mut found) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.push(piece);
            while let Some(message) = decoder.next_message()? {
                found.push(message);
            }
        }
        Ok(found)
    }

    #[test]
    fn the_first_frame_of_a_message_fits_the_buffer_of_the_go_side() {
        for (body, frames) in [
            (0, &[10][..]),
            (4085, &[4095]),
            (4086, &[4096]),
            (4087, &[4096, 1]),
            (8182, &[4096, 4096]),
            (8183, &[4096, 4097]),
            (BODY_MAX, &[4096, PAYLOAD_MAX - 4096]),
        ] {
            let sent = plugin(body);
            let bytes = sent.encode().unwrap();
            let (mut rest, mut lengths) = (&bytes[..], Vec::new());
            while !rest.is_empty() {
                assert_eq!(rest.get_u32(), 1);
                let length = rest.get_u32() as usize;
                lengths.push(length);
                rest.advance(length);
            }
            assert_eq!(lengths, frames, "{body}");
            assert_eq!(decode(&[&bytes]), Ok(vec![sent]), "{body}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_is_kept() {
        let body = BODY_MAX + 1;
        assert_eq!(plugin(body).encode(), Err(FrameError::LongMessage(body)));
        for (bytes, expected) in [
            (&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff][..], FrameError::LongFrame(u32::MAX)),
            (&[0, 0, 0, 9, 0, 0x40, 0, 11], FrameError::LongFrame((4 << 20) + 11)),
            (
                &[0, 0, 0, 2, 0, 0, 0, 10, 0, 0x40, 0, 1, 0, 0, 0, 1, 1, 0],
                FrameError::LongMessage(body),
            ),
        ] {
            assert_eq!(decode(&[bytes]), Err(expected), "{bytes:?}");
        }
    }

    #[test]
    fn what_the_go_side_has_no_room_for_is_refused_at_its_end() {
        let frame = |payload: &[u8]| {
            let mut bytes = vec![0, 0, 0, 1];
            bytes.put_u32(u32::try_from(payload.len()).unwrap());
            bytes.put_slice(payload);
            bytes
        };
        let whole = plugin(20_000).encode().unwrap();
        let message = [&whole[8..8 + 4096], &whole[16 + 4096..]].concat();
        for (cuts, expected) in [
            (&[4096][..], Ok(())),
            (&[10, 14_106], Ok(())),
            (&[4097], Err(FrameError::NoRoom { length: 4097, room: 4096 })),
            (&[20_010], Err(FrameError::NoRoom { length: 20_010, room: 4096 })),
            (&[9, 5000], Err(FrameError::NoRoom { length: 4991, room: 4096 })),
        ] {
            let mut decoder = Decoder::as_go();
            let mut from = 0;
            for to in cuts.iter().copied().chain([message.len()]).filter(|to| *to > 0) {
                decoder.push(&frame(&message[from..to]));
                from = to;
            }
            let read = decoder.next_message().map(|it| assert!(it.is_some(), "{cuts:?}"));
            assert_eq!(read, expected, "{cuts:?}");
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let request = Message { body: Bytes::from_static(b"ab"), ..plugin(0) };
        let response = message(Connection::Runtime, 0x0102_0304, Kind::Response, 0);
        for (sent, expected) in [
            (request, &[0, 0, 0, 1, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 1, 1, 0, b'a', b'b'][..]),
            (response, &[0, 0, 0, 2, 0, 0, 0, 10, 0, 0, 0, 0, 1, 2, 3, 4, 2, 0]),
        ] {
            assert_eq!(&sent.encode().unwrap()[..], expected);
        }
    }

    #[test]
    fn what_is_not_known_is_skipped() {
        let sent = plugin(3);
        let bytes = sent.encode().unwrap();
        let unknown_connection = [0, 0, 0, 7, 0, 0, 0, 3, 9, 9, 9];
        let unknown_kind = [0, 0, 0, 1, 0, 0, 0, 11, 0, 0, 0, 1, 0, 0, 0, 1, 3, 0, 5];
        let pieces = [&unknown_connection[..], &unknown_kind, &bytes];
        assert_eq!(decode(&pieces), Ok(vec![sent]));
    }

    proptest! {
        #[test]
        fn bytes_may_be_cut_anywhere(
            lengths in prop::collection::vec((any::<bool>(), any::<bool>(), any::<u32>(), 0usize..9000), 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let sent: Vec<Message> = lengths.into_iter().map(|(plugin, request, stream, length)| {
                let connection = if plugin { Connection::Plugin } else { Connection::Runtime };
                message(connection, stream, if request { Kind::Request } else { Kind::Response }, length)
            }).collect();
            let bytes: Vec<u8> = sent.iter().flat_map(|it| it.encode().unwrap()).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|it| it.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|it| &bytes[it[0]..it[1]]).collect();
            prop_assert_eq!(decode(&pieces), Ok(sent.clone()));
            let mut go = Decoder::as_go();
            go.push(&bytes);
            for message in sent {
                prop_assert_eq!(go.next_message(), Ok(Some(message)));
            }
        }

        #[test]
        fn frames_of_two_connections_may_be_mixed(a in 0usize..20_000, b in 0usize..20_000, size in 1usize..5000) {
            let sent = [plugin(a), message(Connection::Runtime, 3, Kind::Response, b)];
            let mut queues: Vec<(u32, Vec<Vec<u8>>)> = sent.iter().map(|it| {
                let (frames, mut payload) = (it.encode().unwrap(), Vec::new());
                let mut rest = &frames[..];
                while !rest.is_empty() {
                    rest.advance(4);
                    let length = rest.get_u32() as usize;
                    payload.extend_from_slice(&rest[..length]);
                    rest.advance(length);
                }
                (it.connection.number(), payload.chunks(size).rev().map(<[u8]>::to_vec).collect())
            }).collect();
            let mut bytes = Vec::new();
            while queues.iter().any(|(_, queue)| !queue.is_empty()) {
                for (number, queue) in &mut queues {
                    if let Some(payload) = queue.pop() {
                        bytes.put_u32(*number);
                        bytes.put_u32(u32::try_from(payload.len()).unwrap());
                        bytes.put_slice(&payload);
                    }
                }
            }
            let found = decode(&[&bytes]).unwrap();
            prop_assert_eq!(found.len(), 2);
            prop_assert!(sent.iter().all(|it| found.contains(it)));
        }

        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _read = decode(&[&bytes]);
        }
    }
}
