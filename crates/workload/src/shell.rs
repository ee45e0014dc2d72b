//! The words of a shell's script, as far as they can be told without running it. In: a script. Out: words with their places, and the place from which on nothing is known. Pure.
//!
//! Operators, comments and continued lines divide words and are none. What is in `$(...)`, `${...}` and backquotes is part of its word and is not looked into. A document in a script (`<<`),
//! a quote that does not end, and what is nested too deeply end the reading.

/// A word and where it is in its script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// Without quotes and backslashes.
    pub(crate) text: String,
    /// Its first byte.
    pub(crate) start: usize,
    /// The byte behind it.
    pub(crate) end: usize,
    /// It is the first one behind an operator, or of the script.
    pub(crate) is_first: bool,
    /// A program's name may be here: behind an operator, assignments, `exec`, and reserved words such as `then`.
    pub(crate) is_command: bool,
    /// The shell takes it as `text`: it has no expansion and no redirection.
    pub(crate) is_plain: bool,
    is_quoted: bool,
}

/// What is known of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) words: Vec<Word>,
    /// The first byte that was not understood; `None`: all was.
    pub(crate) unread: Option<usize>,
}

/// Substitutions in substitutions.
const DEPTH_MAX: usize = 16;

/// Behind these, where a command may be, another one may be.
const BEFORE_COMMANDS: [&str; 11] =
    ["!", "{", "do", "elif", "else", "exec", "if", "then", "time", "until", "while"];

/// Reads a script.
pub(crate) fn read(script: &str) -> Script {
    let mut reader = Reader { script, is_first: true, is_command: true, ..Reader::default() };
    let mut at = 0;
    while let Some(c) = after(script, at).chars().next() {
        match reader.take(at, c) {
            Some(next) => at = next,
            None => {
                reader.unread.get_or_insert(at);
                reader.open = None;
                break;
            }
        }
        if reader.unread.is_some_and(|unread| at >= unread) {
            break;
        }
    }
    reader.close(at);
    Script { words: reader.words, unread: reader.unread.filter(|it| *it < script.len()) }
}

#[derive(Debug, Default)]
struct Reader<'a> {
    script: &'a str,
    words: Vec<Word>,
    open: Option<Word>,
    unread: Option<usize>,
    is_first: bool,
    is_command: bool,
}

impl Reader<'_> {
    /// Takes what begins with this character; the place behind it. `None`: it is not understood.
    fn take(&mut self, at: usize, c: char) -> Option<usize> {
        let (script, next) = (self.script, at + c.len_utf8());
        let rest = after(script, next);
        let is_redirected = matches!(script.as_bytes().get(at.wrapping_sub(1)), Some(b'<' | b'>'));
        match c {
            ' ' | '\t' => self.close(at),
            '(' if self.open.is_some() => return self.expansion(at, end_of(script, next, ')', 0)?),
            '&' | '|' if is_redirected && self.open.is_some() => self.word(at).text.push(c),
            '&' if rest.starts_with('>') => self.word(at).text.push(c),
            '\n' | ';' | '&' | '|' | '(' | ')' => {
                self.close(at);
                (self.is_first, self.is_command) = (true, true);
            }
            '#' if self.open.is_none() => {
                return Some(next + rest.find('\n').unwrap_or(rest.len()));
            }
            '\\' if rest.starts_with('\n') => return Some(next + 1),
            '\\' => {
                let escaped = rest.chars().next();
                let word = self.quoted(at);
                word.text.extend(escaped);
                return Some(next + escaped.map_or(0, char::len_utf8));
            }
            '\'' => {
                let end = rest.find('\'')?;
                self.quoted(at).text.push_str(rest.get(..end)?);
                return Some(next + end + 1);
            }
            '"' => return self.double_quoted(at),
            '`' => return self.expansion(at, end_of(script, next, '`', 0)?),
            '$' => return self.expansion(at, end_of_dollar(script, next, false, 0)?),
            '<' if rest.starts_with("<<") => return self.expansion(at, next + 2),
            '<' if rest.starts_with('<') => {
                let line = rest.find('\n').map_or(script.len(), |end| next + end);
                self.unread.get_or_insert(line);
                return self.expansion(at, next + 1);
            }
            '<' | '>' => return self.expansion(at, next),
            _ => self.word(at).text.push(c),
        }
        Some(next)
    }

    fn word(&mut self, start: usize) -> &mut Word {
        let (is_first, is_command) = (self.is_first, self.is_command);
        let new = || Word { start, is_first, is_command, is_plain: true, ..Word::default() };
        self.open.get_or_insert_with(new)
    }

    fn quoted(&mut self, at: usize) -> &mut Word {
        let word = self.word(at);
        word.is_quoted = true;
        word
    }

    /// Something of which the shell makes something else, up to there.
    fn expansion(&mut self, at: usize, end: usize) -> Option<usize> {
        let text = self.script.get(at..end)?;
        let word = self.word(at);
        word.is_plain = false;
        word.text.push_str(text);
        Some(end)
    }

    fn double_quoted(&mut self, start: usize) -> Option<usize> {
        self.quoted(start);
        let mut at = start + 1;
        loop {
            let rest = after(self.script, at);
            let c = rest.chars().next()?;
            let next = at + c.len_utf8();
            at = match c {
                '"' => return Some(next),
                '`' => self.expansion(at, end_of(self.script, next, '`', 0)?)?,
                '$' => self.expansion(at, end_of_dollar(self.script, next, true, 0)?)?,
                '\\' => {
                    let escaped = after(self.script, next).chars().next()?;
                    let text = match escaped {
                        '\n' => String::new(),
                        '"' | '\\' | '$' | '`' => escaped.to_string(),
                        _ => format!("\\{escaped}"),
                    };
                    self.quoted(start).text.push_str(&text);
                    next + escaped.len_utf8()
                }
                _ => {
                    self.quoted(start).text.push(c);
                    next
                }
            };
        }
    }

    /// A word ends before this byte, if there is one.
    fn close(&mut self, end: usize) {
        let Some(mut word) = self.open.take() else { return };
        word.end = end;
        let is_before = !word.is_quoted && BEFORE_COMMANDS.contains(&word.text.as_str());
        let is_function = !word.is_quoted && word.text.ends_with("()");
        self.is_command =
            word.is_command && (is_before || is_function || is_assignment(&word.text));
        self.is_first = false;
        self.words.push(word);
    }
}

fn after(script: &str, at: usize) -> &str {
    script.get(at..).unwrap_or_default()
}

fn is_assignment(text: &str) -> bool {
    let Some((name, _)) = text.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
    !name.is_empty() && name.chars().all(is_name) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The end of what begins with a dollar sign before this place.
fn end_of_dollar(script: &str, at: usize, is_quoted: bool, depth: usize) -> Option<usize> {
    match after(script, at).chars().next() {
        Some('(') => end_of(script, at + 1, ')', depth),
        Some('{') => end_of(script, at + 1, '}', depth),
        Some('\'') if !is_quoted => end_of(script, at + 1, '\'', depth),
        _ => Some(at),
    }
}

/// The place behind the character that closes what begins here. `None` where that cannot be told.
fn end_of(script: &str, start: usize, close: char, depth: usize) -> Option<usize> {
    if depth > DEPTH_MAX {
        return None;
    }
    let mut at = start;
    loop {
        let c = after(script, at).chars().next()?;
        let next = at + c.len_utf8();
        at = match c {
            _ if c == close => {
                let inner = script.get(start..at)?;
                // Comments, documents and `case` have characters that close nothing.
                let is_odd = ["#", "<<", "case"].iter().any(|it| inner.contains(it));
                return (close != ')' || !is_odd).then_some(next);
            }
            '\\' => next + after(script, next).chars().next()?.len_utf8(),
            // Nothing in them counts.
            _ if close == '\'' || close == '`' => next,
            '\'' if close == '"' => next,
            '\'' => next + after(script, next).find('\'')? + 1,
            '"' | '`' => end_of(script, next, c, depth + 1)?,
            '(' if close == ')' => end_of(script, next, ')', depth + 1)?,
            '$' => end_of_dollar(script, next, close == '"', depth + 1)?,
            _ => next,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words; `|` before the first of a command, `*` before one that may be a program, `~` before one that the shell changes, and what was not read.
    #[track_caller]
    fn check(script: &str, expected: &str) {
        let Script { words, unread } = read(script);
        let shown = words.iter().map(|it| {
            let mark = |is: bool, mark: &str| if is { mark.to_owned() } else { String::new() };
            let marks =
                mark(it.is_first, "|") + &mark(it.is_command, "*") + &mark(!it.is_plain, "~");
            format!("{marks}{}", it.text)
        });
        let mut shown = shown.collect::<Vec<_>>().join(" ");
        if let Some(unread) = unread {
            shown.push_str(&format!(" ?{:?}", &script[unread..]));
        }
        assert_eq!(shown, expected, "{script:?}");
    }

    #[test]
    fn words_are_as_the_shell_has_them() {
        check("a b;c && d|e & f", "|*a b |*c |*d |*e |*f");
        check("a \\\n  b\\\nc\nd", "|*a bc |*d");
        check("a 'b c'\"d 'e'\"\\ f '' g", "|*a b cd 'e' f  g");
        check("a # b; c 'd\ne#f", "|*a |*e#f");
        check("a 2>&1 &>b >|c; d", "|*a ~2>&1 ~&>b ~>|c |*d");
    }

    #[test]
    fn braces_and_reserved_words_count_where_a_command_may_be() {
        check("{ a; }; echo { b; }", "|*{ *a |*} |*echo { b |*}");
        check("a ${B} ${C:-'}'} {d}", "|*a ~${B} ~${C:-'}'} {d}");
        check("if ! a; then b; else c; fi", "|*if *! *a |*then *b |*else *c |*fi");
        check("A=1 B+=2 exec c exec d 'then' e", "|*A=1 *B+=2 *exec *c exec d then e");
        check("f() { a; }; x=(b c) d", "|*~f() *{ *a |*} |*~x=(b c) *d");
        check("'then' a", "|*then a");
    }

    #[test]
    fn substitutions_are_not_looked_into() {
        check("a $(b; c \"$(d)\" ')') e", "|*a ~$(b; c \"$(d)\" ')') e");
        check("a \"x $(b \"c d\"; e) ${f}\"; g", "|*a ~x $(b \"c d\"; e) ${f} |*g");
        check("a `b; c` $'d\\'e' $F; g", "|*a ~`b; c` ~$'d\\'e' ~$F |*g");
    }

    #[test]
    fn what_is_not_understood_ends_the_reading() {
        check("a <<B c; d\ne 'f\nB\ng", "|*a ~<<B c |*d ?\"\\ne 'f\\nB\\ng\"");
        check("a <<< b\nc", "|*a ~<<< b |*c");
        check("a; b 'c", "|*a |*b ?\"'c\"");
        check("a $(case x in y) b;; esac)", "|*a ?\"$(case x in y) b;; esac)\"");
        check("a $(b", "|*a ?\"$(b\"");
        let deep = "$(".repeat(1000);
        check(&format!("a; {deep}"), &format!("|*a ?{deep:?}"));
    }
}
