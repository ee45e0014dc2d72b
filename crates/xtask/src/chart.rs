//! `cargo xtask chart`: the chart and the plain manifests, both from `deploy/cluster/source`. In: YAML with marks, `deploy/crds`, the dashboard, and the
//! values. Out: `deploy/chart/templates`, `deploy/chart/dashboards` and the manifests in `deploy/cluster`, a file for each part that is off by default; all
//! of them are committed.
//!
//! Marks: `${namespace}`; `${NAME}` for a value, `${NAME|int}` for a number that may be large; `${file:PATH}` for a file of the chart; lines between `#? NAME` and `#.` are there if that value is true, after `#? not NAME` if it is
//! false, after `#? plain` in the plain manifests only, after `#? not plain` in Helm's templates only. Lines between them may have such lines, too. So what is applied by `kubectl` and what Helm installs cannot differ but by values.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::{make_empty, workspace};

pub(crate) const HELP: &str = "\
cargo xtask chart        make the templates of deploy/chart and the plain manifests from deploy/cluster/source
";

/// The namespace of the plain manifests; Helm is told one.
const NAMESPACE: &str = "bayplan-system";
/// In the order in which they are applied.
const SOURCES: [&str; 5] = ["namespace", "rights", "own-node", "agent", "dashboard"];
/// What is in no other file of the plain manifests, each with the value that turns it on in the chart; a file of its own for `kubectl`.
const OPTIONS: [(&str, &str); 12] = [
    ("accept-nri-plugins", "accept.nriPlugins"),
    ("accept-cri-resmgr", "accept.criResmgr"),
    ("daemon", "daemon.enabled"),
    ("pods", "pods.enabled"),
    ("publishing", "publish.nodeTopology"),
    ("requests-policy", "requestsPolicy.enabled"),
    ("colocation-policy", "colocationPolicy.enabled"),
    ("webhook", "webhook.enabled"),
    ("metrics", "metrics.enabled"),
    ("map", "metrics.map.enabled"),
    ("pod-monitor", "metrics.podMonitor.enabled"),
    ("withdraw", "withdraw.enabled"),
];

pub(crate) fn run() -> anyhow::Result<()> {
    make_empty(&workspace().join("deploy/chart/templates"))?;
    make_empty(&workspace().join("deploy/chart/dashboards"))?;
    for (path, text) in render()? {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Every file that is made, with its text.
fn render() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let deploy = workspace().join("deploy");
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let values = parse_values(&read(&deploy.join("chart/values.yaml"))?)?;
    let crds = read(&deploy.join("crds/bayplan.yaml"))?;
    let mut plain = crds.clone();
    let mut files = BTreeMap::from([
        (deploy.join("chart/templates/crds.yaml"), kept_crds(&crds)),
        (deploy.join("chart/dashboards/bayplan.json"), read(&deploy.join("grafana/bayplan.json"))?),
    ]);
    for name in SOURCES {
        let source = read(&deploy.join(format!("cluster/source/{name}.yaml")))?;
        let told = format!("deploy/cluster/source/{name}.yaml");
        let shown = plainly(&source, &values).context(told.clone())?;
        if !shown.trim().is_empty() {
            plain.push_str(&format!("---\n{shown}"));
        }
        let template = template(&source).context(told)?;
        if !template.trim().is_empty() {
            files.insert(deploy.join(format!("chart/templates/{name}.yaml")), template);
        }
    }
    for (name, value) in OPTIONS {
        let source = read(&deploy.join(format!("cluster/source/{name}.yaml")))?;
        let mut values = values.clone();
        values.insert(value.to_owned(), "true".to_owned());
        files.insert(deploy.join(format!("cluster/{name}.yaml")), plainly(&source, &values)?);
        files.insert(deploy.join(format!("chart/templates/{name}.yaml")), template(&source)?);
    }
    files.insert(deploy.join("cluster/bayplan.yaml"), plain);
    Ok(files)
}

/// Custom resources stay when the chart is removed, with all objects; and as templates, unlike those in `crds/`, they are upgraded.
fn kept_crds(crds: &str) -> String {
    crds.replace(
        "\nmetadata:\n",
        "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n",
    )
}

/// Values by their names, `events.enabled` for those in a section. The file has sections, each indented by two spaces more, and plain scalars.
fn parse_values(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let (mut values, mut sections) = (BTreeMap::new(), Vec::new());
    let lines = text.lines().filter(|it| !it.trim().is_empty() && !it.trim().starts_with('#'));
    for line in lines {
        let (key, value) =
            line.split_once(':').with_context(|| format!("values.yaml: no key in `{line}`"))?;
        let name = key.trim_start();
        sections.truncate((key.len() - name.len()) / 2);
        sections.push(name);
        match value.trim() {
            "" => {}
            value => drop(values.insert(sections.join("."), value.to_owned())),
        }
    }
    Ok(values)
}

/// For `kubectl apply`.
fn plainly(source: &str, values: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let value = |name: &str| match name {
        "namespace" => Ok(NAMESPACE.to_owned()),
        "plain" => Ok("true".to_owned()),
        _ => {
            let name = name.split('|').next().unwrap_or(name);
            values.get(name).cloned().with_context(|| format!("values.yaml has no `{name}`"))
        }
    };
    let (mut text, mut are_on) = (String::new(), Vec::new());
    for line in source.lines() {
        match line.strip_prefix("#? ") {
            Some(name) => {
                let (name, wanted) = condition(name);
                are_on.push(value(name)? == wanted);
            }
            None if line == "#." => drop(are_on.pop()),
            None if are_on.iter().all(|it| *it) => {
                text.push_str(&format!("{}\n", fill(line, value)?));
            }
            None => {}
        }
    }
    Ok(text)
}

/// The name of a value, and what it must be.
fn condition(mark: &str) -> (&str, &'static str) {
    match mark.strip_prefix("not ") {
        Some(name) => (name, "false"),
        None => (mark, "true"),
    }
}

/// For Helm.
fn template(source: &str) -> anyhow::Result<String> {
    let value = |name: &str| match name.strip_prefix("file:") {
        Some(path) => Ok(format!("{{{{ .Files.Get \"{path}\" | indent 4 }}}}")),
        None if name == "namespace" => Ok("{{ .Release.Namespace }}".to_owned()),
        None => Ok(format!("{{{{ .Values.{} }}}}", name.replace('|', " | "))),
    };
    let (mut text, mut open) = (String::new(), Vec::new());
    for line in source.lines() {
        let is_left_out = open.contains(&Open::Plain);
        match line.strip_prefix("#? ") {
            Some("plain") => open.push(Open::Plain),
            Some("not plain") => open.push(Open::Chart),
            Some(name) => {
                open.push(Open::Value);
                let (name, wanted) = condition(name);
                let not = if wanted == "true" { "" } else { "not " };
                if !is_left_out {
                    text.push_str(&format!("{{{{- if {not}.Values.{name} }}}}\n"));
                }
            }
            None if line == "#." => {
                if open.pop() == Some(Open::Value) && !is_left_out {
                    text.push_str("{{- end }}\n");
                }
            }
            None if is_left_out => {}
            None => text.push_str(&format!("{}\n", fill(line, value)?)),
        }
    }
    Ok(text)
}

/// What has begun with a mark and has not ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// For the plain manifests only.
    Plain,
    /// For Helm only.
    Chart,
    /// By a value.
    Value,
}

/// A line with its marks replaced.
fn fill(line: &str, value: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, mark)) = rest.split_once("${") {
        let Some((name, after)) = mark.split_once('}') else {
            bail!("`{line}`: a mark has no end")
        };
        text.push_str(before);
        text.push_str(&value(name)?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_values_in_one_and_expressions_in_the_other() {
        let source = "#? plain\nns: ${namespace}\n#.\na: ${b|int}-${c.d}\n#? c.d\ne: 1\n#? not f\ni: 2\n#.\n#.\n#? f\ng: ${h}\n#.\n";
        let values = parse_values(
            "# of b\nb: x\n\nc:\n  # of d\n  d: true\n  g:\n    h: y\n  k: z\nf: false\n",
        )
        .unwrap();
        assert_eq!(values.get("c.g.h").map(String::as_str), Some("y"));
        assert_eq!(values.get("c.k").map(String::as_str), Some("z"));
        assert_eq!(
            plainly(source, &values).unwrap(),
            "ns: bayplan-system\na: x-true\ne: 1\ni: 2\n"
        );
        assert_eq!(
            template(source).unwrap(),
            "a: {{ .Values.b | int }}-{{ .Values.c.d }}\n{{- if .Values.c.d }}\ne: 1\n{{- if not .Values.f }}\ni: 2\n{{- end }}\n{{- end }}\n{{- if .Values.f }}\ng: {{ .Values.h }}\n{{- end }}\n"
        );
        let nested = "#? c.d\na: 1\n#? f\nb: 2\n#.\nc: 3\n#.\n#? f\n#? c.d\nd: 4\n#.\n#.\n";
        assert_eq!(plainly(nested, &values).unwrap(), "a: 1\nc: 3\n");
        let of_helm =
            "#? not plain\na: 1\n#? c.d\nb: 2\n#.\n#.\n#? plain\nc: 3\n#? c.d\nd: 4\n#.\n#.\n";
        assert_eq!(plainly(of_helm, &values).unwrap(), "c: 3\nd: 4\n");
        assert_eq!(template(of_helm).unwrap(), "a: 1\n{{- if .Values.c.d }}\nb: 2\n{{- end }}\n");
        assert!(plainly("a: ${missing}\n", &values).is_err());
        assert!(plainly("a: ${b\n", &values).is_err());
    }

    #[test]
    fn the_committed_files_are_as_made() {
        for (path, text) in render().unwrap() {
            let committed = fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == text, "{}: run `cargo xtask chart`", path.display());
        }
    }
}
