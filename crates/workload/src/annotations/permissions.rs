//! Which wishes the pods of a namespace may have. In: a wish, the namespace, the rules of the configuration. Out: yes or no. Pure.
//!
//! A wish is a field of [`Asked`] that a pod has filled, whichever annotation or label of whichever system said it: a rule
//! about `rdtclass` holds for its older names and for `rdt.resources.beta.kubernetes.io`, too.

use super::asked::Asked;
use super::field::Field;
use super::koordinator::FOREIGN;
use super::names::{CRM, NRI, OWN};
use super::table::KEYS;
use super::tuning::{CpuPartition, INTERRUPTS, InterruptRule, PARTITION};
use super::values::{PRIORITY, Words, matches_glob};

/// Wishes of one kind, as a rule names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Interrupts and work of the kernel kept off its CPUs: other CPUs get them.
    Interrupts,
    /// A scheduling domain of its own.
    IsolatedPartitions,
    /// A CPU set that Bayplan leaves alone: it may run on CPUs that others own.
    Preserve,
    /// The CPUs for system pods.
    ReservedCpus,
    /// CPUs that another system has chosen, which no other pod gets.
    FixedCpus,
    /// CPUs that are kept from other owners, or idle, beside its own.
    ClosedCpus,
    /// CPUs of a priority.
    Priorities,
    /// Classes of CPUs, caches, disks and memory.
    Classes,
}

/// The words of the configuration.
pub const GROUPS: &Words<Group> = &[
    ("interrupts", Group::Interrupts),
    ("isolatedPartitions", Group::IsolatedPartitions),
    ("preserve", Group::Preserve),
    ("reservedCpus", Group::ReservedCpus),
    ("fixedCpus", Group::FixedCpus),
    ("closedCpus", Group::ClosedCpus),
    ("priorities", Group::Priorities),
    ("classes", Group::Classes),
];

impl Group {
    /// Whether such a wish can harm other pods or the node; then it is granted only where a rule allows it.
    pub fn is_harmful(self) -> bool {
        match self {
            Group::Interrupts
            | Group::IsolatedPartitions
            | Group::Preserve
            | Group::ReservedCpus
            | Group::FixedCpus => true,
            Group::ClosedCpus | Group::Priorities | Group::Classes => false,
        }
    }

    pub(super) fn fields(self) -> &'static [Field] {
        match self {
            Group::Interrupts => &[Field::Interrupts],
            Group::IsolatedPartitions => &[Field::Partition],
            Group::Preserve => &[Field::PreserveCpus],
            Group::ReservedCpus => &[Field::IsReserved],
            Group::FixedCpus => &[Field::Claimed],
            Group::ClosedCpus => &[Field::Apart, Field::Siblings],
            Group::Priorities => &[Field::Priority],
            Group::Classes => &[
                Field::CpuClass,
                Field::ResctrlClass,
                Field::BlockIoClass,
                Field::SchedulingClass,
                Field::ReclaimClass,
                Field::CpuGovernor,
            ],
        }
    }
}

/// One wish of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What it is about.
    pub field: Field,
    /// The word or the name of a class that is wished, where rules can tell values apart.
    pub value: Option<String>,
    /// It can harm other pods or the node.
    pub is_harmful: bool,
}

/// What a rule names: `*`, a [`Group`], an annotation or a label, or one value of it (`rdtclass=gold`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// As the configuration writes it.
    pub text: String,
    /// `None`: everything.
    fields: Option<Vec<Field>>,
    value: Option<String>,
}

impl Item {
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Item, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().to_ascii_lowercase())),
            None => (text.trim(), None),
        };
        let group = GROUPS.iter().find(|(word, _)| *word == name).map(|(_, group)| *group);
        let fields = match (name, group) {
            ("*", _) => None,
            (_, Some(group)) => Some(group.fields().to_vec()),
            _ => Some(fields_named(name).ok_or("no annotation, label or group")?.to_vec()),
        };
        let has_values = fields.iter().flatten().any(|field| VALUED.contains(field));
        if value.is_some() && !has_values {
            return Err(format!("`{name}` has no values that a rule can tell apart"));
        }
        Ok(Item { text: text.trim().to_owned(), fields, value })
    }

    fn covers(&self, wish: &Wish) -> bool {
        let is_field = self.fields.as_ref().is_none_or(|it| it.contains(&wish.field));
        let is_value = match (&self.value, &wish.value) {
            (None, _) => true,
            (Some(named), Some(wished)) => named.eq_ignore_ascii_case(wished),
            (Some(_), None) => false,
        };
        is_field && is_value
    }
}

/// Fields of which rules can tell values apart.
const VALUED: [Field; 9] = [
    Field::Priority,
    Field::Partition,
    Field::Interrupts,
    Field::CpuClass,
    Field::ResctrlClass,
    Field::BlockIoClass,
    Field::SchedulingClass,
    Field::ReclaimClass,
    Field::CpuGovernor,
];

/// What an annotation or a label fills, by its key or by any of its names.
fn fields_named(name: &str) -> Option<&'static [Field]> {
    let prefixed = |prefix: &str| {
        let own = name.strip_prefix(prefix).and_then(|it| it.strip_prefix('/'));
        own.or_else(|| name.strip_suffix(prefix).and_then(|it| it.strip_suffix('.')))
    };
    let key = [OWN, CRM, NRI].into_iter().find_map(prefixed).unwrap_or(name);
    let ours = KEYS.iter().find(|it| it.name == key).map(|it| it.fills);
    ours.or_else(|| FOREIGN.iter().find(|it| it.name == name).map(|it| it.fills))
}

/// What pods of some namespaces may ask for and may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Names; `*` and `?` stand for any text and any character.
    pub namespaces: Vec<String>,
    /// What is allowed.
    pub allow: Vec<Item>,
    /// What is not; counts more than `allow` of the same rule.
    pub deny: Vec<Item>,
}

impl Rule {
    /// Everything for every namespace.
    pub fn everything() -> Rule {
        let all = Item { text: "*".to_owned(), fields: None, value: None };
        Rule { namespaces: vec!["*".to_owned()], allow: vec![all], deny: Vec::new() }
    }

    /// `None`: it says nothing of such a wish in this namespace.
    pub(super) fn verdict(&self, wish: &Wish, namespace: &str) -> Option<bool> {
        let is_here = self.namespaces.iter().any(|it| matches_glob(it, namespace));
        let covers = |items: &[Item]| is_here && items.iter().any(|it| it.covers(wish));
        match (covers(&self.deny), covers(&self.allow)) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        }
    }
}

/// What of `asked` differs from `usual`, which is what holds without annotations.
pub(super) fn wishes(asked: &Asked, usual: &Asked) -> Vec<Wish> {
    let differs = |field: &Field| {
        let mut without = asked.clone();
        field.copy(usual, &mut without);
        without != *asked
    };
    let fields = Field::ALL.into_iter().filter(differs);
    fields.map(|field| wish(field, asked)).collect()
}

/// The wish for what `asked` has in a field.
pub(super) fn wish(field: Field, asked: &Asked) -> Wish {
    let tuning = &asked.tuning;
    let is_harmful = match field {
        Field::IsReserved => asked.prefer_reserved_cpus == Some(true),
        Field::PreserveCpus => asked.wishes.preserve.cpus,
        Field::Claimed => !asked.wishes.claimed.is_empty(),
        Field::Partition => tuning.partition.is_some_and(|it| it != CpuPartition::None),
        Field::Interrupts => tuning.interrupts.is_some_and(|it| it != InterruptRule::Allowed),
        _ => false,
    };
    let value = match field {
        Field::Priority => word_for(PRIORITY, &asked.wishes.cpus.priority.map(|(it, _)| it)),
        Field::Partition => tuning.partition.and_then(|it| word_for(PARTITION, &it)),
        Field::Interrupts => tuning.interrupts.and_then(|it| word_for(INTERRUPTS, &it)),
        Field::CpuClass => tuning.cpu_class.clone(),
        Field::ResctrlClass => tuning.resctrl_class.clone(),
        Field::BlockIoClass => tuning.block_io_class.clone(),
        Field::SchedulingClass => tuning.scheduling_class.clone(),
        Field::ReclaimClass => tuning.reclaim_class.clone(),
        Field::CpuGovernor => tuning.cpu_governor.clone(),
        _ => None,
    };
    Wish { field, value, is_harmful }
}

fn word_for<T: PartialEq>(words: &Words<T>, meaning: &T) -> Option<String> {
    let found = words.iter().find(|(_, it)| it == meaning);
    found.map(|(word, _)| (*word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::allowed::allowed;
    use super::*;
    use crate::rules::RequestRules;

    fn rule(text: &str) -> Rule {
        let (namespaces, items) = text.split_once(": ").unwrap();
        let mut rule = Rule {
            namespaces: namespaces.split(' ').map(str::to_owned).collect(),
            ..Rule::default()
        };
        for item in items.split(' ') {
            match item.strip_prefix('-') {
                Some(item) => rule.deny.push(Item::parse(item).unwrap()),
                None => rule.allow.push(Item::parse(item).unwrap()),
            }
        }
        rule
    }

    fn check(rules: &[&str], namespace: &str, field: Field, value: Option<&str>, expected: bool) {
        let harmful = GROUPS.iter().filter(|(_, group)| group.is_harmful());
        let is_harmful = harmful.flat_map(|(_, group)| group.fields()).any(|it| *it == field);
        let wish = Wish { field, value: value.map(str::to_owned), is_harmful };
        let rules = RequestRules {
            reserved_namespaces: vec!["kube-*".to_owned()],
            permissions: rules.iter().map(|text| rule(text)).collect(),
            ..RequestRules::default()
        };
        let found = allowed(&wish, namespace, &rules);
        assert_eq!(found, expected, "{rules:?} {namespace} {wish:?}");
    }

    #[test]
    fn the_last_rule_that_names_namespace_and_wish_decides() {
        use Field::{
            Claimed, Interrupts, IsReserved, PreserveCpus, Priority, ResctrlClass, Siblings,
        };
        for harmful in [PreserveCpus, IsReserved, Claimed, Interrupts, Field::Partition] {
            check(&[], "shop", harmful, None, false);
            check(&["shop: *"], "shop", harmful, None, true);
            check(&["shop: *", "*: -*"], "shop", harmful, None, false);
            check(&["*: -*", "sh?p: *"], "shop", harmful, None, true);
            check(&["shop: *"], "bank", harmful, None, false);
        }
        check(&[], "kube-system", IsReserved, None, true);
        check(&["kube-*: -reservedCpus"], "kube-system", IsReserved, None, false);
        check(&[], "kube-system", PreserveCpus, None, false);
        for harmless in [Siblings, Priority, ResctrlClass, Field::MemoryKinds] {
            check(&[], "shop", harmless, None, true);
            check(&["*: -*"], "shop", harmless, None, false);
        }
        check(&["a b: preserve"], "b", PreserveCpus, None, true);
        for name in [
            "cpu.preserve",
            "bayplan.dev/cpu.preserve",
            "cpu.preserve.resource-policy.nri.io",
            "cpu.preserve.bayplan.dev",
        ] {
            check(&[&format!("shop: {name}")], "shop", PreserveCpus, None, true);
        }
        check(&["*: cpu.preserve"], "shop", IsReserved, None, false);
        check(&["*: koordinator.sh/qosClass"], "shop", IsReserved, None, true);
        let gold = ["*: -rdtclass=gold", "shop: rdtclass=gold"];
        check(&gold, "bank", ResctrlClass, Some("gold"), false);
        check(&gold, "bank", ResctrlClass, Some("silver"), true);
        check(&gold, "shop", ResctrlClass, Some("gold"), true);
        check(
            &["*: -rdt.resources.beta.kubernetes.io=Gold"],
            "a",
            ResctrlClass,
            Some("gold"),
            false,
        );
        check(&["*: interrupts=housekeeping"], "a", Interrupts, Some("housekeeping"), true);
        check(&["*: interrupts=housekeeping"], "a", Interrupts, Some("disable"), false);
        check(&["*: -priorities=high"], "a", Priority, Some("high"), false);
        check(&["*: * -preserve"], "a", PreserveCpus, None, false);
        check(&["*: * -preserve"], "a", Claimed, None, true);
    }

    #[test]
    fn a_class_with_a_realtime_policy_is_allowed_by_a_rule_only() {
        let check = |permissions: &[&str], class: &str, expected: bool| {
            let mut rules = RequestRules {
                permissions: permissions.iter().map(|text| rule(text)).collect(),
                ..RequestRules::default()
            };
            rules.classes.realtime.insert("first".to_owned());
            let field = Field::SchedulingClass;
            let wish = Wish { field, value: Some(class.to_owned()), is_harmful: false };
            assert_eq!(allowed(&wish, "shop", &rules), expected, "{permissions:?} {class}");
        };
        check(&[], "first", false);
        check(&[], "calm", true);
        check(&["shop: scheduling-class=first"], "first", true);
        check(&["shop: classes"], "first", true);
        check(&["bank: classes"], "first", false);
    }

    /// A wish that was not listed was told and denied nowhere.
    #[test]
    fn every_field_that_a_pod_can_fill_is_a_wish() {
        let keys = KEYS.iter().flat_map(|it| it.fills);
        let foreign = FOREIGN.iter().flat_map(|it| it.fills);
        let missing: Vec<&Field> =
            keys.chain(foreign).filter(|it| !Field::ALL.contains(*it)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn what_is_no_item_is_refused() {
        for text in ["", "interupts", "bayplan.dev/nothing", "cpu.preserve=true", "=", "preserve=1"]
        {
            assert!(Item::parse(text).is_err(), "{text:?}");
        }
    }
}
