//! Chance that depends on its arguments alone, never on the order in which it is asked for. So two runs with one seed and different decisions meet the same
//! demand and the same noise, and differ by the decisions only.
//!
//! The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).

/// What a number is drawn for, so that no two uses share numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Wander = 1,
    Noise = 2,
    Lost = 3,
    LostRound = 4,
    Choice = 5,
}

/// From 0 to below 1, for code that makes plants: the choice with this number of this seed.
pub fn chance(seed: u64, number: u64) -> f64 {
    uniform(seed, Use::Choice, 0, number)
}

/// From 0 to below 1.
pub(super) fn uniform(seed: u64, what: Use, id: u64, when: u64) -> f64 {
    let mixed = [what as u64, id, when]
        .into_iter()
        .fold(mix(seed), |state, word| mix(state ^ mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15))));
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// Of the normal distribution with mean 0 and deviation 1, by the method of Box and Muller.
pub(super) fn normal(seed: u64, id: u64, when: u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(seed, Use::Noise, id, when)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(seed, Use::Noise, !id, when)).cos()
}

fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
