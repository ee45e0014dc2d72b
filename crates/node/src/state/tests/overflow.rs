//! Containers that find no room for their CPUs, where the configuration lets them share.

use expect_test::{Expect, expect};

use super::*;

/// Admits containers of so many CPUs, each with such annotations; shows what each was told, and why.
fn check(on_no_capacity: OnNoCapacity, asked: &[(i64, &[(&str, &str)])], expected: Expect) {
    let mut state = state("core:4").with_on_no_capacity(on_no_capacity);
    let mut text = String::new();
    for (ticket, (cpus, says)) in (0..).zip(asked) {
        let mut container = new_container(&ticket.to_string(), "app", 0, *cpus);
        container.pod.uid = ticket.to_string();
        container.pod.annotations = says
            .iter()
            .map(|(key, value)| (format!("bayplan.dev/{key}"), (*value).to_owned()))
            .collect();
        let admit = Event::Admit(Ticket(ticket), Box::new(container));
        let step = state.step(admit, Timestamp::UNIX_EPOCH);
        let told = match step.answer {
            Answer::Admission(Admission::Place(pinning)) => format!("runs on {}", pinning.cpus),
            Answer::Admission(Admission::Refuse(_)) => "refused".to_owned(),
            other => format!("{other:?}"),
        };
        let failures = step.notes.iter().filter_map(|note| match note {
            Note::Failure { kind, message } => Some(format!("\n  {kind}: {message}")),
            _ => None,
        });
        text.push_str(&format!("{cpus}: {told}{}\n", failures.collect::<String>()));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_container_without_room_for_its_own_cpus_shares_where_the_configuration_says_so() {
    check(
        OnNoCapacity::Refuse,
        &[(3, &[]), (2, &[])],
        expect![[r#"
        3: runs on 1-3
        2: refused
    "#]],
    );
    check(
        OnNoCapacity::Share,
        &[(3, &[]), (2, &[]), (99, &[])],
        expect![[r#"
            3: runs on 1-3
            2: runs on 0
              no_capacity: //app: placed in machine without exclusive CPUs, which onNoCapacity allows; refused: needs 2 exclusive CPUs; 0 are free
            99: runs on 0
              no_capacity: //app: placed in machine without exclusive CPUs, which onNoCapacity allows; refused: needs 99 exclusive CPUs; 3 could be given if all were free
        "#]],
    );
}

#[test]
fn a_requirement_of_exclusive_cpus_is_refused_whatever_the_configuration_says() {
    check(
        OnNoCapacity::Share,
        &[(3, &[]), (2, &[("require-isolated-cpus", "true")])],
        expect![[r#"
            3: runs on 1-3
            2: refused
        "#]],
    );
}
