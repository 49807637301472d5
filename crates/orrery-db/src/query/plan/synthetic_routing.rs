//! Where the items of a query can be, by the properties that their keys are made of.

use orrery_model::partition_key::{KeyPart, PartitionKey};
use orrery_query::Program;
use orrery_query::filter::{KeyRestriction, fixed_values, key_restriction};
use synthetic_key::{Item, KeyError, Path, Property};

use crate::catalog::{Container, SyntheticPolicy, parts};

/// Keys that a query is sent to one by one; beyond, it goes everywhere.
const KEYS_MAX: usize = 10_000;

/// The keys of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Routed {
    pub restriction: KeyRestriction,
    /// Whether the synthetic key narrowed it.
    pub by_policy: bool,
}

/// Which keys the items that a query wants can have.
pub(crate) fn restriction(container: &Container, program: &Program) -> Routed {
    let named = key_restriction(program, &container.definition.partition_key);
    let policy = container.synthetic.as_ref().filter(|policy| policy.routes);
    let narrowed = policy.and_then(|policy| policy.keys(program));
    // What the policy leaves agrees with every part of a key that the filter names, so it never is more.
    match narrowed {
        Some(restriction) if restriction != named => Routed { restriction, by_policy: true },
        _ => Routed { restriction: named, by_policy: false },
    }
}

impl SyntheticPolicy {
    /// The keys that the filter leaves, if it decides them.
    fn keys(&self, program: &Program) -> Option<KeyRestriction> {
        let key_paths = self.definition.key_paths();
        let mut paths = key_paths.clone();
        for path in self.definition.source_paths() {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let segments = |path: &&Path| path.names().iter().map(|name| name.as_str().into()).collect();
        let alternatives = fixed_values(program, paths.iter().map(segments).collect())?;
        let mut keys: Vec<PartitionKey> = Vec::new();
        for values in alternatives {
            let filter = Fixed { paths: &paths, values: &values };
            let given = &values[..key_paths.len()];
            let made = match self.definition.keys_for(&filter) {
                Ok(made) => made.iter().map(parts).collect(),
                Err(KeyError::Undetermined { .. }) => vec![Vec::new()],
                // No item with these values can have been given a key by this definition; let others tell.
                Err(_) => return None,
            };
            for mut key in made {
                let agrees = |(part, given): (&KeyPart, &Option<KeyPart>)| {
                    given.as_ref().is_none_or(|given| given == part)
                };
                if !key.iter().zip(given).all(agrees) {
                    continue;
                }
                key.extend(given[key.len()..].iter().map_while(Clone::clone));
                if key.is_empty() || keys.len() >= KEYS_MAX {
                    return None;
                }
                keys.push(PartitionKey(key));
            }
        }
        if keys.is_empty() {
            return Some(KeyRestriction::None);
        }
        keys.sort();
        keys.dedup_by(|key, prefix| key.starts_with(prefix));
        Some(KeyRestriction::Keys(keys))
    }
}

/// The values that a filter fixes. What it does not name is absent, and so may be anything.
struct Fixed<'a> {
    paths: &'a [&'a Path],
    values: &'a [Option<KeyPart>],
}

impl Item for Fixed<'_> {
    fn property(&self, path: &Path) -> Property<'_> {
        let place = self.paths.iter().position(|known| *known == path);
        match place.and_then(|place| self.values[place].as_ref()) {
            // Undefined stands for arrays and objects here, about which nothing is said.
            None | Some(KeyPart::Undefined) => Property::Missing,
            Some(KeyPart::Null) => Property::Null,
            Some(KeyPart::Bool(flag)) => Property::Bool(*flag),
            Some(KeyPart::Number(number)) => Property::Number(*number),
            Some(KeyPart::String(text)) => Property::Text(text),
        }
    }
}
