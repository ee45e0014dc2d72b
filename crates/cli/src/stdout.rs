//! Standard output and standard error of every command. In: text. Out: what was printed, or why not.
//!
//! Problem: a reader such as `head` closes its end of the pipe when it has seen enough. `println!` panics then, half way through whatever
//! the command was doing. Here a closed pipe is no error. A command that does something goes on without being heard ([`out!`], [`outln!`]):
//! `bayplan restore --yes | head -1` restores everything. A command that only prints, and would print for long, ends quietly
//! ([`stream`]). Any other failure, such as a full disk behind a redirection, is an error with its reason. `println!` and its relatives
//! are denied in this crate by lints (`lib.rs`).
//!
//! Names and texts of pods, files and other programs are in much of it, so every text is made [`visible`] here, whatever a command did before.

use std::fmt;
use std::io::{self, Write as _};

use anyhow::Context as _;

use crate::visible::visible;

/// Prints on standard output as `print!` does; a closed pipe is no error.
macro_rules! out {
    ($($text:tt)*) => { $crate::stdout::print(format_args!($($text)*)) };
}

/// As [`out!`], with a line end.
macro_rules! outln {
    () => { $crate::stdout::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::stdout::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// As [`out!`], where a closed pipe is [`Closed`]: for commands that only print, and would go on for long.
macro_rules! say {
    ($($text:tt)*) => { $crate::stdout::stream_text(format_args!($($text)*)) };
}

/// As [`say!`], with a line end.
macro_rules! sayln {
    () => { $crate::stdout::stream_text(format_args!("\n")) };
    ($($text:tt)*) => { $crate::stdout::stream_text(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints on standard error as `eprint!` does. What cannot be printed there is lost: there is no place left to say so.
macro_rules! err {
    ($($text:tt)*) => { $crate::stdout::tell(format_args!($($text)*)) };
}

/// As [`err!`], with a line end.
macro_rules! errln {
    ($($text:tt)*) => { $crate::stdout::tell(format_args!("{}\n", format_args!($($text)*))) };
}

/// Standard output has no reader any more.
#[derive(Debug)]
pub(crate) struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for Closed {}

/// Prints a text; a closed pipe is no error.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub(crate) fn print(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    print_bytes(visible(&text.to_string()).as_bytes())
}

/// As [`print`], for what has to stay as it is: no text, or a file that is read again.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    match stream(bytes) {
        Err(error) if error.is::<Closed>() => Ok(()),
        other => other,
    }
}

/// Prints a piece of text of what goes on.
///
/// # Errors
/// As [`stream`].
pub(crate) fn stream_text(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    stream(visible(&text.to_string()).as_bytes())
}

/// Prints a piece of what goes on, as it is.
///
/// # Errors
/// [`Closed`], with which a command ends quietly and well, or standard output cannot be written.
pub(crate) fn stream(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        other => other.context("cannot write to standard output"),
    }
}

/// Prints on standard error, if that can be written.
pub(crate) fn tell(text: fmt::Arguments<'_>) {
    let _lost = io::stderr().lock().write_all(text.to_string().as_bytes());
}
