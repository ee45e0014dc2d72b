//! Which token may read what. In: tokens, and what the API server says of them: of what user each is (TokenReview), and whether that user may `get` the
//! path of a [`Right`] (SubjectAccessReview). Out: a verdict.
//!
//! Verdicts are remembered for a while, so that the API server is not asked at each scrape; one that cannot be had is an error and never remembered. Whatever tokens
//! come, the API server is asked about one at a time, and about at most [`PER_SECOND_MAX`] in a second.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep_until, timeout};

/// How long a client may go on to read after its right was taken away.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// How long a client may be refused after it was given the right.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Verdicts that are remembered.
const KNOWN_MAX: usize = 256;
/// Both reviews of a token, and the wait for them.
const REVIEW_MAX: Duration = Duration::from_secs(5);
const PER_SECOND_MAX: u32 = 20;

/// What a client must have the right to `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Right {
    /// For scrapers.
    Metrics,
    /// For browsers.
    Map,
}

impl Right {
    /// The path in rules of RBAC.
    pub(super) fn path(self) -> &'static str {
        match self {
            Right::Metrics => "/metrics",
            Right::Map => "/map",
        }
    }

    /// Its name in messages, as the beginning of a sentence.
    pub(super) fn what(self) -> &'static str {
        match self {
            Right::Metrics => "metrics are",
            Right::Map => "the map is",
        }
    }
}

/// What a token is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What was asked for may be read with it.
    Allowed,
    /// It is no token of the cluster.
    Unauthenticated,
    /// It is that of a user without the right.
    Forbidden {
        /// The user's name.
        user: String,
    },
}

/// Tokens themselves are not kept.
type Key = (Right, [u8; 32]);

/// Verdicts, and until when they count.
#[derive(Debug, Default)]
struct Known(BTreeMap<Key, (Verdict, Instant)>);

impl Known {
    fn find(&self, key: &Key, now: Instant) -> Option<Verdict> {
        let (verdict, until) = self.0.get(key)?;
        (now < *until).then(|| verdict.clone())
    }

    /// Where there is no room, refusals go first: anything that reaches the port can cause them.
    fn remember(&mut self, key: Key, verdict: &Verdict, now: Instant) {
        if self.0.len() >= KNOWN_MAX {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= KNOWN_MAX {
            let rank =
                |(verdict, until): &(Verdict, Instant)| (*verdict == Verdict::Allowed, *until);
            let last = self.0.iter().min_by_key(|(_, it)| rank(it)).map(|(key, _)| *key);
            last.and_then(|key| self.0.remove(&key));
        }
        let lasts = if *verdict == Verdict::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
        self.0.insert(key, (verdict.clone(), now + lasts));
    }
}

/// Judges tokens.
pub(super) struct Gate {
    client: Client,
    known: Mutex<Known>,
    /// When the last review began; held during one.
    turn: tokio::sync::Mutex<Option<Instant>>,
}

impl Gate {
    pub(super) fn new(client: Client) -> Gate {
        Gate { client, known: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// # Errors
    /// The API server does not answer in time, or does not let the agent ask.
    pub(super) async fn judge(&self, token: &str, right: Right) -> anyhow::Result<Verdict> {
        let key = (right, Sha256::digest(token).into());
        if let Some(verdict) = self.find(&key) {
            return Ok(verdict);
        }
        match timeout(REVIEW_MAX, self.judge_anew(token, key)).await {
            Ok(judged) => judged,
            Err(_) => bail!("no answer within {} s", REVIEW_MAX.as_secs()),
        }
    }

    async fn judge_anew(&self, token: &str, key: Key) -> anyhow::Result<Verdict> {
        let mut turn = self.turn.lock().await;
        // Of the same token, while this waited.
        if let Some(verdict) = self.find(&key) {
            return Ok(verdict);
        }
        if let Some(last) = *turn {
            sleep_until(last + Duration::from_secs(1) / PER_SECOND_MAX).await;
        }
        *turn = Some(Instant::now());
        let verdict = self.review(token, key.0).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remember(key, &verdict, Instant::now());
        Ok(verdict)
    }

    fn find(&self, key: &Key) -> Option<Verdict> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.find(key, Instant::now())
    }

    async fn review(&self, token: &str, right: Right) -> anyhow::Result<Verdict> {
        let Some(user) = self.authenticate(token).await? else {
            return Ok(Verdict::Unauthenticated);
        };
        let name = user.username.clone().unwrap_or_default();
        match self.may_read(user, right).await? {
            true => Ok(Verdict::Allowed),
            false => Ok(Verdict::Forbidden { user: name }),
        }
    }

    /// The token's user; `None`: it has none.
    async fn authenticate(&self, token: &str) -> anyhow::Result<Option<UserInfo>> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let asked = TokenReview { spec, ..TokenReview::default() };
        let told = self.ask(&asked).await?;
        let status = told.status.context("a TokenReview without status")?;
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let user = status.user.filter(|it| it.username.as_deref().is_some_and(|it| !it.is_empty()));
        user.map(Some).context("a TokenReview without user")
    }

    async fn may_read(&self, user: UserInfo, right: Right) -> anyhow::Result<bool> {
        let [path, verb] = [right.path(), "get"].map(|it| Some(it.to_owned()));
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes { path, verb }),
            resource_attributes: None,
        };
        let asked = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let told = self.ask(&asked).await?;
        Ok(told.status.context("a SubjectAccessReview without status")?.allowed)
    }

    /// Not by `Api`, which logs an answer that it cannot read: those to a TokenReview have the token.
    async fn ask<T>(&self, review: &T) -> anyhow::Result<T>
    where
        T: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let asked = serde_json::to_vec(review)?;
        let request = Request::new(T::url_path(&(), None)).create(&PostParams::default(), asked)?;
        let text = self.client.request_text(request).await.map_err(shortly)?;
        serde_json::from_str(&text).map_err(|_| anyhow!("the answer is no {}", T::kind(&())))
    }
}

/// Of a refusal the message alone, which names what was asked for.
fn shortly(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{}", status.message),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        (Right::Metrics, Sha256::digest(number.to_string()).into())
    }

    #[test]
    fn verdicts_count_for_a_while() {
        let (begun, mut known) = (Instant::now(), Known::default());
        let forbidden = Verdict::Forbidden { user: "u".to_owned() };
        let verdicts = [Verdict::Allowed, Verdict::Unauthenticated, forbidden];
        for (number, verdict) in verdicts.iter().enumerate() {
            known.remember(key(number), verdict, begun);
        }
        for (seconds, expected) in
            [(9, [true, true, true]), (10, [true, false, false]), (60, [false; 3])]
        {
            let now = begun + Duration::from_secs(seconds);
            for (number, verdict) in verdicts.iter().enumerate() {
                let found = known.find(&key(number), now);
                let expected = expected[number].then_some(verdict);
                assert_eq!(found.as_ref(), expected, "after {seconds} s");
            }
        }
        assert_eq!(known.find(&key(3), begun), None);
        let other = (Right::Map, key(0).1);
        assert_eq!(known.find(&other, begun), None, "a right to metrics is none to the map");
    }

    #[test]
    fn a_flood_of_tokens_leaves_scrapers_known() {
        let (now, mut known) = (Instant::now(), Known::default());
        known.remember(key(0), &Verdict::Allowed, now);
        for number in 1..3 * KNOWN_MAX {
            known.remember(key(number), &Verdict::Unauthenticated, now);
            assert!(known.0.len() <= KNOWN_MAX);
        }
        assert_eq!(known.find(&key(0), now), Some(Verdict::Allowed));
        // Expired ones go before any that count.
        let later = now + REFUSED_FOR;
        known.remember(key(1), &Verdict::Unauthenticated, later);
        assert_eq!(known.0.len(), 2);
        for number in 1..2 * KNOWN_MAX {
            known.remember(key(number), &Verdict::Allowed, later);
            assert!(known.0.len() <= KNOWN_MAX);
        }
    }
}
