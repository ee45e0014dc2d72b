//! A real Prometheus (Debian's package), asked what `deploy/grafana` and `deploy/prometheus` ask, and its tool. In: what it scrapes. Out: what is
//! wrong with the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::process::find_unpacked;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

/// Runs Prometheus' own tool where the rules are.
///
/// # Errors
/// It is not there, or has something to say against `input` or its arguments.
pub fn promtool(args: &[&str], input: &str) -> anyhow::Result<()> {
    let mut command = Command::new(find_unpacked("promtool", "prometheus")?);
    command.args(args).current_dir(deploy("prometheus"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("no way to tell it")?.write_all(input.as_bytes())?;
    let done = child.wait_with_output()?;
    let [out, err] = [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    ensure!(done.status.success(), "promtool {args:?}\n{out}{err}");
    Ok(())
}

/// Something that is asked of Prometheus, and by what.
#[derive(Clone, Debug)]
pub struct Question {
    /// A panel, a variable, an alert or a recording rule.
    pub from: String,
    /// In PromQL.
    pub expression: String,
}

impl Question {
    /// Names of metrics, those that recording rules make included.
    pub fn names(&self) -> BTreeSet<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let words = self.expression.split(|c: char| !is_part(c));
        let is_name = |it: &&str| {
            it.starts_with("bayplan_") || it.starts_with("process_") || it.contains(':')
        };
        words.filter(is_name).map(str::to_owned).collect()
    }

    /// No answer is an answer, too.
    fn is_condition(&self) -> bool {
        [" > ", " < ", " == "].iter().any(|it| self.expression.contains(it))
    }
}

/// What recording rules record, by its name.
pub type Recorded = BTreeMap<String, Question>;

/// All alerts, and all that is recorded.
///
/// # Errors
/// The file of rules is not as expected.
pub fn rules() -> anyhow::Result<(Vec<Question>, Recorded)> {
    let text = fs::read_to_string(deploy("prometheus/bayplan.rules.yaml"))?;
    let (mut all, mut recorded) = (Vec::new(), BTreeMap::new());
    let file: Value = serde_yaml::from_str(&text)?;
    let groups = file["groups"].as_array().context("no groups")?.iter();
    for rule in groups.flat_map(|it| it["rules"].as_array()).flatten() {
        let expression = rule["expr"].as_str().context("no expression")?.to_owned();
        let question =
            |from: &str| Question { from: from.to_owned(), expression: expression.clone() };
        match (rule["record"].as_str(), rule["alert"].as_str()) {
            (Some(name), _) => drop(recorded.insert(name.to_owned(), question(name))),
            (_, Some(name)) => all.push(question(name)),
            _ => bail!("neither a record nor an alert: {rule}"),
        }
    }
    Ok((all, recorded))
}

/// Everything that the dashboard asks, with everything chosen.
///
/// # Errors
/// The dashboard is not as expected.
pub fn dashboard() -> anyhow::Result<Vec<Question>> {
    let text = fs::read_to_string(deploy("grafana/bayplan.json"))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = panel["title"].as_str().context("no title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().context("no expression")?;
            all.push(Question { from: title.to_owned(), expression: chosen(expression)? });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().context("no variables")? {
        let Some(query) = variable["definition"].as_str() else { continue };
        // label_values(METRIC, LABEL)
        let inner = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
        let (metric, label) = inner.and_then(|it| it.rsplit_once(", ")).context("no metric")?;
        let from = format!("${}", variable["name"].as_str().context("no name")?);
        let expression = chosen(&format!("group by ({label}) ({metric})"))?;
        all.push(Question { from, expression });
    }
    Ok(all)
}

fn chosen(expression: &str) -> anyhow::Result<String> {
    let mut expression = expression.replace("$__rate_interval", "1m");
    for variable in ["$instance", "$namespace", "$pod", "$container"] {
        expression = expression.replace(variable, ".*");
    }
    ensure!(!expression.contains('$'), "{expression}");
    Ok(expression)
}

/// Prometheus with the rules, ended with the value.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Prometheus {
    /// Scrapes `target` (an address with its port) every second, and keeps what it needs in `dir`, which it makes.
    ///
    /// # Errors
    /// It is not there, or does not start.
    pub fn start(dir: &Path, target: &str) -> anyhow::Result<Prometheus> {
        fs::create_dir(dir)?;
        let rules = deploy("prometheus/bayplan.rules.yaml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: bayplan, static_configs: [{{targets: [\"{target}\"]}}]}}]\n",
            rules.display()
        );
        fs::write(dir.join("prometheus.yml"), config)?;
        let free = TcpListener::bind(("127.0.0.1", 0))?;
        let address = free.local_addr()?;
        drop(free);
        let log = dir.join("log");
        let child = Command::new(find_unpacked("prometheus", "prometheus")?)
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()?;
        Ok(Prometheus { child, address, log })
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The answer to a query at this moment; an error when it is not yet there, or not a good question.
    fn ask(&self, expression: &str) -> anyhow::Result<Vec<Value>> {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = get(self.address, &format!("/api/v1/query?query={query}"))?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        let answer: Value = serde_json::from_str(body).with_context(|| body.to_owned())?;
        match (answer["status"].as_str(), answer["data"]["result"].as_array()) {
            (Some("success"), Some(result)) => Ok(result.clone()),
            _ => bail!("{}", answer["error"]),
        }
    }

    /// What is wrong with the answers now: an error, or none where every metric that is asked for is in `exported`, which is the text of a scrape.
    pub fn wrong_answers<'a>(
        &self,
        questions: impl IntoIterator<Item = &'a Question>,
        recorded: &Recorded,
        exported: &str,
    ) -> Vec<String> {
        let samples = samples(exported);
        let mut wrong = Vec::new();
        for question in questions {
            let is_there = |name: &String| samples.contains(&**name);
            let is_due = made_of(question, recorded).iter().all(is_there);
            match self.ask(&question.expression) {
                Ok(found) if found.is_empty() && is_due && !question.is_condition() => {
                    wrong.push(format!("{}: no answer to {}", question.from, question.expression));
                }
                Ok(_) => {}
                Err(error) => {
                    wrong.push(format!("{}: {error:#}: {}", question.from, question.expression));
                }
            }
        }
        wrong
    }
}

/// Names of what a scrape tells.
pub fn samples(exported: &str) -> BTreeSet<&str> {
    exported.lines().filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// Names of metrics that the daemon has to export for an answer.
pub fn made_of(question: &Question, recorded: &Recorded) -> BTreeSet<String> {
    let made_of = |name: String| match recorded.get(&name) {
        Some(question) => question.names(),
        None => BTreeSet::from([name]),
    };
    question.names().into_iter().flat_map(made_of).flat_map(made_of).collect()
}

/// HTTP/1.0, so that the answer comes in one piece.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
