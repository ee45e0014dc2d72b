//! The client's deadline. In: a call's headers. Out: how long the client waits, and until when if the call has come just now.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

/// The header's name.
pub const TIMEOUT_HEADER: &str = "grpc-timeout";

/// At most eight digits and a unit, as the gRPC protocol says ("PROTOCOL-HTTP2.md", Timeout). `None` for anything else: a
/// deadline that cannot be read is the runtime's to refuse.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    const DIGITS_MAX: usize = 8;
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(amount * 3600),
        'M' => Duration::from_secs(amount * 60),
        'S' => Duration::from_secs(amount),
        'm' => Duration::from_millis(amount),
        'u' => Duration::from_micros(amount),
        'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// Until when the client of a call that has come just now waits, by its `grpc-timeout`.
pub(crate) fn of_call(headers: &HeaderMap) -> Option<Instant> {
    let text = headers.get(TIMEOUT_HEADER)?.to_str().ok()?;
    Instant::now().checked_add(parse_timeout(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_refusals() {
        for (text, expected) in [
            ("2S", Some(Duration::from_secs(2))),
            ("3M", Some(Duration::from_secs(180))),
            ("1H", Some(Duration::from_secs(3600))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("119999877u", None),
            ("1999987u", Some(Duration::from_micros(1_999_987))),
            ("20m", Some(Duration::from_millis(20))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("5", None),
            ("-5S", None),
            ("+5S", None),
            ("5 S", None),
            ("5é", None),
            ("5s", None),
        ] {
            assert_eq!(parse_timeout(text), expected, "{text:?}");
        }
    }
}
