//! Processes of a container that does nothing: shells that sleep, fork when they are told to, and end when they are killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A shell, with a group of its own for the processes that it makes; all of them end with it.
pub(super) struct Process {
    shell: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    pub(super) fn start() -> Process {
        let mut command = Command::new("sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut shell = command.spawn().unwrap();
        let (commands, answers) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        Process { shell, commands, answers: BufReader::new(answers) }
    }

    /// Of its only thread.
    pub(super) fn id(&self) -> u32 {
        self.shell.id()
    }

    /// Makes a process that sleeps, and gives its id.
    pub(super) fn fork(&mut self) -> u32 {
        self.commands.write_all(b"sleep 600 >/dev/null & echo $!\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    /// Its id is not known any more when this comes back.
    pub(super) fn end(&mut self) {
        let group = Pid::from_raw(self.shell.id().try_into().unwrap());
        // It may have ended already.
        let _killed = killpg(group, Signal::SIGKILL);
        self.shell.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
