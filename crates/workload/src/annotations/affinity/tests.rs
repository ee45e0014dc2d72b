use bayplan_types::QosClass;
use expect_test::{Expect, expect};

use super::*;
use crate::annotations::read_annotations;
use crate::container::Pod;
use crate::rules::RequestRules;

/// `namespace/pod/container`, with the label `app` = pod.
fn container(full: &str) -> NewContainer {
    let [namespace, pod, name] = full.split('/').collect::<Vec<_>>()[..] else { panic!("{full}") };
    NewContainer {
        pod: Pod {
            id: format!("sandbox-{pod}"),
            uid: format!("uid-{pod}"),
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
            qos: Some(QosClass::Burstable),
            labels: [("app".to_owned(), pod.to_owned())].into(),
            ..Pod::default()
        },
        name: name.to_owned(),
        ..NewContainer::default()
    }
}

/// All containers that `ns/a/c` cares about, with the weight; or why its expressions are not understood.
fn check(affinity: &str, anti: &str, expected: Expect) {
    let others = ["ns/a/d", "ns/a/e", "ns/b/c", "ns/b/d", "far/f/c"];
    let mut newcomer = container("ns/a/c");
    for (name, value) in [("bayplan.dev/affinity", affinity), ("bayplan.dev/anti-affinity", anti)] {
        if !value.is_empty() {
            newcomer.pod.annotations.insert(name.to_owned(), value.to_owned());
        }
    }
    let (asked, warnings) = read_annotations(&newcomer, &RequestRules::default());
    let placed: Vec<NewContainer> = others.iter().map(|full| container(full)).collect();
    let placed = placed.iter().enumerate().map(|(index, it)| (ContainerId(index as u64), it));
    let weights = affinities(&asked.affinity, &newcomer, placed);
    let mut shown: Vec<String> = weights
        .into_iter()
        .map(|(id, weight)| format!("{} {weight}", others[usize::try_from(id.0).unwrap()]))
        .collect();
    let details = warnings.iter().filter_map(|it| it.text.split_once("` (")?.1.rsplit_once("), "));
    shown.extend(details.map(|(detail, _)| detail.to_owned()));
    expected.assert_eq(&shown.join("; "));
}

#[test]
fn short_forms_are_symmetric_and_stay_in_the_pod() {
    check("c: [d, e]", "", expect!["ns/a/d 1; ns/a/e 1"]);
    check("d: [c]", "", expect!["ns/a/d 1"]);
    check("d: [e]", "", expect![""]);
    check("", "c: [d]", expect!["ns/a/d -1"]);
    check("c: [d]", "c: [d, e]", expect!["ns/a/e -1"]);
}

#[test]
fn expressions_select_by_scope_and_match() {
    check(
        "c:\n- match: {key: name, operator: Exists}\n  weight: 5",
        "",
        expect!["ns/a/d 5; ns/a/e 5"],
    );
    let full = |matches: &str| {
        format!(
            "c:\n- scope: {{key: namespace, operator: In, values: [ns]}}\n  match: {matches}\n  weight: 7"
        )
    };
    check(
        &full("{key: pod/labels/app, operator: Equals, values: [b]}"),
        "",
        expect!["ns/b/c 7; ns/b/d 7"],
    );
    check(
        &full("{key: labels/app, operator: NotEqual, values: [b]}"),
        "",
        expect!["ns/a/d 7; ns/a/e 7"],
    );
    check(&full("{key: labels/none, operator: Exists}"), "", expect![""]);
    check(
        &full("{key: labels/none, operator: NotExist}"),
        "",
        expect!["ns/a/d 7; ns/a/e 7; ns/b/c 7; ns/b/d 7"],
    );
    check(&full("{key: name, operator: NotIn, values: [c, d]}"), "", expect!["ns/a/e 7"]);
    check(
        &full("{key: pod/name, operator: Matches, values: ['?']}"),
        "",
        expect!["ns/a/d 7; ns/a/e 7; ns/b/c 7; ns/b/d 7"],
    );
    check(
        &full("{key: pod/uid, operator: MatchesNone, values: ['*-a', x]}"),
        "",
        expect!["ns/b/c 7; ns/b/d 7"],
    );
    check(&full("{key: qosclass, operator: MatchesAny, values: [Best*]}"), "", expect![""]);
    check(
        &full("{key: ':pod/name:name', operator: Equals, values: ['b:c']}"),
        "",
        expect!["ns/b/c 7"],
    );
    check(
        &full("{key: ':,-pod/name,name', operator: Equals, values: [b-d]}"),
        "",
        expect!["ns/b/d 7"],
    );
    let anywhere = "c:\n- scope: {operator: AlwaysTrue}\n  match: {key: name, operator: In, values: ['*']}\n  weight: -3";
    check("", anywhere, expect!["ns/a/d 3; ns/a/e 3; ns/b/c 3; ns/b/d 3; far/f/c 3"]);
}

#[test]
fn weights_add_up_and_are_cut() {
    let one = "- match: {operator: AlwaysTrue}\n  weight: 900\n";
    check(&format!("c:\n{one}{one}"), "", expect!["ns/a/d 1000; ns/a/e 1000"]);
    check(&format!("c:\n{one}"), "c: [d]", expect!["ns/a/d 899; ns/a/e 900"]);
    check(
        "",
        "c:\n- match: {operator: AlwaysTrue}\n  weight: 99999999999",
        expect!["ns/a/d -1000; ns/a/e -1000"],
    );
}

#[test]
fn what_is_no_expression_is_said() {
    check("c: d", "", expect!["`c` is not a list"]);
    check("c: [[d]]", "", expect!["an expression is neither a name nor a mapping"]);
    check("c: [{weight: 1}]", "", expect!["`match` is missing"]);
    check(
        "c: [{match: {key: name, operator: Like, values: [x]}}]",
        "",
        expect![
            "operator `Like` is none of Equals, NotEqual, In, NotIn, Exists, NotExist, AlwaysTrue, Matches, MatchesNot, MatchesAny, MatchesNone"
        ],
    );
    check(
        "c: [{match: {key: name, operator: Equals, values: [x, y]}}]",
        "",
        expect!["Equals needs one value, not 2"],
    );
    check("c: [{match: {key: tags/x, operator: Exists}}]", "", expect!["key `tags/x` is unknown"]);
    check(
        "c: [{match: {operator: AlwaysTrue}, weigth: 1}]",
        "",
        expect!["`weigth` is unknown; known are scope, match, weight"],
    );
    check(
        "c: [{match: {operator: AlwaysTrue}, weight: heavy}]",
        "",
        expect!["`weight` is not a whole number"],
    );
    check(
        "d: [{match: {operator: Perhaps}}]",
        "",
        expect![
            "operator `Perhaps` is none of Equals, NotEqual, In, NotIn, Exists, NotExist, AlwaysTrue, Matches, MatchesNot, MatchesAny, MatchesNone"
        ],
    );
    check(&format!("c: [{}]", "d, ".repeat(65)), "", expect!["more than 64 expressions"]);
    let values = "x, ".repeat(65);
    check(
        &format!("c: [{{match: {{key: name, operator: In, values: [{values}]}}}}]"),
        "",
        expect!["more than 64 values"],
    );
    let keys = ":name".repeat(9);
    check(
        &format!("c: [{{match: {{key: '{keys}', operator: Exists}}}}]"),
        "",
        expect!["key `:name:name:name:name:name:name:name:name...` is unknown"],
    );
}
