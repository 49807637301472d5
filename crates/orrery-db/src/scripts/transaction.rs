//! Scripts in transactions: stored procedures, and writes with triggers around them.
//!
//! An attempt runs on a snapshot of its logical partition and commits if there was no write since; otherwise it is
//! repeated. Scripts on one key take turns, and after two conflicts ordinary writes wait (`gate.rs`).

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use orrery_env::monotonic;
use orrery_model::ids::ItemId;
use orrery_model::partition_key::PartitionKey;
use orrery_model::{Error, ErrorKind, Result};
use orrery_script::{Invocation, Role};

use super::Scripts;
use super::session::{Ending, Session};
use crate::catalog::{Container, Script, ScriptKind, TriggerTime};
use crate::items::batch::{BatchKind, BatchOperation};
use crate::items::point::Triggers;
use crate::items::point::{ItemOptions, ItemReply, full_key};
use crate::items::transaction::{Effect, precondition_failed};
use crate::partition::{Receipt, item_quota};

/// Conflicts with ordinary writes before these have to wait.
const LOSSES_MAX: u32 = 2;
/// The part of the container's quota, as reported to scripts, that never changes.
const SCRIPT_QUOTA: &str = "functions=50;storedProcedures=100;triggers=25;";

/// A call of a stored procedure.
#[derive(Clone, Debug, Default)]
pub struct ProcedureCall {
    /// The JSON array of arguments; empty = none.
    pub arguments: Bytes,
    /// Whether to return the output of `console.log`.
    pub logs: bool,
    /// Headers that scripts can read.
    pub headers: Vec<(String, String)>,
}

/// The task of a transaction.
enum Task<'t> {
    Procedure { script: Arc<Script>, call: &'t ProcedureCall },
    Write(WriteTask<'t>),
}

struct WriteTask<'t> {
    kind: BatchKind,
    id: Option<ItemId>,
    body: Option<Bytes>,
    options: &'t ItemOptions,
    headers: &'t [(String, String)],
    pre: Option<Arc<Script>>,
    post: Option<Arc<Script>>,
}

enum Done {
    Procedure(Option<String>),
    Write(ItemReply),
}

impl Scripts {
    /// Runs a stored procedure and returns the JSON of its response body. Its log is in the receipt.
    pub async fn execute_procedure(
        &self,
        receipt: &mut Receipt,
        (database, container, id): (&str, &str, &str),
        options: &ItemOptions,
        call: &ProcedureCall,
    ) -> Result<Option<String>> {
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        let scripts = self.catalog.snapshot().scripts(container.rid);
        let script = match Script::built_in(container.rid, id) {
            Some(script) => Arc::new(script),
            None => Arc::clone(scripts.get(ScriptKind::StoredProcedure, id)?),
        };
        let key = full_key(&container, options)?;
        if std::str::from_utf8(&call.arguments).is_err() {
            return Err(Error::bad_request("The arguments of the stored procedure are not valid UTF-8."));
        }
        let task = Task::Procedure { script, call };
        match self.run_task(receipt, &container, key, options, &task).await? {
            Done::Procedure(body) => Ok(body),
            Done::Write(_) => Err(Error::internal("A procedure ended as a write.")),
        }
    }

    /// Writes an item with triggers around the write, all in one transaction.
    #[expect(clippy::too_many_arguments, reason = "what a write is made of")]
    pub(crate) async fn write_with_triggers(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        key: PartitionKey,
        kind: BatchKind,
        id: Option<ItemId>,
        body: Option<&Bytes>,
        options: &ItemOptions,
        triggers: &Triggers,
    ) -> Result<ItemReply> {
        let find = |name: &Option<String>, time| match name {
            Some(name) => self.trigger(container, name, time, operation_name(kind)).map(Some),
            None => Ok(None),
        };
        // Both triggers are looked up before anything runs, so that a wrong name has no effect.
        let task = Task::Write(WriteTask {
            kind,
            id,
            body: body.cloned(),
            options,
            headers: &triggers.headers,
            pre: find(&triggers.pre, TriggerTime::Pre)?,
            post: find(&triggers.post, TriggerTime::Post)?,
        });
        match self.run_task(receipt, container, key, options, &task).await? {
            Done::Write(reply) => Ok(reply),
            Done::Procedure(_) => Err(Error::internal("A write ended as a procedure.")),
        }
    }

    fn trigger(
        &self,
        container: &Container,
        name: &str,
        time: TriggerTime,
        operation: &str,
    ) -> Result<Arc<Script>> {
        // SDKs send a list; the service runs only the first of it. COMPAT.md has the difference.
        if name.contains(',') {
            return Err(Error::bad_request(
                "One of the input values is invalid. Only one pre-trigger and one post-trigger can be run per operation.",
            ));
        }
        let scripts = self.catalog.snapshot().scripts(container.rid);
        let script = scripts.get(ScriptKind::Trigger, name).map_err(|_| {
            Error::bad_request(format!("The trigger '{name}' that the request names does not exist."))
        })?;
        let terms = script.trigger.as_ref().filter(|terms| terms.time == time);
        let terms = terms.ok_or_else(|| {
            Error::bad_request(format!("The trigger '{name}' is of another type than the request needs."))
        })?;
        if !terms.is_for(operation) {
            return Err(Error::bad_request(format!(
                "The trigger '{name}' is for '{}' operations and cannot be run with '{operation}'.",
                terms.operation_text
            )));
        }
        Ok(Arc::clone(script))
    }

    /// Repeats the task until it commits or fails for a reason other than a conflict.
    async fn run_task(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        key: PartitionKey,
        options: &ItemOptions,
        task: &Task<'_>,
    ) -> Result<Done> {
        let effective = container.definition.partition_key.effective_key(&key);
        // Held over all attempts, so that the order of scripts on a key is that of their arrival.
        let mut turn = self.gates.enter(container.rid, &effective).await?;
        let (started, charged) = (monotonic::now(), receipt.charge);
        let mut container = Arc::clone(container);
        let (mut attempt, mut losses) = (0, 0);
        loop {
            // Only the last attempt is charged.
            receipt.charge = charged;
            receipt.script_log = None;
            let ended = self.attempt(receipt, &container, &key, options, task).await;
            match ended {
                Ok((done, Ending::Committed)) => return Ok(done),
                Ok((_, Ending::Overtaken)) => {
                    losses += 1;
                    // From now on ordinary writes wait until this script has committed.
                    if losses >= LOSSES_MAX {
                        turn.close();
                    }
                    if monotonic::elapsed(started) > self.options.script_time_max {
                        return Err(Error::new(
                            ErrorKind::RetryWith,
                            "The script conflicted repeatedly with other writes to this partition key value. Please retry.",
                        ));
                    }
                }
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                Err(error) => return Err(error),
            }
            // Overtaken may also mean that the index or the partition has changed.
            container = self.current_container(&container)?;
        }
    }

    async fn attempt(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        key: &PartitionKey,
        options: &ItemOptions,
        task: &Task<'_>,
    ) -> Result<(Done, Ending)> {
        let mut session = Session::open(self, receipt, container, key, options.session.as_ref()).await?;
        let done = match task {
            Task::Procedure { script, call } => session.run_procedure(receipt, script, call).await?,
            Task::Write(write) => Done::Write(session.run_write(receipt, write).await?),
        };
        let ending = session.commit(receipt).await?;
        Ok((done, ending))
    }
}

impl Session<'_> {
    async fn run_procedure(
        &mut self,
        receipt: &mut Receipt,
        script: &Script,
        call: &ProcedureCall,
    ) -> Result<Done> {
        let arguments = String::from_utf8_lossy(&call.arguments).into_owned();
        let arguments = Some(arguments).filter(|text| !text.trim().is_empty());
        // A script that cannot parse its arguments reports that itself; its request then has no body.
        let body = arguments.clone().filter(|text| orrery_model::value::parse(text.as_bytes()).is_ok());
        let invocation = Invocation {
            arguments,
            request_body: body,
            headers: call.headers.clone(),
            logs: call.logs,
            ..self.invocation(Role::Procedure, script, "Execute")
        };
        let logged = Arc::clone(&invocation.logged);
        let outcome = self.run_script(receipt, invocation).await;
        // Shared with the engine, because a script that fails returns no outcome but may have logged.
        let logged = std::mem::take(&mut *logged.lock().unwrap_or_else(PoisonError::into_inner));
        receipt.script_log = match &outcome {
            Ok(outcome) => outcome.log.clone(),
            Err(_) => Some(logged).filter(|text| !text.is_empty()),
        };
        Ok(Done::Procedure(outcome?.response_body))
    }

    async fn run_write(&mut self, receipt: &mut Receipt, task: &WriteTask<'_>) -> Result<ItemReply> {
        let operation = operation_name(task.kind);
        if let (Some(id), Some(etag)) = (&task.id, &task.options.if_match) {
            // The etag is checked before a trigger runs.
            // A missing item is left to the write itself, which reports it.
            match self.read_item(receipt, id).await {
                Ok(item) if etag != "*" && !item.etag().matches(etag) => return Err(precondition_failed()),
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut body = task.body.clone();
        if let Some(script) = &task.pre {
            let invocation = Invocation {
                request_body: body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned()),
                headers: task.headers.to_vec(),
                ..self.invocation(Role::PreTrigger, script, operation)
            };
            let outcome = self.run_script(receipt, invocation).await?;
            // A trigger of a delete has no body that it could change.
            if body.is_some() {
                body = outcome.request_body.map(Bytes::from);
            }
        }
        let write = BatchOperation {
            kind: task.kind,
            id: task.id.as_ref().map(|id| id.as_str().to_owned()),
            body: body.clone(),
            if_match: task.options.if_match.clone(),
            if_none_match: task.options.if_none_match.clone(),
            partition_key: None,
        };
        // Checked after the trigger, which may have made the item invalid.
        let action = self.prepare(&write)?;
        let success = self.write(receipt, action).await?;
        let mut reply = ItemReply::new(self.container.rid, success);
        if let Some(script) = &task.post {
            let document = (reply.effect != Effect::Deleted)
                .then(|| String::from_utf8_lossy(&reply.document()).into_owned());
            let invocation = Invocation {
                request_body: body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned()),
                response_body: document.clone(),
                headers: task.headers.to_vec(),
                ..self.invocation(Role::PostTrigger, script, operation)
            };
            let outcome = self.run_script(receipt, invocation).await?;
            if document.is_some()
                && let Some(changed) = outcome.response_body
            {
                reply.answer_with(changed.into());
            }
        }
        Ok(reply)
    }

    fn invocation(&self, role: Role, script: &Script, operation: &'static str) -> Invocation {
        let (procedures, triggers, functions) = self.database.script_counts(&self.container);
        Invocation {
            role,
            name: script.id.to_string(),
            source: script.body.to_string(),
            arguments: None,
            self_link: self.container.rid.self_link(),
            alt_link: self.container.alt_path(),
            request_body: None,
            operation,
            headers: Vec::new(),
            response_body: None,
            quota: format!("{}{SCRIPT_QUOTA}", item_quota(self.database.options.partition_bytes_max)),
            usage: format!(
                "documentSize=0;documentsSize=0;documentsCount=-1;collectionSize=0;functions={functions};storedProcedures={procedures};triggers={triggers};"
            ),
            logs: false,
            logged: Arc::default(),
        }
    }
}

/// The name of a write operation for triggers.
fn operation_name(kind: BatchKind) -> &'static str {
    match kind {
        BatchKind::Create => "Create",
        BatchKind::Upsert => "Upsert",
        BatchKind::Replace => "Replace",
        BatchKind::Patch => "Patch",
        BatchKind::Delete => "Delete",
        BatchKind::Read => "Read",
    }
}
