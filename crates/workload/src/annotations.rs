//! What a pod asks for by annotation and label. In: a container with its pod, and what the configuration says. Out: [`Asked`], and a
//! [`Warning`] for everything that was not understood or has no effect. Pure.
//!
//! One table, [`KEYS`], says what each key is called, accepts, means and fills; lookup, warnings and the reference page come from it.
//! A later source wins ([`read_annotations`]). Values are untrusted text: none of them is trusted with its length, depth or contents, and only one
//! that was to require something keeps its own pod from being placed.
//!
//! | Module | What it is |
//! |---|---|
//! | `asked`, `tuning`, `hints`, `affinity`, `field` | what can be asked for, and how a value of it is read |
//! | `table`, `names`, `values`, `yaml` | our keys, names of annotations, words |
//! | `koordinator`, `runtimes`, `webhook`, `extended`, `gas` | what other systems write |
//! | `read` | all sources together |
//! | `permissions`, `allowed`, `classes` | what a namespace may ask for, which classes there are |
//! | `source`, `effect`, `warnings` | what is told of an annotation |
//! | `kept`, `live` | which annotations are kept, and which count while a container runs |
//! | `page` | the reference page |

pub(crate) mod affinity;
mod allowed;
pub(crate) mod asked;
pub(crate) mod classes;
pub(crate) mod effect;
mod extended;
mod field;
mod gas;
pub(crate) mod hints;
mod kept;
mod koordinator;
mod live;
mod names;
mod page;
pub(crate) mod permissions;
pub(crate) mod read;
mod runtimes;
mod source;
mod table;
mod tuning;
pub(crate) mod values;
pub(crate) mod warnings;
mod webhook;
mod yaml;

pub use affinity::{Affinity, Condition, affinities, is_key, value_of};
pub use allowed::{allowed, is_allowed_by_rule};
pub use asked::Asked;
pub use classes::ClassNames;
pub use effect::tell_effects_in;
pub use field::Field;
pub use hints::{HintSource, Hints, nears};
pub use kept::{kept_labels, left_out, relevant};
pub use koordinator::{FOREIGN, Foreign, chosen_for, may_claim};
pub use live::{render_changes, with_live};
pub use page::{render_page, render_text};
pub use permissions::{GROUPS, Group, Item, Rule, Wish};
pub use read::read_annotations;
pub use source::Sources;
pub use table::{KEYS, Key, Values};
pub use tuning::{
    BatchLimits, CpuPartition, INTERRUPTS, InterruptRule, PARTITION, RebalanceWish, Tuning, WakeUp,
};
pub use values::{
    BURST, FLAG, NUMA_STRATEGY, PRIORITY, SIBLINGS, Words, known_as, matches_glob, shown,
};
pub use warnings::{Warning, WarningKind};
pub use webhook::parse_quantity;

#[cfg(test)]
mod tests;
