use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bayplan_workload::runtime::ContainerState;
use tokio::sync::watch;

use super::*;
use crate::config::Config;
use crate::inbox::inbox;
use crate::resources_dir::ResourcesDir;
use crate::runtime::model::ModelRuntime;

const POD: &str = "/kubepods/podu";

fn write(container: &str, pass: Pass, new: &str) -> Write {
    let new = Pinning { cpus: new.parse().unwrap(), ..Pinning::default() };
    Write { pass, container: container.to_owned(), old: None, new }
}

fn put(root: &Path, container: &str, cpus: &str) {
    let dir = root.join(format!("sys/fs/cgroup{POD}/{container}"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("cgroup.type"), "domain\n").unwrap();
    fs::write(dir.join("cpuset.cpus"), format!("{cpus}\n")).unwrap();
}

fn early_answers(root: &Path, runtime: ModelRuntime) -> EarlyAnswers {
    let (inbox, _events) = inbox(1);
    EarlyAnswers {
        runtime: Arc::new(runtime),
        unconfirmed: Unconfirmed::default(),
        config: watch::channel(Arc::new(Config::default())).1,
        host_root: root.to_owned(),
        inbox,
        resources: Arc::new(Mutex::new(ResourcesDir::new(root.join("resources")))),
    }
}

fn early(answer: oneshot::Sender<Answer>) -> Early {
    let text = "SHARED_CPUS=\"0-1\"\n".to_owned();
    let file = ResourcesFile { dir: "pod-new-0".to_owned(), container: None, text, is_new: true };
    Early { answer, content: Answer::Since(Some(7)), new_files: vec![file] }
}

/// Containers with the CPUs that they have in the kernel, of which one without any has no process; the CPUs that each may keep. What the runtime is told before the answer, and whether the
/// answer comes before the plan has ended.
async fn check(there: &[(&str, &str)], kept: &[(&str, &str)], told: &[&str], is_early: bool) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
    let running = there.iter().filter(|(_, cpus)| !cpus.is_empty());
    running.for_each(|(id, cpus)| put(root.path(), id, cpus));
    let listed: Vec<_> = there.iter().map(|(id, _)| (*id, ContainerState::Created)).collect();
    let runtime = ModelRuntime::with(&listed);
    let updates = Arc::clone(&runtime.told);
    let answers = early_answers(root.path(), runtime);
    let plan = Plan { writes: kept.iter().map(|(id, new)| write(id, Pass::Shrink, new)).collect() };
    assert!(answers.can_do(&plan));
    answers.unconfirmed.plan(&plan.writes, |_| POD.to_owned());
    let ((answer, mut answered), (ended, plan_ended)) = (oneshot::channel(), oneshot::channel());
    let answering = tokio::spawn(answers.answer(early(answer), plan_ended));
    if is_early {
        assert!(matches!((&mut answered).await, Ok(Answer::Since(Some(7)))), "{there:?}");
        for (id, new) in kept.iter().filter(|(id, _)| !told.contains(id)) {
            let file = root.path().join(format!("sys/fs/cgroup{POD}/{id}/cpuset.cpus"));
            assert_eq!(fs::read_to_string(file).unwrap().trim(), *new, "{there:?}");
        }
    } else {
        let waits = Duration::from_millis(100);
        assert!(timeout(waits, &mut answered).await.is_err(), "{there:?}");
        ended.send(()).unwrap();
        assert!(matches!(answered.await, Ok(Answer::Since(Some(7)))), "{there:?}");
    }
    answering.await.unwrap();
    assert!(root.path().join("resources/pod-new-0/resources.sh").exists());
    let mut updates: Vec<String> = updates.lock().unwrap().iter().map(|it| it.0.clone()).collect();
    updates.sort();
    assert_eq!(updates, told, "{there:?}");
}

#[tokio::test]
async fn a_call_is_answered_before_the_plan_has_ended_where_the_kernel_takes_the_cpus_away() {
    check(&[("a", "0-3"), ("b", "0-7")], &[("a", "0-1"), ("b", "0-1")], &[], true).await;
    check(&[("a", "0-3"), ("b", "")], &[("a", "0-1"), ("b", "0-1")], &["b"], true).await;
    // None of its CPUs is among those that it may have.
    check(&[("a", "4-5")], &[("a", "0-1")], &[], false).await;
    let many: Vec<String> = (0..=TOLD_MAX).map(|at| format!("c{at}")).collect();
    let all = |cpus: &'static str| many.iter().map(|id| (id.as_str(), cpus)).collect::<Vec<_>>();
    check(&all(""), &all("0-1"), &[], false).await;
}

/// A write of an earlier plan, for which no call waits, is not made yet.
#[tokio::test]
async fn containers_of_earlier_plans_have_to_leave_too() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "earlier", "0-7");
    let early = early_answers(root.path(), ModelRuntime::default());
    early.unconfirmed.plan(&[write("earlier", Pass::Shrink, "0-3")], |_| POD.to_owned());
    early.unconfirmed.plan(&[], |_| POD.to_owned());
    assert!(early.have_left().await);
    let file = root.path().join(format!("sys/fs/cgroup{POD}/earlier/cpuset.cpus"));
    assert_eq!(fs::read_to_string(file).unwrap().trim(), "0-3");
}

#[test]
fn only_plans_that_take_cpus_away_are_done_by_the_kernel_and_only_where_it_may_be_written() {
    let root = tempfile::tempdir().unwrap();
    let early = early_answers(root.path(), ModelRuntime::default());
    let plan = |passes: &[Pass]| Plan {
        writes: passes.iter().map(|pass| write("c", *pass, "0-1")).collect(),
    };
    for (passes, expected) in [
        (&[][..], true),
        (&[Pass::Shrink, Pass::Shrink], true),
        (&[Pass::Shrink, Pass::Move], false),
        (&[Pass::Shrink, Pass::Grow], false),
    ] {
        assert_eq!(early.can_do(&plan(passes)), expected, "{passes:?}");
    }
    for (enforcement, expected) in [
        (EnforcementMode::On, true),
        (EnforcementMode::DryRun, false),
        (EnforcementMode::Off, false),
    ] {
        let config = Config { enforcement, ..Config::default() };
        let early = EarlyAnswers { config: watch::channel(Arc::new(config)).1, ..early.clone() };
        assert_eq!(early.can_do(&plan(&[Pass::Shrink])), expected, "{enforcement:?}");
    }
    let nri = EarlyAnswers { unconfirmed: Unconfirmed::for_events(), ..early };
    assert!(!nri.can_do(&plan(&[Pass::Shrink])));
}
