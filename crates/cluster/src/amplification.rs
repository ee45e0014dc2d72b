//! The ratio by which Koordinator's scheduler amplifies the CPUs of a node. In: the Node's annotation, and what the daemon has of it. Out: what the
//! configuration can say as `requests.amplificationPercent`, or what is wrong with the annotation, and a condition that tells it.
//!
//! koord-manager writes the annotation, with two decimal places (koordinator, `apis/extension/node.go`).

use std::collections::BTreeMap;

use bayplan_types::AMPLIFICATION_PERCENT;
use serde_json::Value as Json;

use crate::conditions::Condition;
use crate::daemon::DaemonStatus;

/// Ratios by resource, in JSON.
const ANNOTATION: &str = "node.koordinator.sh/resource-amplification-ratio";
/// Characters of its value that are shown.
const SHOWN_MAX: usize = 80;

/// What the Node says, in percent; `None`: nothing of CPUs.
///
/// # Errors
/// The annotation cannot be understood.
pub(crate) fn amplification(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<usize>, String> {
    let Some(text) = annotations.get(ANNOTATION) else { return Ok(None) };
    percent(text).map_err(|problem| {
        let shown = shown(text);
        format!(
            "annotation {ANNOTATION} of the Node is `{shown}` ({problem}), expected JSON with a ratio of CPUs, such as {{\"cpu\": 1.5}}"
        )
    })
}

/// The ratio of CPUs, to a whole percent.
fn percent(text: &str) -> Result<Option<usize>, String> {
    let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let ratios = json.as_object().ok_or("no mapping")?;
    let Some(ratio) = ratios.get("cpu") else { return Ok(None) };
    let ratio = ratio.as_f64().ok_or("cpu is no number")?;
    let [min, max] = [AMPLIFICATION_PERCENT.start(), AMPLIFICATION_PERCENT.end()];
    let of_percent = |percent: &usize| f64::from(u32::try_from(*percent).unwrap_or(u32::MAX));
    if !(of_percent(min)..=of_percent(max)).contains(&(ratio * 100.0)) {
        return Err(format!("cpu is not from {} to {}", min / 100, max / 100));
    }
    let distance = |percent: &usize| (of_percent(percent) - ratio * 100.0).abs();
    Ok(AMPLIFICATION_PERCENT.min_by(|a, b| distance(a).total_cmp(&distance(b))))
}

/// A value of any length and of any characters, for people.
fn shown(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    let shown: String = text.chars().take(SHOWN_MAX).map(escape).collect();
    match text.chars().nth(SHOWN_MAX) {
        Some(_) => format!("{shown}..."),
        None => shown,
    }
}

/// What became of the annotation; `None`: there is none.
pub(crate) fn amplification_condition(
    said: &Result<Option<usize>, String>,
    daemon: Option<&DaemonStatus>,
) -> Option<Condition> {
    let condition = |status: &str, reason: &str, message: &str| {
        Some(Condition::new("AmplificationApplied", status, reason, message))
    };
    let percent = match said {
        Ok(None) => return None,
        Ok(Some(percent)) => *percent,
        Err(problem) => {
            let message = format!("{problem}; what held goes on to hold");
            return condition("False", "Invalid", &message);
        }
    };
    let Some(daemon) = daemon else {
        return condition("Unknown", "NoAnswer", "the daemon does not answer");
    };
    match daemon.amplification().filter(|it| it.percent == percent) {
        Some(it) if it.holds => {
            let message = format!("requests.amplificationPercent is {percent}");
            condition("True", "Applied", &message)
        }
        Some(_) => {
            let message = format!(
                "the Node says {percent} %, and the configuration says requests.amplificationPercent itself, which counts more"
            );
            condition("False", "Overridden", &message)
        }
        None => {
            let message = format!(
                "the daemon does not have the {percent} % of the Node: ConfigApplied says why, or it is older than the agent"
            );
            condition("False", "NotApplied", &message)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_is_a_percentage_or_a_mistake() {
        let deep = "[".repeat(100_000);
        let long = format!(r#"{{"cpu": {}}}"#, "9".repeat(100_000));
        for (text, expected) in [
            (r#"{"cpu": 1.5, "memory": 1.2}"#, Ok(Some(150))),
            (r#"{"cpu":1.00}"#, Ok(Some(100))),
            (r#"{"cpu": 1}"#, Ok(Some(100))),
            (r#"{"cpu": 10}"#, Ok(Some(1000))),
            (r#"{"cpu": 1.15}"#, Ok(Some(115))),
            (r#"{"cpu": 2.3}"#, Ok(Some(230))),
            (r#"{"cpu": 1.333333333333}"#, Ok(Some(133))),
            (r#"{"cpu": 15e-1}"#, Ok(Some(150))),
            (r#"{"cpu": 1.1, "cpu": 1.2}"#, Ok(Some(120))),
            (r#"{"memory": 1.2}"#, Ok(None)),
            (r#"{"CPU": 1.2}"#, Ok(None)),
            ("{}", Ok(None)),
            ("", Err("EOF while parsing")),
            ("1.5", Err("no mapping")),
            ("null", Err("no mapping")),
            ("[1.5]", Err("no mapping")),
            ("{cpu: 1.5}", Err("key must be a string")),
            (r#"{"cpu": 1.5"#, Err("EOF while parsing")),
            (r#"{"cpu": 1.5} {}"#, Err("trailing characters")),
            (r#"{"cpu": "1.5"}"#, Err("cpu is no number")),
            (r#"{"cpu": null}"#, Err("cpu is no number")),
            (r#"{"cpu": {"cpu": 2}}"#, Err("cpu is no number")),
            (r#"{"cpu": NaN}"#, Err("expected value")),
            (r#"{"cpu": Infinity}"#, Err("expected value")),
            (r#"{"cpu": 0}"#, Err("cpu is not from 1 to 10")),
            (r#"{"cpu": -1.5}"#, Err("cpu is not from 1 to 10")),
            (r#"{"cpu": 0.999}"#, Err("cpu is not from 1 to 10")),
            (r#"{"cpu": 10.001}"#, Err("cpu is not from 1 to 10")),
            (r#"{"cpu": 150}"#, Err("cpu is not from 1 to 10")),
            (r#"{"cpu": 1e308}"#, Err("cpu is not from 1 to 10")),
            (r#"{"cpu": 1e400}"#, Err("number out of range")),
            (deep.as_str(), Err("recursion limit exceeded")),
            (long.as_str(), Err("number out of range")),
        ] {
            let annotations = BTreeMap::from([(ANNOTATION.to_owned(), text.to_owned())]);
            let case = shown(text);
            match (amplification(&annotations), expected) {
                (Err(told), Err(problem)) => {
                    assert!(told.contains(problem) && told.contains(&case), "{told}");
                    assert!(told.len() < 400, "{told}");
                }
                (found, expected) => {
                    assert_eq!(found.as_ref().ok(), expected.as_ref().ok(), "{case}");
                }
            }
        }
        assert_eq!(amplification(&BTreeMap::new()), Ok(None));
    }

    #[test]
    fn each_percentage_is_read_as_it_is_written() {
        for percent in AMPLIFICATION_PERCENT {
            let text = format!("{{\"cpu\": {}.{:02}}}", percent / 100, percent % 100);
            assert_eq!(super::percent(&text), Ok(Some(percent)), "{text}");
        }
    }

    #[test]
    fn what_is_shown_of_a_value_is_short_and_plain() {
        for (text, expected) in [
            ("{\"cpu\": 0}", "{\"cpu\": 0}".to_owned()),
            ("\u{1b}[2J\n", "\\u{1b}[2J\\n".to_owned()),
            (&"ä".repeat(SHOWN_MAX), "ä".repeat(SHOWN_MAX)),
            (&"ä".repeat(SHOWN_MAX + 1), format!("{}...", "ä".repeat(SHOWN_MAX))),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn the_condition_says_what_became_of_it() {
        let daemon = |percent: usize, holds: bool| -> DaemonStatus {
            let amplification = json!({ "percent": percent, "holds": holds });
            let config = json!({ "cluster": { "amplification": amplification } });
            serde_json::from_value(json!({ "config": config })).unwrap()
        };
        let of_150 = Ok(Some(150));
        for (said, daemon, expected) in [
            (Ok(None), Some(daemon(150, true)), None),
            (of_150.clone(), Some(daemon(150, true)), Some("True Applied")),
            (of_150.clone(), Some(daemon(150, false)), Some("False Overridden")),
            (of_150.clone(), Some(daemon(120, true)), Some("False NotApplied")),
            (of_150.clone(), Some(DaemonStatus::default()), Some("False NotApplied")),
            (of_150, None, Some("Unknown NoAnswer")),
            (Err("bad".to_owned()), Some(daemon(150, true)), Some("False Invalid")),
            (Err("bad".to_owned()), None, Some("False Invalid")),
        ] {
            let found = amplification_condition(&said, daemon.as_ref());
            let found = found.map(|it| format!("{} {}", it.status, it.reason));
            assert_eq!(found.as_deref(), expected, "{said:?} {daemon:?}");
        }
    }
}
