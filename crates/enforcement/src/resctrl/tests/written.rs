//! A configuration in one line per partition and class, for tests.
//!
//! `partition NAME l3 60% 0-1=0xff mb 100%`, then its classes; `60%/70%/50%` is unified, code and data; `50%,1000MBps` is a list.

use super::*;

pub(super) fn config(text: &str) -> ResctrlConfig {
    let mut config = ResctrlConfig::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap();
        if kind == "optional" {
            for word in words {
                match word {
                    "l2" => config.options.is_l2_optional = true,
                    "l3" => config.options.is_l3_optional = true,
                    "mb" => config.options.is_mb_optional = true,
                    _ => panic!("{word}"),
                }
            }
            continue;
        }
        let name = words.next().unwrap().trim_matches('"');
        let words: Vec<&str> = words.collect();
        let [l2, l3] = ["l2", "l3"].map(|key| per_cache(&words, key, cdp_shares));
        let mb = per_cache(&words, "mb", |list| list.split(',').map(Bandwidth::from).collect());
        if kind == "partition" {
            let (name, classes) = (name.to_owned(), Vec::new());
            config.partitions.push(ResctrlPartition { name, l2, l3, mb, classes });
        } else {
            let name = name.parse().unwrap();
            let class = ResctrlClass { l2, l3, mb, ..ResctrlClass::new(name) };
            config.partitions.last_mut().unwrap().classes.push(class);
        }
    }
    config
}

fn per_cache<T>(words: &[&str], key: &str, read: fn(&str) -> T) -> Option<PerCache<T>> {
    let begin = words.iter().position(|word| *word == key)? + 1;
    let values = words[begin..].iter().take_while(|word| !["l2", "l3", "mb"].contains(word));
    let mut shares = PerCache { all: None, some: Vec::new() };
    for value in values {
        match value.split_once('=') {
            Some((ids, value)) => shares.some.push((ids.parse().unwrap(), read(value))),
            None => shares.all = Some(read(value)),
        }
    }
    Some(shares)
}

fn cdp_shares(text: &str) -> CdpShares {
    let shares: Vec<CacheShare> = text.split('/').map(|share| share.parse().unwrap()).collect();
    let code_and_data = (shares.len() == 3).then(|| (shares[1], shares[2]));
    CdpShares { unified: shares[0], code_and_data }
}
