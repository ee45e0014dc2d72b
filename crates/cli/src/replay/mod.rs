//! `bayplan replay`. In: a recorded history, and what is to be different. Out: how it was, how it would have been, and which containers would be
//! elsewhere.
//!
//! Files and the terminal are here; `player` lets the daemon's own state live through the history, `story` makes what `simulate` judges out
//! of either side, `report` writes it down.

mod container;
mod played;
mod player;
mod report;
mod story;
#[cfg(test)]
mod tests;

use anyhow::Context as _;
use bayplan_config::{Config, new_state};
use bayplan_node::history::Entry;
use bayplan_topology::{Topology, derive};
use clap::ValueEnum as _;

use crate::args::{Output, ReplayOptions};
use crate::machine::named_machine;
use crate::node_config::{NodeConfig, read_config};
use crate::past::Past;
use crate::replay::played::{Played, Setting};
use crate::replay::player::play;
use crate::replay::report::{Report, render_json, render_text};
use crate::simulate::quality::{Mean, Quality, judge};
use crate::simulate::summary::Run;
use crate::simulate::tally::Tally;
use crate::simulate::times::Times;

/// Replays the history, and says what would be different.
pub(crate) fn run(config: &NodeConfig, options: &ReplayOptions) -> anyhow::Result<()> {
    let mut past = Past::open(&config.of_node(), &options.history())?;
    let entries = past.read(false)?;
    if let Some(damage) = past.render_damage() {
        errln!("bayplan: warning: {damage}");
    }
    let machine = options.machine.as_deref().map(machine).transpose()?;
    let setting = Setting {
        config: config.tried().map(read_config).transpose()?,
        policy: options.policy.map(Into::into),
        topology: machine,
    };
    let name = config
        .tried()
        .map_or("as it would have been".to_owned(), |path| path.display().to_string());
    let name = match options.policy.and_then(|it| it.to_possible_value()) {
        Some(policy) => format!("{name}, {}", policy.get_name()),
        None => name,
    };
    let report = replay(&entries, &setting, name)?;
    match options.output.output {
        Output::Text => out!("{}", render_text(&report))?,
        Output::Json => out!("{}", render_json(&report)?)?,
    }
    Ok(())
}

fn machine(name: &str) -> anyhow::Result<Topology> {
    Ok(derive(&named_machine(name)?.snapshot)?)
}

/// Both sides of a history, judged.
fn replay(entries: &[Entry], setting: &Setting, name: String) -> anyhow::Result<Report> {
    let played = play(entries, setting)?;
    let Played { was, would, recorded, replayed, .. } = &played;
    let judged = |story: &story::Story, (config, topology): &(Config, Topology)| {
        let state =
            new_state(config, topology).context("the configuration does not suit the machine")?;
        let empty = Tally::new(topology, &state.ledger().pools().allocatable());
        // What had to be rewritten for others is in no history.
        let quality =
            Quality { updates: Mean::default(), ..judge(&story.trace, &story.rows, empty) };
        anyhow::Ok((config.division().reserved_on(topology).to_string(), quality))
    };
    let run = |name: String, (reserved, quality): (String, Quality)| Run {
        config: Some(name),
        reserved,
        quality,
        times: Times::default(),
    };
    let runs =
        [run("as it was".to_owned(), judged(was, recorded)?), run(name, judged(would, replayed)?)];
    Ok(Report { is_as_it_was: setting.is_as_it_was(), runs, played })
}
