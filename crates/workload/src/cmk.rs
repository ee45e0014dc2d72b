//! What CMK's words in a container ask for. In: the container's command with its arguments, and its environment. Out: the command without `cmk isolate`, and the pool that is meant.
//!
//! `cmk isolate [FLAGS] COMMAND [-- ARGS]` stands either as the words of the command themselves, or in the script of a shell (`bash -c`). In a script exactly those words are cut out, and all else
//! stays byte by byte; a script of which it is not certain what it does is left alone. Programs called `cmk` and `kcm` count, wherever they are. Pods of CRI Resource Manager's static-pools have the environment `STP_POOL`, `STP_SOCKET_ID` and
//! `STP_NO_AFFINITY` instead.

use bayplan_types::CpuSet;

use crate::shell::{self, Script, Word};

/// What a container asks for in CMK's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolate {
    /// `--pool`.
    pub pool: String,
    /// `--socket-id`; `None` for any.
    pub socket: Option<u32>,
    /// `--no-affinity`: only the environment is set.
    pub no_affinity: bool,
    /// `CMK_NUM_CORES`: slots of an exclusive pool.
    pub slots: usize,
}

/// What a container says in CMK's words, and its command without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What is asked for, or why that cannot be understood.
    pub asked: Result<Isolate, CommandError>,
    /// Command and arguments without `cmk isolate`; `None` where it is not in them.
    pub command: Option<Vec<String>>,
}

/// The pool of CMK for the system's own processes; where no group has this name it is the reserved CPUs.
pub const INFRA: &str = "infra";
/// The pool of CMK that its containers share.
pub const SHARED: &str = "shared";

/// What a container with this command, arguments included, and this environment asks for; `None`: it says nothing. The command goes before the environment.
pub fn read<'a>(
    command: &[String],
    variables: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<Said> {
    let (asked, left) = match strip_isolate(command) {
        Ok(Some((asked, left))) => (Ok(asked), Some(left)),
        Ok(None) => (pool_of_environment(variables.clone()).transpose()?, None),
        Err(why) => (Err(why), None),
    };
    let count = variables.into_iter().find(|(name, _)| *name == "CMK_NUM_CORES");
    let slots = match count.map(|(_, text)| text.trim()) {
        None | Some("") => Ok(1),
        Some(text) => text.parse().map_err(|_| CommandError::Slots(text.to_owned())),
    };
    let asked = asked.and_then(|asked| Ok(Isolate { slots: slots?, ..asked }));
    Some(Said { asked, command: left })
}

/// What CMK puts into the environment of a program: its CPUs, those of the pool `shared`, and those of the pool `infra`.
pub fn environment(assigned: &CpuSet, shared: &CpuSet, infra: &CpuSet) -> Vec<(String, String)> {
    let variables = [
        ("CMK_CPUS_ASSIGNED", list(assigned)),
        ("CMK_CPUS_ASSIGNED_MASK", mask(assigned)),
        ("CMK_CPUS_SHARED", list(shared)),
        ("CMK_CPUS_INFRA", list(infra)),
    ];
    variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// What is asked for, in variables that `pool_of_environment` reads: they stay with the program, and its command says it no more.
pub fn asked_environment(asked: &Isolate) -> Vec<(String, String)> {
    let socket = asked.socket.map(|it| ("STP_SOCKET_ID", it.to_string()));
    let affinity = asked.no_affinity.then(|| ("STP_NO_AFFINITY", "true".to_owned()));
    let pool = ("STP_POOL", asked.pool.clone());
    let variables = [Some(pool), socket, affinity].into_iter().flatten();
    variables.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Every CPU by its number: programs that read it know no ranges.
fn list(cpus: &CpuSet) -> String {
    cpus.iter().map(|cpu| cpu.0.to_string()).collect::<Vec<_>>().join(",")
}

/// In hexadecimal, with all of its digits together.
fn mask(cpus: &CpuSet) -> String {
    let text = cpus.render_mask().replace(',', "");
    let digits = text.trim_start_matches('0');
    if digits.is_empty() { "0x0".to_owned() } else { format!("0x{digits}") }
}

/// Why a command is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no `--pool`.
    #[error("`cmk isolate` without --pool; name exclusive, shared or infra")]
    NoPool,
    /// There is nothing to run.
    #[error("`cmk isolate` without a command")]
    NoCommand,
    /// A flag that is not known, or has no value.
    #[error(
        "`cmk isolate` with `{0}`; known are --pool, --socket-id, --no-affinity, --conf-dir and --namespace"
    )]
    Flag(String),
    /// It is in a script, and it is not certain what it asks for there.
    #[error(
        "the script in its command has `cmk isolate` and stays as it is, and the container belongs to no pool of CMK: {0}"
    )]
    Script(String),
    /// `CMK_NUM_CORES` is no number.
    #[error("CMK_NUM_CORES is `{0}`, expected a number of cores")]
    Slots(String),
    /// `--socket-id` or `STP_SOCKET_ID` is no number.
    #[error("the socket is `{0}`, expected a number, or -1 for any")]
    Socket(String),
}

impl CommandError {
    /// The container says something that cannot be had; otherwise it counts as one that says nothing.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, CommandError::Script(_))
    }
}

/// What the environment asks for; `None` without `STP_POOL`.
///
/// # Errors
/// `STP_SOCKET_ID` is no number.
fn pool_of_environment<'a>(
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Option<Isolate>, CommandError> {
    let mut asked = Isolate { slots: 1, ..Isolate::default() };
    let mut socket_id = "";
    for (name, value) in variables {
        match name {
            "STP_POOL" => asked.pool = value.to_owned(),
            "STP_SOCKET_ID" => socket_id = value,
            "STP_NO_AFFINITY" => asked.no_affinity = !["", "0", "false"].contains(&value),
            _ => {}
        }
    }
    if asked.pool.is_empty() {
        return Ok(None);
    }
    Ok(Some(Isolate { socket: socket(socket_id)?, ..asked }))
}

/// Takes `cmk isolate` out of a command. `None` if it is not there.
///
/// # Errors
/// It is there, but cannot be understood.
fn strip_isolate(command: &[String]) -> Result<Option<(Isolate, Vec<String>)>, CommandError> {
    if let [program, verb, rest @ ..] = command
        && is_cmk(program)
        && verb == "isolate"
    {
        let words: Vec<&str> = rest.iter().map(String::as_str).collect();
        let (isolate, at) = flags(&words)?;
        let mut left: Vec<String> = rest.get(at..).unwrap_or_default().to_vec();
        // The dashes between the command and its arguments.
        if left.get(1).is_some_and(|word| word == "--") {
            left.remove(1);
        }
        return Ok(Some((isolate, left)));
    }
    let Some(place) = script_of(command) else { return Ok(None) };
    let Some(script) = command.get(place) else { return Ok(None) };
    let Some((isolate, stripped)) = strip_script(script)? else { return Ok(None) };
    let mut left = command.to_vec();
    if let Some(script) = left.get_mut(place) {
        *script = stripped;
    }
    Ok(Some((isolate, left)))
}

fn is_cmk(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("cmk" | "kcm"))
}

/// Where the script of a shell is among its arguments: with a flag `c` it is the first one that is no flag and no value of one.
fn script_of(command: &[String]) -> Option<usize> {
    let name = command.first()?.rsplit('/').next()?;
    if !["sh", "bash", "dash", "ash", "zsh", "ksh"].contains(&name) {
        return None;
    }
    let (mut at, mut has_script) = (1, false);
    while let Some(word) = command.get(at) {
        match word.as_str() {
            "--" | "-" => {
                at += 1;
                break;
            }
            "--rcfile" | "--init-file" => at += 1,
            long if long.starts_with("--") => {}
            short if short.starts_with(['-', '+']) => {
                has_script |= short.starts_with('-') && short.contains('c');
                // The name of an option follows.
                at += short.matches(['o', 'O']).count();
            }
            _ => break,
        }
        at += 1;
    }
    (has_script && at < command.len()).then_some(at)
}

/// Reads flags up to the command; returns where that is.
fn flags(words: &[&str]) -> Result<(Isolate, usize), CommandError> {
    let mut isolate = Isolate { slots: 1, ..Isolate::default() };
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if *word == "--" {
            break;
        }
        let Some(flag) = word.strip_prefix("--") else {
            at -= 1;
            break;
        };
        if flag == "no-affinity" {
            isolate.no_affinity = true;
            continue;
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value),
            None => {
                let value = words.get(at).ok_or_else(|| CommandError::Flag((*word).to_owned()))?;
                at += 1;
                (flag, *value)
            }
        };
        match name {
            "pool" => isolate.pool = value.to_owned(),
            "socket-id" => isolate.socket = socket(value)?,
            "conf-dir" | "namespace" | "install-dir" => {}
            _ => return Err(CommandError::Flag((*word).to_owned())),
        }
    }
    if isolate.pool.is_empty() {
        return Err(CommandError::NoPool);
    }
    if at >= words.len() {
        return Err(CommandError::NoCommand);
    }
    Ok((isolate, at))
}

/// A number; -1 is any.
fn socket(text: &str) -> Result<Option<u32>, CommandError> {
    match text {
        "-1" | "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| CommandError::Socket(text.to_owned())),
    }
}

/// Longer scripts are not read.
const SCRIPT_MAX: usize = 128 << 10;

fn names_isolate(text: &str) -> bool {
    text.contains("isolate") && (text.contains("cmk") || text.contains("kcm"))
}

fn unsure(why: impl ToString) -> CommandError {
    CommandError::Script(why.to_string())
}

fn strip_script(script: &str) -> Result<Option<(Isolate, String)>, CommandError> {
    if !names_isolate(script) {
        return Ok(None);
    }
    if script.len() > SCRIPT_MAX {
        return Err(unsure("it is longer than 128 KiB"));
    }
    let Script { words, unread } = shell::read(script);
    let Some(place) = place_of_isolate(script, &words, unread)? else { return Ok(None) };
    // The words of this command only.
    let rest: Vec<&Word> = words.iter().skip(place + 2).collect();
    let end = rest.iter().position(|word| word.is_first).unwrap_or(rest.len());
    let rest = rest.get(..end).unwrap_or_default();
    let texts: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    let (isolate, at) = flags(&texts).map_err(unsure)?;
    if rest.iter().take(at).any(|it| !it.is_plain) {
        return Err(unsure("the shell makes its flags"));
    }
    let (Some(begin), Some(command)) = (words.get(place), rest.get(at)) else { return Ok(None) };
    let mut stripped = script.get(..begin.start).unwrap_or_default().to_owned();
    match rest.get(at + 1) {
        Some(dashes) if dashes.text == "--" => {
            let until = rest.get(at + 2).map_or(dashes.end, |word| word.start);
            stripped.push_str(script.get(command.start..dashes.start).unwrap_or_default());
            stripped.push_str(script.get(until..).unwrap_or_default());
        }
        _ => stripped.push_str(script.get(command.start..).unwrap_or_default()),
    }
    Ok(Some((isolate, stripped)))
}

/// The word of a script that is the program `cmk` with `isolate` behind it; `None`: the script does not run that.
///
/// # Errors
/// It may run it, but where, or how often, is not certain.
fn place_of_isolate(
    script: &str,
    words: &[Word],
    unread: Option<usize>,
) -> Result<Option<usize>, CommandError> {
    if unread.is_some_and(|unread| names_isolate(script.get(unread..).unwrap_or_default())) {
        return Err(unsure("it stands behind what is not understood"));
    }
    if words.iter().any(|it| !it.is_plain && names_isolate(&it.text)) {
        return Err(unsure("it stands in a substitution"));
    }
    let mut found = None;
    // The program to which a word belongs.
    let mut program = "";
    for (at, pair) in words.windows(2).enumerate() {
        let [word, next] = pair else { continue };
        if word.is_command {
            program = &word.text;
        }
        if !is_cmk(&word.text) || next.text != "isolate" || next.is_first {
            continue;
        }
        match (word.is_command, found) {
            (true, None) => found = Some(at),
            (true, Some(_)) => {
                return Err(unsure(
                    "several `cmk isolate` in one script; a container has one CPU set",
                ));
            }
            // It is printed.
            (false, _) if ["echo", "printf"].contains(&program) => {}
            (false, _) => return Err(unsure(format!("it stands behind `{program}`"))),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command that is left, behind `POOL[/SOCKET][ no affinity]: `; or why not.
    #[track_caller]
    fn check(command: &[&str], expected: &str) {
        let command: Vec<String> = command.iter().map(|it| (*it).to_owned()).collect();
        let text = match strip_isolate(&command) {
            Ok(None) => "none".to_owned(),
            Ok(Some((isolate, left))) => {
                let socket = isolate.socket.map(|it| format!("/{it}")).unwrap_or_default();
                let affinity = if isolate.no_affinity { " no affinity" } else { "" };
                format!("{}{socket}{affinity}: {left:?}", isolate.pool)
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn the_words_of_a_command_are_taken_out() {
        check(
            &[
                "/opt/bin/cmk",
                "isolate",
                "--conf-dir=/etc/cmk",
                "--pool=exclusive",
                "sleep",
                "--",
                "inf",
            ],
            r#"exclusive: ["sleep", "inf"]"#,
        );
        check(
            &["cmk", "isolate", "--pool", "shared", "--socket-id=1", "--no-affinity", "app"],
            r#"shared/1 no affinity: ["app"]"#,
        );
        check(
            &["/host/opt/bin/kcm", "isolate", "--pool=infra", "--socket-id=-1", "--", "app", "-x"],
            r#"infra: ["app", "-x"]"#,
        );
    }

    #[test]
    fn a_script_keeps_everything_else() {
        check(
            &["/bin/bash", "-c", "/opt/bin/cmk isolate --pool=infra sleep -- 10000"],
            r#"infra: ["/bin/bash", "-c", "sleep 10000"]"#,
        );
        check(
            &[
                "sh",
                "-ec",
                "cd /app && exec  cmk isolate --pool='exclusive' ./run -- \"a b\"  >log; echo 'cmk isolate'",
            ],
            r#"exclusive: ["sh", "-ec", "cd /app && exec  ./run \"a b\"  >log; echo 'cmk isolate'"]"#,
        );
        check(
            &["bash", "-c", "cmk isolate --pool=shared app; sleep 1 -- 2"],
            r#"shared: ["bash", "-c", "app; sleep 1 -- 2"]"#,
        );
    }

    #[test]
    fn other_commands_are_left_alone() {
        check(&["sleep", "inf"], "none");
        check(&["cmk", "describe"], "none");
        check(&["bash", "-c", "echo cmk isolate --pool=x y"], "none");
        check(&["bash", "cmk isolate --pool=x y"], "none");
        check(&[], "none");
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        check(
            &["cmk", "isolate", "app"],
            "`cmk isolate` without --pool; name exclusive, shared or infra",
        );
        check(&["cmk", "isolate", "--pool=x"], "`cmk isolate` without a command");
        check(
            &["cmk", "isolate", "--pool=x", "--socket-id=a", "app"],
            "the socket is `a`, expected a number, or -1 for any",
        );
        check(
            &["cmk", "isolate", "--fast=1", "app"],
            "`cmk isolate` with `--fast=1`; known are --pool, --socket-id, --no-affinity, --conf-dir and --namespace",
        );
        check(
            &["bash", "-c", "cmk isolate --pool=a x & cmk isolate --pool=b y"],
            &alone("several `cmk isolate` in one script; a container has one CPU set"),
        );
    }

    fn alone(why: &str) -> String {
        CommandError::Script(why.to_owned()).to_string()
    }

    #[track_caller]
    fn check_script(script: &str, expected: &str) {
        check(&["sh", "-c", script], expected);
    }

    #[test]
    fn a_script_is_read_as_the_shell_reads_it() {
        let stripped = |script: &str| format!("a: {:?}", ["sh", "-c", script]);
        for (script, left) in [
            ("/opt/bin/cmk isolate \\\n  --pool=a \\\n  app \\\n  -x", "app \\\n  -x"),
            ("cmk isolate --pool=a app -- ${MORE}; b", "app ${MORE}; b"),
            (
                "# cmk isolate --pool=b\ncmk isolate --pool=a app # don't",
                "# cmk isolate --pool=b\napp # don't",
            ),
            ("A=1 B=\"$(c)\" cmk isolate --pool=a app", "A=1 B=\"$(c)\" app"),
            ("if a; then cmk isolate --pool=a app; fi", "if a; then app; fi"),
            ("for i in 1; do cmk isolate --pool=a app; done", "for i in 1; do app; done"),
            ("{ cmk isolate --pool=a app -- }; }", "{ app }; }"),
            ("run() { cmk isolate --pool=a app; }; run", "run() { app; }; run"),
            ("echo exec cmk isolate; cmk isolate --pool=a $APP", "echo exec cmk isolate; $APP"),
            ("cmk isolate --pool=a app <<E\n'\nE", "app <<E\n'\nE"),
        ] {
            check_script(script, &stripped(left));
        }
        for script in ["echo exec cmk isolate --pool=a b", "echo a # cmk isolate --pool=a b"] {
            check_script(script, "none");
        }
    }

    #[test]
    fn a_script_that_is_not_certain_stays_as_it_is() {
        for (script, why) in [
            ("cat <<E\ncmk isolate --pool=a b\nE", "it stands behind what is not understood"),
            ("echo 'a; cmk isolate --pool=a b", "it stands behind what is not understood"),
            ("echo $(cmk isolate --pool=a b)", "it stands in a substitution"),
            ("x=(cmk isolate --pool=a b)", "it stands in a substitution"),
            ("nice cmk isolate --pool=a b", "it stands behind `nice`"),
            ("cmk isolate --pool=$POOL b", "the shell makes its flags"),
            (
                "cmk isolate --help || true",
                "`cmk isolate` with `--help`; known are --pool, --socket-id, --no-affinity, --conf-dir and --namespace",
            ),
        ] {
            check_script(script, &alone(why));
        }
        let long = format!("cmk isolate --pool=a b {}", "x".repeat(SCRIPT_MAX));
        check_script(&long, &alone("it is longer than 128 KiB"));
        check_script(&long.replace("isolate", "describe"), "none");
        assert!(!CommandError::Script(String::new()).is_refusal());
    }

    #[test]
    fn the_script_is_the_first_argument_that_is_no_flag() {
        let script = "cmk isolate --pool=a app";
        for flags in [
            &["-c"][..],
            &["-eo", "pipefail", "-c"],
            &["-ceuo", "pipefail"],
            &["--norc", "--rcfile", "-c", "-c", "-x", "--"],
            &["-c", "+x", "-"],
        ] {
            let command: Vec<&str> = [&["bash"], flags, &[script]].concat();
            let left: Vec<&str> = [&["bash"], flags, &["app"]].concat();
            check(&command, &format!("a: {left:?}"));
        }
        check(&["bash", "run.sh", "-c", script], "none");
        check(&["bash", "-o", "c", script], "none");
        check(&["bash", "-c", "run \"$1\"", script], "none");
    }

    #[test]
    fn a_program_is_told_its_cpus_as_cmk_tells_them() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let told = environment(&set("4-5,36"), &set("2,10"), &set(""));
        let told: Vec<String> = told.iter().map(|(name, it)| format!("{name}={it}")).collect();
        assert_eq!(
            told,
            [
                "CMK_CPUS_ASSIGNED=4,5,36",
                "CMK_CPUS_ASSIGNED_MASK=0x1000000030",
                "CMK_CPUS_SHARED=2,10",
                "CMK_CPUS_INFRA=",
            ]
        );
    }

    #[test]
    fn a_mask_is_one_number() {
        for (cpus, expected) in
            [("", "0x0"), ("0", "0x1"), ("4,12", "0x1010"), ("32", "0x100000000")]
        {
            assert_eq!(mask(&cpus.parse().unwrap()), expected);
        }
    }

    #[test]
    fn the_command_goes_before_the_environment() {
        let check = |command: &[&str], variables: &[(&str, &str)], expected: &str| {
            let command: Vec<String> = command.iter().map(|it| (*it).to_owned()).collect();
            let text = match read(&command, variables.iter().copied()) {
                None => "none".to_owned(),
                Some(Said { asked: Err(why), .. }) => why.to_string(),
                Some(Said { asked: Ok(it), command }) => {
                    format!("{} {} {command:?}", it.slots, it.pool)
                }
            };
            assert_eq!(text, expected);
        };
        let both = [("STP_POOL", "shared"), ("CMK_NUM_CORES", "2")];
        check(&["cmk", "isolate", "--pool=a", "app"], &both, r#"2 a Some(["app"])"#);
        check(&["app"], &both, "2 shared None");
        check(&["app"], &both[1..], "none");
        check(
            &["app"],
            &[("STP_POOL", "shared"), ("CMK_NUM_CORES", "two")],
            "CMK_NUM_CORES is `two`, expected a number of cores",
        );
    }

    #[test]
    fn the_environment_names_a_pool() {
        let check = |variables: &[(&str, &str)], expected: &str| {
            let text = match pool_of_environment(variables.iter().copied()) {
                Ok(None) => "none".to_owned(),
                Ok(Some(it)) => format!("{} {:?} {}", it.pool, it.socket, it.no_affinity),
                Err(error) => error.to_string(),
            };
            assert_eq!(text, expected);
        };
        check(&[("PATH", "/bin"), ("STP_SOCKET_ID", "1")], "none");
        check(&[("STP_SOCKET_ID", "one")], "none");
        check(&[("STP_POOL", "exclusive")], "exclusive None false");
        check(
            &[("STP_POOL", "shared"), ("STP_SOCKET_ID", "1"), ("STP_NO_AFFINITY", "true")],
            "shared Some(1) true",
        );
        check(
            &[("STP_POOL", "shared"), ("STP_SOCKET_ID", "one")],
            "the socket is `one`, expected a number, or -1 for any",
        );
    }
}
