//! What a webhook copies of a pod's specification into an annotation: the requests of every container. In: the pod. Out: those of one
//! container.
//!
//! CRI carries requests only as far as cgroup settings tell them. CRI Resource Manager's webhook and nri-plugins' resource annotator write
//! `{"containers":{NAME:{"requests":{"cpu":"2","memory":"8Gi"},"limits":{...}}},"initContainers":{...}}`.

use bayplan_types::{Bytes, MilliCpu, QosClass};
use serde_json::{Map, Value};

use super::asked::Asked;
use super::extended::profile_of;
use super::tuning::BatchLimits;
use super::values::{Misread, check_length, shown};
use super::warnings::{Warnings, annotation};
use super::yaml::string;
use crate::container::NewContainer;
use crate::resources::ExactRequests;

/// nri-plugins' name counts more, as it is the living one.
pub(super) const NAMES: [&str; 2] = ["noderesource.dev/resources", "intel.com/resources"];

/// More digits than a quantity has (`apimachinery` cuts at 18).
const DIGITS_MAX: usize = 18;

/// Fills `requests` from the first of the names that there is.
pub(super) fn read(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let annotations = &container.pod.annotations;
    let said = NAMES.iter().find_map(|name| Some((*name, annotations.get(*name)?)));
    let Some((name, text)) = said else { return };
    match requests_of(&container.name, text) {
        Ok((requests, profile)) => {
            asked.requests = requests.map(|requests| (name, requests));
            asked.tuning.cpu_class = profile;
        }
        Err(misread) => {
            warnings.misread(&annotation(name), text, "requests by container as JSON", &misread);
        }
    }
}

/// Requests, and the profile of Power Manager with a resource that is requested, which kubelet does not pass on. `None`: it says nothing of this
/// container.
fn requests_of(
    container: &str,
    text: &str,
) -> Result<(Option<ExactRequests>, Option<String>), Misread> {
    check_length(text)?;
    let pod: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Misread::because(format!("line {}, column {}", error.line(), error.column()))
    })?;
    let lists = ["containers", "initContainers"];
    if !lists.iter().any(|list| pod.get(*list).is_some_and(Value::is_object)) {
        return Err(Misread::because("neither `containers` nor `initContainers`"));
    }
    let Some(found) = lists.into_iter().find_map(|list| pod.get(list)?.get(container)) else {
        return Ok((None, None));
    };
    let amount = |resource: &str, per_unit: u128| {
        let Some(value) = found.get("requests").and_then(|it| it.get(resource)) else {
            return Ok(None);
        };
        let text = string(value).unwrap_or_else(|| value.to_string());
        let parsed = parse_quantity(&text, per_unit);
        let strange = || Misread::because(format!("{resource} is `{}`", shown(&text, 20)));
        parsed.map(Some).ok_or_else(strange)
    };
    let (cpu, memory) = (amount("cpu", 1000)?.map(MilliCpu), amount("memory", 1)?.map(Bytes));
    let resources = found.get("requests").and_then(Value::as_object).into_iter().flatten();
    let asked = resources.filter(|(_, amount)| {
        let text = string(amount).unwrap_or_else(|| amount.to_string());
        parse_quantity(&text, 1).is_some_and(|it| it > 0)
    });
    let profile = asked.filter_map(|(name, _)| profile_of(name)).next();
    Ok((Some(ExactRequests { cpu, memory }), profile))
}

/// A Kubernetes quantity (`apimachinery/pkg/api/resource`): a decimal number, then nothing, `n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei`, or
/// an exponent. In parts of which a unit has `per_unit`, rounded up; `None` also for what is negative or too large.
pub fn parse_quantity(text: &str, per_unit: u128) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    let (times, divided) = scale(suffix)?;
    let divided = divided.checked_mul(10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let digits: u128 = digits.parse().ok()?;
    let parts = digits.checked_mul(times)?.checked_mul(per_unit)?;
    u64::try_from(parts.div_ceil(divided)).ok()
}

/// What a number with this suffix is multiplied with and divided by.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = |exponent: i32| match exponent {
        0..=18 => Some((10u128.pow(exponent.unsigned_abs()), 1)),
        -18..0 => Some((1, 10u128.pow(exponent.unsigned_abs()))),
        _ => None,
    };
    if let Some(rank) = BINARY.iter().position(|known| *known == suffix) {
        return Some((1 << (10 * (rank + 1)), 1));
    }
    if let Some(rank) = DECIMAL.iter().position(|known| *known == suffix) {
        return power(3 * (i32::try_from(rank).ok()? - 3));
    }
    power(suffix.strip_prefix(['e', 'E'])?.parse().ok()?)
}

/// Koordinator's webhook replaces requests and limits of cpu and memory of a BestEffort pod by `kubernetes.io/batch-cpu`, in thousandths of a CPU, and
/// `kubernetes.io/batch-memory`, in bytes. Kubelet does not know these, so its cgroup settings have no limits; they are in this annotation, as
/// `{"containers":{NAME:{"requests":{...},"limits":{"kubernetes.io/batch-cpu":"1000",...}}}}` (Koordinator, `apis/extension/resource.go`).
pub(super) const BATCH: &str = "node.koordinator.sh/extended-resource-spec";

const BATCH_CPU: &str = "kubernetes.io/batch-cpu";
const BATCH_MEMORY: &str = "kubernetes.io/batch-memory";

/// Fills the limits of a container of a BestEffort pod; others have those that kubelet gives them.
pub(super) fn read_batch(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let Some(text) = container.pod.annotations.get(BATCH) else { return };
    if container.pod.qos != Some(QosClass::BestEffort) {
        warnings.no_effect(&format!("{} of a pod that is not BestEffort", annotation(BATCH)));
        return;
    }
    match limits_of(&container.name, text) {
        Ok(limits) => asked.tuning.batch = limits,
        Err(misread) => {
            warnings.misread(&annotation(BATCH), text, "limits by container as JSON", &misread);
        }
    }
}

/// `None`: it says nothing of this container's limits.
fn limits_of(container: &str, text: &str) -> Result<Option<BatchLimits>, Misread> {
    check_length(text)?;
    let pod: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Misread::because(format!("line {}, column {}", error.line(), error.column()))
    })?;
    let Some(containers) = pod.get("containers").and_then(Value::as_object) else {
        return Err(Misread::because("no `containers`"));
    };
    let Some(limits) = containers.get(container).and_then(|it| it.get("limits")) else {
        return Ok(None);
    };
    let amount = |resource: &str| {
        let Some(value) = limits.get(resource) else { return Ok(None) };
        let text = string(value).unwrap_or_else(|| value.to_string());
        let strange = || Misread::because(format!("{resource} is `{}`", shown(&text, 20)));
        parse_quantity(&text, 1).filter(|it| *it > 0).map(Some).ok_or_else(strange)
    };
    let limits = BatchLimits {
        cpu: amount(BATCH_CPU)?.map(MilliCpu),
        memory: amount(BATCH_MEMORY)?.map(Bytes),
    };
    Ok((limits != BatchLimits::default()).then_some(limits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, milli, bytes) in [
            ("2", Some(2000), Some(2)),
            ("1500m", Some(1500), Some(2)),
            ("0.1", Some(100), Some(1)),
            (".5", Some(500), Some(1)),
            ("1.", Some(1000), Some(1)),
            ("100u", Some(1), Some(1)),
            ("1n", Some(1), Some(1)),
            ("1k", Some(1_000_000), Some(1000)),
            ("129M", Some(129_000_000_000), Some(129_000_000)),
            ("1.5Gi", Some(3 << 29).map(|n: u64| n * 1000), Some(3 << 29)),
            ("2e3", Some(2_000_000), Some(2000)),
            ("2E+3", Some(2_000_000), Some(2000)),
            ("5e-1", Some(500), Some(1)),
            ("1E", None, Some(1_000_000_000_000_000_000)),
            ("16Ei", None, None),
            ("", None, None),
            (".", None, None),
            ("1.2.3", None, None),
            ("-1", None, None),
            ("1 Gi", None, None),
            ("1gi", None, None),
            ("1e99", None, None),
            ("1234567890123456789", None, None),
        ] {
            let found = (parse_quantity(text, 1000), parse_quantity(text, 1));
            assert_eq!(found, (milli, bytes), "{text}");
        }
    }

    #[test]
    fn a_container_finds_its_own_requests() {
        let text = r#"{"containers":{"web":{"limits":{"cpu":"4"},"requests":{"cpu":"2","memory":"8Gi"}},"log":{},
            "odd":{"requests":{"cpu":"many"}},"number":{"requests":{"cpu":2,"nvidia.com/gpu":"1"}}},
            "initContainers":{"setup":{"requests":{"cpu":"500m"}}},"later":1}"#;
        let exact = |cpu: Option<u64>, gib: Option<u64>| {
            Ok(Some(ExactRequests { cpu: cpu.map(MilliCpu), memory: gib.map(Bytes::gib) }))
        };
        for (container, expected) in [
            ("web", exact(Some(2000), Some(8))),
            ("log", exact(None, None)),
            ("number", exact(Some(2000), None)),
            ("setup", exact(Some(500), None)),
            ("other", Ok(None)),
            ("odd", Err("cpu is `many`")),
        ] {
            let found = requests_of(container, text);
            let found = found.map_err(|misread| misread.detail.unwrap_or_default());
            let found = found.map(|(requests, _)| requests);
            assert_eq!(found, expected.map_err(str::to_owned), "{container}");
        }
        for text in ["", "{", "[]", "7", "{}", r#"{"containers":[]}"#, r#"{"a":{"requests":{}}}"#] {
            assert!(requests_of("a", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_profile_of_which_none_is_requested_is_no_class() {
        for (amount, expected) in
            [("\"2\"", Some("power")), ("2", Some("power")), ("\"0\"", None), ("\"x\"", None)]
        {
            let text = format!(
                r#"{{"containers":{{"a":{{"requests":{{"power.intel.com/power":{amount}}}}}}}}}"#
            );
            let (_, profile) = requests_of("a", &text).unwrap();
            assert_eq!(profile.as_deref(), expected, "{amount}");
        }
    }

    #[track_caller]
    fn check_limits(container: &str, text: &str, expected: Result<Option<(u64, u64)>, &str>) {
        let found = limits_of(container, text);
        let found = found.map(|limits| {
            let of =
                |it: BatchLimits| (it.cpu.map_or(0, |it| it.0), it.memory.map_or(0, |it| it.0));
            limits.map(of)
        });
        let found = found.map_err(|misread| misread.detail.unwrap_or_default());
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn a_container_of_a_best_effort_pod_finds_its_own_limits() {
        let text = r#"{"containers":{
            "job":{"requests":{"kubernetes.io/batch-cpu":"500"},
                "limits":{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"1Gi"}},
            "small":{"limits":{"kubernetes.io/batch-cpu":1000}},
            "free":{"requests":{"kubernetes.io/batch-cpu":"500"}},
            "odd":{"limits":{"kubernetes.io/batch-cpu":"many"}},
            "none":{"limits":{"kubernetes.io/batch-memory":"0"}}}}"#;
        check_limits("job", text, Ok(Some((1500, 1 << 30))));
        check_limits("small", text, Ok(Some((1000, 0))));
        check_limits("free", text, Ok(None));
        check_limits("other", text, Ok(None));
        check_limits("odd", text, Err("kubernetes.io/batch-cpu is `many`"));
        check_limits("none", text, Err("kubernetes.io/batch-memory is `0`"));
    }

    #[test]
    fn limits_that_are_no_such_json_are_refused() {
        check_limits("a", "{", Err("line 1, column 1"));
        check_limits("a", "{}", Err("no `containers`"));
        check_limits("a", r#"{"containers":[]}"#, Err("no `containers`"));
    }
}
