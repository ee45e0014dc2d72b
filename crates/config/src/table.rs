//! Every key of the configuration, in the order of the documentation. A new key is one row in the file of its subject, and a field of [`crate::Config`].

mod calls;
mod daemon;
mod key;
mod observation;
mod placement;
mod power;
mod requests;
mod resources;

pub(crate) use self::key::{Key, When};

/// All of them.
pub(super) fn keys() -> impl Iterator<Item = &'static Key> {
    let parts = [
        daemon::KEYS,
        placement::KEYS,
        requests::KEYS,
        calls::KEYS,
        resources::KEYS,
        power::KEYS,
        observation::KEYS,
    ];
    parts.into_iter().flatten()
}

/// The keys of a section, or those outside of all.
pub(super) fn keys_of(section: &str) -> impl Iterator<Item = &'static Key> {
    keys().filter(move |key| key.split().0 == section)
}

/// The key of this whole name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}
