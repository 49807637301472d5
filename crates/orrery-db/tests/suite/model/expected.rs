//! The naive map, and what every operation must do to it.

use std::collections::{BTreeMap, HashSet};

use orrery_model::{ErrorKind, Value};

/// What must come back: the item, or a kind of error.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    Item(Value),
    Error(ErrorKind),
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub body: Value,
    /// When it was written.
    pub second: i64,
    /// As the server gave it. Empty until the answer is there.
    pub etag: String,
    pub rid: String,
}

impl Item {
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.body.get(name).and_then(Value::as_i64)
    }

    fn unique(&self) -> Option<i64> {
        self.number("u")
    }
}

/// Header of the key, and id.
pub(super) type Place = (String, String);

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub items: BTreeMap<Place, Item>,
    pub default_ttl: Option<i64>,
    unique: bool,
    /// All etags that an item of a place ever had.
    etags: HashSet<(Place, String)>,
    rids: HashSet<String>,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Create(Value),
    Upsert(Value),
    Replace(Value),
    Patch(Vec<Change>),
    Delete,
    Read,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Set(&'static str, i64),
    Increment(&'static str, i64),
    Remove(&'static str),
}

/// An etag that a client wants to meet.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
}

impl Model {
    pub(super) fn new(unique: bool) -> Self {
        Self {
            items: BTreeMap::new(),
            default_ttl: None,
            unique,
            etags: HashSet::new(),
            rids: HashSet::new(),
        }
    }

    fn is_expired(&self, item: &Item, now: i64) -> bool {
        let Some(default) = self.default_ttl else { return false };
        let ttl = item.number("ttl").unwrap_or(default);
        ttl != -1 && item.second + ttl <= now
    }

    pub(super) fn visible(&self, now: i64) -> impl Iterator<Item = (&Place, &Item)> {
        self.items.iter().filter(move |(_, item)| !self.is_expired(item, now))
    }

    pub(super) fn get(&self, place: &Place, now: i64) -> Option<&Item> {
        self.items.get(place).filter(|item| !self.is_expired(item, now))
    }

    pub(super) fn forget_expired(&mut self, now: i64) {
        let model = self.clone();
        self.items.retain(|_, item| !model.is_expired(item, now));
    }

    pub(super) fn purge(&mut self, header: &str) {
        self.items.retain(|(key, _), _| key != header);
    }

    /// The server's answer to a write: its etag is new for this place, its RID is new or the old one.
    pub(super) fn learn(&mut self, place: &Place, etag: &str, rid: &str) -> Result<(), String> {
        if !self.etags.insert((place.clone(), etag.to_owned())) {
            return Err(format!("the etag {etag} came twice"));
        }
        let item = self.items.get_mut(place).expect("the caller has just written it");
        etag.clone_into(&mut item.etag);
        let is_new = self.rids.insert(rid.to_owned());
        let kept = item.rid == rid;
        if item.rid.is_empty() && !is_new || !item.rid.is_empty() && !kept {
            return Err(format!("the RID {rid} is not right, it was {:?}", item.rid));
        }
        rid.clone_into(&mut item.rid);
        Ok(())
    }

    /// Does what is asked, or says why not. `place` is where the item is; a replacement may rename it.
    pub(super) fn apply(&mut self, place: &Place, ask: &Ask, conditions: &Conditions, now: i64) -> Expected {
        let current = self.get(place, now).cloned();
        let differs =
            |wanted: &String| wanted != "*" && current.as_ref().is_some_and(|item| item.etag != *wanted);
        let fails = match ask {
            Ask::Create(_) | Ask::Read => false,
            Ask::Upsert(_) | Ask::Replace(_) | Ask::Delete => {
                conditions.if_match.as_ref().is_some_and(differs)
            }
            Ask::Patch(_) => {
                conditions.if_match.as_ref().is_some_and(differs)
                    || conditions.if_none_match.as_ref().is_some_and(|unwanted| !differs(unwanted))
            }
        };
        match (ask, current) {
            (Ask::Create(_), Some(_)) => Expected::Error(ErrorKind::Conflict),
            (Ask::Create(body), None) => self.put(place, body.clone(), None, now),
            (Ask::Upsert(_), Some(_)) if fails => Expected::Error(ErrorKind::PreconditionFailed),
            (Ask::Upsert(body), current) => self.put(place, body.clone(), current, now),
            (_, None) => Expected::Error(ErrorKind::NotFound),
            (_, Some(_)) if fails => Expected::Error(ErrorKind::PreconditionFailed),
            (Ask::Replace(body), Some(current)) => {
                let id = body.get("id").and_then(Value::as_str).expect("bodies have ids").to_owned();
                let target = (place.0.clone(), id);
                if target != *place && self.get(&target, now).is_some() {
                    return Expected::Error(ErrorKind::Conflict);
                }
                let before = self.items.remove(place);
                let outcome = self.put(&target, body.clone(), Some(current), now);
                if let (Expected::Error(_), Some(before)) = (&outcome, before) {
                    self.items.insert(place.clone(), before);
                }
                outcome
            }
            (Ask::Patch(changes), Some(current)) => match changed(&current.body, changes) {
                Some(body) => self.put(place, body, Some(current), now),
                None => Expected::Error(ErrorKind::BadRequest),
            },
            (Ask::Delete, Some(current)) => {
                self.items.remove(place);
                Expected::Item(current.body)
            }
            (Ask::Read, Some(current)) => Expected::Item(current.body),
        }
    }

    fn put(&mut self, place: &Place, body: Value, old: Option<Item>, now: i64) -> Expected {
        let rid = old.map(|old| old.rid).unwrap_or_default();
        let item = Item { body: body.clone(), second: now, etag: String::new(), rid };
        let clash = self
            .visible(now)
            .any(|(other, held)| other.0 == place.0 && other != place && held.unique() == item.unique());
        if self.unique && clash {
            return Expected::Error(ErrorKind::Conflict);
        }
        self.items.insert(place.clone(), item);
        Expected::Item(body)
    }
}

fn changed(body: &Value, changes: &[Change]) -> Option<Value> {
    let mut body = body.clone();
    let object = body.as_object_mut()?;
    for change in changes {
        match change {
            Change::Set(name, value) => object.set(*name, Value::from(*value)),
            Change::Increment(name, by) => {
                let old = object.get(name).map_or(Some(0), Value::as_i64)?;
                object.set(*name, Value::from(old + by));
            }
            Change::Remove(name) => drop(object.remove(name)?),
        }
    }
    Some(body)
}
