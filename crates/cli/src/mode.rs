//! `bayplan drain`, `bayplan restore` and `bayplan resume`: each shows what it will do, asks, and does it.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bayplan_daemon::{Offline, RestoredFiles, is_stopped, post_control, query_control};
use bayplan_node::mode::{Mode, ModePlan, ModeReport};

use crate::args::{ControlOptions, ModeOptions, Output};
use crate::control::control_socket;
use crate::node_config::NodeConfig;
use crate::text::{render_table, table};
use crate::visible::print_json;

/// Changes the mode of the daemon; fails when a container does not run where it should afterwards.
pub(crate) fn run(
    config: &NodeConfig,
    to: Mode,
    options: &ModeOptions,
) -> anyhow::Result<ExitCode> {
    let socket = control_socket(config, &options.control)?;
    let tokio = tokio::runtime::Runtime::new()?;
    let path = format!("/api/v1/mode?to={}", to.name());
    let plan = match tokio.block_on(query_control::<ModePlan>(&socket, &path)) {
        Err(error)
            if to == Mode::Restored && is_stopped(&error) && is_own(config, &options.control)? =>
        {
            errln!("bayplan: no daemon listens at {}; restoring without it", socket.display());
            return tokio.block_on(restore_offline(config, options));
        }
        other => other?,
    };
    if let Some(code) = unless_wanted(&plan, options)? {
        return Ok(code);
    }
    let report = tokio.block_on(post_control::<ModeReport>(&socket, &path, String::new()))?;
    print_report(&report, options.output.output)
}

/// Whether the socket is that of the daemon that the configuration is of, so that its journal is known.
fn is_own(config: &NodeConfig, options: &ControlOptions) -> anyhow::Result<bool> {
    match &options.control {
        Some(named) => Ok(*named == config.usable()?.control_socket),
        None => Ok(true),
    }
}

/// Prints a plan. An exit code if it is not to be carried out.
fn unless_wanted(plan: &ModePlan, options: &ModeOptions) -> anyhow::Result<Option<ExitCode>> {
    let is_json = options.output.output == Output::Json;
    if options.dry_run {
        match is_json {
            true => print_json(&plan)?,
            false => out!("{}", render_plan(plan))?,
        }
        return Ok(Some(ExitCode::SUCCESS));
    }
    match is_json {
        // What programs read is the report.
        true => err!("{}", render_plan(plan)),
        false => out!("{}", render_plan(plan))?,
    }
    if !options.yes && !is_confirmed()? {
        outln!("nothing was done")?;
        return Ok(Some(ExitCode::FAILURE));
    }
    Ok(None)
}

/// Keys that say where what is to be given back is kept.
const STATE_KEYS: [&str; 2] = ["stateDir", "hostRoot"];

/// As a running daemon does it, from what the journal says.
async fn restore_offline(config: &NodeConfig, options: &ModeOptions) -> anyhow::Result<ExitCode> {
    let config = config.usable_with(&STATE_KEYS)?;
    let Some(mut offline) = Offline::open(config).await? else {
        let dir = config.state_dir.display();
        errln!(
            "bayplan: no daemon has ever run with the state directory {dir}; there is nothing to give back"
        );
        return Ok(ExitCode::SUCCESS);
    };
    let done = restore_opened(&mut offline, options).await;
    offline.close().await;
    done
}

async fn restore_opened(offline: &mut Offline, options: &ModeOptions) -> anyhow::Result<ExitCode> {
    const ENDED: &str = "what decides has ended; this is a bug";
    let plan = offline.plan().await.context(ENDED)?;
    if let Some(code) = unless_wanted(&plan, options)? {
        return Ok(code);
    }
    let report = offline.restore().await.context(ENDED)?;
    print_report(&report, options.output.output)
}

fn print_report(report: &ModeReport, output: Output) -> anyhow::Result<ExitCode> {
    match output {
        Output::Json => print_json(&report)?,
        Output::Text => out!("{}", render_report(report))?,
    }
    let is_done = report.not_in_place.is_empty()
        && report.unchecked.is_none()
        && !report.is_unkept
        && report.files_not_written.is_empty();
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Gives kernel files back without a daemon; fails when some of them cannot be.
pub(crate) fn restore_files(config: &NodeConfig, output: Output) -> anyhow::Result<ExitCode> {
    let restored = bayplan_daemon::restore_files(config.usable_with(&STATE_KEYS)?)?;
    match output {
        Output::Json => print_json(&restored)?,
        Output::Text => out!("{}", render_restored(&restored))?,
    }
    Ok(if restored.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render_restored(restored: &RestoredFiles) -> String {
    let mut text = format!("{} values in kernel files are as they were.\n", restored.given_back);
    for failure in &restored.failures {
        text.push_str(&format!("NOT WRITTEN {failure}\n"));
    }
    text
}

fn is_confirmed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "there is no terminal to confirm on; say --yes, or --dry-run to see only what would be done"
        );
    }
    err!("Do it? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

fn render_plan(plan: &ModePlan) -> String {
    let mut text = match (plan.to, plan.from == plan.to) {
        (to, true) => format!("The mode is {} already.\n", to.name()),
        (Mode::Draining, _) => format!(
            "New containers get no exclusive CPUs, and share. Of those that are there, {} own CPUs and keep them.\n\
             `bayplan resume` ends this.\n",
            plan.owners
        ),
        (Mode::Restored, _) => {
            "All containers may run everywhere again, and kubelet's calls pass through unchanged. Places are kept for \
             `bayplan resume`, which ends this.\n"
                .to_owned()
        }
        (Mode::Placing, _) if plan.from == Mode::Draining => {
            "New containers get exclusive CPUs again; those that share go on sharing until they are made anew.\n".to_owned()
        }
        (Mode::Placing, _) => {
            "Containers are placed again. Those that have a place get it back; those that came while nothing was placed share.\n"
                .to_owned()
        }
    };
    match plan.changes.len() {
        0 => text.push_str("No container's CPUs or memory nodes change.\n"),
        1 => text.push_str("1 container changes:\n"),
        count => text.push_str(&format!("{count} containers change:\n")),
    }
    if !plan.changes.is_empty() {
        let mut rows = table(&["CONTAINER", "CPUS", "MEMS"]);
        for change in &plan.changes {
            rows.add_row([
                change.container.clone(),
                arrow(&change.cpus_from, &change.cpus_to),
                arrow(&change.mems_from, &change.mems_to),
            ]);
        }
        text.push_str(&render_table(&rows));
    }
    text
}

fn arrow(from: &str, to: &str) -> String {
    match from == to {
        true if to.is_empty() => "-".to_owned(),
        true => to.to_owned(),
        false => format!("{from} -> {to}"),
    }
}

fn render_report(report: &ModeReport) -> String {
    let mut text = format!("The mode is {}.\n", report.mode.name());
    for left in &report.not_in_place {
        text.push_str(&format!("NOT IN PLACE {}: {}\n", left.container, left.why));
    }
    match &report.unchecked {
        Some(why) => text.push_str(&format!(
            "NOT CHECKED where containers run now: {why}. It is written again when the runtime answers.\n"
        )),
        None if report.not_in_place.is_empty() => {
            text.push_str("Read back: every container runs where it should.\n");
        }
        None => text.push_str("They are written again; `bayplan status` shows where each should run.\n"),
    }
    for file in &report.files_not_written {
        text.push_str(&format!("NOT WRITTEN {file}. It is tried again.\n"));
    }
    if report.is_unkept {
        text.push_str("NOT ON DISK: the mode ends with the daemon, see its log. Mend the disk and repeat it.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use bayplan_node::mode::{NotInPlace, PinningChange};
    use expect_test::{Expect, expect};

    use super::*;

    fn check_plan(from: Mode, to: Mode, changes: &[[&str; 5]], expected: Expect) {
        let change = |[container, cpus_from, cpus_to, mems_from, mems_to]: &[&str; 5]| {
            let text = |text: &str| text.to_owned();
            PinningChange {
                container: text(container),
                cpus_from: text(cpus_from),
                cpus_to: text(cpus_to),
                mems_from: text(mems_from),
                mems_to: text(mems_to),
            }
        };
        let format = String::new();
        let changes = changes.iter().map(change).collect();
        let plan = ModePlan { format, from, to, owners: 2, changes };
        expected.assert_eq(&render_plan(&plan));
    }

    #[test]
    fn a_plan_says_what_will_be_and_which_containers_change() {
        check_plan(
            Mode::Placing,
            Mode::Draining,
            &[],
            expect![[r#"
                New containers get no exclusive CPUs, and share. Of those that are there, 2 own CPUs and keep them.
                `bayplan resume` ends this.
                No container's CPUs or memory nodes change.
            "#]],
        );
        check_plan(
            Mode::Draining,
            Mode::Restored,
            &[["n/p/a", "2-3", "0-15", "0", "0-1"], ["n/p/b", "4", "0-15", "", ""]],
            expect![[r#"
                All containers may run everywhere again, and kubelet's calls pass through unchanged. Places are kept for `bayplan resume`, which ends this.
                2 containers change:
                 CONTAINER  CPUS         MEMS
                 n/p/a      2-3 -> 0-15  0 -> 0-1
                 n/p/b      4 -> 0-15    -
            "#]],
        );
        check_plan(
            Mode::Restored,
            Mode::Placing,
            &[["n/p/a", "0-15", "2-3", "0", "0"]],
            expect![[r#"
            Containers are placed again. Those that have a place get it back; those that came while nothing was placed share.
            1 container changes:
             CONTAINER  CPUS         MEMS
             n/p/a      0-15 -> 2-3  0
        "#]],
        );
        check_plan(
            Mode::Draining,
            Mode::Placing,
            &[],
            expect![[r#"
            New containers get exclusive CPUs again; those that share go on sharing until they are made anew.
            No container's CPUs or memory nodes change.
        "#]],
        );
        check_plan(
            Mode::Placing,
            Mode::Placing,
            &[],
            expect![[r#"
            The mode is placing already.
            No container's CPUs or memory nodes change.
        "#]],
        );
    }

    fn report(not_in_place: &[(&str, &str)], unchecked: Option<&str>) -> ModeReport {
        let left = |(container, why): &(&str, &str)| NotInPlace {
            container: (*container).to_owned(),
            why: (*why).to_owned(),
        };
        ModeReport {
            format: String::new(),
            mode: Mode::Restored,
            not_in_place: not_in_place.iter().map(left).collect(),
            unchecked: unchecked.map(str::to_owned),
            files_not_written: Vec::new(),
            is_unkept: false,
        }
    }

    fn check_report(not_in_place: &[(&str, &str)], unchecked: Option<&str>, expected: Expect) {
        expected.assert_eq(&render_report(&report(not_in_place, unchecked)));
    }

    #[test]
    fn a_report_says_that_the_mode_would_not_survive_the_daemon() {
        let shown = render_report(&ModeReport { is_unkept: true, ..report(&[], None) });
        expect![[r#"
            The mode is restored.
            Read back: every container runs where it should.
            NOT ON DISK: the mode ends with the daemon, see its log. Mend the disk and repeat it.
        "#]]
        .assert_eq(&shown);
    }

    #[test]
    fn a_report_names_files_that_were_not_given_back() {
        let file = "/sys/a/scaling_governor to powersave (restore): EBUSY: busy".to_owned();
        let shown =
            render_report(&ModeReport { files_not_written: vec![file], ..report(&[], None) });
        expect![[r#"
            The mode is restored.
            Read back: every container runs where it should.
            NOT WRITTEN /sys/a/scaling_governor to powersave (restore): EBUSY: busy. It is tried again.
        "#]]
        .assert_eq(&shown);
    }

    #[test]
    fn a_report_names_containers_that_run_elsewhere_than_they_should() {
        check_report(
            &[],
            None,
            expect![[r#"
            The mode is restored.
            Read back: every container runs where it should.
        "#]],
        );
        check_report(
            &[("n/p/a", "runs on CPUs 2-3, not 0-15")],
            None,
            expect![[r#"
            The mode is restored.
            NOT IN PLACE n/p/a: runs on CPUs 2-3, not 0-15
            They are written again; `bayplan status` shows where each should run.
        "#]],
        );
        check_report(
            &[],
            Some("the runtime does not answer"),
            expect![[r#"
            The mode is restored.
            NOT CHECKED where containers run now: the runtime does not answer. It is written again when the runtime answers.
        "#]],
        );
    }
}
