//! Which system a document is of. In: a file. Out: its documents, each with its [`Origin`], the nodes that it is for, and the tree of its keys.
//!
//! A custom resource is known by its kind, a ConfigMap by its name or by the keys of its data, a bare file by keys that only one system has. What surrounds the
//! configuration (`apiVersion`, `metadata`, the quoting of a ConfigMap) is taken off here.

use super::input::{ImportError, Input};
use crate::cmk::Pools;
use crate::yaml::{Node, Position, Value, parse_yaml};

/// The system, and the form of its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// nri-plugins.
    TopologyAware,
    /// nri-plugins; allocates nothing.
    Template,
    /// nri-plugins.
    Balloons,
    /// A file of CRI Resource Manager, or the data of its ConfigMap.
    CriRm,
    /// Its first form: lines of `flag = value`.
    CriRmFlags,
    /// `adjustments.criresmgr.intel.com`.
    CriRmAdjustment,
    /// `KubeletConfiguration`.
    Kubelet,
    /// Koordinator's strategy of one node.
    NodeSlo,
    /// Koordinator's strategies for all nodes.
    SloController,
    /// Kubernetes Power Manager.
    Power(PowerKind),
    /// CMK's pools, with what runs in them.
    Cmk(Pools),
    /// The file `ConfFilePath` of CRI Resource Manager's static-pools.
    StaticPools,
}

/// A kind of `power.intel.com`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PowerKind {
    Config,
    Profile,
    Workload,
    CStates,
    TimeOfDay,
    Uncore,
}

/// Kinds of Kubernetes Power Manager, those that define something before those that name it.
const POWER: [(&str, PowerKind); 6] = [
    ("PowerConfig", PowerKind::Config),
    ("PowerProfile", PowerKind::Profile),
    ("PowerWorkload", PowerKind::Workload),
    ("CStates", PowerKind::CStates),
    ("Uncore", PowerKind::Uncore),
    ("TimeOfDay", PowerKind::TimeOfDay),
];

impl Origin {
    /// As it is called in the output.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Origin::TopologyAware => "TopologyAwarePolicy of nri-plugins",
            Origin::Template => "TemplatePolicy of nri-plugins",
            Origin::Balloons => "BalloonsPolicy of nri-plugins",
            Origin::CriRm | Origin::CriRmFlags => "CRI Resource Manager",
            Origin::CriRmAdjustment => "Adjustment of CRI Resource Manager",
            Origin::Kubelet => "KubeletConfiguration",
            Origin::NodeSlo => "NodeSLO of Koordinator",
            Origin::SloController => "slo-controller-config of Koordinator",
            Origin::Power(_) => "Kubernetes Power Manager",
            Origin::Cmk(_) => "CMK",
            Origin::StaticPools => "pools of CRI Resource Manager's static-pools",
        }
    }
}

/// The nodes that a document is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// It does not say.
    All,
    Node(String),
    Group(String),
    Default,
}

/// One document.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The file that it is in.
    pub(super) file: String,
    /// `None`: of no system that is known.
    pub(super) origin: Option<Origin>,
    pub(super) scope: Scope,
    /// What the names of its keys begin with: `spec` or nothing.
    pub(super) prefix: &'static str,
    /// Its keys, below the prefix.
    pub(super) root: Node,
    /// Its kind and name, for messages.
    pub(super) title: String,
}

impl Document {
    /// Resources that define classes come before those that name them, whatever the order of files.
    pub(super) fn order(&self) -> usize {
        match &self.origin {
            Some(Origin::Power(kind)) => {
                POWER.iter().position(|(_, known)| known == kind).unwrap_or_default()
            }
            _ => 0,
        }
    }

    /// Documents of one family are alternatives for different nodes.
    pub(super) fn family(&self) -> Option<&'static str> {
        let origin = self.origin.as_ref()?;
        Some(match origin {
            Origin::Power(kind) => POWER.iter().find(|(_, it)| it == kind).map_or("", |it| it.0),
            origin => origin.name(),
        })
    }
}

/// The documents of a file.
pub(super) fn split(input: &Input) -> Result<Vec<Document>, ImportError> {
    let (file, text) = match input {
        Input::Text { name, text } => (name, text),
        Input::CmkDirectory { name, entries } => {
            let pools =
                Pools::from_directory(entries.iter().map(|(p, t)| (p.as_str(), t.as_str())));
            return Ok(vec![Document::cmk(name, pools, "CMK directory")]);
        }
    };
    if let Some(root) = flags(text) {
        return Ok(vec![Document::bare(file, Origin::CriRmFlags, root)]);
    }
    let syntax = |at, message| ImportError::Syntax { file: file.clone(), at, message };
    let mut documents = Vec::new();
    for (line, text) in pieces(text) {
        let mut root = parse_yaml(&text).map_err(|(mut at, message)| {
            at.line += line;
            syntax(at, message)
        })?;
        shift(&mut root, line);
        match listed(&root) {
            Some(items) => {
                for item in items {
                    documents.push(recognise(file, item.clone()).map_err(|it| syntax(it.0, it.1))?);
                }
            }
            None if matches!(root.value, Value::Null) => {}
            None => documents.push(recognise(file, root).map_err(|it| syntax(it.0, it.1))?),
        }
    }
    Ok(documents)
}

/// Pieces between lines of `---`, each with the number of lines before it.
fn pieces(text: &str) -> Vec<(u64, String)> {
    let mut pieces = vec![(0, String::new())];
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim_end() == "---" || text.starts_with("--- ") {
            pieces.push((line, String::new()));
        } else if let Some((_, piece)) = pieces.last_mut() {
            piece.push_str(text);
            piece.push('\n');
        }
    }
    pieces
}

/// Moves all positions down, for text that began further down in a file.
fn shift(node: &mut Node, lines: u64) {
    node.at.line += lines;
    match &mut node.value {
        Value::Null | Value::Scalar(_) => {}
        Value::List(items) => items.iter_mut().for_each(|item| shift(item, lines)),
        Value::Map(entries) => {
            for (at, _, value) in entries {
                at.line += lines;
                shift(value, lines);
            }
        }
    }
}

/// The objects of a Kubernetes `List`.
fn listed(root: &Node) -> Option<&[Node]> {
    match &find(root, "items")?.value {
        Value::List(items) if scalar(root, "kind").is_some_and(|it| it.ends_with("List")) => {
            Some(items)
        }
        _ => None,
    }
}

type Broken = (Position, String);

fn recognise(file: &str, root: Node) -> Result<Document, Broken> {
    let kind = scalar(&root, "kind").unwrap_or_default().to_owned();
    let name = find(&root, "metadata").and_then(|it| scalar(it, "name")).unwrap_or_default();
    let name = name.to_owned();
    let title = format!("{kind} {name}").trim().to_owned();
    if kind == "ConfigMap" {
        let origin = config_map(&name, &root);
        let scope = scope_of(name.split_once("-config.").map_or("", |(_, rest)| rest));
        return match origin {
            Some(Origin::Cmk(_)) => match find(&root, "data").and_then(|it| find(it, "config")) {
                Some(text) => Ok(Document::cmk(file, Pools::from_tree(&quoted(text)?), &title)),
                None => Ok(Document { origin: None, ..Document::bare(file, Origin::CriRm, root) }),
            },
            origin => {
                let root = unquoted(find(&root, "data").cloned().unwrap_or(root))?;
                Ok(Document { file: file.to_owned(), origin, scope, prefix: "data", root, title })
            }
        };
    }
    let resource = |origin, scope| {
        let root = find(&root, "spec").cloned().unwrap_or(Node { at: root.at, value: Value::Null });
        Document {
            file: file.to_owned(),
            origin: Some(origin),
            scope,
            prefix: "spec",
            root,
            title: title.clone(),
        }
    };
    let power = POWER.iter().find(|(known, _)| *known == kind);
    Ok(match (kind.as_str(), power) {
        ("TopologyAwarePolicy", _) => resource(Origin::TopologyAware, scope_of(&name)),
        ("TemplatePolicy", _) => resource(Origin::Template, scope_of(&name)),
        ("BalloonsPolicy", _) => resource(Origin::Balloons, scope_of(&name)),
        ("Adjustment", _) => resource(Origin::CriRmAdjustment, Scope::All),
        ("NodeSLO", _) => resource(Origin::NodeSlo, Scope::Node(name.clone())),
        ("KubeletConfiguration", _) => Document::bare(file, Origin::Kubelet, root),
        (_, Some((_, kind @ (PowerKind::CStates | PowerKind::Uncore)))) => {
            resource(Origin::Power(*kind), Scope::Node(name.clone()))
        }
        (_, Some((_, kind))) => resource(Origin::Power(*kind), Scope::All),
        ("", None) => bare(file, root),
        _ => Document { origin: None, title, ..Document::bare(file, Origin::CriRm, root) },
    })
}

/// The system of a ConfigMap, by its name, or else by what is in it.
fn config_map(name: &str, root: &Node) -> Option<Origin> {
    const KOORDINATOR: [&str; 5] = [
        "resource-threshold-config",
        "resource-qos-config",
        "cpu-burst-config",
        "colocation-config",
        "system-config",
    ];
    let has = |key: &str| find(root, "data").is_some_and(|data| find(data, key).is_some());
    let begins = |names: &[&str]| names.iter().any(|it| name.starts_with(it));
    if begins(&["cmk-config"]) {
        return Some(Origin::Cmk(Pools::default()));
    }
    if name == "slo-controller-config" || KOORDINATOR.iter().any(|key| has(key)) {
        return Some(Origin::SloController);
    }
    let is_cri_rm =
        begins(&["cri-resmgr-config", "nri-resmgr-config", "nri-resource-policy-config"]);
    (is_cri_rm || has("policy")).then_some(Origin::CriRm)
}

/// A configuration file that is no object of Kubernetes.
fn bare(file: &str, root: Node) -> Document {
    let has = |keys: &[&str]| keys.iter().any(|key| find(&root, key).is_some());
    let has_lists = |pool: &Node| find(pool, "cpuLists").is_some();
    let is_pools = find(&root, "pools").is_some_and(|it| match &it.value {
        Value::Map(entries) => entries.iter().any(|(.., pool)| has_lists(pool)),
        _ => false,
    });
    if is_pools {
        return Document::bare(file, Origin::StaticPools, root);
    }
    if has(&[
        "cpuManagerPolicy",
        "reservedSystemCPUs",
        "topologyManagerPolicy",
        "kubeReserved",
        "systemReserved",
    ]) {
        return Document::bare(file, Origin::Kubelet, root);
    }
    if has(&["balloonTypes"]) {
        return Document::bare(file, Origin::Balloons, root);
    }
    if has(&["reservedResources", "availableResources"]) {
        return Document::bare(file, Origin::TopologyAware, root);
    }
    if has(&["policy", "rdt", "blockio", "resource-manager", "dump", "logger"]) {
        return Document::bare(file, Origin::CriRm, root);
    }
    if has(&["exclusive", "shared", "infra"]) {
        return Document::cmk(file, Pools::from_tree(&root), "CMK pools");
    }
    Document { origin: None, ..Document::bare(file, Origin::CriRm, root) }
}

impl Document {
    fn bare(file: &str, origin: Origin, root: Node) -> Document {
        let title = origin.name().to_owned();
        let file = file.to_owned();
        Document { file, origin: Some(origin), scope: Scope::All, prefix: "", root, title }
    }

    fn cmk(file: &str, pools: Pools, title: &str) -> Document {
        let root = Node { at: Position { line: 1, column: 1 }, value: Value::Null };
        Document { title: title.to_owned(), ..Document::bare(file, Origin::Cmk(pools), root) }
    }
}

/// `default`, `node.NAME` or `group.NAME`.
fn scope_of(name: &str) -> Scope {
    if let Some(node) = name.strip_prefix("node.") {
        return Scope::Node(node.to_owned());
    }
    if let Some(group) = name.strip_prefix("group.") {
        return Scope::Group(group.to_owned());
    }
    if name == "default" { Scope::Default } else { Scope::All }
}

/// The data of a ConfigMap, each value a document of its own.
fn unquoted(data: Node) -> Result<Node, Broken> {
    let Value::Map(entries) = data.value else { return Ok(data) };
    let mut parsed = Vec::new();
    for (at, key, value) in entries {
        let value = quoted(&value)?;
        parsed.push((at, key, value));
    }
    Ok(Node { at: data.at, value: Value::Map(parsed) })
}

/// The document that a string holds. Lines count as those of a block below the line of its key.
fn quoted(value: &Node) -> Result<Node, Broken> {
    let Value::Scalar(text) = &value.value else { return Ok(value.clone()) };
    let lines = if text.contains('\n') { value.at.line } else { value.at.line.saturating_sub(1) };
    let mut root = parse_yaml(text).map_err(|(mut at, message)| {
        at.line += lines;
        (at, message)
    })?;
    shift(&mut root, lines);
    Ok(root)
}

/// Lines of `flag = value` only, as CRI Resource Manager took them at first. A flag that is repeated goes on.
fn flags(text: &str) -> Option<Node> {
    let mut entries: Vec<(Position, String, Node)> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (flag, value) = text.split_once('=')?;
        let (flag, value) = (flag.trim(), value.trim());
        let is_flag = !flag.is_empty() && flag.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let at = Position { line, column: 1 };
        let node = Node { at, value: Value::Scalar(value.to_owned()) };
        is_flag.then(|| entries.push((at, flag.to_owned(), node)))?;
    }
    let at = entries.first().map(|(at, ..)| *at)?;
    Some(Node { at, value: Value::Map(entries) })
}

/// The value of a key, whatever its case: Go reads them so.
pub(super) fn find<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) => {
            entries.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(key)).map(|(.., it)| it)
        }
        _ => None,
    }
}

/// The text of a key.
pub(super) fn scalar<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    find(node, key).and_then(text_of)
}

/// The text of a scalar.
pub(super) fn text_of(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(text) => Some(text),
        _ => None,
    }
}

/// The entries of a mapping; none of anything else.
pub(super) fn entries(node: &Node) -> &[(Position, String, Node)] {
    match &node.value {
        Value::Map(entries) => entries,
        _ => &[],
    }
}

/// The items of a list; none of anything else.
pub(super) fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        _ => &[],
    }
}
