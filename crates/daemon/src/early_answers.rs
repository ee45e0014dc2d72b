//! Answers to calls of the CRI proxy before the runtime was told. In: an answer that has to wait until others have left their CPUs, and the end of its plan at the runtime. Out:
//! the answer.
//!
//! Problem: the usual runtimes start a process for each update, so an exclusive container would wait for seconds where hundreds of others share CPUs. Approach: the kernel takes
//! the CPUs away at once (`cpuset.cpus`, written and read back), the call goes on, and the pinning task tells the runtime afterwards, plan after plan. What the kernel cannot do is
//! waited for: a container without processes is told by the runtime first, and for everything else the plan has to end.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use bayplan_enforcement::{Pass, Plan, Write};
use bayplan_host::kernel::DiskKernel;
use bayplan_node::event::{Answer, Event};
use bayplan_node::resources_file::ResourcesFile;
use bayplan_types::Pinning;
use bayplan_workload::runtime::RuntimeError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::{EnforcementMode, LiveConfig};
use crate::inbox::Inbox;
use crate::resources_dir::SharedResourcesDir;
use crate::runtime::SharedRuntime;
use crate::tasks::blocking;
use crate::unconfirmed::{Begin, PlanNumber, Remaining, Unconfirmed};

/// Containers without processes that are told one call, at most: there are more only where the runtime has no cgroups at all.
const TOLD_MAX: usize = 16;

/// What it takes to answer early; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct EarlyAnswers {
    pub(crate) runtime: SharedRuntime,
    pub(crate) unconfirmed: Unconfirmed,
    pub(crate) config: LiveConfig,
    /// Where the kernel's files are, below `sys`.
    pub(crate) host_root: PathBuf,
    pub(crate) inbox: Inbox,
    pub(crate) resources: SharedResourcesDir,
}

/// An answer that does not wait for its plan to end.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) answer: oneshot::Sender<Answer>,
    pub(crate) content: Answer,
    /// Of the container that the call is about.
    pub(crate) new_files: Vec<ResourcesFile>,
}

impl EarlyAnswers {
    /// Whether the kernel can do for a call what this plan does: it takes CPUs away, and gives none.
    pub(crate) fn can_do(&self, plan: &Plan) -> bool {
        let is_on = self.config.borrow().enforcement == EnforcementMode::On;
        let mut passes = plan.writes.iter().map(|write| write.pass);
        is_on && !self.unconfirmed.is_for_events() && passes.all(|pass| pass == Pass::Shrink)
    }

    /// Answers when no container is on CPUs that it has to leave, at the latest when the plan has ended.
    pub(crate) async fn answer(self, early: Early, mut plan_ended: oneshot::Receiver<()>) {
        let is_free = tokio::select! {
            ended = &mut plan_ended => ended.is_ok(),
            is_free = self.have_left() => is_free || plan_ended.await.is_ok(),
        };
        if is_free {
            self.answer_now(early);
        }
    }

    /// Answers when the files are there that a container is to see.
    pub(crate) fn answer_now(&self, early: Early) {
        let Early { answer, content, new_files } = early;
        // In place: they are small, and in memory where `/run` is.
        if !new_files.is_empty() {
            self.resources.lock().unwrap_or_else(PoisonError::into_inner).make(&new_files);
        }
        let _gave_up = answer.send(content);
    }

    /// Makes all containers leave CPUs that are not theirs any more. False: some have not.
    async fn have_left(&self) -> bool {
        let limit = self.config.borrow().write_limit();
        let Some(Remaining { absent, stuck, raced }) = self.take_away(limit).await else {
            return false;
        };
        if !raced.is_empty() {
            let inbox = self.inbox.clone();
            tokio::spawn(async move { inbox.ask(Event::ToldInDoubt(raced)).await });
        }
        if !stuck.is_empty() || absent.len() > TOLD_MAX {
            return false;
        }
        let told = absent.into_iter().map(|(id, plan, new)| self.tell(id, plan, new, limit));
        futures::future::join_all(told).await.into_iter().all(|is_told| is_told)
    }

    async fn take_away(&self, limit: Duration) -> Option<Remaining> {
        if self.unconfirmed.is_empty() {
            return Some(Remaining::default());
        }
        let _narrowing = self.unconfirmed.narrowing();
        // What it is just being told would be written after what is written here.
        self.unconfirmed.until_none_is_given_more(limit).await;
        let (root, unconfirmed) = (self.host_root.clone(), self.unconfirmed.clone());
        let taken = blocking(move || {
            let mut kernel = DiskKernel::open(&root).ok()?;
            Some(unconfirmed.take_away(&mut kernel))
        });
        taken.await.flatten()
    }

    /// Tells the runtime where a container without processes is to start. True: it knows, or has no such container any more.
    async fn tell(
        &self,
        container: String,
        plan: PlanNumber,
        new: Pinning,
        limit: Duration,
    ) -> bool {
        self.unconfirmed.until_told(&container, limit).await;
        let write = Write { pass: Pass::Shrink, container, old: None, new };
        match self.unconfirmed.begin(&write, Some(plan)) {
            Begin::Known => return true,
            Begin::Overtaken => return false,
            Begin::Tell => {}
        }
        let updated = timeout(limit, self.runtime.update(&write.container, &write.new)).await;
        let is_told = matches!(updated, Ok(Ok(())));
        self.unconfirmed.end(&write, updated.is_ok().then_some(is_told));
        // What is gone runs nowhere; the pinning task finds the same, and reports it.
        is_told || matches!(updated, Ok(Err(RuntimeError::Gone { .. })))
    }
}

#[cfg(test)]
mod tests;
