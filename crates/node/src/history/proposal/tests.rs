use bayplan_rebalance::{Knob, Mode};
use bayplan_types::CpuSet;
use expect_test::expect;
use jiff::Timestamp;

use super::*;
use crate::history::parse_entries;

fn name_of(id: ContainerId) -> String {
    match id.0 {
        1 => "shop/web/main".to_owned(),
        2 => "batch/hog/main".to_owned(),
        other => format!("n/other{other}/main"),
    }
}

/// `web` suffers from `hog`, and from so many others.
fn proposal(number: u64, mode: Mode, others: u64) -> Proposal {
    let waiting = Finding {
        signal: Signal::Waiting,
        short: 2.0,
        long: 1.5,
        usual: None,
        limit: 0.5,
        spread: 0.1,
    };
    let pressure = Finding {
        signal: Signal::CpuPressure,
        usual: Some(0.05),
        short: 0.625,
        long: 0.5,
        limit: 0.25,
        spread: 0.0,
    };
    let culprit = |id| Culprit {
        tie: if id == 2 { Tie::Cpu } else { Tie::L3 },
        correlation: 0.5,
        class: Reverse(QosClass::BestEffort),
        magnitude: 3.25,
        container: ContainerId(id),
    };
    Proposal {
        number,
        at: std::time::Duration::ZERO,
        mode,
        knob: Knob::Idle,
        target: ContainerId(2),
        step: 1,
        leave: CpuSet::new(),
        evidence: Evidence {
            victim: ContainerId(1),
            findings: vec![waiting, pressure],
            culprits: (2..3 + others).map(culprit).collect(),
        },
    }
}

fn entry(kind: Kind, why: &str, form: ProposalForm) -> Entry {
    Entry { why: why.to_owned(), proposal: Some(Box::new(form)), ..Entry::new(kind) }
}

fn proposed(number: u64, mode: Mode) -> Entry {
    let verb = if mode == Mode::Act { "turns" } else { "would turn" };
    let why = format!("{verb} idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50");
    entry(Kind::Proposed, &why, ProposalForm::of(&proposal(number, mode, 0), name_of))
}

fn judged(number: u64, why: &str, verdict: VerdictForm) -> Entry {
    let form = ProposalForm {
        findings: Vec::new(),
        culprits: Vec::new(),
        verdict: Some(verdict),
        ..ProposalForm::of(&proposal(number, Mode::Act, 0), name_of)
    };
    let what = "idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50";
    entry(Kind::Judged, &format!("{why} ({what})"), form)
}

/// Through the text of a segment, as after a restart; a line per proposal, and its evidence.
fn shown(entries: &[Entry], name: &str) -> String {
    let records: Vec<String> =
        entries.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
    let (read, strange) = parse_entries(&records);
    assert_eq!((read.as_slice(), strange), (entries, 0));
    let told = past_proposals(&read, name);
    let line = |it: &ProposalView| {
        format!("{} {} {}; {}\n{}", it.number, it.state.name(), it.text, it.outcome, it.evidence)
    };
    told.iter().map(line).collect()
}

#[test]
fn victim_and_target_are_told_of_with_evidence_and_verdict_after_a_restart() {
    let kept = VerdictForm::of(&Verdict::Kept { relief: 0.9 }, name_of);
    let useless = VerdictForm::of(&Verdict::Useless { relief: 0.0, worse: None }, name_of);
    let entries = [
        proposed(1, Mode::Act),
        judged(1, "undone: closed 0 % of the gap", useless),
        Entry { at: Timestamp::UNIX_EPOCH, ..Entry::new(Kind::Started) },
        proposed(1, Mode::Act),
        judged(1, "kept: closed 90 % of the gap", kept),
        proposed(2, Mode::Observe),
    ];
    let of_victim = shown(&entries, "shop/web/main");
    expect![[r#"
        1 undone idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50; undone: closed 0 % of the gap
        shop/web/main suffers
          waiting 2.00 > 0.50
          cpu-pressure 62 % > 25 %, usually 5 %
          from batch/hog/main by a shared CPU: activity 3.25, correlation 0.5
        1 withdrawn idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50; kept: closed 90 % of the gap
        shop/web/main suffers
          waiting 2.00 > 0.50
          cpu-pressure 62 % > 25 %, usually 5 %
          from batch/hog/main by a shared CPU: activity 3.25, correlation 0.5
        2 observed idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50; 
        shop/web/main suffers
          waiting 2.00 > 0.50
          cpu-pressure 62 % > 25 %, usually 5 %
          from batch/hog/main by a shared CPU: activity 3.25, correlation 0.5
    "#]].assert_eq(&of_victim);
    assert_eq!(shown(&entries, "batch/hog/main"), of_victim);
    assert_eq!(shown(&entries, "shop/other/main"), "");
}

#[test]
fn what_was_never_judged_is_told_as_withdrawn_and_the_rest_as_it_ended() {
    use ProposalState::{Refused, Undone, Withdrawn};
    let harmful = VerdictForm::of(&Verdict::Harmful { other: ContainerId(7) }, name_of);
    assert_eq!(harmful.other.as_deref(), Some("n/other7/main"));
    let entries = [
        proposed(1, Mode::Act),
        proposed(2, Mode::Act),
        judged(2, "could not be done: no such file", VerdictForm::named("refused")),
        proposed(3, Mode::Act),
        judged(3, "undone: n/other7/main suffers instead", harmful),
        proposed(4, Mode::Act),
        judged(4, "undone: not allowed any more", VerdictForm::of(&Verdict::Withdrawn, name_of)),
        // Its proposal has gone with an older segment.
        judged(9, "ended: it is gone", VerdictForm::named("ended")),
    ];
    let told = past_proposals(&entries, "shop/web/main");
    let states: Vec<_> = told.iter().map(|it| (it.number, it.state, it.outcome.as_str())).collect();
    assert_eq!(
        states,
        [
            (1, Withdrawn, ""),
            (2, Refused, "could not be done: no such file"),
            (3, Undone, "undone: n/other7/main suffers instead"),
            (4, Withdrawn, "undone: not allowed any more"),
        ]
    );
}

/// Nothing moves them back.
#[test]
fn what_became_of_a_moved_owner_is_told_as_it_is() {
    let moving = |number| {
        let mut entry = proposed(number, Mode::Act);
        entry.proposal.as_mut().unwrap().knob = "move-owner".to_owned();
        entry
    };
    let over = |number, why: &str, name| {
        let mut entry = judged(number, why, VerdictForm::named(name));
        entry.proposal.as_mut().unwrap().knob = "move-owner".to_owned();
        entry
    };
    let entries = [
        moving(1),
        over(1, "stays there: closed 0 % of the gap", "useless"),
        moving(2),
        over(2, "kept: closed 90 % of the gap", "kept"),
        moving(3),
        over(3, "could not be done: it is gone", "refused"),
        moving(4),
        over(4, "stays there: not allowed any more", "withdrawn"),
    ];
    let told = past_proposals(&entries, "shop/web/main");
    let states: Vec<_> = told.iter().map(|it| (it.number, it.state.name())).collect();
    assert_eq!(states, [(1, "stays"), (2, "stays"), (3, "refused"), (4, "stays")]);
}

#[test]
fn an_entry_does_not_grow_with_the_node() {
    let form = ProposalForm::of(&proposal(1, Mode::Act, 500), name_of);
    assert_eq!(form.culprits.len(), CULPRITS_MAX);
    let first = form.culprits.first().map(|it| it.container.as_str());
    assert_eq!(first, Some("batch/hog/main"));
}

#[test]
fn what_only_a_newer_version_knows_is_left_out_of_the_evidence() {
    let mut form = ProposalForm::of(&proposal(1, Mode::Act, 1), name_of);
    form.findings[0].signal = "boredom".to_owned();
    form.culprits[0].tie = "building".to_owned();
    expect![[r#"
        shop/web/main suffers
          cpu-pressure 62 % > 25 %, usually 5 %
          from n/other3/main by a shared L3: activity 3.25, correlation 0.5
    "#]]
    .assert_eq(&form.render_evidence());
}
