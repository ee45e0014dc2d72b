//! Bytes of an NRI connection to messages, and messages back to bytes.
#![no_main]

use bayplan_nri::frame::{Decoder, Message};
use bayplan_nri::ttrpc::{Request, Response};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fuzz_target!(|pieces: (u16, &[u8])| {
    let (cut, bytes) = pieces;
    let found = decode(&[bytes]);
    // Where bytes are cut changes nothing.
    let (head, tail) = bytes.split_at(usize::from(cut).min(bytes.len()));
    assert_eq!(decode(&[head, tail]), found);
    for message in &found {
        let again = message.encode().expect("what was read is not too long");
        assert_eq!(decode(&[&again]).as_slice(), std::slice::from_ref(message));
        let mut go = Decoder::as_go();
        go.push(&again);
        assert_eq!(go.next_message().ok().flatten().as_ref(), Some(message), "Go could not read it");
        let _call = Request::decode(message.body.clone());
        let _answer = Response::decode(message.body.clone());
    }
});

/// All messages until the end, or until nothing more can be read.
fn decode(pieces: &[&[u8]]) -> Vec<Message> {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    for piece in pieces {
        decoder.push(piece);
        while let Ok(Some(message)) = decoder.next_message() {
            found.push(message);
        }
    }
    found
}
