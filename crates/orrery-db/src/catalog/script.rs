//! Stored procedures, triggers and functions in the catalog: one record each, under `s/{rid}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::rid::{ChildKind, ChildRid, ContainerRid};
use orrery_model::{Object, Result, Value};
use serde::{Deserialize, Serialize};

use super::{Stamp, not_found};

/// The three kinds of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScriptKind {
    StoredProcedure,
    Trigger,
    Function,
}

impl ScriptKind {
    pub(crate) fn child_kind(self) -> ChildKind {
        match self {
            Self::StoredProcedure => ChildKind::StoredProcedure,
            Self::Trigger => ChildKind::Trigger,
            Self::Function => ChildKind::UserDefinedFunction,
        }
    }

    /// The path keyword: `sprocs`, `triggers`, `udfs`.
    pub fn keyword(self) -> &'static str {
        self.child_kind().keyword()
    }

    /// The maximum number per container.
    pub(crate) fn count_max(self) -> usize {
        match self {
            Self::StoredProcedure => 100,
            Self::Trigger => 25,
            Self::Function => 50,
        }
    }
}

/// When a trigger runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TriggerTime {
    Pre,
    Post,
}

/// The settings of a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TriggerTerms {
    pub time: TriggerTime,
    /// In the client's spelling, for responses.
    pub time_text: Box<str>,
    pub operation_text: Box<str>,
}

impl TriggerTerms {
    /// Clients write both words in any case.
    pub(crate) fn parse(time: &str, operation: &str) -> Option<Self> {
        let at = match time.to_ascii_lowercase().as_str() {
            "pre" => TriggerTime::Pre,
            "post" => TriggerTime::Post,
            _ => return None,
        };
        let known = ["all", "create", "update", "replace", "upsert", "delete"];
        known.iter().any(|word| word.eq_ignore_ascii_case(operation)).then(|| Self {
            time: at,
            time_text: time.into(),
            operation_text: operation.into(),
        })
    }

    /// Whether the trigger applies to this operation: `Create`, `Replace`, `Upsert`, `Patch` or `Delete`.
    pub(crate) fn is_for(&self, operation: &str) -> bool {
        let own = &*self.operation_text;
        own.eq_ignore_ascii_case("all")
            || own.eq_ignore_ascii_case(operation)
            || own.eq_ignore_ascii_case("update") && matches!(operation, "Replace" | "Patch")
            || own.eq_ignore_ascii_case("replace") && operation == "Patch"
    }
}

/// A script.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub rid: ChildRid,
    pub kind: ScriptKind,
    pub id: Box<str>,
    pub body: Arc<str>,
    /// Of a trigger.
    pub trigger: Option<TriggerTerms>,
    pub stamp: Stamp,
}

impl Script {
    /// A procedure that exists in every container.
    pub(crate) fn built_in(container: ContainerRid, id: &str) -> Option<Self> {
        // The service has this one in every container.
        let body = match id {
            "__.sys.echo" => "function (value) { getContext().getResponse().setBody(value); }",
            _ => return None,
        };
        Some(Self {
            rid: ChildRid::new(container, ChildKind::StoredProcedure, 0),
            kind: ScriptKind::StoredProcedure,
            id: id.into(),
            body: body.into(),
            trigger: None,
            stamp: Stamp { version: 0, timestamp: 0 },
        })
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("body", Value::from(&*self.body));
        if let Some(trigger) = &self.trigger {
            object.set("triggerType", Value::from(&*trigger.time_text));
            object.set("triggerOperation", Value::from(&*trigger.operation_text));
        }
        object.set("id", Value::from(&*self.id));
        self.stamp.add_system_properties(&mut object, &self.rid.to_string(), &self.rid.self_link());
        object.into()
    }
}

/// All scripts of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerScripts {
    scripts: BTreeMap<(ScriptKind, Box<str>), Arc<Script>>,
}

impl ContainerScripts {
    /// The script with this name or RID.
    pub(crate) fn get(&self, kind: ScriptKind, name_or_rid: &str) -> Result<&Arc<Script>> {
        let by_rid = || {
            let rid = ChildRid::parse(name_or_rid)?;
            self.of_kind(kind).find(|script| script.rid == rid)
        };
        // By name first: a name may look like a RID.
        self.scripts.get(&(kind, name_or_rid.into())).or_else(by_rid).ok_or_else(not_found)
    }

    /// The scripts of one kind, by name.
    pub(crate) fn of_kind(&self, kind: ScriptKind) -> impl Iterator<Item = &Arc<Script>> {
        self.scripts.values().filter(move |script| script.kind == kind)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Script>> {
        self.scripts.values()
    }

    pub(crate) fn insert(&mut self, script: Script) {
        self.scripts.insert((script.kind, script.id.clone()), Arc::new(script));
    }

    pub(crate) fn remove(&mut self, script: &Script) {
        self.scripts.remove(&(script.kind, script.id.clone()));
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ScriptRecord {
    rid: String,
    id: String,
    body: String,
    #[serde(default)]
    trigger_type: Option<String>,
    #[serde(default)]
    trigger_operation: Option<String>,
    version: u64,
    timestamp: i64,
}

pub(super) fn key(rid: ChildRid) -> Vec<u8> {
    format!("s/{rid}").into_bytes()
}

pub(super) fn record(script: &Script) -> ScriptRecord {
    ScriptRecord {
        rid: script.rid.to_string(),
        id: script.id.to_string(),
        body: script.body.to_string(),
        trigger_type: script.trigger.as_ref().map(|trigger| trigger.time_text.to_string()),
        trigger_operation: script.trigger.as_ref().map(|trigger| trigger.operation_text.to_string()),
        version: script.stamp.version,
        timestamp: script.stamp.timestamp,
    }
}

/// The script of a record and the container it belongs to.
pub(super) fn load(record: ScriptRecord) -> Result<(ContainerRid, Script), &'static str> {
    let rid = ChildRid::parse(&record.rid).ok_or("its RID is malformed")?;
    // The RID says which kind it is, so the record does not repeat it.
    let kind = match rid.kind {
        ChildKind::StoredProcedure => ScriptKind::StoredProcedure,
        ChildKind::Trigger => ScriptKind::Trigger,
        ChildKind::UserDefinedFunction => ScriptKind::Function,
        _ => return Err("its RID is of another kind"),
    };
    let trigger = match (record.trigger_type, record.trigger_operation) {
        (Some(time), Some(operation)) => {
            Some(TriggerTerms::parse(&time, &operation).ok_or("its trigger terms are unknown")?)
        }
        _ => None,
    };
    let script = Script {
        rid,
        kind,
        id: record.id.into(),
        body: record.body.into(),
        trigger,
        stamp: Stamp { version: record.version, timestamp: record.timestamp },
    };
    Ok((rid.container, script))
}
