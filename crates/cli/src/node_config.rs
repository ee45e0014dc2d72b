//! Which configuration file a command is about, and how much of it has to be right.
//!
//! `--config` names it, else `BAYPLAN_CONFIG` of the environment, else it is the usual one. A command that does what the file says needs all
//! of it ([`NodeConfig::strict`]). One that only has to find a daemon, its socket or its directories, must work while there is a
//! mistake in the file: it takes what can be understood, and says once that the rest cannot ([`NodeConfig::usable`]).

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bayplan_config::{CONFIG_PATH, Config, ConfigErrors, parse_config};
use bayplan_daemon::config::{read_config_file, read_usable_config};

/// The meaning of a file that was named.
///
/// # Errors
/// It cannot be read, or has mistakes.
pub(crate) fn read_config(path: &Path) -> anyhow::Result<Config> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse_config(path, &text)?)
}

/// The variable that names the file of this node.
pub(crate) const VARIABLE: &str = "BAYPLAN_CONFIG";

/// The file, and what was read of it.
#[derive(Debug, Default)]
pub(crate) struct NodeConfig {
    /// What `--config` names.
    argument: Option<PathBuf>,
    /// What the environment names.
    environment: Option<PathBuf>,
    usable: OnceCell<Config>,
}

impl NodeConfig {
    /// An empty variable names nothing.
    pub(crate) fn new(argument: Option<PathBuf>, environment: Option<OsString>) -> NodeConfig {
        let environment = environment.filter(|it| !it.is_empty()).map(PathBuf::from);
        NodeConfig { argument, environment, usable: OnceCell::new() }
    }

    /// The file that is named, if one is.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.argument.as_deref().or(self.environment.as_deref())
    }

    /// The configuration to try, for commands in which `--config` names that: the argument only.
    pub(crate) fn tried(&self) -> Option<&Path> {
        self.argument.as_deref()
    }

    /// The configuration of this node, for commands in which `--config` names one to try: that of the environment or the usual one. Where
    /// there is neither, it is the one to try.
    pub(crate) fn of_node(&self) -> NodeConfig {
        let has_usual = Path::new(CONFIG_PATH).exists();
        let argument = self.argument.clone();
        let argument = argument.filter(|_| self.environment.is_none() && !has_usual);
        NodeConfig { argument, environment: self.environment.clone(), usable: OnceCell::new() }
    }

    /// All of it.
    ///
    /// # Errors
    /// It cannot be read, or has mistakes.
    pub(crate) fn strict(&self) -> anyhow::Result<Config> {
        Ok(read_config_file(self.path())?.config)
    }

    /// As much as can be understood. That there is more is told the first time.
    ///
    /// # Errors
    /// A file that was named cannot be read.
    pub(crate) fn usable(&self) -> anyhow::Result<&Config> {
        if let Some(config) = self.usable.get() {
            return Ok(config);
        }
        let read = read_usable_config(self.path())?;
        if let Some(problem) = &read.problem {
            errln!("bayplan: warning: {}", render_problem(problem));
        }
        Ok(self.usable.get_or_init(|| read.config))
    }

    /// The same, where a wrong directory would be taken for one without anything to give back: refuses a file in which it is not clear
    /// where these keys point.
    ///
    /// # Errors
    /// As [`usable`](Self::usable), or a mistake is about one of the keys.
    pub(crate) fn usable_with(&self, keys: &[&str]) -> anyhow::Result<&Config> {
        let config = self.usable()?;
        let problem = read_usable_config(self.path())?.problem;
        let Some(problem) = problem else { return Ok(config) };
        let is_clear = problem.downcast_ref().is_some_and(|ConfigErrors { errors, .. }| {
            errors.iter().all(|it| is_about_one_key(&it.message) && !is_about(&it.message, keys))
        });
        if is_clear { Ok(config) } else { Err(problem) }
    }
}

/// Whether the rest of the file was read: it is YAML, and ours.
fn is_about_one_key(message: &str) -> bool {
    message.starts_with('`') || message.starts_with("unknown key `")
}

/// Whether a mistake is about one of the keys, or what may have been meant as one.
fn is_about(message: &str, keys: &[&str]) -> bool {
    let message = message.split("known are ").next().unwrap_or_default();
    keys.iter().any(|key| message.contains(&format!("`{key}`")))
}

/// The first mistake in one line, and where all of them are listed.
fn render_problem(problem: &anyhow::Error) -> String {
    let Some(ConfigErrors { path, errors }) = problem.downcast_ref() else {
        return format!("{problem:#}; going on with the defaults");
    };
    let path = path.display();
    let first = errors.first().map_or(String::new(), |first| {
        let message = first.message.lines().next().unwrap_or_default();
        // Names of all keys are for `config check`.
        let message = message.split("known are ").next().unwrap_or_default();
        let message = message.trim_end_matches([' ', ';']);
        format!("{path}:{}:{}: {message}: ", first.at.line, first.at.column)
    });
    format!(
        "{first}the file is broken, and only what can be understood of it is used; `bayplan config check {path}` lists all mistakes"
    )
}

#[cfg(test)]
mod tests {
    use bayplan_config::ConfigFile;
    use expect_test::expect;

    use super::*;

    #[test]
    fn an_argument_goes_before_the_environment_and_is_never_the_nodes_file_beside_it() {
        let path = |name: &str| Some(PathBuf::from(name));
        let both = NodeConfig::new(path("a"), Some("e".into()));
        assert_eq!(both.path(), Some(Path::new("a")));
        assert_eq!(both.tried(), Some(Path::new("a")));
        assert_eq!(both.of_node().path(), Some(Path::new("e")));
        let environment = NodeConfig::new(None, Some("e".into()));
        assert_eq!(environment.path(), Some(Path::new("e")));
        assert_eq!(environment.tried(), None);
        let empty = NodeConfig::new(None, Some(OsString::new()));
        assert_eq!(empty.path(), None);
    }

    /// A wrong directory would be taken for one in which nothing was kept.
    #[test]
    fn where_state_is_kept_is_not_guessed() {
        for (text, is_clear) in [
            (&b"stateDir: /data\n"[..], true),
            (b"log: loud\nstateDir: /data\n", true),
            (b"sokket: /a\nstateDir: /data\n", true),
            (b"stateDri: /data\n", false),
            (b"stateDir: []\n", false),
            (b"stateDir: \"/data\n", false),
            (b"  stateDir: /data\n  log: [\n", false),
            (b"stateDir: /data\nlog: \xff\n", false),
            (b"apiVersion: config.nri/v1alpha1\nkind: BalloonsPolicy\n", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("config.yaml");
            fs::write(&path, text).unwrap();
            let config = NodeConfig::new(Some(path), None);
            let found = config.usable_with(&["stateDir", "hostRoot"]).is_ok();
            assert_eq!(found, is_clear, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_broken_file_is_one_line() {
        let errors = ConfigFile::parse(Path::new("f"), "sokket: /a\nlog: loud\n").unwrap_err();
        expect![[r#"f:1:1: unknown key `sokket`; did you mean `socket`?: the file is broken, and only what can be understood of it is used; `bayplan config check f` lists all mistakes"#]]
        .assert_eq(&render_problem(&errors.into()));
    }
}
