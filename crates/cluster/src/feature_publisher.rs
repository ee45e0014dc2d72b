//! Looks at what the node can do. In: the daemon's features, and a file of rules. Out: the labels for the Node object, the file for NFD's worker, and the NodeFeature for its master.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Cluster, Outcome};
use crate::daemon::{Daemon, ask_json};
use crate::feature_file::{remove_features, render_features, write_features};
use crate::feature_rules::{Rule, apply_rules, is_writable, parse_rules};
use crate::feature_set::{Attributes, FeatureLabels, FeatureSet, feature_labels};
use crate::node_feature::node_feature;
use crate::removal::is_removed;
use crate::said::Said;
use crate::watching::{REPAIR, World};

/// How often features are looked at: they change with kernel, devices and configuration only.
const LOOK: Duration = Duration::from_secs(60);
/// What the file says is over after this, unless it is written again, which is done at half of it.
const EXPIRY: SignedDuration = SignedDuration::from_hours(1);

/// What becomes of features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureOptions {
    /// The labels that NFD makes are made where no NFD runs.
    pub has_labels: bool,
    /// A file of rules; their labels are made, too.
    pub profiles: Option<PathBuf>,
    /// The directory of NFD's worker for files of others.
    pub directory: Option<PathBuf>,
}

/// Labels for the Node; `None`: not known yet.
pub(crate) type Labels = Option<FeatureLabels>;

/// Where features go.
pub(crate) struct FeatureTargets<'a> {
    pub(crate) labels: watch::Sender<Labels>,
    /// The API server, if a NodeFeature is written.
    pub(crate) object: Option<&'a Cluster>,
    /// Knows the Node.
    pub(crate) world: watch::Receiver<World>,
    /// Says that the daemon was removed, with which file and object go.
    pub(crate) removed: Option<&'a Path>,
}

/// Runs until the process ends.
pub(crate) async fn publish_features(
    daemon: &impl Daemon,
    options: &FeatureOptions,
    targets: FeatureTargets<'_>,
) {
    let FeatureTargets { labels, object, mut world, removed } = targets;
    if *options == FeatureOptions::default() && object.is_none() {
        labels.send_replace(Some(FeatureLabels::default()));
        // Others wait for the next value.
        return labels.closed().await;
    }
    let mut publisher = Publisher::new(options);
    loop {
        match ask_json::<FeatureSet>(daemon, "/api/v1/features", "features").await {
            Ok(features) => {
                publisher.said.is_over("features");
                let found = publisher.labels(&features);
                labels.send_if_modified(|labels| {
                    let is_news = labels.as_ref() != Some(&found);
                    *labels = Some(found);
                    is_news
                });
                publisher.write_file(&features);
                let node = world.borrow().node.clone();
                if let (Some(cluster), Some(node)) = (object, node) {
                    publisher.write_object(cluster, &node_feature(&node, &features)).await;
                }
            }
            Err(error) => {
                publisher.say("features", &format!("the node's features are not known: {error}"));
                if is_removed(removed) {
                    publisher.take_back(object).await;
                }
            }
        }
        // A NodeFeature is of the Node, which an agent that starts hears of a moment later.
        let is_early = object.is_some() && world.borrow().node.is_none();
        match is_early {
            true => drop(timeout(LOOK, world.wait_for(|world| world.node.is_some())).await),
            false => sleep(LOOK).await,
        }
    }
}

struct Publisher<'a> {
    options: &'a FeatureOptions,
    /// The last good ones.
    rules: Vec<Rule>,
    /// Features in the file, and since when.
    written: Option<(FeatureSet, Instant)>,
    /// The NodeFeature as it was written last, and when.
    object: Option<(Json, Instant)>,
    said: Said,
    /// Labels of rules that were last left out.
    left_out: Vec<String>,
}

impl<'a> Publisher<'a> {
    fn new(options: &'a FeatureOptions) -> Publisher<'a> {
        let (said, left_out) = (Said::default(), Vec::new());
        Publisher { options, rules: Vec::new(), written: None, object: None, said, left_out }
    }

    fn labels(&mut self, features: &FeatureSet) -> FeatureLabels {
        if let Some(path) = &self.options.profiles {
            match read_rules(path) {
                Ok(rules) => {
                    self.said.is_over("rules");
                    self.rules = rules;
                }
                Err(error) => {
                    let text = format!("the rules that were good last hold: {error:#}");
                    self.say("rules", &text);
                }
            }
        }
        let (of_rules, refused) =
            apply_rules(&self.rules, features).into_iter().partition(|(name, _)| is_writable(name));
        self.leave_out(refused);
        let is_made = self.options.has_labels;
        let of_features = if is_made { feature_labels(features) } else { Attributes::new() };
        FeatureLabels { of_features, of_rules }
    }

    /// One label that the API server refuses would keep all others away.
    fn leave_out(&mut self, labels: Attributes) {
        let names: Vec<String> = labels.into_keys().collect();
        if self.left_out != names {
            if !names.is_empty() {
                let names = names.join(", ");
                tracing::warn!(
                    "the agent may not write labels of these prefixes, which are left out: {names}"
                );
            }
            self.left_out = names;
        }
    }

    fn write_file(&mut self, features: &FeatureSet) {
        let Some(directory) = &self.options.directory else { return };
        let half = Duration::try_from(EXPIRY).unwrap_or_default() / 2;
        let is_fresh =
            |(written, at): &(FeatureSet, Instant)| written == features && at.elapsed() < half;
        if self.written.as_ref().is_some_and(is_fresh) {
            return;
        }
        let text = render_features(features, Timestamp::now() + EXPIRY);
        match write_features(directory, &text) {
            Ok(()) => {
                self.said.is_over("file");
                self.written = Some((features.clone(), Instant::now()));
            }
            Err(error) => self.say("file", &format!("{error:#}")),
        }
    }

    /// Writes it if it is news, and from time to time although it is not.
    async fn write_object(&mut self, cluster: &Cluster, object: &Json) {
        let is_known = |(written, at): &(Json, Instant)| written == object && at.elapsed() < REPAIR;
        if self.object.as_ref().is_some_and(is_known) {
            return;
        }
        let problem = match cluster.apply_node_feature(object).await {
            Ok(Outcome::Done) => {
                self.said.is_over("object");
                self.object = Some((object.clone(), Instant::now()));
                return;
            }
            Ok(Outcome::Absent) => {
                "the API server knows no NodeFeature; install Node Feature Discovery".to_owned()
            }
            Ok(Outcome::Conflict(message)) => {
                format!("the NodeFeature is another program's and left to it: {message}")
            }
            Err(error) => format!("{error:#}"),
        };
        self.say("object", &problem);
    }

    /// Takes back what a node without a daemon any more has in files and objects.
    async fn take_back(&mut self, object: Option<&Cluster>) {
        let removed = self.options.directory.as_deref().map(remove_features);
        match removed.unwrap_or(Ok(())) {
            Ok(()) => self.written = None,
            Err(error) => self.say("file", &format!("{error:#}")),
        }
        let Some(cluster) = object else { return };
        match cluster.withdraw_node_feature().await {
            Ok(()) => self.object = None,
            Err(error) => self.say("object", &format!("{error:#}")),
        }
    }

    fn say(&mut self, subject: &'static str, text: &str) {
        if self.said.is_news(subject, text) {
            tracing::warn!("{text}");
        }
    }
}

fn read_rules(path: &Path) -> anyhow::Result<Vec<Rule>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    parse_rules(&text).with_context(|| shown.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_may_not_be_written_keeps_no_other_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.yaml");
        let text = "rules: [{name: r, labels: {example.com/a: x, b: y, bayplan.dev/c: z}}]";
        std::fs::write(&path, text).unwrap();
        let options = FeatureOptions { profiles: Some(path), ..FeatureOptions::default() };
        let mut publisher = Publisher::new(&options);
        let labels = publisher.labels(&FeatureSet::default());
        let names: Vec<&str> = labels.of_rules.keys().map(String::as_str).collect();
        assert_eq!(names, ["bayplan.dev/c", "feature.node.kubernetes.io/b"]);
        assert_eq!(publisher.left_out, ["example.com/a"]);
    }
}
