//! Arguments of `bayplan config`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::shared::{ControlOptions, OutputOptions, machine_help};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key with its value and what it is for; the output is a configuration file
    ///
    /// Without a file it is all defaults, and a start for a file of your own:
    ///
    ///   bayplan config show > bayplan.yaml
    ///
    /// Never onto the file that it reads: the shell empties that first.
    #[command(verbatim_doc_comment)]
    Show(ShowConfigOptions),
    /// List every mistake of a file, with line and column, and what of it this machine lacks
    ///
    /// What `bayplan run` would refuse is a mistake, found by the same code: also reserved CPUs that the machine does not have. For a file
    /// that is for another machine, name that one with --machine. The exit code is 64 if there are mistakes, and 0 if not; warnings do not
    /// count.
    Check(CheckConfigOptions),
    /// Ask the daemon what a file would change: keys, which of them need a restart, and which containers would move
    ///
    /// Nothing changes. The daemon works it out with the code with which it would carry it out, on a copy of its state. To see it before
    /// it happens, write the new configuration to another file first: the daemon reads its own as soon as that is another one.
    Diff(DiffConfigOptions),
    /// Have the daemon read its file again, as SIGHUP does, and wait until the containers that have to move have moved
    ///
    /// A file with mistakes, or one that does not fit the machine, changes nothing, and the exit code is not 0. The daemon also reads the
    /// file by itself about two seconds after it was changed.
    Reload(ReloadConfigOptions),
    /// Print a JSON Schema (draft 2020-12) of the file, for editors and generators
    ///
    /// With the YAML language server, the first line of the file names it: # yaml-language-server: $schema=/path/to/schema.json
    Schema,
    /// Print the custom resources BayplanConfig and BayplanNode, for `kubectl apply --server-side -f -`
    #[cfg(feature = "cluster")]
    Crds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigForm {
    /// A commented configuration file
    Yaml,
    /// For programs
    Json,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowConfigOptions {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = ConfigForm::Yaml)]
    pub(crate) output: ConfigForm,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffConfigOptions {
    /// The file [default: that of --config]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReloadConfigOptions {
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckConfigOptions {
    /// The file [default: that of --config]
    pub(crate) file: Option<PathBuf>,
    /// The machine that the file is for, instead of this one
    #[arg(long, value_name = "FILE|SPEC", long_help = machine_help())]
    pub(crate) machine: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
