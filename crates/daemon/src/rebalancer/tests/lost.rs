//! What is told of knobs after a bug has ended what writes kernel files.

use std::sync::{Arc, Mutex};

use bayplan_allocator::ContainerId;
use bayplan_host::disk::SoundDisk;
use bayplan_rebalance::Knob;
use bayplan_topology::{derive, parse_machine};
use bayplan_types::CpuSet;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::config::Config;
use crate::enforcer::{Enforcement, RuntimeCalls};
use crate::event::{Answer, Event};
use crate::hotplug::{Ground, Machine};
use crate::inbox::inbox;
use crate::observer;
use crate::prober::Sightings;
use crate::rebalancer::task::RebalancerTask;
use crate::rebalancer::view::{ProposalState, ProposalView, Remembered, Told};

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
        told.proposed(Remembered { target: ContainerId(number), knob: *knob, view });
    }
    told
}

#[tokio::test]
async fn what_a_lost_enforcer_leaves_in_files_is_not_told_as_taken_back() {
    use ProposalState::{Kept, Observed, Settling, Stuck, Undone, Withdrawn};
    let machine = Machine::fixed(derive(&parse_machine("core:2").unwrap()).unwrap());
    let (inbox, mut events) = inbox(8);
    let journal = Arc::new(Mutex::new(Vec::new()));
    let entries = Arc::clone(&journal);
    let answering = tokio::spawn(async move {
        while let Some(envelope) = events.0.recv().await {
            if let Event::Told(_, _, why) = envelope.event {
                entries.lock().unwrap().push(why);
            }
            envelope.answer.send(Answer::Done).unwrap();
        }
    });
    let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
    let mut config = Config::default();
    // Then what is turned is withdrawn.
    config.rebalance.mode = bayplan_rebalance::Mode::Off;
    let config = Arc::new(config);
    let told = proposals(&[
        (Knob::Idle, Kept),
        (Knob::Move, Kept),
        (Knob::Suppress, Settling),
        (Knob::Burst, Undone),
        (Knob::Idle, Observed),
    ]);
    let task = RebalancerTask {
        inbox,
        config: watch::channel(Arc::clone(&config)).1,
        ground: Ground::new(&machine, &CpuSet::new()),
        shown: observer::shown(),
        sightings: Sightings::default(),
        metrics: Arc::default(),
        enforcement: enforcement.clone(),
        disk: Arc::new(SoundDisk),
        is_dry_run: false,
        told: told.clone(),
    };
    drop(questions);
    enforcement.clone().lose().await;
    for _ in 0..2 {
        task.turn_to(&mut None, &config).await.unwrap();
    }
    let shown = told.view("off", false).proposals;
    let states: Vec<ProposalState> = shown.iter().map(|it| it.state).collect();
    assert_eq!(states, [Stuck, Withdrawn, Stuck, Undone, Observed]);
    let outcome = "a bug has ended what writes kernel files; what is in them stays until a restart";
    assert_eq!((shown[0].outcome.as_str(), shown[1].outcome.as_str()), (outcome, ""));
    // So it stands in `explain`, too.
    assert_eq!(told.about("n/hog/main"), shown);
    let due = ["idle", "suppress"].map(|knob| format!("stuck: {outcome} ({knob} on n/hog/main)"));
    assert_eq!(*journal.lock().unwrap(), due);
    let turned = enforcement.turned(6, 1).await;
    assert_eq!(turned, Some(Err(outcome.to_owned())));
    drop(task);
    answering.await.unwrap();
}
