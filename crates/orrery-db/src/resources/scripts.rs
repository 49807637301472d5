//! Stored procedures, triggers and functions as resources of a container.
//!
//! Their text is stored unchecked and compiled only when it runs, as in the service (client test suites store text that
//! is not JavaScript).

use orrery_model::document::parse_object;
use std::sync::Arc;

use orrery_model::ids::{ResourceName, missing_properties};
use orrery_model::rid::ChildRid;
use orrery_model::{Error, ErrorKind, Result, Value};

use super::Resources;
use super::databases::check_etag;
use super::metadata::{MetadataReply, first_unused};
use crate::catalog::{Container, ContainerScripts, Script, ScriptKind, Stamp, TriggerTerms, already_exists};
use crate::layout::page_request::PageRequest;
use crate::partition::Receipt;
use crate::query::MetadataPage;

/// The maximum size of a script. Escaped in its record it must fit into a value of the store.
const BODY_BYTES_MAX: usize = 512 * 1024;

impl Resources {
    /// Creates a script or, for an upsert, replaces the existing one.
    pub async fn create_script(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        kind: ScriptKind,
        body: &[u8],
        upsert: bool,
    ) -> Result<MetadataReply> {
        let container = self.item_container(receipt, database, container, None)?;
        let wanted = Wanted::parse(kind, body)?;
        let random = self.env.random_u64();
        self.change_catalog(receipt, |change| {
            still_there(&change.catalog, &container)?;
            let scripts = change.catalog.scripts(container.rid);
            let existing = scripts.get(kind, wanted.id.as_str()).ok().cloned();
            // An upsert keeps the RID: clients may address the script by it.
            let rid = match &existing {
                Some(_) if !upsert => return Err(already_exists()),
                Some(existing) => existing.rid,
                None => {
                    check_count(&scripts, kind)?;
                    unused_rid(&scripts, &container, kind, random)
                }
            };
            let script = wanted.script(rid, kind, change.stamp);
            let reply = reply(&script, existing.is_none());
            change.put_script(script);
            Ok(reply)
        })
        .await
    }

    pub fn read_script(
        &self,
        receipt: &mut Receipt,
        (database, container, id): (&str, &str, &str),
        kind: ScriptKind,
    ) -> Result<MetadataReply> {
        let (_, scripts) = self.scripts_of(receipt, (database, container))?;
        Ok(reply(scripts.get(kind, id)?, false))
    }

    pub fn list_scripts(
        &self,
        receipt: &mut Receipt,
        place: (&str, &str),
        kind: ScriptKind,
        page: &PageRequest,
    ) -> Result<MetadataPage> {
        let (container, scripts) = self.scripts_of(receipt, place)?;
        let rows = scripts.of_kind(kind).map(|script| (&*script.id, script.to_value()));
        self.metadata_page(kind.keyword(), container.rid.to_string(), page, rows)
    }

    /// The scripts of a container, for a request that reads them.
    fn scripts_of(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
    ) -> Result<(Arc<Container>, Arc<ContainerScripts>)> {
        let container = self.item_container(receipt, database, container, None)?;
        let scripts = self.read_catalog(receipt).scripts(container.rid);
        Ok((container, scripts))
    }

    /// Replaces a script, which may be renamed.
    pub async fn replace_script(
        &self,
        receipt: &mut Receipt,
        (database, container, id): (&str, &str, &str),
        kind: ScriptKind,
        body: &[u8],
        if_match: Option<&str>,
    ) -> Result<MetadataReply> {
        let container = self.item_container(receipt, database, container, None)?;
        let wanted = Wanted::parse(kind, body)?;
        self.change_catalog(receipt, |change| {
            still_there(&change.catalog, &container)?;
            let scripts = change.catalog.scripts(container.rid);
            let current = scripts.get(kind, id)?;
            check_etag(if_match, current.stamp)?;
            // A new name must be free, and the record goes with the old one.
            if *current.id != *wanted.id.as_str() {
                if scripts.get(kind, wanted.id.as_str()).is_ok() {
                    return Err(already_exists());
                }
                change.remove_script(current);
            }
            let script = wanted.script(current.rid, kind, change.stamp);
            let reply = reply(&script, false);
            change.put_script(script);
            Ok(reply)
        })
        .await
    }

    pub async fn delete_script(
        &self,
        receipt: &mut Receipt,
        (database, container, id): (&str, &str, &str),
        kind: ScriptKind,
        if_match: Option<&str>,
    ) -> Result<()> {
        let container = self.item_container(receipt, database, container, None)?;
        self.change_catalog(receipt, |change| {
            still_there(&change.catalog, &container)?;
            let scripts = change.catalog.scripts(container.rid);
            let current = scripts.get(kind, id)?;
            check_etag(if_match, current.stamp)?;
            change.remove_script(current);
            Ok(())
        })
        .await
    }
}

/// A change must not recreate scripts of a container that was just deleted.
fn still_there(catalog: &crate::Catalog, container: &Arc<Container>) -> Result<()> {
    let found = catalog.container_by_rid(container.rid);
    found.map(|_| ()).ok_or_else(|| Error::new(ErrorKind::OwnerNotFound, "Owner resource does not exist"))
}

fn check_count(scripts: &ContainerScripts, kind: ScriptKind) -> Result<()> {
    if scripts.of_kind(kind).count() < kind.count_max() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::QuotaExceeded,
        format!(
            "The container has {} {} already, which is the most it may have.",
            kind.count_max(),
            kind.keyword()
        ),
    ))
}

fn unused_rid(scripts: &ContainerScripts, container: &Container, kind: ScriptKind, random: u64) -> ChildRid {
    let candidates = (0u64..).map(|step| {
        // 32 bits and never 0, which is the RID of built-in procedures.
        let ordinal = (random >> 32).wrapping_add(step) & 0xFFFF_FFFF;
        ChildRid::new(container.rid, kind.child_kind(), ordinal.max(1))
    });
    let taken = |rid: &ChildRid| scripts.of_kind(kind).any(|script| script.rid == *rid);
    first_unused(candidates, taken)
}

fn reply(script: &Script, created: bool) -> MetadataReply {
    MetadataReply::new(script.to_value(), script.stamp, created)
}

/// A script as a client asks for it.
struct Wanted {
    id: ResourceName,
    body: String,
    trigger: Option<TriggerTerms>,
}

impl Wanted {
    fn parse(kind: ScriptKind, body: &[u8]) -> Result<Self> {
        let value = parse_object(body)?;
        let id = ResourceName::from_body(value.as_object().expect("it is an object"))?;
        let text = |name: &'static str| match value.get(name) {
            Some(Value::String(text)) => Ok(&**text),
            _ => Err(missing_properties(&[name])),
        };
        let source = text("body")?;
        if source.trim().is_empty() {
            return Err(Error::new(
                // The service's message and code for a text that does not compile.
                ErrorKind::Script { code: u16::MAX },
                "Encountered exception while compiling Javascript. The script is empty.",
            ));
        }
        if source.len() > BODY_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "Request size is too large"));
        }
        let trigger = match kind {
            ScriptKind::Trigger => {
                let (time, operation) = (text("triggerType")?, text("triggerOperation")?);
                let terms = TriggerTerms::parse(time, operation).ok_or_else(|| {
                    Error::bad_request(format!(
                        "The input content is invalid because a trigger's type must be 'Pre' or 'Post' and its operation one of 'All', 'Create', 'Update', 'Replace', 'Upsert' and 'Delete', not '{time}' and '{operation}'."
                    ))
                })?;
                Some(terms)
            }
            _ => None,
        };
        Ok(Self { id, body: source.to_owned(), trigger })
    }

    fn script(self, rid: ChildRid, kind: ScriptKind, stamp: Stamp) -> Script {
        Script {
            rid,
            kind,
            id: self.id.as_str().into(),
            body: self.body.into(),
            trigger: self.trigger,
            stamp,
        }
    }
}
