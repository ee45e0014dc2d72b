use std::collections::BTreeMap;

use bayplan_enforcement::Pass;
use futures::FutureExt as _;
use nix::errno::Errno;

use super::*;

/// Only what is to be in the end counts, whichever pass writes it.
fn write(container: &str, new: &str) -> Write {
    let new = Pinning { cpus: new.parse().unwrap(), ..Pinning::default() };
    Write { pass: Pass::Shrink, container: container.to_owned(), old: None, new }
}

/// Files by their paths; one with a text that begins with `!` cannot be written.
#[derive(Default)]
struct Files(BTreeMap<String, String>);

impl Kernel for Files {
    fn read(&mut self, path: &str) -> Result<String, Errno> {
        let text = self.0.get(path).ok_or(Errno::ENOENT)?;
        Ok(text.trim_start_matches('!').to_owned())
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let old = self.0.get_mut(path).ok_or(Errno::ENOENT)?;
        if old.starts_with('!') {
            return Err(Errno::EBUSY);
        }
        text.clone_into(old);
        Ok(())
    }

    fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
        let below = self.0.keys().filter_map(|it| it.strip_prefix(dir)?.strip_prefix('/'));
        let names = below.filter_map(|it| it.split('/').next()).map(str::to_owned);
        Ok(names.collect())
    }

    fn make_dir(&mut self, _dir: &str) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn remove_dir(&mut self, _dir: &str) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
}

const POD: &str = "sys/fs/cgroup/kubepods/podu";
const POD_PARENT: &str = "/kubepods/podu";

fn files(sets: &[(&str, &str)]) -> Files {
    let files = sets.iter().flat_map(|(id, cpus)| {
        let file = |name: &str, text: &str| (format!("{POD}/{id}/{name}"), text.to_owned());
        [file("cgroup.type", "domain"), file("cpuset.cpus", cpus)]
    });
    Files(files.collect())
}

fn planned(writes: &[(&str, &str)]) -> Unconfirmed {
    let unconfirmed = Unconfirmed::for_events();
    let writes: Vec<Write> = writes.iter().map(|(id, new)| write(id, new)).collect();
    unconfirmed.plan(&writes, |_| POD_PARENT.to_owned());
    unconfirmed
}

#[test]
fn containers_are_narrowed_in_the_kernel_and_never_widened() {
    // There, wanted: what is in the file then, what the answer lists, whether it is stuck.
    for (there, wanted, file, listed, is_stuck) in [
        ("0-3", "0-1", "0-1", "0-1", false),
        ("0-1", "0-3", "0-1", "", false),
        ("0-3", "2-5", "2-3", "2-3", false),
        ("0-1", "4-5", "4-5", "4-5", false),
        ("", "0-1", "0-1", "0-1", false),
        ("0-1", "0-1", "0-1", "", false),
        ("!0-3", "0-1", "!0-3", "0-1", true),
        ("0-3", "", "0-3", "", false),
    ] {
        let mut kernel = files(&[("c", there), ("new", "0-7")]);
        let unconfirmed = planned(&[("c", wanted), ("new", "6")]);
        let LetGo { updates, stuck } = unconfirmed.let_go(&mut kernel, "new").let_go;
        let told: Vec<String> = updates.iter().map(|(_, it)| it.cpus.to_string()).collect();
        let case = format!("{there} to {wanted}");
        assert_eq!(kernel.0[&format!("{POD}/c/cpuset.cpus")], file, "{case}");
        assert_eq!((told.concat().as_str(), !stuck.is_empty()), (listed, is_stuck), "{case}");
        assert_eq!(kernel.0[&format!("{POD}/new/cpuset.cpus")], "0-7", "{case}");
    }
}

#[test]
fn a_write_that_a_later_plan_overtakes_is_left_to_the_kernel() {
    // There, an earlier write: what is in the file then, and whether the container has left.
    for (there, earlier, file, has_left) in [
        ("0-3", "0-1", "0-1", true),
        ("0", "0-1", "0", true),
        ("0-2", "2-5", "2", true),
        // Another container may have them by now.
        ("2-3", "4-5", "2-3", false),
        ("", "0-1", "", false),
        ("!0-3", "0-1", "!0-3", false),
    ] {
        let mut kernel = files(&[("c", there)]);
        let unconfirmed = Unconfirmed::for_events();
        let plan = |new: &str| unconfirmed.plan(&[write("c", new)], |_| POD_PARENT.to_owned());
        let first = plan(earlier);
        assert_eq!(unconfirmed.stand(&write("c", earlier), first), Begin::Tell);
        // The same in the end, with another plan in between.
        let last = [plan("0-7"), plan(earlier)][1];
        assert_eq!(unconfirmed.stand(&write("c", earlier), first), Begin::Overtaken);
        assert_eq!(unconfirmed.stand(&write("c", earlier), last), Begin::Tell);
        for _ in 0..2 {
            assert_eq!(unconfirmed.leave(&mut kernel, &write("c", earlier)), has_left);
        }
        assert_eq!(kernel.0[&format!("{POD}/c/cpuset.cpus")], file, "{there} to {earlier}");
    }
    // It has no cgroup yet: the runtime is told. It is unknown: nothing overtakes.
    let unconfirmed = planned(&[("c", "0-7")]);
    assert!(!unconfirmed.leave(&mut Files::default(), &write("c", "0-1")));
    let first = PlanNumber::default();
    assert_eq!(unconfirmed.stand(&write("other", "0-1"), first), Begin::Known);
    unconfirmed.forget(&["c".to_owned()]);
    assert_eq!(unconfirmed.stand(&write("c", "0-1"), first), Begin::Known);
}

#[tokio::test]
async fn an_update_waits_while_an_event_is_answered_but_not_for_ever() {
    let unconfirmed = Unconfirmed::for_events();
    unconfirmed.yield_to_events().await;
    let (first, second) = (unconfirmed.narrowing(), unconfirmed.narrowing());
    let mut waiting = Box::pin(unconfirmed.yield_to_events());
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(first);
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(second);
    waiting.await;
    let _narrowing = unconfirmed.narrowing();
    unconfirmed.yield_to_events().await;
    Unconfirmed::default().yield_to_events().await;
}

#[test]
fn a_container_without_a_cgroup_is_listed_and_not_stuck() {
    let found = planned(&[("c", "0-1")]).let_go(&mut Files::default(), "new").let_go;
    let there = write("c", "0-1").new;
    assert_eq!(found, LetGo { updates: vec![("c".to_owned(), there)], stuck: Vec::new() });
}

#[test]
fn what_an_answer_has_told_is_not_told_again_unless_it_is_another_set() {
    let unconfirmed = planned(&[("shrinks", "0-1"), ("both", "2-5")]);
    let there = || files(&[("shrinks", "0-3"), ("both", "0-3")]);
    let freed = unconfirmed.let_go(&mut there(), "");
    unconfirmed.note_answer(&freed);
    assert_eq!(begin(&unconfirmed, &write("shrinks", "0-1")), Begin::Known);
    assert_eq!(begin(&unconfirmed, &write("both", "2-5")), Begin::Tell);
    unconfirmed.plan(&[write("shrinks", "0")], |_| String::new());
    assert_eq!(begin(&unconfirmed, &write("shrinks", "0")), Begin::Tell);
}

#[test]
fn what_a_runtime_that_hangs_is_told_again_and_again_is_kept_once() {
    let unconfirmed = planned(&[("c", "0-1")]);
    for cpus in ["0-1", "0-1", "0", "0-1"] {
        assert_eq!(begin(&unconfirmed, &write("c", cpus)), Begin::Tell);
        unconfirmed.end(&write("c", cpus), None);
    }
    assert_eq!(unconfirmed.table().told["c"].len(), 2);
}

/// Issue 35: an answer to `StartContainer` lists no updates, so what was narrowed there counted as told.
#[test]
fn what_is_narrowed_without_an_answer_that_tells_it_is_still_told() {
    let unconfirmed = planned(&[("c", "0-1")]);
    unconfirmed.let_go(&mut files(&[("c", "0-3")]), "");
    assert_eq!(begin(&unconfirmed, &write("c", "0-1")), Begin::Tell);
    assert_eq!(unconfirmed.doubt_answer(), Vec::<String>::new());
}

/// Issue 35: the connection has ended before the runtime could read the answer.
#[test]
fn what_an_answer_in_doubt_has_told_is_told_again() {
    for was_skipped in [false, true] {
        let unconfirmed = planned(&[("c", "0-1")]);
        let freed = unconfirmed.let_go(&mut files(&[("c", "0-3")]), "");
        unconfirmed.note_answer(&freed);
        if was_skipped {
            assert_eq!(begin(&unconfirmed, &write("c", "0-1")), Begin::Known);
        }
        let expected: &[&str] = if was_skipped { &["c"] } else { &[] };
        assert_eq!(unconfirmed.doubt_answer(), expected, "{was_skipped}");
        assert_eq!(begin(&unconfirmed, &write("c", "0-1")), Begin::Tell);
        assert_eq!(unconfirmed.doubt_answer(), Vec::<String>::new());
    }
    // Another event has come: that answer has arrived.
    let unconfirmed = planned(&[("c", "0-1")]);
    let mut kernel = files(&[("c", "0-3")]);
    for _ in 0..2 {
        let freed = unconfirmed.let_go(&mut kernel, "");
        unconfirmed.note_answer(&freed);
    }
    assert_eq!(unconfirmed.doubt_answer(), Vec::<String>::new());
    assert_eq!(begin(&unconfirmed, &write("c", "0-1")), Begin::Known);
}

#[test]
fn answers_do_not_grow_with_the_node() {
    let ids: Vec<String> = (0..40).map(|at| format!("c{at}")).collect();
    let there: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "0-3")).collect();
    let new: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "0-1")).collect();
    let mut kernel = files(&there);
    let found = planned(&new).let_go(&mut kernel, "").let_go;
    assert_eq!((found.updates.len(), found.stuck.len()), (LISTED_MAX, 0));
    assert!(kernel.0.iter().all(|(path, text)| !path.ends_with("cpus") || text == "0-1"));
}

#[test]
fn an_update_of_our_own_is_known_until_it_has_ended() {
    let unconfirmed = planned(&[("c", "0-3")]);
    let set = |cpus: &str| write("c", cpus).new;
    let grow = write("c", "0-3");
    assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Other);
    assert_eq!(begin(&unconfirmed, &grow), Begin::Tell);
    assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Own);
    assert_eq!(unconfirmed.origin("c", &set("0-2")), Origin::Other);
    unconfirmed.plan(&[write("c", "0-1")], |_| String::new());
    assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Overtaken(Box::new(set("0-1"))));
    // Without an answer the runtime may still come to it.
    unconfirmed.end(&grow, None);
    assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Overtaken(Box::new(set("0-1"))));
    unconfirmed.end(&write("c", "0-1"), Some(true));
    assert_eq!(unconfirmed.origin("c", &set("0-3")), Origin::Other);
    assert_eq!(unconfirmed.let_go(&mut files(&[("c", "0-7")]), ""), Freed::default());
}

fn plan(unconfirmed: &Unconfirmed, id: &str, new: &str) -> PlanNumber {
    unconfirmed.plan(&[write(id, new)], |_| POD_PARENT.to_owned())
}

/// As of whatever plan.
fn begin(unconfirmed: &Unconfirmed, write: &Write) -> Begin {
    unconfirmed.begin(write, None)
}

#[test]
fn what_a_later_plan_or_a_word_out_of_turn_has_made_old_is_not_told() {
    let unconfirmed = Unconfirmed::default();
    let [first, last] = ["0-5", "0-1"].map(|new| plan(&unconfirmed, "c", new));
    let (old, new) = (write("c", "0-5"), write("c", "0-1"));
    assert_eq!(unconfirmed.begin(&old, Some(first)), Begin::Overtaken);
    assert_eq!(unconfirmed.begin(&new, Some(last)), Begin::Tell);
    unconfirmed.end(&new, Some(false));
    assert_eq!(unconfirmed.begin(&new, Some(last)), Begin::Tell);
    unconfirmed.end(&new, Some(true));
    // Also not left to the kernel: it could be on too few CPUs afterwards.
    for (write, plan) in [(&old, first), (&new, last)] {
        assert_eq!(unconfirmed.stand(write, plan), Begin::Known);
        assert_eq!(unconfirmed.begin(write, Some(plan)), Begin::Known);
    }
    let again = plan(&unconfirmed, "c", "0-5");
    assert_eq!(unconfirmed.stand(&old, first), Begin::Overtaken);
    assert_eq!(unconfirmed.stand(&old, again), Begin::Tell);
}

/// What the runtime does to a container while a call needs the CPUs that it has to leave.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// It is just told this set.
    Tells(&'static str),
    /// It was told, and has not answered in time.
    Hangs(&'static str),
    /// It has answered.
    Told(&'static str),
    /// Kubelet's own update is on its way.
    Forwards,
    /// Kubelet's update has arrived.
    Forwarded,
}

#[test]
fn a_call_goes_on_once_the_kernel_has_taken_the_cpus_and_no_update_can_give_them_back() {
    use Meanwhile::*;
    // In the file, wanted, meanwhile: then in the file, and what is left to be done.
    for (there, wanted, meanwhile, file, absent, stuck) in [
        ("0-3", "0-1", Nothing, "0-1", false, false),
        ("0-1", "0-3", Nothing, "0-1", false, false),
        // None of its CPUs could be kept, and the others may be another container's.
        ("2-3", "0-1", Nothing, "2-3", false, true),
        ("", "0-1", Nothing, "", false, true),
        ("!0-3", "0-1", Nothing, "!0-3", false, true),
        ("none", "0-1", Nothing, "none", true, false),
        ("0-3", "0-1", Tells("0-3"), "0-1", false, true),
        ("0-3", "0-1", Tells("0"), "0-1", false, false),
        ("0-3", "0-1", Hangs("0-3"), "0-1", false, true),
        ("0-3", "0-1", Told("0-3"), "0-1", false, false),
        ("0-3", "0-1", Forwards, "0-1", false, true),
        ("0-3", "0-1", Forwarded, "0-1", false, false),
    ] {
        let mut kernel = if there == "none" { Files::default() } else { files(&[("c", there)]) };
        let unconfirmed = Unconfirmed::default();
        let number = plan(&unconfirmed, "c", "0-3");
        if let Tells(set) | Hangs(set) | Told(set) = meanwhile {
            assert_eq!(begin(&unconfirmed, &write("c", set)), Begin::Tell);
        }
        match meanwhile {
            Hangs(set) => unconfirmed.end(&write("c", set), None),
            Told(set) => unconfirmed.end(&write("c", set), Some(true)),
            Forwards | Forwarded => unconfirmed.forward("c"),
            Nothing | Tells(_) => {}
        }
        if matches!(meanwhile, Forwarded) {
            unconfirmed.forwarded("c");
        }
        let last = plan(&unconfirmed, "c", wanted);
        assert!(last > number);
        let remaining = unconfirmed.take_away(&mut kernel);
        let case = format!("{there} to {wanted}, {meanwhile:?}");
        let found = kernel.0.get(&format!("{POD}/c/cpuset.cpus")).map_or("none", String::as_str);
        assert_eq!(found, file, "{case}");
        let expected = Remaining {
            absent: absent
                .then(|| ("c".to_owned(), last, write("c", wanted).new))
                .into_iter()
                .collect(),
            stuck: stuck.then(|| "c".to_owned()).into_iter().collect(),
            raced: Vec::new(),
        };
        assert_eq!(remaining, expected, "{case}");
    }
}

#[tokio::test]
async fn a_call_waits_for_an_update_that_would_give_cpus_back_and_for_no_other() {
    let unconfirmed = Unconfirmed::default();
    plan(&unconfirmed, "c", "0-3");
    plan(&unconfirmed, "other", "0-3");
    let (wide, other) = (write("c", "0-3"), write("other", "0-3"));
    assert_eq!(
        (begin(&unconfirmed, &wide), begin(&unconfirmed, &other)),
        (Begin::Tell, Begin::Tell)
    );
    unconfirmed.until_none_is_given_more(YIELD_MAX).await;
    plan(&unconfirmed, "c", "0-1");
    let limit = Duration::from_secs(60);
    let mut waiting = Box::pin(unconfirmed.until_none_is_given_more(limit));
    assert!(waiting.as_mut().now_or_never().is_none());
    unconfirmed.end(&other, Some(true));
    assert!(waiting.as_mut().now_or_never().is_none());
    unconfirmed.end(&wide, Some(true));
    waiting.await;
    // For one that hangs not for ever.
    assert_eq!(begin(&unconfirmed, &wide), Begin::Tell);
    unconfirmed.until_none_is_given_more(Duration::from_millis(5)).await;
    unconfirmed.until_told("c", Duration::from_millis(5)).await;
}

#[test]
fn a_container_without_a_cgroup_is_looked_for_again_once_it_is_started() {
    let unconfirmed = Unconfirmed::default();
    plan(&unconfirmed, "c", "0-1");
    assert_eq!(unconfirmed.take_away(&mut Files::default()).absent.len(), 1);
    let mut kernel = files(&[("c", "0-3")]);
    assert_eq!(unconfirmed.take_away(&mut kernel).absent.len(), 1);
    unconfirmed.look_again("c");
    assert_eq!(unconfirmed.take_away(&mut kernel), Remaining::default());
    assert_eq!(kernel.0[&format!("{POD}/c/cpuset.cpus")], "0-1");
}
