//! Which container gets which CPUs and memory. In: pools of a machine, a ledger of what containers hold, a request. Out: an offer with the score of
//! every pool that was considered, or the reason why each pool cannot hold the request.
//!
//! Asking changes nothing: [`offer`] takes shared references. [`Ledger::commit`] refuses an offer that was made for an older ledger.

mod budget;
mod charged;
mod check;
mod cold;
mod compact;
mod company;
mod counted;
mod elsewhere;
mod group;
mod group_place;
mod home;
mod ledger;
mod memory;
mod narrow;
mod offer;
mod pick;
mod place;
pub mod policy;
mod pool;
mod request;
mod requirement;
mod room;
mod score;
mod search;
mod together;
mod view;
mod wishes;
mod zones;

pub use charged::HugeCharge;
pub use check::check_ledger;
pub use cold::NotCold;
pub use compact::{
    Compaction, Cost, Hole, Limits, Relocation, Wish, plan_compaction, plan_departure,
};
pub use elsewhere::Guest;
pub use group::{domain_around, open_domains, whole_domain};
pub use group_place::{Component, domains_around};
pub use home::NoHome;
pub use ledger::{AdoptError, Allocation, Holdings, Ledger, RelocateError, StaleOffer, Terms};
pub use narrow::{Narrowing, plan_narrowing};
pub use offer::{Considered, Offer, Refusal, offer};
pub use pool::{Pool, PoolId, Pools};
pub use request::{ContainerId, Demand, Preferences, Previous, Request, derive_demand};
pub use requirement::Requirement;
pub use room::{Move, plan_way};
pub use score::{Rejection, Score};
pub use wishes::{
    ColdStart, CpuWishes, MemoryWishes, Near, Owner, Packing, Part, PlaceWishes, PodWishes,
    Preserve, Siblings, Strictness, Wishes, Within,
};
pub use zones::{Amount, Zone, zones};

#[cfg(test)]
mod tests;
