//! `bayplan rebalance`: what the rebalancer does, and the switch that stops it.

use bayplan_daemon::{RebalanceView, UnhelpedView, post_control, query_control};
use bayplan_node::proposals::ProposalView;

use crate::args::{Output, RebalanceCommand};
use crate::control::control_socket;
use crate::node_config::NodeConfig;
use crate::text::{render_table, table};
use crate::visible::print_json;

/// Asks the daemon, or switches it, and prints what it does then.
pub(crate) fn run(config: &NodeConfig, command: &RebalanceCommand) -> anyhow::Result<()> {
    let (paused, options) = match command {
        RebalanceCommand::Status(options) => (None, options),
        RebalanceCommand::Pause(options) => (Some(true), options),
        RebalanceCommand::Resume(options) => (Some(false), options),
    };
    let socket = control_socket(config, &options.control)?;
    let tokio = tokio::runtime::Runtime::new()?;
    let view: RebalanceView = match paused {
        None => tokio.block_on(query_control(&socket, "/api/v1/rebalance"))?,
        Some(paused) => {
            let path = format!("/api/v1/rebalance?paused={paused}");
            tokio.block_on(post_control(&socket, &path, String::new()))?
        }
    };
    match options.output.output {
        Output::Text => out!("{}", render(&view))?,
        Output::Json => print_json(&view)?,
    }
    Ok(())
}

/// Why a container that `bayplan top` shows as stalled may be named nowhere.
const UNSEEN: &str = "No container waited for CPU time, was stopped by its limit, had memory elsewhere or ran more slowly than usual because of others at \
    the last look. Stalls for lack of memory or of block I/O are no signs that are looked at.\n";

fn render(view: &RebalanceView) -> String {
    let mut text = match (view.mode.as_str(), view.is_paused) {
        ("off", _) => "OFF: `rebalance.mode` of the configuration\n".to_owned(),
        (_, true) => "PAUSED until `bayplan rebalance resume`: nothing is turned\n".to_owned(),
        ("act", false) => {
            "The mode is act: what may help is done, and taken back if it does not.\n".to_owned()
        }
        (mode, false) => format!("The mode is {mode}: what would be done is said, and not done.\n"),
    };
    if view.mode != "off" {
        text.push_str(&format!("The last look had samples of {} containers.\n", view.sampled));
    }
    if let Some(unrest) = view.unrest.as_ref().filter(|_| !view.is_paused) {
        text.push_str(&format!("Nothing is changed now: {unrest}.\n"));
    }
    for UnhelpedView { container, why, .. } in &view.unhelped {
        text.push_str(&format!("{}: {}.\n", plain(container), plain(why)));
    }
    let in_force = view.proposals.iter().filter(|it| it.state.is_in_force()).count();
    if in_force > 0 {
        text.push_str(&format!(
            "{in_force} in force; `bayplan rebalance pause` takes back all that is turned.\n"
        ));
    }
    let Some(last) = view.proposals.last() else {
        text.push_str("No proposals since the daemon was started; `bayplan journal --kind proposed` has those before.\n");
        let has_looked = view.sampled > 0 && !view.is_paused && view.unrest.is_none();
        if view.mode != "off" && has_looked && view.unhelped.is_empty() {
            text.push_str(UNSEEN);
        }
        return text;
    };
    let mut rows = table(&["TIME (UTC)", "STATE", "WHAT"]);
    for proposal in &view.proposals {
        let ProposalView { at, text, state, outcome, .. } = proposal;
        let what = if outcome.is_empty() { text.clone() } else { format!("{text}; {outcome}") };
        rows.add_row([at.strftime("%F %T").to_string(), state.name().to_owned(), plain(&what)]);
    }
    text.push_str(&format!("\n{}\nThe last of them: ", render_table(&rows)));
    text.push_str(&last.evidence.lines().map(|line| plain(line) + "\n").collect::<String>());
    text
}

/// Names come from elsewhere, and must not steer a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use bayplan_node::proposals::ProposalState;
    use expect_test::{Expect, expect};

    use super::*;

    fn check(view: RebalanceView, expected: Expect) {
        expected.assert_eq(&render(&view));
    }

    fn proposal(text: &str) -> ProposalView {
        ProposalView {
            number: 1,
            state: ProposalState::Observed,
            outcome: String::new(),
            at: "2026-11-22T05:00:00Z".parse().unwrap(),
            knob: "weight".to_owned(),
            target: "batch/hog/main".to_owned(),
            victim: "shop/web/main".to_owned(),
            text: text.to_owned(),
            evidence: "shop/web/main suffers\n  waiting 2.00 > 0.50\n".to_owned(),
        }
    }

    fn observing() -> RebalanceView {
        let mode = "observe".to_owned();
        RebalanceView { mode, sampled: 2, ..RebalanceView::default() }
    }

    #[test]
    fn a_view_without_proposals_says_why_there_are_none() {
        let view = observing();
        check(
            view.clone(),
            expect![[r#"
                The mode is observe: what would be done is said, and not done.
                The last look had samples of 2 containers.
                No proposals since the daemon was started; `bayplan journal --kind proposed` has those before.
                No container waited for CPU time, was stopped by its limit, had memory elsewhere or ran more slowly than usual because of others at the last look. Stalls for lack of memory or of block I/O are no signs that are looked at.
            "#]],
        );
        let unhelped = vec![UnhelpedView {
            container: "shop/web/main".to_owned(),
            why: "cpu-pressure 89 % > 20 %, and nothing is proposed: its mode is off".to_owned(),
            outside: None,
        }];
        check(
            RebalanceView { unhelped, ..view.clone() },
            expect![[r#"
                The mode is observe: what would be done is said, and not done.
                The last look had samples of 2 containers.
                shop/web/main: cpu-pressure 89 % > 20 %, and nothing is proposed: its mode is off.
                No proposals since the daemon was started; `bayplan journal --kind proposed` has those before.
            "#]],
        );
        let unrest = Some("everything is restored".to_owned());
        check(
            RebalanceView { unrest, ..view.clone() },
            expect![[r#"
                The mode is observe: what would be done is said, and not done.
                The last look had samples of 2 containers.
                Nothing is changed now: everything is restored.
                No proposals since the daemon was started; `bayplan journal --kind proposed` has those before.
            "#]],
        );
        check(
            RebalanceView { is_paused: true, ..view.clone() },
            expect![[r#"
                PAUSED until `bayplan rebalance resume`: nothing is turned
                The last look had samples of 2 containers.
                No proposals since the daemon was started; `bayplan journal --kind proposed` has those before.
            "#]],
        );
        check(
            RebalanceView { mode: "off".to_owned(), ..view },
            expect![[r#"
                OFF: `rebalance.mode` of the configuration
                No proposals since the daemon was started; `bayplan journal --kind proposed` has those before.
            "#]],
        );
    }

    #[test]
    fn a_view_says_what_was_proposed() {
        let view = observing();
        let mut kept = proposal("idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50");
        (kept.state, kept.outcome) =
            (ProposalState::Kept, "kept: closed 90 % of the gap".to_owned());
        let (proposals, mode) = (vec![kept], "act".to_owned());
        check(
            RebalanceView { mode, proposals, ..view.clone() },
            expect![[r#"
            The mode is act: what may help is done, and taken back if it does not.
            The last look had samples of 2 containers.
            1 in force; `bayplan rebalance pause` takes back all that is turned.

             TIME (UTC)           STATE  WHAT
             2026-11-22 05:00:00  kept   idle on batch/hog/main, for shop/web/main: waiting 2.00 > 0.50; kept: closed 90 % of the gap

            The last of them: shop/web/main suffers
              waiting 2.00 > 0.50
        "#]],
        );
        let text = "weight on batch/h\u{1b}og/main, for shop/web/main: waiting 2.00 > 0.50";
        check(
            RebalanceView { proposals: vec![proposal(text)], ..view },
            expect![[r#"
                The mode is observe: what would be done is said, and not done.
                The last look had samples of 2 containers.

                 TIME (UTC)           STATE     WHAT
                 2026-11-22 05:00:00  observed  weight on batch/h�og/main, for shop/web/main: waiting 2.00 > 0.50

                The last of them: shop/web/main suffers
                  waiting 2.00 > 0.50
            "#]],
        );
    }
}
