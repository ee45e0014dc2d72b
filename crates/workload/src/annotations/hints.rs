//! Which of its devices and mounts a container wants to be near, as nri-plugins lets it say. In: annotations. Out: [`Hints`]; and with the
//! devices of the machine, the wishes that follow from them.

use bayplan_allocator::{Near, Strictness};
use bayplan_topology::{Device, PciAddress, find_device};
use bayplan_types::{CpuSet, NodeId};
use serde_json::Value;

use super::values::{FLAG, Misread, matches_glob, word};
use super::yaml::{parse_yaml, refuse_unknown, strings};
use crate::container::NewContainer;
use crate::facts::AssignedDevices;

/// Where GPUs are (Documentation/gpu/drm-uapi.rst).
pub(super) const GPUS: &str = "/dev/dri/";

/// Where a hint comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintSource {
    /// A mount's source.
    Mount,
    /// A device of the container.
    Device,
    /// Kubelet's pod-resources API.
    PodResources,
}

impl HintSource {
    const NAMES: [(&'static str, HintSource); 3] = [
        ("mounts", HintSource::Mount),
        ("devices", HintSource::Device),
        ("pod-resources", HintSource::PodResources),
    ];
}

/// What counts. The default is everything, as a preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    sources: Vec<HintSource>,
    pub(super) is_strict: bool,
    /// Paths of devices that a scheduler has chosen, and that may come later than the container is placed.
    pub(super) cards: Vec<String>,
    /// GPUs are required, whatever holds for others.
    pub(super) are_gpus_strict: bool,
    pub(super) allowed: Option<Paths>,
    pub(super) denied: Option<Paths>,
}

impl Default for Hints {
    fn default() -> Hints {
        let sources = HintSource::NAMES.map(|(_, source)| source).to_vec();
        Hints {
            sources,
            is_strict: false,
            cards: Vec::new(),
            are_gpus_strict: false,
            allowed: None,
            denied: None,
        }
    }
}

impl Hints {
    /// Whether a device or mount counts, and how much; what is allowed by name counts although it is denied, too.
    pub fn strictness(&self, source: HintSource, path: &str) -> Option<Strictness> {
        let is_in = |paths: &Option<Paths>| paths.as_ref().is_some_and(|it| it.has(path));
        let counts = is_in(&self.allowed) || !is_in(&self.denied);
        let is_strict_gpu = self.are_gpus_strict && path.starts_with(GPUS);
        let strictness = match self.is_strict || is_strict_gpu {
            true => Strictness::Required,
            false => Strictness::Preferred,
        };
        (counts && self.sources.contains(&source)).then_some(strictness)
    }
}

/// What a container wants to be near: each device once, under the first of its names that counts. Names that stand for no place in the
/// machine, as `/dev/null` does, are left out.
///
/// Devices that kubelet has given to it count under what their plugin calls them, where that is a device of the machine, such as a PCI address; else under the name
/// of their resource, at the NUMA nodes that the plugin tells, with the CPUs of `node_cpus`.
pub fn nears(
    hints: &Hints,
    container: &NewContainer,
    machine: &[Device],
    node_cpus: &[(NodeId, CpuSet)],
) -> Vec<Near> {
    let own = container.devices.iter().map(|name| (HintSource::Device, name, name));
    let chosen = hints.cards.iter().map(|name| (HintSource::Device, name, name));
    let mounted = container.mounts.iter().map(|name| (HintSource::Mount, name, name));
    let on_disks = container
        .volumes
        .iter()
        .flat_map(|(name, disks)| disks.iter().map(move |disk| (HintSource::Mount, name, disk)));
    let given = container.assigned.iter().flat_map(|it| &it.ids);
    let given = given.map(|id| (HintSource::PodResources, id, id));
    let mut seen: Vec<PciAddress> = Vec::new();
    let mut nears = Vec::new();
    for (source, name, device_name) in own.chain(chosen).chain(mounted).chain(on_disks).chain(given)
    {
        let Some(device) = find_device(machine, device_name) else { continue };
        let Some(strictness) = hints.strictness(source, name) else { continue };
        // A disk that was looked up is never a condition: one volume may lie on several, and a look may come to nothing.
        let strictness = if name == device_name { strictness } else { Strictness::Preferred };
        if seen.contains(&device.address) {
            continue;
        }
        seen.push(device.address);
        nears.push(Near {
            name: name.clone(),
            cpus: device.cpus.clone(),
            nodes: device.node.into_iter().collect(),
            strictness,
        });
    }
    let assigned = container.assigned.iter();
    nears.extend(assigned.filter_map(|it| near_by_node(hints, it, machine, node_cpus)));
    nears
}

/// Where the plugin says that these devices are; `None` where they are devices of the machine, which tells more.
fn near_by_node(
    hints: &Hints,
    assigned: &AssignedDevices,
    machine: &[Device],
    node_cpus: &[(NodeId, CpuSet)],
) -> Option<Near> {
    let is_known = assigned.ids.iter().any(|id| find_device(machine, id).is_some());
    if is_known || assigned.nodes.is_empty() {
        return None;
    }
    let strictness = hints.strictness(HintSource::PodResources, &assigned.resource)?;
    let mut cpus = CpuSet::new();
    for (_, near) in node_cpus.iter().filter(|(node, _)| assigned.nodes.contains(*node)) {
        cpus.union_with(near);
    }
    let (name, nodes) = (assigned.resource.clone(), assigned.nodes.clone());
    (!cpus.is_empty()).then(|| Near { name, cpus, nodes, strictness })
}

/// Paths by their beginnings or by patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paths {
    is_glob: bool,
    paths: Vec<String>,
}

impl Paths {
    fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|it| match self.is_glob {
            true => matches_glob(it, path),
            false => path.starts_with(it.as_str()),
        })
    }
}

/// `true`, `false`, or the sources that count.
pub(super) fn parse_kinds(hints: &mut Hints, value: &str) -> Result<(), Misread> {
    let all = HintSource::NAMES.map(|(_, source)| source);
    let mut sources = Vec::new();
    for part in value.split(',').map(str::trim) {
        match (part, word(part, FLAG)) {
            ("all", _) | (_, Ok(true)) => sources.extend(all),
            ("none", _) | (_, Ok(false)) => sources.clear(),
            _ => sources.push(word(part, &HintSource::NAMES)?),
        }
    }
    hints.sources = all.into_iter().filter(|source| sources.contains(source)).collect();
    Ok(())
}

/// `{type: prefix, paths: [/dev/nvme]}`.
pub(super) fn parse_paths(value: &str) -> Result<Paths, Misread> {
    let yaml = parse_yaml(value)?;
    let Value::Object(fields) = &yaml else { return Err(Misread::because("not a mapping")) };
    refuse_unknown(fields, &["type", "paths"])?;
    let is_glob = match fields.get("type").map(|it| it.as_str()) {
        None | Some(Some("prefix")) => false,
        Some(Some("glob")) => true,
        Some(_) => return Err(Misread::because("`type` is neither prefix nor glob")),
    };
    let paths = fields.get("paths").ok_or_else(|| Misread::because("`paths` is missing"))?;
    Ok(Paths { is_glob, paths: strings("paths", paths)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kinds: &str, allow: &str, deny: &str, expected: &str) {
        let mut hints = Hints::default();
        let shown = (|| {
            parse_kinds(&mut hints, kinds)?;
            hints.allowed = Some(parse_paths(allow)?);
            hints.denied = Some(parse_paths(deny)?);
            let counts = HintSource::NAMES.into_iter().flat_map(|(name, source)| {
                let paths = ["/dev/sda", "/dev/sdb"].into_iter();
                paths.map(move |path| (name, source, path))
            });
            let counts =
                counts.filter(|(_, source, path)| hints.strictness(*source, path).is_some());
            Ok(counts.map(|(name, _, path)| format!("{name}:{path}")).collect::<Vec<_>>().join(" "))
        })();
        let shown = shown.unwrap_or_else(|misread: Misread| format!("{:?}", misread.detail));
        assert_eq!(shown, expected);
    }

    #[test]
    fn hints_can_be_turned_off_by_source_and_by_path() {
        let nothing = "paths: []";
        check("none", nothing, nothing, "");
        check("false", nothing, nothing, "");
        check("devices", nothing, nothing, "devices:/dev/sda devices:/dev/sdb");
        check("devices", nothing, "paths: [/dev/sda]", "devices:/dev/sdb");
        check(
            "devices",
            "paths: [/dev/sdb]",
            "{type: glob, paths: ['/dev/*']}",
            "devices:/dev/sdb",
        );
        check("devices,gpus", nothing, nothing, "None");
        check("all", "[a]", nothing, r#"Some("not a mapping")"#);
        check("all", "paths: {a: b}", nothing, r#"Some("`paths` is not a list of words")"#);
        check("all", "type: regex", nothing, r#"Some("`type` is neither prefix nor glob")"#);
        check("all", "path: [a]", nothing, r#"Some("`path` is unknown; known are type, paths")"#);
    }
}
