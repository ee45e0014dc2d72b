//! The check before each answer. In: tokens. Out: whether the cluster lets their users read this, or the refusal, which is counted and, where the API server is the reason, logged.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::gate::{Gate, Right, Verdict};
use super::tally::{Counts, Outcome};
use crate::said::Said;

/// Longer tokens are refused without a question.
pub(super) const TOKEN_MAX: usize = 16 << 10;

/// What stands before one of the things that are served.
pub(super) struct Access {
    gate: Arc<Gate>,
    right: Right,
    pub(super) counts: Arc<Counts>,
    said: Mutex<Said>,
}

/// Why nothing is told.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Access {
    pub(super) fn new(gate: &Arc<Gate>, right: Right, counts: &Arc<Counts>) -> Access {
        let said = Mutex::default();
        Access { gate: Arc::clone(gate), right, counts: Arc::clone(counts), said }
    }

    /// # Errors
    /// The token's user may not read this, or the API server does not say so.
    pub(super) async fn check(&self, token: Option<&str>) -> Result<(), Refused> {
        let token = token.filter(|it| (1..=TOKEN_MAX).contains(&it.len()));
        let verdict = match token {
            Some(token) => self.gate.judge(token, self.right).await,
            None => Ok(Verdict::Unauthenticated),
        };
        let what = self.right.what();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, status, text) = match verdict {
            Ok(Verdict::Allowed) => {
                said.is_over("review");
                return Ok(());
            }
            Ok(Verdict::Unauthenticated) => {
                let text = format!("{what} for bearer tokens of the cluster");
                (Outcome::Unauthenticated, StatusCode::UNAUTHORIZED, text)
            }
            Ok(Verdict::Forbidden { user }) => {
                let text = format!("{user} may not get {}", self.right.path());
                (Outcome::Forbidden, StatusCode::FORBIDDEN, text)
            }
            Err(error) => {
                let text = "the API server does not check the token".to_owned();
                let full = format!("{text}: {error:#}");
                if said.is_news("review", &full) {
                    tracing::warn!("{what} refused: {full}");
                }
                (Outcome::Unchecked, StatusCode::SERVICE_UNAVAILABLE, text)
            }
        };
        self.counts.count(outcome);
        Err(Refused { status, text })
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status, format!("{}\n", self.text)).into_response();
        challenge(&mut response);
        response
    }
}

/// HTTP wants to hear by what a client authenticates itself.
pub(super) fn challenge(response: &mut Response) {
    if response.status() == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
}

/// Of a request with exactly one `Authorization`.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}
