//! Sessions of browsers, which cannot send a token with each request. In: tokens that may read the map. Out: cookies with a random number, and the token of such a cookie.
//!
//! The token stays in the agent's memory: cookies of `localhost` reach every port of it, so a cookie must be worth nothing but this node's map. A session ends after
//! an hour, with the agent, and with its token or the right of that, which are checked as often as those of other clients.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_rustls::rustls::crypto::ring;

pub(super) const SESSION_MAX: Duration = Duration::from_secs(3600);
/// Beyond, the oldest one ends.
pub(super) const SESSIONS_MAX: usize = 32;
/// Browsers take a cookie of this name over TLS only, and give it to no other host.
const COOKIE: &str = "__Host-bayplan";

/// By digests of the numbers, so that the time of a search tells nothing of them.
type Key = [u8; 32];

struct Session {
    token: String,
    end: Instant,
}

/// Those that are under way.
#[derive(Default)]
pub(super) struct Sessions(Mutex<BTreeMap<Key, Session>>);

impl Sessions {
    /// Begins one; gives the value of `Set-Cookie`.
    ///
    /// # Errors
    /// The kernel gives no random number.
    pub(super) fn begin(&self, token: &str, now: Instant) -> anyhow::Result<HeaderValue> {
        let mut number = Key::default();
        let filled = ring::default_provider().secure_random.fill(&mut number);
        filled.map_err(|_| anyhow!("there is no random number"))?;
        let number = BASE64_URL_SAFE_NO_PAD.encode(number);
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, it| now < it.end);
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, it)| it.end).map(|(key, _)| *key);
            oldest.and_then(|key| sessions.remove(&key));
        }
        let session = Session { token: token.to_owned(), end: now + SESSION_MAX };
        sessions.insert(Sha256::digest(&number).into(), session);
        let cookie = format!(
            "{COOKIE}={number}; Path=/; Max-Age={}; Secure; HttpOnly; SameSite=Strict",
            SESSION_MAX.as_secs()
        );
        Ok(HeaderValue::try_from(cookie)?)
    }

    /// The token of the session that a request belongs to.
    pub(super) fn token(&self, headers: &HeaderMap, now: Instant) -> Option<String> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let mut cookies = lines.flat_map(|it| it.split(';')).map(str::trim);
        let number = cookies.find_map(|it| it.strip_prefix(COOKIE)?.strip_prefix('='))?;
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get(&Key::from(Sha256::digest(number)))?;
        (now < session.end).then(|| session.token.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a browser sends it back.
    fn cookie(set: &HeaderValue) -> HeaderMap {
        let pair = set.to_str().unwrap().split(';').next().unwrap();
        let cookies = format!("other=1; {pair}; __Host-bayplan-2=x");
        HeaderMap::from_iter([(header::COOKIE, cookies.parse().unwrap())])
    }

    #[test]
    fn a_cookie_is_worth_its_token_for_an_hour() {
        let (sessions, begun) = (Sessions::default(), Instant::now());
        let [first, second] = ["a", "b"].map(|it| sessions.begin(it, begun).unwrap());
        for set in [&first, &second] {
            let text = set.to_str().unwrap();
            assert!(text.ends_with("; Path=/; Max-Age=3600; Secure; HttpOnly; SameSite=Strict"));
            assert!(text.split(';').next().unwrap().len() > 40, "{text}");
        }
        let later = begun + SESSION_MAX;
        for (set, now, expected) in [
            (&first, begun, Some("a")),
            (&second, begun, Some("b")),
            (&first, later - Duration::from_secs(1), Some("a")),
            (&first, later, None),
        ] {
            assert_eq!(sessions.token(&cookie(set), now).as_deref(), expected);
        }
        let forged = HeaderValue::from_static("__Host-bayplan=AAAA");
        assert_eq!(sessions.token(&cookie(&forged), begun), None);
        assert_eq!(sessions.token(&HeaderMap::new(), begun), None);
    }

    #[test]
    fn one_session_too_many_ends_the_oldest() {
        let (sessions, begun) = (Sessions::default(), Instant::now());
        let after = |number: usize| begun + Duration::from_secs(number.try_into().unwrap());
        let all: Vec<HeaderValue> = (0..=SESSIONS_MAX)
            .map(|number| sessions.begin(&number.to_string(), after(number)).unwrap())
            .collect();
        let tokens = all.iter().map(|it| sessions.token(&cookie(it), after(SESSIONS_MAX)));
        assert_eq!(tokens.filter(Option::is_some).count(), SESSIONS_MAX);
        assert_eq!(sessions.token(&cookie(&all[0]), begun), None);
    }
}
