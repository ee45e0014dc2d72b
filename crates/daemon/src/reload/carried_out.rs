//! A change of the configuration is carried out by the node and the runtime. In: the configuration from now on, and the one that held. Out: the containers that have moved; or
//! the configuration that held, again.
//!
//! Updates that the runtime does not take are repeated for ever, because a container that runs has to be somewhere (`docs/operation.md`). A change of group types is given
//! up after some seconds instead: the containers go back to where they were, which for those that the runtime has not moved is no update at all.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bayplan_node::event::{Answer, Event};
use bayplan_node::names::list_names;
use bayplan_node::reconfigure::{ChangedConfig, Shift};
use bayplan_node::status::{ContainerStatus, Status};
use tokio::time::Instant;

use crate::config::Config;
use crate::hotplug::Ground;
use crate::reload::Reloader;

/// How long a change waits for containers that the runtime has not moved: it is asked where they run, and they are told again, three times.
const PATIENCE: Duration = Duration::from_secs(6);
/// How often it is looked whether they have moved.
const LOOK: Duration = Duration::from_millis(250);

impl Reloader {
    /// Has the node go on under it. Comes back when the containers that have to move have moved.
    ///
    /// # Errors
    /// Its types of groups cannot be had, or the runtime has not moved containers for them; then what held holds.
    pub(super) async fn carry_out(
        &self,
        new: &Config,
        ground: &Ground,
    ) -> anyhow::Result<Vec<Shift>> {
        let answer = self.ask_for(new, ground, Event::ConfigChanged).await?;
        let is_regrouped = new.groups != self.live().groups;
        let Answer::ShiftsInDoubt(moves) = &answer else { return moves_of(answer) };
        let held = match is_regrouped {
            true => self.held_after(moves).await,
            false => Vec::new(),
        };
        if held.is_empty() {
            return moves_of(answer);
        }
        let why = format!(
            "the runtime has not moved {}, so the change of `groups` was taken back; `bayplan config reload` tries it again",
            list_names(held)
        );
        let earlier = |config| Event::ConfigTakenBack(config, why.clone());
        self.ask_for(&self.live(), ground, earlier).await?;
        bail!(why)
    }

    /// What containers would be elsewhere.
    ///
    /// # Errors
    /// Its types of groups cannot be had.
    pub(super) async fn moves_under(
        &self,
        new: &Config,
        ground: &Ground,
    ) -> anyhow::Result<Vec<Shift>> {
        moves_of(self.ask_for(new, ground, Event::PreviewConfig).await?)
    }

    /// The same, and what would be where.
    ///
    /// # Errors
    /// Its types of groups cannot be had.
    pub(super) async fn status_under(
        &self,
        new: &Config,
        ground: &Ground,
    ) -> anyhow::Result<(Vec<Shift>, Box<Status>)> {
        match self.ask_for(new, ground, Event::PreviewStatus).await? {
            Answer::WhatIf(moves, status) => Ok((moves, status)),
            other => Err(why_not(other)),
        }
    }

    async fn ask_for(
        &self,
        config: &Config,
        ground: &Ground,
        event: impl FnOnce(Box<ChangedConfig>) -> Event,
    ) -> anyhow::Result<Answer> {
        let changed = config.changed(&ground.topology, &ground.chosen).context("reservedCpus")?;
        let answer = self.0.parts.inbox.ask(event(Box::new(changed))).await;
        answer.context("the daemon is stopping")
    }

    /// Those of these containers that are not where they were told to be, also after a while.
    async fn held_after(&self, moves: &[Shift]) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            tokio::time::sleep(LOOK).await;
            let status = self.0.parts.inbox.ask(Event::Status).await;
            let Some(Answer::Status(status)) = status else { return Vec::new() };
            let is_held = |it: &&ContainerStatus| {
                it.held.is_some() && moves.iter().any(|moved| moved.container == it.full_name())
            };
            let held = status.containers.iter().filter(is_held).map(ContainerStatus::full_name);
            let held: Vec<String> = held.collect();
            if held.is_empty() || Instant::now() >= until {
                return held;
            }
        }
    }
}

/// What the answer to a change says of containers.
fn moves_of(answer: Answer) -> anyhow::Result<Vec<Shift>> {
    match answer {
        Answer::Shifts(moves) | Answer::ShiftsInDoubt(moves) => Ok(moves),
        other => Err(why_not(other)),
    }
}

/// Why an answer is not the one that was asked for.
fn why_not(answer: Answer) -> anyhow::Error {
    match answer {
        Answer::NotPossible(lacking) => {
            anyhow!("`groups` cannot be changed to this now: {}", lacking.join("; "))
        }
        _ => anyhow!("the daemon is stopping"),
    }
}
