//! Profiles: labels made of features by rules, in the form of NFD's NodeFeatureRule (`nfd.k8s-sigs.io/v1alpha1`). In: YAML, and what the node can do. Out: labels,
//! or what is wrong with the rules.
//!
//! A rule holds if all of its `matchFeatures` do and, where it has `matchAny`, one of these. Later rules see labels and `vars` of earlier ones as attributes of
//! `rule.matched`. Templates, taints, annotations and extended resources of rules are NFD's alone, and refused.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use regex::Regex;
use serde::Deserialize;

use crate::feature_set::{Attributes, FeatureSet, LABELS, is_label_value, is_last_name};

/// Domain in which a rule finds what earlier ones have said.
const MATCHED: &str = "rule.matched";
/// Prefixes of labels beside [`FREE`] that the agent may write.
const OWN: [&str; 3] = ["bayplan.dev", "cmk.intel.com", "power.intel.com"];
/// Prefixes of labels below `kubernetes.io` that are free, also with names before them.
const FREE: [&str; 2] = ["feature.node.kubernetes.io", "profile.node.kubernetes.io"];

/// A document: a NodeFeatureRule, or its `spec` alone.
#[derive(Debug, Deserialize)]
struct Document {
    kind: Option<String>,
    spec: Option<Spec>,
    rules: Option<Vec<Rule>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Rule {
    name: String,
    #[serde(default)]
    labels: Attributes,
    #[serde(default)]
    vars: Attributes,
    #[serde(default)]
    match_features: Vec<FeatureMatch>,
    match_any: Option<Vec<AnyMatch>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AnyMatch {
    match_features: Vec<FeatureMatch>,
}

/// Conditions about one domain; for instances, about one and the same of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FeatureMatch {
    feature: String,
    /// By the name of an element.
    #[serde(default)]
    match_expressions: BTreeMap<String, Expression>,
    /// About names themselves: one must match.
    match_name: Option<Expression>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    op: Op,
    #[serde(default)]
    value: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Op {
    In,
    NotIn,
    InRegexp,
    Exists,
    DoesNotExist,
    Gt,
    Ge,
    Lt,
    Le,
    GtLt,
    GeLe,
    IsTrue,
    IsFalse,
}

impl Op {
    /// Whether it takes so many values.
    fn takes(self, count: usize) -> bool {
        match self {
            Op::In | Op::NotIn | Op::InRegexp => count > 0,
            Op::Exists | Op::DoesNotExist | Op::IsTrue | Op::IsFalse => count == 0,
            Op::Gt | Op::Ge | Op::Lt | Op::Le => count == 1,
            Op::GtLt | Op::GeLe => count == 2,
        }
    }
}

impl Expression {
    fn check(&self) -> anyhow::Result<()> {
        let (op, values) = (self.op, &self.value);
        ensure!(op.takes(values.len()), "{op:?} has {} values", values.len());
        if op == Op::InRegexp {
            values.iter().try_for_each(|it| Regex::new(it).map(drop))?;
        }
        if matches!(op, Op::Gt | Op::Ge | Op::Lt | Op::Le | Op::GtLt | Op::GeLe) {
            let numbers: Result<Vec<i64>, _> = values.iter().map(|it| it.parse()).collect();
            let numbers = numbers.with_context(|| format!("{op:?} wants numbers"))?;
            ensure!(numbers.is_sorted(), "{op:?} wants the smaller number first");
        }
        Ok(())
    }

    /// Whether it holds for a value; `None`: there is no such element.
    fn holds(&self, value: Option<&str>) -> bool {
        let Some(value) = value else { return self.op == Op::DoesNotExist };
        let bound =
            |position: usize| self.value.get(position).and_then(|it| it.parse::<i64>().ok());
        let number = value.parse::<i64>().ok();
        let compare = |position: usize, is_so: fn(&i64, &i64) -> bool| {
            number.zip(bound(position)).is_some_and(|(a, b)| is_so(&a, &b))
        };
        match self.op {
            Op::In => self.value.iter().any(|it| it == value),
            Op::NotIn => self.value.iter().all(|it| it != value),
            Op::InRegexp => {
                self.value.iter().any(|it| Regex::new(it).is_ok_and(|it| it.is_match(value)))
            }
            Op::Exists => true,
            Op::DoesNotExist => false,
            Op::Gt => compare(0, i64::gt),
            Op::Ge => compare(0, i64::ge),
            Op::Lt => compare(0, i64::lt),
            Op::Le => compare(0, i64::le),
            Op::GtLt => compare(0, i64::gt) && compare(1, i64::lt),
            Op::GeLe => compare(0, i64::ge) && compare(1, i64::le),
            Op::IsTrue => value == "true",
            Op::IsFalse => value == "false",
        }
    }
}

impl FeatureMatch {
    /// A domain that the node does not have matches nothing, not even DoesNotExist.
    fn holds(&self, features: &FeatureSet) -> bool {
        let flags = features.flags.get(&self.feature);
        let flags = flags.map(|it| it.iter().map(|name| (name.clone(), String::new())).collect());
        let attributes = features.attributes.get(&self.feature).cloned();
        let instances = features.instances.get(&self.feature);
        let single: Option<Attributes> = match (flags, attributes) {
            (Some(flags), Some(attributes)) => {
                Some([flags, attributes].into_iter().flatten().collect())
            }
            (flags, attributes) => flags.or(attributes),
        };
        single.is_some_and(|it| self.holds_for(&it))
            || instances.into_iter().flatten().any(|it| self.holds_for(it))
    }

    fn holds_for(&self, elements: &Attributes) -> bool {
        let value = |name: &str| elements.get(name).map(String::as_str);
        let is_named = |it: &Expression| match it.op {
            Op::DoesNotExist => elements.is_empty(),
            _ => elements.keys().any(|name| it.holds(Some(name))),
        };
        self.match_expressions.iter().all(|(name, it)| it.holds(value(name)))
            && self.match_name.as_ref().is_none_or(is_named)
    }
}

impl Rule {
    fn holds(&self, features: &FeatureSet) -> bool {
        let all = |it: &[FeatureMatch]| it.iter().all(|it| it.holds(features));
        let any = |it: &Vec<AnyMatch>| it.iter().any(|it| all(&it.match_features));
        all(&self.match_features) && self.match_any.as_ref().is_none_or(any)
    }

    fn check(&self) -> anyhow::Result<()> {
        let of_any = self.match_any.iter().flatten().flat_map(|it| &it.match_features);
        for it in self.match_features.iter().chain(of_any) {
            let expressions = it.match_expressions.iter().map(|(name, it)| (name.as_str(), it));
            for (name, expression) in
                expressions.chain(it.match_name.iter().map(|it| ("matchName", it)))
            {
                expression.check().with_context(|| format!("{} {name}", it.feature))?;
            }
        }
        for (name, value) in &self.labels {
            check_label(name, value)?;
        }
        Ok(())
    }
}

fn is_below(prefix: &str, domain: &str) -> bool {
    prefix.strip_suffix(domain).is_some_and(|it| it.is_empty() || it.ends_with('.'))
}

/// Whether it can be a label's prefix: a DNS name, or nothing.
fn is_prefix(prefix: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_part = |it: &str| {
        let ends = [it.chars().next(), it.chars().next_back()];
        ends.into_iter().all(is_end) && it.chars().all(is_inner)
    };
    prefix.is_empty() || (prefix.len() <= 253 && prefix.split('.').all(is_part))
}

/// Whether the agent may write a label of this name, its prefix included; the admission policy `bayplan-own-node` has the same list.
pub(crate) fn is_writable(name: &str) -> bool {
    let (prefix, _) = name.split_once('/').unwrap_or(("", name));
    OWN.contains(&prefix) || FREE.into_iter().any(|it| is_below(prefix, it))
}

/// Whether the API server takes it as the name of a label.
pub(crate) fn is_label_name(name: &str) -> bool {
    let (prefix, last) = name.split_once('/').unwrap_or(("", name));
    is_last_name(last) && (prefix.is_empty() != name.contains('/')) && is_prefix(prefix)
}

fn check_label(name: &str, value: &str) -> anyhow::Result<()> {
    ensure!(is_label_value(value), "`{value}` of the label {name} cannot be a label's value");
    ensure!(is_label_name(name), "`{name}` cannot be the name of a label");
    let (prefix, _) = name.split_once('/').unwrap_or(("", name));
    let is_free = FREE.into_iter().any(|it| is_below(prefix, it));
    if !is_free && ["kubernetes.io", "k8s.io"].into_iter().any(|it| is_below(prefix, it)) {
        bail!("the label {name} is Kubernetes' own; expected one below {}", FREE.join(" or "));
    }
    Ok(())
}

/// Reads the rules of a file: NodeFeatureRules, or lists of `rules`, as documents of YAML.
///
/// # Errors
/// Which rule is wrong, and how.
pub(crate) fn parse_rules(text: &str) -> anyhow::Result<Vec<Rule>> {
    let documents: Vec<Option<Document>> = serde_yaml::from_multiple(text)?;
    let mut rules = Vec::new();
    for document in documents.into_iter().flatten() {
        let kind = document.kind.as_deref().unwrap_or("NodeFeatureRule");
        ensure!(kind == "NodeFeatureRule", "a {kind}, expected a NodeFeatureRule");
        let found = document.spec.map(|it| it.rules).or(document.rules);
        rules.extend(found.context("a document without `spec.rules` or `rules`")?);
    }
    for rule in &rules {
        rule.check().with_context(|| format!("the rule {}", rule.name))?;
    }
    Ok(rules)
}

/// The labels of all rules that hold, in their order; a later rule wins.
pub(crate) fn apply_rules(rules: &[Rule], features: &FeatureSet) -> Attributes {
    let (mut features, mut labels) = (features.clone(), Attributes::new());
    features.attributes.insert(MATCHED.to_owned(), Attributes::new());
    for rule in rules {
        if !rule.holds(&features) {
            continue;
        }
        let matched = features.attributes.entry(MATCHED.to_owned()).or_default();
        matched.extend(rule.labels.clone());
        matched.extend(rule.vars.clone());
        labels.extend(rule.labels.iter().map(|(name, value)| {
            let name = if name.contains('/') { name.clone() } else { format!("{LABELS}{name}") };
            (name, value.clone())
        }));
    }
    labels
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn features() -> FeatureSet {
        serde_json::from_str(
            r#"{"flags": {"cpu.cpuid": ["AVX512BW", "FMA3"]},
                "attributes": {"cpu.pstate": {"turbo": "true", "status": "active"}, "local.feature": {"bayplan.dev/l3-groups": "4"}, "cpu.sst": {}},
                "instances": {"pci.device": [{"class": "0200", "vendor": "8086"}, {"class": "0300", "vendor": "10de"}]}}"#,
        )
        .unwrap()
    }

    /// Whether a rule with these matches holds.
    fn check(matches: &str, expected: bool) {
        let text = format!("rules: [{{name: r, labels: {{a: b}}, {matches}}}]");
        let rules = parse_rules(&text).unwrap_or_else(|error| panic!("{matches}: {error:#}"));
        assert_eq!(!apply_rules(&rules, &features()).is_empty(), expected, "{matches}");
    }

    #[test]
    fn every_op_holds_where_it_should() {
        for (domain, name, op, values, expected) in [
            ("cpu.cpuid", "FMA3", "Exists", "", true),
            ("cpu.cpuid", "AMX", "Exists", "", false),
            ("cpu.cpuid", "AMX", "DoesNotExist", "", true),
            ("cpu.cpuid", "FMA3", "DoesNotExist", "", false),
            ("cpu.unknown", "AMX", "DoesNotExist", "", false),
            ("cpu.sst", "bf.enabled", "DoesNotExist", "", true),
            ("cpu.pstate", "status", "In", "[passive, active]", true),
            ("cpu.pstate", "status", "In", "[passive]", false),
            ("cpu.pstate", "status", "NotIn", "[passive]", true),
            ("cpu.pstate", "missing", "NotIn", "[passive]", false),
            ("cpu.pstate", "status", "InRegexp", "['^act']", true),
            ("cpu.pstate", "status", "InRegexp", "['^pas']", false),
            ("cpu.pstate", "turbo", "IsTrue", "", true),
            ("cpu.pstate", "turbo", "IsFalse", "", false),
            ("cpu.pstate", "status", "Gt", "['1']", false),
            ("local.feature", "bayplan.dev/l3-groups", "Gt", "['3']", true),
            ("local.feature", "bayplan.dev/l3-groups", "Gt", "['4']", false),
            ("local.feature", "bayplan.dev/l3-groups", "Ge", "['4']", true),
            ("local.feature", "bayplan.dev/l3-groups", "Lt", "['5']", true),
            ("local.feature", "bayplan.dev/l3-groups", "Le", "['3']", false),
            ("local.feature", "bayplan.dev/l3-groups", "GtLt", "['3', '5']", true),
            ("local.feature", "bayplan.dev/l3-groups", "GtLt", "['4', '5']", false),
            ("local.feature", "bayplan.dev/l3-groups", "GeLe", "['4', '4']", true),
        ] {
            let value =
                if values.is_empty() { String::new() } else { format!(", value: {values}") };
            check(
                &format!(
                    "matchFeatures: [{{feature: {domain}, matchExpressions: {{{name}: {{op: {op}{value}}}}}}}]"
                ),
                expected,
            );
        }
    }

    #[test]
    fn matches_combine() {
        let one = |domain: &str, expressions: &str| {
            format!("{{feature: {domain}, matchExpressions: {{{expressions}}}}}")
        };
        let fma = one("cpu.cpuid", "FMA3: {op: Exists}");
        let amx = one("cpu.cpuid", "AMX: {op: Exists}");
        check(&format!("matchFeatures: [{fma}]"), true);
        check(&format!("matchFeatures: [{fma}, {amx}]"), false);
        check(&format!("matchAny: [{{matchFeatures: [{amx}]}}, {{matchFeatures: [{fma}]}}]"), true);
        check(&format!("matchFeatures: [{amx}], matchAny: [{{matchFeatures: [{fma}]}}]"), false);
        // One and the same device.
        let device = |class: &str, vendor: &str| {
            one(
                "pci.device",
                &format!(
                    "class: {{op: In, value: ['{class}']}}, vendor: {{op: In, value: ['{vendor}']}}"
                ),
            )
        };
        check(&format!("matchFeatures: [{}]", device("0300", "10de")), true);
        check(&format!("matchFeatures: [{}]", device("0300", "8086")), false);
        check(
            "matchFeatures: [{feature: cpu.cpuid, matchName: {op: InRegexp, value: ['^AVX512']}}]",
            true,
        );
        check("matchFeatures: [{feature: cpu.cpuid, matchName: {op: In, value: [AMX]}}]", false);
    }

    fn check_text(text: &str, expected: Expect) {
        let told = match parse_rules(text) {
            Ok(rules) => format!("{:?}", apply_rules(&rules, &features())),
            Err(error) => format!("{error:#}"),
        };
        expected.assert_eq(&told);
    }

    #[test]
    fn a_profile_is_one_label_of_many_features() {
        check_text(
            r"
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: bayplan-latency-critical}
spec:
  rules:
  - name: base
    vars: {wide: '1'}
    labels: {vectors: 'true'}
    matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX512BW: {op: Exists}, FMA3: {op: Exists}}}]
  - name: latency-critical
    labels: {profile.node.kubernetes.io/latency-critical: 'true'}
    matchFeatures:
    - {feature: cpu.pstate, matchExpressions: {turbo: {op: IsTrue}}}
    - {feature: rule.matched, matchExpressions: {vectors: {op: IsTrue}, wide: {op: In, value: ['1']}}}
---
rules: [{name: other, labels: {x: y}, matchFeatures: [{feature: rule.matched, matchExpressions: {nothing: {op: Exists}}}]}]
",
            expect![[
                r#"{"feature.node.kubernetes.io/vectors": "true", "profile.node.kubernetes.io/latency-critical": "true"}"#
            ]],
        );
    }

    #[test]
    fn mistakes_name_the_rule() {
        let rule = |more: &str| format!("rules: [{{name: r, {more}}}]");
        let expression = |text: &str| {
            rule(&format!("matchFeatures: [{{feature: a.b, matchExpressions: {{c: {text}}}}}]"))
        };
        check_text(
            &expression("{op: Gt, value: ['x']}"),
            expect!["the rule r: a.b c: Gt wants numbers: invalid digit found in string"],
        );
        check_text(&expression("{op: Gt}"), expect!["the rule r: a.b c: Gt has 0 values"]);
        check_text(
            &expression("{op: GtLt, value: ['5', '1']}"),
            expect!["the rule r: a.b c: GtLt wants the smaller number first"],
        );
        check_text(
            &expression("{op: InRegexp, value: ['(']}"),
            expect![[r#"
            the rule r: a.b c: regex parse error:
                (
                ^
            error: unclosed group"#]],
        );
        check_text(
            &rule("labels: {kubernetes.io/os: x}"),
            expect![
                "the rule r: the label kubernetes.io/os is Kubernetes' own; expected one below feature.node.kubernetes.io or profile.node.kubernetes.io"
            ],
        );
        check_text(
            &rule("labels: {Example_com/a: x}"),
            expect!["the rule r: `Example_com/a` cannot be the name of a label"],
        );
        check_text(
            &rule("labels: {/a: x}"),
            expect!["the rule r: `/a` cannot be the name of a label"],
        );
        check_text(
            &rule("labels: {a: 'not a value'}"),
            expect!["the rule r: `not a value` of the label a cannot be a label's value"],
        );
        check_text("kind: Pod", expect!["a Pod, expected a NodeFeatureRule"]);
        assert!(parse_rules(&rule("labelsTemplate: x")).is_err());
        assert!(parse_rules(&rule("matchAll: []")).is_err());
        assert!(parse_rules(&expression("{op: Equals}")).is_err());
    }

    #[test]
    fn labels_that_the_policy_refuses_are_known() {
        let source = include_str!("../../../deploy/cluster/source/own-node.yaml");
        let (_, after) = source.split_once("name: ownKey").unwrap();
        let policy = Regex::new(after.split('\'').nth(1).unwrap()).unwrap();
        for (name, expected) in [
            ("bayplan.dev/a", true),
            ("power.intel.com/a", true),
            ("feature.node.kubernetes.io/a", true),
            ("x.profile.node.kubernetes.io/a", true),
            ("xfeature.node.kubernetes.io/a", false),
            ("x.bayplan.dev/a", false),
            ("example.com/a", false),
            ("a", false),
        ] {
            assert_eq!(is_writable(name), expected, "{name}");
            assert_eq!(policy.is_match(name), expected, "{name} by the policy");
        }
    }
}
