//! What is told of knobs after a bug has ended what writes kernel files.

use std::sync::{Arc, Mutex};

use bayplan_allocator::ContainerId;
use bayplan_host::disk::SoundDisk;
use bayplan_node::event::{Answer, Event};
use bayplan_node::proposals::{ProposalState, ProposalView};
use bayplan_rebalance::{Decision, Knob, Mode, Proposal, Rebalancer, Scene, Verdict};
use bayplan_topology::{derive, parse_machine};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::play;
use crate::config::{Config, RebalanceConfig};
use crate::enforcer::{Enforcement, LOST, Questions, RuntimeCalls};
use crate::hotplug::{Ground, Machine};
use crate::inbox::{Events, Inbox, inbox};
use crate::observer;
use crate::prober::Sightings;
use crate::rebalancer::reach::Reach;
use crate::rebalancer::scene::Bounds;
use crate::rebalancer::task::{Looker, RebalancerTask, run_rebalancer};
use crate::rebalancer::view::{InFile, Remembered, Told};

/// With numbers from 1 on.
fn proposals(rows: &[(Knob, ProposalState)]) -> Told {
    let told = Told::default();
    for (number, (knob, state)) in (1..).zip(rows) {
        let view = ProposalView {
            number,
            at: Timestamp::UNIX_EPOCH,
            knob: knob.name().to_owned(),
            target: "n/hog/main".to_owned(),
            victim: "n/web/main".to_owned(),
            text: format!("{} on n/hog/main", knob.name()),
            evidence: String::new(),
            state: *state,
            outcome: String::new(),
        };
        let in_file = match state.is_in_force() {
            true => InFile::of(*knob, Mode::Act),
            false => InFile::No,
        };
        let (target, victim) = (ContainerId(number), ContainerId(0));
        told.proposed(Remembered { target, victim, knob: *knob, in_file, view });
    }
    told
}

/// The task, with the mode `off`, with which what is turned is withdrawn.
pub(super) fn task(
    inbox: Inbox,
    enforcement: &Enforcement,
    told: &Told,
) -> (RebalancerTask, Arc<Config>) {
    let machine = Machine::fixed(derive(&parse_machine("core:2").unwrap()).unwrap());
    let mut config = Config::default();
    config.rebalance.mode = Mode::Off;
    let config = Arc::new(config);
    let task = RebalancerTask {
        inbox,
        config: watch::channel(Arc::clone(&config)).1,
        ground: Ground::new(&machine, &Config::default(), &bayplan_types::CpuSet::new()),
        shown: observer::shown(),
        sightings: Sightings::default(),
        metrics: Arc::default(),
        enforcement: enforcement.clone(),
        disk: Arc::new(SoundDisk),
        is_dry_run: false,
        told: told.clone(),
    };
    (task, config)
}

/// A writer of kernel files, until a bug ends it.
type Writer = Arc<Mutex<Option<Questions>>>;

/// Answers as the state does. After so many changes of what is turned the files are written, and the next one meets a bug. Gives what the history is told.
async fn answer(mut events: Events, writer: Writer, looks: u64) -> Vec<String> {
    let (mut history, mut step) = (Vec::new(), 0);
    while let Some(envelope) = events.0.recv().await {
        let answer = match envelope.event {
            Event::Turn(_) => {
                step += 1;
                let mut writer = writer.lock().unwrap();
                if step > looks
                    && let Some(questions) = writer.take()
                {
                    questions.end_by_a_bug();
                } else if let Some(questions) = &*writer {
                    questions.note_turned(step, 1);
                }
                Answer::Since(Some(step))
            }
            Event::Told(_, _, why, _) => {
                history.push(why);
                Answer::Done
            }
            _ => Answer::Done,
        };
        envelope.answer.send(answer).unwrap();
    }
    history
}

#[tokio::test]
async fn what_a_lost_enforcer_leaves_in_files_is_not_told_as_taken_back() {
    use ProposalState::{Kept, Observed, Settling, Stuck, Undone, Withdrawn};
    let (inbox, events) = inbox(8);
    let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
    let answering = tokio::spawn(answer(events, Writer::default(), 0));
    let told = proposals(&[
        (Knob::Idle, Kept),
        (Knob::Move, Kept),
        (Knob::Suppress, Settling),
        (Knob::Burst, Undone),
        (Knob::Idle, Observed),
    ]);
    let (task, config) = task(inbox, &enforcement, &told);
    questions.end_by_a_bug();
    let mut looker = Some(Looker::new(&config.rebalance));
    for _ in 0..2 {
        task.turn_to(&mut looker, &config).await.unwrap();
    }
    let shown = told.view("off", false).proposals;
    let states: Vec<ProposalState> = shown.iter().map(|it| it.state).collect();
    assert_eq!(states, [Stuck, Withdrawn, Stuck, Undone, Observed]);
    let outcome = "a bug has ended what writes kernel files; what is in them stays until a restart";
    assert_eq!((shown[0].outcome.as_str(), shown[1].outcome.as_str()), (outcome, ""));
    // So it stands in `explain`, too.
    assert_eq!(told.about("n/hog/main"), shown);
    assert_eq!(told.touched_for_good(), [0, 1, 3].map(ContainerId).into());
    assert!(task.metrics.render(false).contains("bayplan_rebalance_in_force 2\n"));
    drop(task);
    let due = ["idle", "suppress"].map(|knob| format!("stuck: {outcome} ({knob} on n/hog/main)"));
    assert_eq!(answering.await.unwrap(), due);
}

/// The first proposal of a node on which a hog can be made idle, and the rebalancer that has made it.
fn proposed() -> (Rebalancer, Scene, Proposal) {
    let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
    let reach = Reach { knobs: [Knob::Idle].into(), lacking: None, classes: None };
    let looks = play(Bounds { config: &config, reach: &reach });
    let first = looks.into_iter().find(|(.., said)| !said.is_empty());
    let (rebalancer, scene, mut said) = first.unwrap();
    let Some(Decision::Propose(proposal)) = said.pop() else { panic!("{said:?}") };
    assert_eq!((proposal.number, proposal.knob, proposal.mode), (1, Knob::Idle, Mode::Act));
    (rebalancer, scene, *proposal)
}

/// Before, it stayed as it was and was not judged, and so did the count of victims.
#[tokio::test]
async fn nothing_stays_turned_when_a_bug_has_ended_the_reading_of_counters() {
    let (inbox, events) = inbox(8);
    let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
    let answering = tokio::spawn(answer(events, Arc::new(Mutex::new(Some(questions))), 9));
    let (task, config) = task(inbox, &enforcement, &Told::default());
    let mut looker = Looker::new(&config.rebalance);
    let (rebalancer, scene, proposal) = proposed();
    looker.rebalancer = rebalancer;
    task.tell_proposal(&proposal, &scene).await.unwrap();
    task.carry_out(&mut looker, vec![1]).await.unwrap();
    task.metrics.rebalancing.looked(1, 1);
    task.shown.note_fresh();
    assert!(task.shown.fresh().await);
    task.shown.note_fresh();
    task.shown.clone().lose().await;
    assert!(!task.shown.fresh().await);
    task.give_up(&mut Some(looker)).await.unwrap();
    let view = task.told.view("act", false);
    assert_eq!(view.proposals[0].state, ProposalState::Withdrawn);
    let why = "a bug has ended what reads counters, until a restart";
    assert_eq!((view.sampled, view.unrest.as_deref()), (0, Some(why)));
    let metrics = task.metrics.render(false);
    for due in ["bayplan_rebalance_in_force 0\n", "bayplan_rebalance_victims 0\n"] {
        assert!(metrics.contains(due), "{metrics}");
    }
    drop(task);
    answering.await.unwrap();
}

#[tokio::test]
async fn the_rebalancer_itself_gives_up_when_nothing_is_read_any_more() {
    let (inbox, events) = inbox(8);
    let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
    let answering = tokio::spawn(answer(events, Arc::new(Mutex::new(Some(questions))), 9));
    let (task, _config) = task(inbox, &enforcement, &Told::default());
    let told = task.told.clone();
    task.shown.clone().lose().await;
    // It is not stopped.
    run_rebalancer(task, CancellationToken::new()).await;
    let why = "a bug has ended what reads counters, until a restart";
    assert_eq!(told.view("act", false).unrest.as_deref(), Some(why));
    answering.await.unwrap();
}

/// How what was turned is taken back before the bug is met.
#[derive(Clone, Copy, Debug)]
enum End {
    Never,
    Verdict,
    Pause,
}

async fn check_end(looks: u64, end: End, expected: ProposalState) {
    let (inbox, events) = inbox(8);
    let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
    let writer = Arc::new(Mutex::new(Some(questions)));
    let answering = tokio::spawn(answer(events, Arc::clone(&writer), looks));
    let (task, config) = task(inbox, &enforcement, &Told::default());
    let mut looker = Looker::new(&config.rebalance);
    let (rebalancer, scene, proposal) = proposed();
    looker.rebalancer = rebalancer;
    task.tell_proposal(&proposal, &scene).await.unwrap();
    task.carry_out(&mut looker, vec![1]).await.unwrap();
    match end {
        End::Never => {}
        End::Verdict => {
            task.tell_verdict(1, &Verdict::Over, &scene).await.unwrap();
            looker.rebalancer.withdraw();
            task.carry_out(&mut looker, Vec::new()).await.unwrap();
        }
        End::Pause => task.withdraw(&mut looker).await.unwrap(),
    }
    let unmet = writer.lock().unwrap().take();
    unmet.into_iter().for_each(Questions::end_by_a_bug);
    let mut looker = Some(looker);
    for _ in 0..2 {
        task.turn_to(&mut looker, &config).await.unwrap();
    }
    let state = task.told.view("off", false).proposals[0].state;
    assert_eq!(state, expected, "{looks} looks, {end:?}");
    drop(task);
    let history = answering.await.unwrap();
    let told = history.iter().filter(|it| it.starts_with("stuck: ")).count();
    assert_eq!(told, usize::from(state == ProposalState::Stuck), "{history:#?}");
}

#[tokio::test]
async fn what_no_look_has_confirmed_as_taken_back_is_stuck_when_a_bug_ends_the_enforcer() {
    use ProposalState::{Stuck, Undone, Withdrawn};
    // In the look that is to write it, after the file was written.
    check_end(0, End::Never, Stuck).await;
    check_end(1, End::Never, Stuck).await;
    // In the look that is to take it back, and after that.
    check_end(1, End::Verdict, Stuck).await;
    check_end(2, End::Verdict, Undone).await;
    check_end(1, End::Pause, Stuck).await;
    check_end(2, End::Pause, Withdrawn).await;
}

#[tokio::test]
async fn an_ordinary_stop_is_not_told_as_a_bug() {
    for is_bug in [false, true] {
        let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
        let writing = tokio::spawn(async move {
            let _questions = questions;
            tokio::task::yield_now().await;
            assert!(!is_bug, "a bug");
        });
        let expected = if is_bug { LOST } else { "the daemon is stopping" };
        assert_eq!(enforcement.turned(1, 1).await, Some(Err(expected.to_owned())));
        assert_eq!(enforcement.is_lost(), is_bug);
        assert_eq!(writing.await.is_err(), is_bug);
    }
}

#[tokio::test]
async fn nothing_is_concluded_after_a_stop() {
    let stop = CancellationToken::new();
    stop.cancel();
    for _ in 0..20 {
        let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
        questions.end_by_a_bug();
        let told = proposals(&[(Knob::Idle, ProposalState::Kept)]);
        let (inbox, _events) = inbox(8);
        let (task, _config) = task(inbox, &enforcement, &told);
        task.shown.note_fresh();
        run_rebalancer(task, stop.clone()).await;
        assert_eq!(told.view("off", false).proposals[0].state, ProposalState::Kept);
    }
}
