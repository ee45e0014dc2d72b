//! Amounts of resources in the notation of the Kubernetes API, which writes the same amount in several ways: `1000` and `1k`, `0.5` and `500m`.

/// Decimal places of the smallest amount.
const PLACES: u32 = 9;

/// Whether two texts are the same amount; texts that are none are compared as they are.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one == other || nanos(one).is_some_and(|it| Some(it) == nanos(other))
}

/// A whole, positive number.
pub(crate) fn is_count(text: &str) -> bool {
    nanos(text).is_some_and(|it| it > 0 && it.is_multiple_of(10_u128.pow(PLACES)))
}

/// Something, however little.
pub(crate) fn is_positive(text: &str) -> bool {
    nanos(text).is_some_and(|it| it > 0)
}

/// In thousandths, the next whole one; 0 for what is no amount.
pub(crate) fn milli(text: &str) -> u64 {
    let unit = 10_u128.pow(PLACES - 3);
    nanos(text).and_then(|it| u64::try_from(it.div_ceil(unit)).ok()).unwrap_or(0)
}

/// In thousandths of millionths. `None`: it is negative, no amount, too large, or not a whole number of these.
fn nanos(text: &str) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let places = u32::try_from(part.len()).ok()?;
    let digits: u128 = format!("{whole}{part}").parse().ok()?;
    let ten = |exponent: u32| 10_u128.checked_pow(exponent);
    let factor = match suffix {
        "n" => 1,
        "u" => ten(3)?,
        "m" => ten(6)?,
        "" => ten(PLACES)?,
        "k" => ten(PLACES + 3)?,
        "M" => ten(PLACES + 6)?,
        "G" => ten(PLACES + 9)?,
        "T" => ten(PLACES + 12)?,
        "P" => ten(PLACES + 15)?,
        "E" => ten(PLACES + 18)?,
        _ => match suffix.strip_suffix('i') {
            Some(binary) => {
                let power = ["K", "M", "G", "T", "P", "E"].iter().position(|it| *it == binary)?;
                ten(PLACES)?.checked_mul(1024_u128.checked_pow(u32::try_from(power).ok()? + 1)?)?
            }
            None => {
                let exponent: u32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
                ten(PLACES.checked_add(exponent)?)?
            }
        },
    };
    let (all, unit) = (digits.checked_mul(factor)?, ten(places)?);
    all.is_multiple_of(unit).then_some(all / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_thousandths() {
        for (text, expected) in [("2", 2000), ("500m", 500), ("0.1", 100), ("1u", 1), ("x", 0)] {
            assert_eq!(milli(text), expected, "{text}");
        }
    }

    #[test]
    fn the_same_amount_is_the_same_in_any_notation() {
        for (one, other, expected) in [
            ("1000", "1k", true),
            ("1000", "1e3", true),
            ("1E3", "1k", true),
            ("1024", "1Ki", true),
            ("0.5", "500m", true),
            ("2", "2.0", true),
            ("1E", "1000P", true),
            ("1000", "1M", false),
            ("4", "0", false),
            ("x", "x", true),
            ("x", "0", false),
            ("1é", "1", false),
        ] {
            assert_eq!(is_same(one, other), expected, "{one} {other}");
        }
    }
}
