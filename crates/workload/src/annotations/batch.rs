//! Koordinator's batch resources. In: a BestEffort pod and one of its containers. Out: what the container may use at most.
//!
//! Koordinator's webhook replaces requests and limits of cpu and memory of a BestEffort pod by `kubernetes.io/batch-cpu`, in thousandths of a CPU, and `kubernetes.io/batch-memory`, in bytes. Kubelet does not know
//! these, so its cgroup settings have no limits; they are in the annotation, as
//! `{"containers":{NAME:{"requests":{...},"limits":{"kubernetes.io/batch-cpu":"1000",...}}}}`, and enforced by others (Koordinator, `apis/extension/resource.go`).

use bayplan_types::{Bytes, MilliCpu, QosClass};
use serde_json::{Map, Value};

use super::tuning::BatchLimits;
use super::values::{Misread, shown};
use super::webhook::parse_quantity;
use super::yaml::string;
use super::{Asked, Warnings, annotation, check_length};
use crate::request::NewContainer;

/// The annotation.
pub(super) const NAME: &str = "node.koordinator.sh/extended-resource-spec";

const CPU: &str = "kubernetes.io/batch-cpu";
const MEMORY: &str = "kubernetes.io/batch-memory";

/// Fills the limits of a container of a BestEffort pod; others have those that kubelet gives them.
pub(super) fn read(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let Some(text) = container.pod.annotations.get(NAME) else { return };
    if container.pod.qos != Some(QosClass::BestEffort) {
        return;
    }
    match limits_of(&container.name, text) {
        Ok(limits) => asked.tuning.batch = limits,
        Err(misread) => {
            warnings.misread(&annotation(NAME), text, "limits by container as JSON", &misread);
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
    let limits =
        BatchLimits { cpu: amount(CPU)?.map(MilliCpu), memory: amount(MEMORY)?.map(Bytes) };
    Ok((limits != BatchLimits::default()).then_some(limits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(container: &str, text: &str, expected: Result<Option<(u64, u64)>, &str>) {
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
    fn a_container_finds_its_own_limits() {
        let text = r#"{"containers":{
            "job":{"requests":{"kubernetes.io/batch-cpu":"500"},
                "limits":{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"1Gi"}},
            "small":{"limits":{"kubernetes.io/batch-cpu":1000}},
            "free":{"requests":{"kubernetes.io/batch-cpu":"500"}},
            "odd":{"limits":{"kubernetes.io/batch-cpu":"many"}},
            "none":{"limits":{"kubernetes.io/batch-memory":"0"}}}}"#;
        check("job", text, Ok(Some((1500, 1 << 30))));
        check("small", text, Ok(Some((1000, 0))));
        check("free", text, Ok(None));
        check("other", text, Ok(None));
        check("odd", text, Err("kubernetes.io/batch-cpu is `many`"));
        check("none", text, Err("kubernetes.io/batch-memory is `0`"));
    }

    #[test]
    fn what_is_no_such_json_is_refused() {
        check("a", "{", Err("line 1, column 1"));
        check("a", "{}", Err("no `containers`"));
        check("a", r#"{"containers":[]}"#, Err("no `containers`"));
    }
}
