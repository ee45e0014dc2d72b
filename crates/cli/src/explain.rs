//! `bayplan explain`.

use anyhow::bail;
use bayplan_daemon::query_control;
use bayplan_node::decision::{Decision, End, PoolVerdict, Verdict};
use bayplan_node::history::{ContainerNames, Entry, Kind, past_proposals};
use bayplan_node::proposals::ProposalView;
use bayplan_node::status::{Explanation, HeldFile, KnownView};
use serde_json::{Value, json};

use crate::args::{ExplainOptions, Output, PastOptions};
use crate::control::control_socket;
use crate::journal::Columns;
use crate::node_config::NodeConfig;
use crate::past::Past;
use crate::text::{render_table, table};
use crate::visible::{print_json, visible};

/// More proposals of the rebalancer are in the journal.
const REBALANCE_MAX: usize = 8;

/// Asks the daemon and prints every pool that was considered.
pub(crate) fn run(config: &NodeConfig, options: &ExplainOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let path = format!("/api/v1/explain?name={}", encode(&options.name));
    let asked = query_control::<Vec<Explanation>>(&socket, &path);
    let mut found = tokio::runtime::Runtime::new()?.block_on(asked)?;
    if found.is_empty() {
        return explain_past(config, options);
    }
    if found.iter().any(|it| it.rebalance.len() < REBALANCE_MAX) {
        // Without a history, or the right to read it, what the daemon remembers is all there is.
        let past = past(config, options);
        let entries = past.and_then(|mut past| past.read(false)).unwrap_or_default();
        found.iter_mut().for_each(|explanation| add_past(explanation, &entries));
    }
    match options.output.output {
        Output::Text => out!("{}", found.iter().map(render).collect::<String>())?,
        Output::Json => print_json(&with_typed_criteria(&found)?)?,
    }
    Ok(())
}

/// The same for programs: criteria as objects with a `name` and a `value` that is a truth value, a number or, where it has a unit or several
/// parts, a text.
pub(crate) fn with_typed_criteria(explanations: &[Explanation]) -> anyhow::Result<Value> {
    let mut shown = serde_json::to_value(explanations)?;
    for explanation in shown.as_array_mut().into_iter().flatten() {
        let pools = explanation.pointer_mut("/decision/pools").and_then(Value::as_array_mut);
        for criteria in pools.into_iter().flatten().filter_map(|pool| pool.get_mut("criteria")) {
            let pairs: Vec<(String, String)> = serde_json::from_value(criteria.take())?;
            let typed = pairs.into_iter().map(|(name, value)| {
                let value = serde_json::from_str::<Value>(&value)
                    .ok()
                    .filter(|value| value.is_boolean() || value.is_number())
                    .unwrap_or(Value::String(value));
                json!({ "name": name, "value": value })
            });
            *criteria = typed.collect();
        }
    }
    Ok(shown)
}

/// The history of the daemon that is asked.
fn past(config: &NodeConfig, options: &ExplainOptions) -> anyhow::Result<Past> {
    match &options.control.control {
        Some(socket) => Past::of_daemon(socket),
        None => Past::open(config, &PastOptions { state_dir: None }),
    }
}

/// Proposals of before the daemon's own, up to as many as are shown.
fn add_past(explanation: &mut Explanation, entries: &[Entry]) {
    let own = &mut explanation.rebalance;
    let mut past = past_proposals(entries, &explanation.container);
    // The history is told of a proposal after the daemon has noted it.
    past.retain(|it| own.first().is_none_or(|first| it.at < first.at));
    let skipped = past.len().saturating_sub(REBALANCE_MAX.saturating_sub(own.len()));
    past.drain(..skipped);
    past.append(own);
    *own = past;
}

/// What the history knows of a container that the daemon does not remember: not every pool that was considered, but everything that
/// happened to it.
pub(crate) struct Remembered {
    pub(crate) explanation: Explanation,
    entries: Vec<Entry>,
}

/// Finds a container in the history.
///
/// # Errors
/// The history cannot be read, or has no container of this name.
pub(crate) fn remembered(
    config: &NodeConfig,
    options: &ExplainOptions,
) -> anyhow::Result<Remembered> {
    let name = &options.name;
    let entries = match past(config, options) {
        Ok(mut past) => past.read(false)?,
        Err(error) => {
            bail!("no container is called `{name}`; `bayplan status` lists them ({error:#})")
        }
    };
    let is_it = |entry: &Entry| entry.who.as_ref().is_some_and(|who| who.is_called(name));
    let arrival = entries.iter().rfind(|entry| entry.spec.is_some() && is_it(entry));
    let Some((arrival, who)) = arrival.and_then(|entry| Some((entry, entry.who.as_ref()?))) else {
        bail!(
            "no container is called `{name}`; `bayplan status` lists them, and those that have ended can be asked for, too, as long as \
             the history has them (`bayplan journal`)"
        );
    };
    let end = entries.iter().rfind(|it| it.kind == Kind::Ended && is_it(it));
    let mut explanation = Explanation {
        container: who.full_name(),
        now: None,
        decision: Decision {
            at: arrival.at,
            asked: arrival.asked.clone(),
            outcome: arrival.why.clone(),
            pools: Vec::new(),
            warnings: arrival.warnings.clone(),
        },
        known: None,
        isolation: None,
        vectors: None,
        files: Vec::new(),
        rebalance: Vec::new(),
        front_end: None,
        end: end.map(|it| End { at: it.at, why: it.why.clone() }),
    };
    add_past(&mut explanation, &entries);
    Ok(Remembered { explanation, entries })
}

fn explain_past(config: &NodeConfig, options: &ExplainOptions) -> anyhow::Result<()> {
    let Remembered { explanation, entries } = remembered(config, options)?;
    match options.output.output {
        Output::Text => {
            // Proposals are above, with more than a line, unless an older version has told them.
            let of_it = |entry: &Entry| {
                entry.proposal.is_none()
                    && entry.who.as_ref().map(ContainerNames::full_name).as_ref()
                        == Some(&explanation.container)
            };
            let told: Vec<Entry> = entries.iter().filter(|it| of_it(it)).cloned().collect();
            out!("{}\n{}", render(&explanation), Columns::default().render(&told))?;
        }
        Output::Json => print_json(&with_typed_criteria(&[explanation])?)?,
    }
    Ok(())
}

/// Percent-encodes what is not a letter, a digit or one of `-._~/` (RFC 3986, section 2.3).
pub(crate) fn encode(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    name.bytes()
        .map(|byte| match is_plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// One container in text.
pub(crate) fn render(explanation: &Explanation) -> String {
    visible(&render_explanation(explanation))
}

fn render_explanation(explanation: &Explanation) -> String {
    let decision = &explanation.decision;
    let mut text = format!("{}: {}\n", explanation.container, decision.outcome);
    text.push_str(&format!("  asked    {}\n", decision.asked));
    // A simulated decision has no time.
    if decision.at != jiff::Timestamp::UNIX_EPOCH {
        text.push_str(&format!("  decided  {:.0}\n", decision.at));
    }
    match &explanation.now {
        Some(now) => {
            text.push_str(&format!("  now      {} on CPUs {}", now.phase, now.cpus_text()));
            if !now.exclusive_of_pod.is_empty() {
                text.push_str(&format!(", which its pod owns: {}", now.exclusive_of_pod));
            } else if !now.exclusive.is_empty() {
                text.push_str(&format!(", owns {}", now.exclusive));
            }
            if !now.mems_text().is_empty() {
                text.push_str(&format!(", memory nodes {}", now.mems_text()));
            }
            text.push('\n');
            text.extend(now.holds_texts().iter().map(|it| format!("  holds    {it}\n")));
            if let Some(narrowing) = now.narrowing_text() {
                text.push_str(&format!("  memory   {narrowing}\n"));
            }
            let isolation = explanation.isolation.as_ref().filter(|_| now.intruders.is_empty());
            if let Some(isolation) = isolation {
                text.push_str(&format!("  isolated {isolation}\n"));
            }
            text.extend(explanation.vectors.iter().map(|it| format!("  vectors  {it}\n")));
            text.extend(explanation.front_end.iter().map(|it| format!("  frontend {it}\n")));
        }
        None => text.push_str(&match &explanation.end {
            Some(End { at, why }) => format!("  now      gone\n  ended    {at:.0} {why}\n"),
            None => "  now      gone\n".to_owned(),
        }),
    }
    text.push_str(&explanation.known.as_deref().map(render_known).unwrap_or_default());
    for HeldFile { slot, value, reason, failure } in &explanation.files {
        let failure = failure.iter().map(|why| format!("; not so: {why}")).collect::<String>();
        text.push_str(&format!("  file     {slot}: {value} ({reason}){failure}\n"));
    }
    for warning in &decision.warnings {
        text.push_str(&format!("  warning  {warning}\n"));
    }
    if !decision.pools.is_empty() {
        let mut rows = table(&["POOL", "VERDICT", "WHY", "CPUS"]);
        let verdicts = [Verdict::Won, Verdict::Lost, Verdict::Rejected];
        for verdict in verdicts {
            for pool in decision.pools.iter().filter(|pool| pool.verdict == verdict) {
                rows.add_row([pool.pool.as_str(), verdict.name(), &pool.why, &pool.cpus]);
            }
        }
        text.push_str(&render_table(&rows));
        text.push_str(&render_scores(&decision.pools));
    }
    text.push_str(&render_rebalance(&explanation.rebalance));
    text
}

/// Where its requests are known from, and what else kubelet has told.
fn render_known(known: &KnownView) -> String {
    let mut text = format!("  requests from {}\n", known.requests_from);
    if let Some(facts) = &known.facts {
        let mut parts = Vec::new();
        parts.extend(facts.owner.iter().map(|owner| format!("of {owner}")));
        let priority = facts.priority.map(|it| format!(" ({it})")).unwrap_or_default();
        let class = facts.priority_class.iter();
        parts.extend(class.map(|class| format!("priority class {class}{priority}")));
        let extended = facts.extended.iter();
        parts.extend(extended.map(|(name, amount)| format!("{amount} of {name}")));
        parts.extend(facts.resize.iter().map(|state| format!("resize {state}")));
        if !parts.is_empty() {
            text.push_str(&format!("  pod      {}\n", parts.join(", ")));
        }
    }
    if let Some(at) = known.changed_at {
        text.push_str(&format!("  changed  {at:.0} by annotation: {}\n", known.changes));
    }
    text
}

/// What the rebalancer has told, with how it knew, newest first.
fn render_rebalance(proposals: &[ProposalView]) -> String {
    let mut text = String::new();
    for proposal in proposals.iter().rev().take(REBALANCE_MAX) {
        let ProposalView { at, state, text: what, outcome, evidence, .. } = proposal;
        let outcome = if outcome.is_empty() { String::new() } else { format!("; {outcome}") };
        text.push_str(&format!("  {:<8} {at:.0} {what}{outcome}\n", state.name()));
        text.extend(evidence.lines().map(|line| format!("           {line}\n")));
    }
    text.chars().map(|it| if it.is_control() && it != '\n' { '\u{fffd}' } else { it }).collect()
}

/// The criteria in which the pools differ, in the order in which they are compared; greater or fewer wins as ARCHITECTURE says.
fn render_scores(pools: &[PoolVerdict]) -> String {
    let scored = pools.iter().filter(|pool| !pool.criteria.is_empty());
    let scored: Vec<(&PoolVerdict, Vec<(&str, &str)>)> =
        scored.map(|pool| (pool, pool.criteria.iter().collect())).collect();
    let Some((_, first)) = scored.first() else { return String::new() };
    let differs = |at: &usize| {
        scored.iter().any(|(_, own)| own.get(*at).map(|it| it.1) != first.get(*at).map(|it| it.1))
    };
    // The last is the number of the pool, which makes the order total.
    let criteria: Vec<usize> = (0..first.len().saturating_sub(1)).filter(differs).collect();
    if criteria.is_empty() {
        return String::new();
    }
    let names = criteria.iter().filter_map(|at| first.get(*at));
    let header: Vec<&str> = std::iter::once("SCORE").chain(names.map(|(name, _)| *name)).collect();
    let mut rows = table(&header);
    for (pool, own) in &scored {
        let values = criteria.iter().map(|at| own.get(*at).map_or("", |it| it.1));
        rows.add_row(std::iter::once(pool.pool.as_str()).chain(values));
    }
    render_table(&rows)
}
