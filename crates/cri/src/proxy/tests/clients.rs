//! What clients other than grpc-go send, as bytes.

use bayplan_workload::Admission;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::test_support::{House, soon};

const VERSION: &[u8] = b"/runtime.v1.RuntimeService/Version";
/// Kinds of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A literal with indexing, of a name in the static table.
fn literal(index: u8, value: &[u8]) -> Vec<u8> {
    [&[0x40 | index, u8::try_from(value.len()).unwrap()], value].concat()
}

/// A call of `Version` with these header fields.
fn call(stream: u8, block: &[u8]) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, block);
    [head, frame(DATA, END_STREAM, stream, &[0; 5])].concat()
}

/// The frames of a stream, until one ends it.
async fn answer(connection: &mut UnixStream, stream: u8) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    loop {
        let mut header = [0; 9];
        soon(connection.read_exact(&mut header)).await.unwrap();
        let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
        soon(connection.read_exact(&mut payload)).await.unwrap();
        if header[8] != stream {
            continue;
        }
        frames.push((header[3], payload));
        // RST_STREAM.
        let is_reset = header[3] == 3;
        if is_reset || header[3] <= HEADERS && header[4] & END_STREAM != 0 {
            return frames;
        }
    }
}

/// gRPC's C core, Java and Swift name the socket itself as the authority, and later its place in the table of fields.
#[tokio::test]
async fn an_authority_that_is_the_path_of_a_socket_is_served() {
    for authority in ["/run/bayplan/cri.sock", "run%2Fbayplan%2Fcri.sock", "localhost", "a b?#/"] {
        let house = House::new(Admission::PassThrough);
        let mut connection = UnixStream::connect(house.kubelet_socket()).await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let begin = [&preface[..], &frame(SETTINGS, 0, 0, &[])].concat();
        connection.write_all(&begin).await.unwrap();
        let te = [&[0x40, 2][..], b"te", &[8], b"trailers"].concat();
        let fields = [
            literal(4, VERSION),
            literal(1, authority.as_bytes()),
            literal(31, b"application/grpc"),
            te,
        ];
        // POST and http; the second call has its fields from the table, the youngest being 62.
        let first = call(1, &[&[0x83, 0x86], &fields.concat()[..]].concat());
        let second = call(3, &[0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62]);
        for (stream, call) in [(1, first), (3, second)] {
            connection.write_all(&call).await.unwrap();
            let kinds: Vec<u8> =
                answer(&mut connection, stream).await.iter().map(|it| it.0).collect();
            assert_eq!(kinds, [HEADERS, DATA, HEADERS], "{authority} {stream}");
        }
    }
}
