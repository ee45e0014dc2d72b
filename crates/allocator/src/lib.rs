//! Which container gets which CPUs and memory. In: pools of a machine, a ledger of what containers hold, a request. Out: an offer with the score of
//! every pool that was considered, or the reason why each pool cannot hold the request.
//!
//! Asking changes nothing: [`offer`] takes shared references. [`Ledger::commit`] refuses an offer that was made for an older ledger.

mod allocation;
mod budget;
mod change;
mod charged;
mod check;
mod clock;
mod cold;
mod compact;
mod company;
mod counted;
mod domain;
mod eligible;
mod elsewhere;
mod grant;
mod group;
mod group_offer;
mod group_place;
mod home;
mod id;
mod ledger;
mod memory;
mod narrow;
mod offer;
mod pick;
mod place;
mod plan_offer;
pub mod policy;
mod pool;
mod request;
mod requirement;
mod room;
mod score;
mod search;
mod terms;
mod together;
mod view;
mod wishes;
mod zones;

pub use allocation::{Allocation, HugeCharge};
pub use change::{Cost, Move, Narrowing, Relocation};
pub use check::check_ledger;
pub use cold::NotCold;
pub use compact::{Compaction, Hole, Limits, Wish, plan_compaction, plan_departure};
pub use domain::{
    domain_around, has_cpus_of_kind, has_cpus_of_priority, siblings_of, whole_domain,
};
pub use elsewhere::Guest;
pub use group::open_domains;
pub use group_place::{Component, domains_around};
pub use home::NoHome;
pub use id::ContainerId;
pub use ledger::{AdoptError, Holdings, Ledger, RelocateError, StaleOffer};
pub use narrow::plan_narrowing;
pub use offer::{Considered, Offer, Refusal};
pub use place::outside_roomiest;
pub use plan_offer::offer;
pub use pool::{Pool, PoolId, Pools};
pub use request::{Demand, Preferences, Previous, Request, derive_demand};
pub use requirement::Requirement;
pub use room::plan_way;
pub use score::{Rejection, Score};
pub use search::spare_cpus;
pub use terms::Terms;
pub use wishes::{
    ClockStrategy, ClockWish, ColdStart, CpuWishes, MemoryWishes, Near, Owner, Packing, Part,
    PlaceWishes, PodWishes, Preserve, Siblings, Strictness, Wishes, Within,
};
pub use zones::{Amount, Zone, zones};

#[cfg(test)]
mod tests;
