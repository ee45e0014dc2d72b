//! `bayplan webhook`.

use bayplan_cluster::{WebhookOptions, run_webhook};
use tokio::runtime::Builder;

use crate::agent::log_to_stderr;
use crate::args;

/// Runs until the process ends.
pub(crate) fn run(options: args::WebhookOptions) -> anyhow::Result<()> {
    log_to_stderr()?;
    let options = WebhookOptions {
        listen: options.listen,
        names: options.names,
        namespace: options.namespace,
        secret: options.secret,
        configuration: options.configuration,
        certificate: options.certificate,
        has_profiles: options.colocation_profiles,
    };
    // It waits nearly always.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_webhook(options, bayplan_daemon::serve_reviews))
}
