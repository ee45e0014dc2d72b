//! The certificate that an agent makes for itself. In: the node's name, the time. Out: certificate and key in PEM, which are kept in memory only.
//!
//! It is signed by itself, so a scraper that is to know which server it speaks with needs a certificate of another program instead (`--metrics-certificate`).

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use time::OffsetDateTime;

pub(super) const AGE_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);
const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(60 * 24);
/// Clocks of nodes differ.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// Certificate and key in PEM.
pub(super) struct Own {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Own {
    /// # Errors
    /// A node's name that no certificate can have, or a time beyond all calendars.
    pub(super) fn new(node: &str, now: Timestamp) -> anyhow::Result<Own> {
        let params = CertificateParams::new(vec![node.to_owned()]);
        let mut params = params.with_context(|| format!("a certificate for {node}"))?;
        params.distinguished_name.push(DnType::CommonName, "bayplan agent");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let at = |it: Timestamp| OffsetDateTime::from_unix_timestamp(it.as_second());
        params.not_before = at(now.checked_sub(BACKDATED)?)?;
        params.not_after = at(now.checked_add(AGE_MAX)?)?;
        let key = KeyPair::generate().context("making a key")?;
        let certificate = params.self_signed(&key).context("signing a certificate")?;
        Ok(Own { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// When one that was made now is to be renewed.
pub(super) fn renewed_at(now: Timestamp) -> Timestamp {
    now.checked_add(RENEWED_AFTER).unwrap_or(Timestamp::MAX)
}
