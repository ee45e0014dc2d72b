//! Containers on CPUs that were chosen for their pods and that no rule allows any more.

use super::*;

/// Issue 34: a restart without the rule left the container alone, and gave its CPUs to others beside it.
#[test]
fn issue_34_a_container_keeps_cpus_that_no_rule_allows_any_more_and_no_other_gets_them() {
    check(
        TWO_NODES,
        "0",
        &[
            "k/a 1000 @4-5",
            "forbid",
            "s/a ~4000",
            "l/a 1000 @6-7",
            "restart",
            "k/a=2000",
            "allow",
            "forbid",
            "-k/a",
            "k/a 1000 @4-5",
        ],
        expect![[r#"
            k/a 1000 @4-5: k/a 4-5 mem 1
            forbid: k/a 4-5 mem 1
              not_allowed: default/k/a: CPUs 4-5, which were chosen for its pod, are not allowed in namespace `default` any more (`permissions` in the configuration); it keeps them until it ends
            s/a ~4000: k/a 4-5 mem 1, s/a 1-3,6-7 mem 0-1
            l/a 1000 @6-7: k/a 4-5 mem 1, l/a 6 mem 1, s/a 1-3,7 mem 0-1
              not_allowed: default/l/a: annotation `scheduling.koordinator.sh/resource-status` is not allowed in namespace `default` (`permissions` in the configuration); ignored
            restart: k/a 4-5 mem 1, l/a 6 mem 1, s/a 1-3,7 mem 0-1
              not_allowed: default/k/a: CPUs 4-5, which were chosen for its pod, are not allowed in namespace `default` any more (`permissions` in the configuration); it keeps them until it ends
            k/a=2000: k/a 4-5 mem 1, l/a 6 mem 1, s/a 1-3,7 mem 0-1
            allow: k/a 4-5 mem 1, l/a 6 mem 1, s/a 1-3,7 mem 0-1
            forbid: k/a 4-5 mem 1, l/a 6 mem 1, s/a 1-3,7 mem 0-1
              not_allowed: default/k/a: CPUs 4-5, which were chosen for its pod, are not allowed in namespace `default` any more (`permissions` in the configuration); it keeps them until it ends
            -k/a: l/a 6 mem 1, s/a 1-5,7 mem 0-1
            k/a 1000 @4-5: k/a 1 mem 0, l/a 6 mem 1, s/a 2-5,7 mem 0-1
              not_allowed: default/k/a: annotation `scheduling.koordinator.sh/resource-status` is not allowed in namespace `default` (`permissions` in the configuration); ignored
        "#]],
    );
}

/// A daemon of an earlier version had shared the CPUs, and one of them has gone to another container since.
#[test]
fn issue_34_a_container_leaves_chosen_cpus_that_no_rule_allows_where_another_has_one_of_them() {
    let mut before = state(TWO_NODES);
    make(&mut before, 0, asks(&["k/a", "1000", "@2-3"]));
    make(&mut before, 1, asks(&["o/a", "1000"]));
    let lines: Vec<String> = before
        .snapshot_records()
        .iter()
        .map(|record| {
            let mut record = serde_json::to_value(record).unwrap();
            if record["container"]["pod"] == "o" {
                record["allocation"]["exclusive"] = "3".into();
            }
            record.to_string()
        })
        .collect();
    for (rules, expected) in [
        (
            RequestRules::default(),
            expect![[r#"
                default/k/a on 1 left alone false
                default/o/a on 3 left alone false
                Failure { kind: "not_allowed", message: "default/k/a: CPUs 2-3, which were chosen for its pod, are not allowed in namespace `default` any more (`permissions` in the configuration), and others have some of them to themselves" }
                Placed { container: "default/k/a", cpus: "1", pool: "package 0", class: Exclusive, qos: Some(Guaranteed) }
            "#]],
        ),
        (
            everything(),
            expect![[r#"
                default/k/a on 2-3 left alone false
                default/o/a on 1 left alone false
                Placed { container: "default/o/a", cpus: "1", pool: "package 0", class: Exclusive, qos: Some(Guaranteed) }
            "#]],
        ),
    ] {
        let mut after = state(TWO_NODES);
        after.rules = rules;
        let step = after.restore(replay(&lines), Timestamp::UNIX_EPOCH);
        let mut text = String::new();
        for held in after.status().containers {
            text.push_str(&format!(
                "{} on {} left alone {}\n",
                held.full_name(),
                held.cpus,
                held.cpus_left_alone
            ));
        }
        for note in &step.notes {
            text.push_str(&format!("{note:?}\n"));
        }
        assert_eq!(check_ledger(&after.ledger), Vec::<String>::new());
        expected.assert_eq(&text);
    }
}
