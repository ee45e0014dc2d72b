//! Which lists of a pool a user gets.

use super::{Pool, Pools};

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the pool.
    pub pool: String,
    /// Only lists of this package; the pool `infra` takes any.
    pub socket: Option<u32>,
    /// How many lists of an exclusive pool; of others it is always one.
    pub count: usize,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// No pool of this name.
    #[error("no pool `{pool}`; known are {known}")]
    UnknownPool {
        /// What was asked for.
        pool: String,
        /// All names.
        known: String,
    },
    /// Not enough lists without a user.
    #[error(
        "pool `{pool}`{on} has {free} free CPU lists, {wanted} are needed",
        on = socket.map(|it| format!(" on socket {it}")).unwrap_or_default()
    )]
    NotEnough {
        /// The pool.
        pool: String,
        /// The package, if one was named.
        socket: Option<u32>,
        /// Lists without a user there.
        free: usize,
        /// How many were asked for.
        wanted: usize,
    },
}

/// The places of the chosen lists in the pool. Of an exclusive pool they are the first that have no user; of others it is the one that `pick` falls on.
///
/// # Errors
/// There is no such pool, or too few lists.
pub fn choose(pools: &Pools, wanted: &Wanted, pick: usize) -> Result<Vec<usize>, ChooseError> {
    let Some(pool) = pools.pools.get(&wanted.pool) else {
        let known: Vec<&str> = pools.pools.keys().map(String::as_str).collect();
        let pool = wanted.pool.clone();
        return Err(ChooseError::UnknownPool { pool, known: known.join(", ") });
    };
    let socket = wanted.socket.filter(|_| wanted.pool != "infra");
    let lists = candidates(pool, socket);
    let wanted_count = if pool.is_exclusive { wanted.count.max(1) } else { 1 };
    let not_enough = || ChooseError::NotEnough {
        pool: wanted.pool.clone(),
        socket,
        free: lists.len(),
        wanted: wanted_count,
    };
    if pool.is_exclusive {
        let chosen: Vec<usize> = lists.iter().copied().take(wanted_count).collect();
        return if chosen.len() == wanted_count { Ok(chosen) } else { Err(not_enough()) };
    }
    let place = pick.checked_rem(lists.len()).and_then(|idx| lists.get(idx).copied());
    place.map(|place| vec![place]).ok_or_else(not_enough)
}

/// Lists that can be chosen.
fn candidates(pool: &Pool, socket: Option<u32>) -> Vec<usize> {
    let slots = pool.slots.iter().enumerate();
    let fits = slots.filter(|(_, slot)| {
        let is_free = !pool.is_exclusive || slot.tasks.is_empty();
        is_free && (socket.is_none() || slot.socket == socket)
    });
    fits.map(|(idx, _)| idx).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools() -> Pools {
        Pools::from_directory([
            ("pools/exclusive/exclusive", "1"),
            ("pools/exclusive/0/4,12/tasks", "7"),
            ("pools/exclusive/0/5,13/tasks", ""),
            ("pools/exclusive/1/6,14/tasks", ""),
            ("pools/shared/exclusive", "0"),
            ("pools/shared/0/3,11/tasks", "1,2"),
            ("pools/shared/1/7,15/tasks", ""),
            ("pools/infra/exclusive", "0"),
            ("pools/infra/0/0,8/tasks", ""),
        ])
    }

    #[track_caller]
    fn check(pool: &str, socket: Option<u32>, count: usize, expected: Result<&[usize], &str>) {
        let wanted = Wanted { pool: pool.to_owned(), socket, count };
        let chosen = choose(&pools(), &wanted, 1).map_err(|error| error.to_string());
        assert_eq!(chosen.as_deref(), expected.map_err(str::to_owned).as_deref());
    }

    #[test]
    fn free_lists_of_an_exclusive_pool_are_taken_in_order() {
        check("exclusive", None, 1, Ok(&[1]));
        check("exclusive", None, 2, Ok(&[1, 2]));
        check("exclusive", Some(1), 1, Ok(&[2]));
        check(
            "exclusive",
            Some(0),
            2,
            Err("pool `exclusive` on socket 0 has 1 free CPU lists, 2 are needed"),
        );
        check("exclusive", None, 3, Err("pool `exclusive` has 2 free CPU lists, 3 are needed"));
    }

    #[test]
    fn one_list_of_any_other_pool_is_taken_whatever_runs_there() {
        check("shared", None, 5, Ok(&[1]));
        check("shared", Some(0), 1, Ok(&[0]));
        check("infra", Some(1), 1, Ok(&[0]));
        check("fast", None, 1, Err("no pool `fast`; known are exclusive, infra, shared"));
    }
}
