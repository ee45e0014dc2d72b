//! Lines that prove themselves. In: records, one line of text each. Out: a file that names its form in the first line, and then has per
//! record eight hexadecimal digits of CRC-32 (IEEE), a space, the record; and from the bytes of such a file the records again.

/// A line that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Line number, from 1.
    pub line: usize,
    /// What was wrong with it.
    pub why: &'static str,
}

/// What an existing file held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Good records, in order.
    pub records: Vec<String>,
    /// Lines that were left out.
    pub dropped: Vec<Dropped>,
}

/// A record with its checksum, as it is written.
pub(crate) fn line(record: &str) -> String {
    // A record with a line break would be two lines without a checksum.
    let record = record.replace(['\n', '\r'], " ");
    format!("{:08x} {record}\n", crc32fast::hash(record.as_bytes()))
}

/// Every line but the first is a record or is dropped; so is the first where it is not `header`, which is `not_header`.
pub(crate) fn parse_lines(header: &str, not_header: &'static str, bytes: &[u8]) -> Recovered {
    let is_header = |text: &[u8]| match text == header.as_bytes() {
        true => Ok(()),
        false => Err(not_header),
    };
    parse(bytes, 1, is_header)
}

/// The same for what follows the first lines of a file; `first` is the number of its first line.
pub(crate) fn parse_more(bytes: &[u8], first: usize) -> Recovered {
    parse(bytes, first, |_| Ok(()))
}

fn parse(
    bytes: &[u8],
    first: usize,
    is_header: impl Fn(&[u8]) -> Result<(), &'static str>,
) -> Recovered {
    let mut recovered = Recovered::default();
    if bytes.is_empty() {
        return recovered;
    }
    let is_torn = bytes.last() != Some(&b'\n');
    let body = if is_torn { bytes } else { bytes.get(..bytes.len() - 1).unwrap_or_default() };
    let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    for (index, text) in lines.iter().enumerate() {
        let (number, is_last) = (first + index, index + 1 == lines.len());
        let parsed = match number {
            _ if is_last && is_torn => Err("torn: the daemon was stopped in the middle of a write"),
            1 => is_header(text).map(|()| None),
            _ => parse_line(text).map(Some),
        };
        match parsed {
            Ok(record) => recovered.records.extend(record),
            Err(why) => recovered.dropped.push(Dropped { line: number, why }),
        }
    }
    recovered
}

fn parse_line(text: &[u8]) -> Result<String, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "not UTF-8")?;
    let (checksum, record) = text.split_once(' ').ok_or("no checksum")?;
    let checksum = u32::from_str_radix(checksum, 16).map_err(|_| "no checksum")?;
    if checksum == crc32fast::hash(record.as_bytes()) {
        Ok(record.to_owned())
    } else {
        Err("wrong checksum")
    }
}
