//! The webhook's own certificates. In: what is stored, the time, the names. Out: what is to be stored instead, if anything.
//!
//! A CA of ten years signs leaves of 90 days, which are renewed after 60. The CA is made anew a year before its end; the old one goes on to be trusted beside it, so that
//! the leaf, which is signed by the new one at its next renewal, is trusted at any time.

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::ParsedCertificate;

use super::server::Certificate;

const DAY: i64 = 24 * 3600;
const LEAF_DAYS: i64 = 90;
const LEAF_RENEWED_DAYS: i64 = 60;
const CA_DAYS: i64 = 3650;
const CA_RENEWED_DAYS: i64 = CA_DAYS - 365;
/// Clocks of nodes differ.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// Certificates and keys in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// The CA, and after it the one before.
    pub(super) ca: String,
    pub(super) ca_key: String,
    pub(super) ca_renewed_at: Timestamp,
    pub(super) leaf: String,
    pub(super) leaf_key: String,
    pub(super) leaf_renewed_at: Timestamp,
    /// Names of the leaf.
    pub(super) names: Vec<String>,
}

/// What is to be stored from now on; `None`: what is stored holds on. What cannot be read is made anew.
///
/// # Errors
/// A name that no certificate can have.
pub(super) fn renew(
    stored: Option<&Stored>,
    names: &[String],
    now: Timestamp,
) -> anyhow::Result<Option<Stored>> {
    let has_ca = stored.is_some_and(|it| now < it.ca_renewed_at && is_usable(&it.ca, &it.ca_key));
    let has_leaf = stored.is_some_and(|it| {
        let is_whole =
            is_usable(&it.leaf, &it.leaf_key) && is_certificate(first_certificate(&it.ca));
        now < it.leaf_renewed_at && it.names == names && is_whole
    });
    let mut next = match stored {
        Some(_) if has_ca && has_leaf => return Ok(None),
        Some(stored) if has_ca => stored.clone(),
        _ => with_new_ca(stored, now)?,
    };
    if !has_leaf {
        let issuer_key = KeyPair::from_pem(&next.ca_key).context("the stored key of the CA")?;
        let issuer = Issuer::new(ca_params(now)?, issuer_key);
        let key = KeyPair::generate().context("making a key")?;
        let leaf = leaf_params(names, now)?.signed_by(&key, &issuer).context("signing")?;
        next.leaf = leaf.pem();
        next.leaf_key = key.serialize_pem();
        next.leaf_renewed_at = after(now, LEAF_RENEWED_DAYS)?;
        next.names = names.to_vec();
    }
    Ok(Some(next))
}

/// The leaf stays; without one it is empty.
fn with_new_ca(stored: Option<&Stored>, now: Timestamp) -> anyhow::Result<Stored> {
    let key = KeyPair::generate().context("making a key")?;
    let ca = ca_params(now)?.self_signed(&key).context("signing the CA")?;
    let before = stored.map(|it| first_certificate(&it.ca)).unwrap_or_default();
    let before = if is_certificate(before) { before } else { "" };
    let (leaf, leaf_key, names, leaf_renewed_at) = match stored.cloned() {
        Some(it) => (it.leaf, it.leaf_key, it.names, it.leaf_renewed_at),
        None => (String::new(), String::new(), Vec::new(), now),
    };
    Ok(Stored {
        ca: format!("{}{before}", ca.pem()),
        ca_key: key.serialize_pem(),
        ca_renewed_at: after(now, CA_RENEWED_DAYS)?,
        leaf,
        leaf_key,
        leaf_renewed_at,
        names,
    })
}

/// Whether certificate and key are such, and belong together.
fn is_usable(certificate: &str, key: &str) -> bool {
    Certificate::default().set(certificate, key).is_ok()
}

fn is_certificate(pem: &str) -> bool {
    let read = CertificateDer::from_pem_slice(pem.as_bytes());
    read.is_ok_and(|it| ParsedCertificate::try_from(&it).is_ok())
}

/// Of several in PEM.
fn first_certificate(pem: &str) -> &str {
    let end = "-----END CERTIFICATE-----";
    let found = pem.find(end).and_then(|at| pem.get(..at + end.len()));
    found.unwrap_or_default()
}

/// Of all CAs the same but for their dates, so that a stored key can sign again.
fn ca_params(now: Timestamp) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "bayplan webhook CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    dated(params, now, CA_DAYS)
}

fn leaf_params(names: &[String], now: Timestamp) -> anyhow::Result<CertificateParams> {
    let params = CertificateParams::new(names.to_vec());
    let mut params = params.with_context(|| format!("names of the certificate: {names:?}"))?;
    params.distinguished_name.push(DnType::CommonName, "bayplan webhook");
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    dated(params, now, LEAF_DAYS)
}

fn dated(
    mut params: CertificateParams,
    now: Timestamp,
    days: i64,
) -> anyhow::Result<CertificateParams> {
    let at = |it: Timestamp| OffsetDateTime::from_unix_timestamp(it.as_second());
    params.not_before = at(now.checked_sub(BACKDATED)?)?;
    params.not_after = at(after(now, days)?)?;
    Ok(params)
}

fn after(now: Timestamp, days: i64) -> anyhow::Result<Timestamp> {
    Ok(now.checked_add(SignedDuration::from_secs(days * DAY))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_and_the_ca_are_renewed_long_before_their_end() {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let names = ["bayplan-webhook.bayplan-system.svc".to_owned()];
        let others = ["127.0.0.1".to_owned()];
        let mut stored = renew(None, &names, start).unwrap().unwrap();
        for (days, names, is_new_leaf, is_new_ca) in [
            (0, &names, false, false),
            (59, &names, false, false),
            (60, &names, true, false),
            (61, &names, false, false),
            (61, &others, true, false),
            (61, &names, true, false),
            (CA_RENEWED_DAYS - 1, &names, true, false),
            // The leaf of the old CA holds on, because that is trusted still.
            (CA_RENEWED_DAYS, &names, false, true),
            (CA_RENEWED_DAYS + 1, &names, false, false),
            (CA_RENEWED_DAYS + 60, &names, true, false),
            (2 * CA_RENEWED_DAYS + 60, &names, true, true),
        ] {
            let now = after(start, days).unwrap();
            let renewed = renew(Some(&stored), names, now).unwrap();
            assert_eq!(renewed.is_some(), is_new_leaf || is_new_ca, "after {days} days");
            let before = stored.clone();
            stored = renewed.unwrap_or(stored);
            assert_eq!(stored.leaf != before.leaf, is_new_leaf, "after {days} days");
            assert_eq!(stored.ca != before.ca, is_new_ca, "after {days} days");
            assert!(stored.ca.contains(first_certificate(&before.ca)), "after {days} days");
            assert!(stored.ca.matches("BEGIN").count() <= 2, "after {days} days");
        }
    }

    #[test]
    fn names_that_cannot_be_are_told() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let odd = renew(None, &["\u{fc}".to_owned()], now);
        assert!(odd.err().is_some_and(|it| format!("{it:#}").contains("names of the certificate")));
    }

    #[test]
    fn what_is_stored_and_cannot_be_read_is_made_anew() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let good = renew(None, &[], now).unwrap().unwrap();
        let other = renew(None, &[], now).unwrap().unwrap();
        let nonsense = || "nonsense".to_owned();
        let begun = "-----BEGIN CERTIFICATE-----\nodd\n-----END CERTIFICATE-----\n".to_owned();
        // A leaf goes on to be used while the CA that has signed it is trusted.
        for (broken, is_new_leaf, is_new_ca, trusts_before) in [
            (Stored { ca_key: nonsense(), ..good.clone() }, false, true, true),
            (Stored { ca_key: other.ca_key, ..good.clone() }, false, true, true),
            (Stored { ca: nonsense(), ..good.clone() }, true, true, false),
            (Stored { ca: begun, ..good.clone() }, true, true, false),
            (Stored { leaf_key: nonsense(), ..good.clone() }, true, false, true),
            (Stored { leaf: other.leaf, ..good.clone() }, true, false, true),
        ] {
            let renewed = renew(Some(&broken), &[], now).unwrap().unwrap();
            assert_eq!(renewed.leaf != broken.leaf, is_new_leaf);
            assert_eq!(renewed.ca != broken.ca, is_new_ca);
            assert_eq!(renewed.ca.contains(first_certificate(&good.ca)), trusts_before);
            assert!(!renewed.ca.contains("odd"));
            assert!(is_usable(&renewed.ca, &renewed.ca_key));
            assert!(is_usable(&renewed.leaf, &renewed.leaf_key));
            assert!(renew(Some(&renewed), &[], now).unwrap().is_none());
        }
    }
}
