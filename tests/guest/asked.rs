//! Which tests are asked for. In: arguments. Out: a choice by parts of names, a share of what is chosen, and the front end.

use anyhow::{Context as _, bail, ensure};
use bayplan_tests::node::Way;

/// A choice of tests.
#[derive(Debug)]
pub(crate) struct Asked {
    /// With this front end.
    pub(crate) way: Way,
    /// Empty: all that do not have to be named.
    parts: Vec<String>,
    skipped: Vec<String>,
    share: Option<Share>,
}

/// One of several guests that divide the tests among them.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// From 0.
    index: usize,
    count: usize,
}

impl Asked {
    /// `[--front-end cri|nri] [--share I/N] [--skip PART]... [PART]...`
    pub(crate) fn parse(args: &[String]) -> anyhow::Result<Asked> {
        let mut asked =
            Asked { way: Way::Proxy, parts: Vec::new(), skipped: Vec::new(), share: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--front-end" => asked.way = way(value()?)?,
                "--share" => asked.share = Some(Share::parse(value()?)?),
                "--skip" => asked.skipped.push(value()?.clone()),
                part => {
                    ensure!(!part.starts_with("--"), "there is no option {part}");
                    asked.parts.push(part.to_owned());
                }
            }
        }
        Ok(asked)
    }

    /// Tests are named, so also those that run only when they are named may be meant.
    pub(crate) fn is_by_name(&self) -> bool {
        !self.parts.is_empty()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        let is_in = |parts: &[String]| parts.iter().any(|part| name.contains(part.as_str()));
        (self.parts.is_empty() || is_in(&self.parts)) && !is_in(&self.skipped)
    }

    /// Every `N`th of these, so that each share has some of each subject.
    pub(crate) fn share_of<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let Share { index, count } = self.share.unwrap_or(Share { index: 0, count: 1 });
        all.iter().copied().skip(index).step_by(count).collect()
    }
}

fn way(front_end: &str) -> anyhow::Result<Way> {
    match front_end {
        "cri" => Ok(Way::Proxy),
        "nri" => Ok(Way::Plugin),
        _ => bail!("`{front_end}` is no front end; there are cri and nri"),
    }
}

impl Share {
    /// From `I/N`, counted from 1.
    fn parse(text: &str) -> anyhow::Result<Share> {
        let (number, count) = text.split_once('/').context("a share is I/N")?;
        let (number, count): (usize, usize) = (number.parse()?, count.parse()?);
        ensure!((1..=count).contains(&number), "there is no share {text}");
        Ok(Share { index: number - 1, count })
    }
}
