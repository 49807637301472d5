//! Routes queries by the source properties of a synthetic key.

use orrery_model::partition_key::{KeyPart, PartitionKey};
use orrery_query::Program;
use orrery_query::filter::{KeyRestriction, fixed_values, key_restriction};
use synthetic_key::{Item, KeyError, Path, Property};

use crate::catalog::{Container, SyntheticPolicy, parts};

/// The maximum number of keys to route to; beyond that the query fans out.
const KEYS_MAX: usize = 10_000;

/// The keys of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Routed {
    pub restriction: KeyRestriction,
    /// Whether the synthetic key narrowed it.
    pub by_policy: bool,
}

/// The keys that matching items can have.
pub(crate) fn restriction(container: &Container, program: &Program) -> Routed {
    let named = key_restriction(program, &container.definition.partition_key);
    let policy = container.synthetic.as_ref().filter(|policy| policy.routes);
    let narrowed = policy.and_then(|policy| policy.keys(program));
    // The keys from the policy agree with every part of the key in the filter, so they are never more.
    match narrowed {
        Some(restriction) if restriction != named => Routed { restriction, by_policy: true },
        _ => Routed { restriction: named, by_policy: false },
    }
}

impl SyntheticPolicy {
    /// The keys determined by the filter, if any.
    fn keys(&self, program: &Program) -> Option<KeyRestriction> {
        let key_paths = self.definition.key_paths();
        let mut paths = key_paths.clone();
        for path in self.definition.source_paths() {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let segments = |path: &&Path| path.names().iter().map(|name| name.as_str().into()).collect();
        // The filter's alternatives, each with the values that it fixes. None at all: any key is possible.
        let alternatives = fixed_values(program, paths.iter().map(segments).collect())?;
        let mut keys: Vec<PartitionKey> = Vec::new();
        for values in alternatives {
            let filter = Fixed { paths: &paths, values: &values };
            let given = &values[..key_paths.len()];
            let made = match self.definition.keys_for(&filter) {
                Ok(made) => made.iter().map(parts).collect(),
                // The sources do not determine the key; parts of it that the filter names still narrow the search.
                Err(KeyError::Undetermined { .. }) => vec![Vec::new()],
                // No item with these values can have a key under this definition; do not narrow.
                Err(_) => return None,
            };
            for mut key in made {
                let agrees = |(part, given): (&KeyPart, &Option<KeyPart>)| {
                    given.as_ref().is_none_or(|given| given == part)
                };
                if !key.iter().zip(given).all(agrees) {
                    continue;
                }
                // The parts of a hierarchical key that follow from the sources, and then those that the filter names.
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
        // A prefix covers every key below it.
        keys.dedup_by(|key, prefix| key.starts_with(prefix));
        Some(KeyRestriction::Keys(keys))
    }
}

/// The values fixed by a filter. Other properties are absent, meaning any value.
struct Fixed<'a> {
    paths: &'a [&'a Path],
    values: &'a [Option<KeyPart>],
}

impl Item for Fixed<'_> {
    fn property(&self, path: &Path) -> Property<'_> {
        let place = self.paths.iter().position(|known| *known == path);
        match place.and_then(|place| self.values[place].as_ref()) {
            // Undefined represents arrays and objects here, which are unconstrained.
            None | Some(KeyPart::Undefined) => Property::Missing,
            Some(KeyPart::Null) => Property::Null,
            Some(KeyPart::Bool(flag)) => Property::Bool(*flag),
            Some(KeyPart::Number(number)) => Property::Number(*number),
            Some(KeyPart::String(text)) => Property::Text(text),
        }
    }
}
