//! Resizes that are refused, as kubelet asks for them again and again.

use expect_test::expect;

use super::*;

/// What an operator is told of a resize to this many thousandths of a CPU.
fn ask(world: &mut World, id: &str, milli: i64) -> String {
    let update = resources(milli);
    let step = world.state.step(Event::Resize(id.to_owned(), update), Timestamp::UNIX_EPOCH);
    let mut told = String::new();
    for note in &step.notes {
        told += &match note {
            Note::Refused { .. } => "refused; ".to_owned(),
            Note::RefusedAgain { times, .. } => format!("refused {times} times; "),
            Note::RefusalsOver { times, how, .. } => format!("after {times}: it {how}; "),
            _ => continue,
        };
    }
    format!("{told}{} in the history", step.history.len())
}

#[test]
fn a_resize_that_is_refused_every_second_is_told_once_and_counted() {
    let mut world = small();
    let id = created(&mut world, 0, 0, 2000);
    let mut lines = Vec::new();
    for milli in [99_000, 99_000, 99_000, 98_000, 98_000, 2000, 2000, 97_000, 3000, 96_000] {
        lines.push(format!("{milli}: {}\n", ask(&mut world, &id, milli)));
    }
    let step = world.state.step(Event::Ended(id), Timestamp::UNIX_EPOCH);
    let over = step.notes.iter().filter(|note| matches!(note, Note::RefusalsOver { times: 1, .. }));
    assert_eq!(over.count(), 1);
    expect![[r#"
        99000: refused; 1 in the history
        99000: refused 2 times; 0 in the history
        99000: refused 3 times; 0 in the history
        98000: after 3: it is asked for otherwise; refused; 1 in the history
        98000: refused 2 times; 0 in the history
        2000: after 2: it is taken back; 0 in the history
        2000: 0 in the history
        97000: refused; 1 in the history
        3000: after 1: it is made; 1 in the history
        96000: refused; 1 in the history
    "#]]
    .assert_eq(&lines.concat());
}
