//! Transactional batches (atomic, on one logical partition) and bulk requests (independent operations).

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use orrery_env::Env;
use orrery_model::ids::ItemId;
use orrery_model::partition_key::PartitionKey;
use orrery_model::{Charge, Error, ErrorKind, Result};
use orrery_storage::ReadRequest;

use orrery_metering::cost;

use super::fill::Missing;
use super::point::{ItemOptions, ItemReply, full_key, patch_action, prepare_under};
use super::transaction::{Action, ActionKind, ActionResult};
use super::{Items, key_mismatch, required_key};
use crate::catalog::Container;
use crate::partition::Receipt;

const OPERATIONS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    Create,
    Upsert,
    Read,
    Replace,
    Delete,
    Patch,
}

/// One operation of a batch, as received.
#[derive(Clone, Debug)]
pub struct BatchOperation {
    pub kind: BatchKind,
    pub id: Option<String>,
    pub body: Option<Bytes>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    /// Only in bulk requests, where every operation has its own.
    pub partition_key: Option<PartitionKey>,
}

/// The result of one operation.
#[derive(Clone, Debug)]
pub struct BatchResult {
    pub outcome: BatchOutcome,
    pub charge: Charge,
}

#[derive(Clone, Debug)]
pub enum BatchOutcome {
    Done(ItemReply),
    Failed(Error),
    /// Not applied, because another operation of the same transaction failed.
    FailedDependency,
}

impl Items {
    /// Runs the operations as one transaction. The results show which one failed, if any.
    pub async fn execute_batch(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        options: &ItemOptions,
        operations: &[BatchOperation],
    ) -> Result<Vec<BatchResult>> {
        check_count(operations)?;
        no_triggers(options)?;
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        let key = full_key(&container, options)?;
        let mut actions = Vec::with_capacity(operations.len());
        for (at, operation) in operations.iter().enumerate() {
            let prepared = prepare(&container, Some(&key), operation, self.env());
            // All items of a transaction have its partition key.
            match prepared.and_then(|(own, action)| if own == key { Ok(action) } else { Err(key_mismatch()) })
            {
                Ok(action) => actions.push(action),
                Err(error) => {
                    // A rejected operation costs as much as reading a missing item.
                    let mut charges = vec![Charge::ZERO; at];
                    charges.push(cost::missing_item());
                    receipt.add(cost::missing_item());
                    return Ok(failed_at(at, operations.len(), &error, charges));
                }
            }
        }
        if options.session.is_some() && operations.iter().any(|operation| operation.kind == BatchKind::Read) {
            // Reads must be at least as new as the session; writes always are.
            let partition = container.partition_of(&container.definition.partition_key.effective_key(&key));
            let nothing = ReadRequest::Get(Vec::new());
            // Other failures, such as a split, are handled by the transaction itself.
            match self.read_partition(receipt, partition, options.session.as_ref(), nothing).await {
                Err(error) if error.kind == ErrorKind::ReadSessionNotAvailable => return Err(error),
                _ => {}
            }
        }
        let outcome = self.run_transaction(receipt, &container, key, actions).await?;
        receipt.add(outcome.results.iter().map(|result| result.charge).sum());
        if outcome.failed {
            // Results end with the operation that failed; those behind it were not decided.
            let at = outcome.results.len() - 1;
            let mut results = outcome.results;
            let last = results.pop().expect("a failed transaction has a failed action");
            let error = last.outcome.expect_err("the last action is the one that failed");
            let mut charges: Vec<Charge> = results.into_iter().map(|result| result.charge).collect();
            charges.push(last.charge);
            return Ok(failed_at(at, operations.len(), &error, charges));
        }
        Ok(outcome.results.into_iter().map(|result| batch_result(&container, result)).collect())
    }

    /// Runs the operations independently and concurrently. Without continue-on-error they run in sequence, and those
    /// after the first failure are skipped.
    pub async fn execute_bulk(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        options: &ItemOptions,
        operations: &[BatchOperation],
        goes_on_after_failures: bool,
    ) -> Result<Vec<BatchResult>> {
        check_count(operations)?;
        no_triggers(options)?;
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        let context = receipt.context();
        let run = |operation| {
            let container = Arc::clone(&container);
            async move {
                // Each operation is admitted and charged separately.
                let mut own = Receipt::open(context);
                own.at(&container);
                let result = self.run_one(&mut own, &container, options, operation).await;
                own.add(result.as_ref().map_or(Charge::ZERO, |result| result.charge));
                self.settle(&own);
                (own, result)
            }
        };
        let runs = if goes_on_after_failures {
            join_all(operations.iter().map(run)).await
        } else {
            let mut runs = Vec::with_capacity(operations.len());
            for operation in operations {
                let (own, result) = run(operation).await;
                let failed =
                    !result.as_ref().is_ok_and(|result| matches!(result.outcome, BatchOutcome::Done(_)));
                runs.push((own, result));
                if failed {
                    break;
                }
            }
            runs
        };
        let mut results = Vec::with_capacity(operations.len());
        for (own, result) in runs {
            // The response has one session token for all, so every partition that took part is joined.
            for served in &own.served {
                if let Ok(partition) = container.partition(served.range_id) {
                    receipt.served_by(partition, served.lsn);
                }
            }
            let result = result.unwrap_or_else(|error| BatchResult {
                outcome: BatchOutcome::Failed(error),
                charge: Charge::ZERO,
            });
            receipt.add(result.charge);
            results.push(result);
        }
        // Skipped operations are reported like those of a failed transaction.
        let undone = BatchResult { outcome: BatchOutcome::FailedDependency, charge: Charge::ZERO };
        results.resize(operations.len(), undone);
        Ok(results)
    }

    async fn run_one(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        options: &ItemOptions,
        operation: &BatchOperation,
    ) -> Result<BatchResult> {
        let key = operation.partition_key.as_ref().or(options.partition_key.as_ref());
        // A container with a synthetic key does not need one.
        let key = if container.synthetic.is_some() { key } else { Some(required_key(key)?) };
        // The caller may be restricted to the key in the request.
        if options.partition_key.as_ref().is_some_and(|named| key != Some(named)) {
            return Err(key_mismatch());
        }
        let (key, action) = prepare(container, key, operation, self.env())?;
        let outcome = self.run_transaction(receipt, container, key, vec![action]).await?;
        let result = outcome.results.into_iter().next().expect("one action has one result");
        Ok(batch_result(container, result))
    }
}

fn no_triggers(options: &ItemOptions) -> Result<()> {
    if options.triggers.is_none() {
        return Ok(());
    }
    Err(Error::bad_request("Triggers cannot be run with batch requests."))
}

fn check_count(operations: &[BatchOperation]) -> Result<()> {
    match operations.len() {
        0 => Err(Error::bad_request("Batch request has no operations.")),
        1..=OPERATIONS_MAX => Ok(()),
        _ => Err(Error::bad_request("Batch request has more operations than what is supported.")),
    }
}

fn batch_result(container: &Container, result: ActionResult) -> BatchResult {
    let outcome = match result.outcome {
        Ok(success) => BatchOutcome::Done(ItemReply::new(container.rid, success)),
        Err(error) => BatchOutcome::Failed(error),
    };
    BatchResult { outcome, charge: result.charge }
}

/// The results of a transaction whose operation `at` failed: its error, and failed dependencies for all others.
fn failed_at(at: usize, count: usize, error: &Error, charges: Vec<Charge>) -> Vec<BatchResult> {
    let mut charges = charges.into_iter();
    let results = (0..count).map(|index| BatchResult {
        outcome: if index == at {
            BatchOutcome::Failed(error.clone())
        } else {
            BatchOutcome::FailedDependency
        },
        charge: charges.next().unwrap_or(Charge::ZERO),
    });
    results.collect()
}

/// Validates one operation and its key. Without a key, the item's own is used.
pub(crate) fn prepare(
    container: &Container,
    key: Option<&PartitionKey>,
    operation: &BatchOperation,
    env: &dyn Env,
) -> Result<(PartitionKey, Action)> {
    let definition = &container.definition.partition_key;
    let named_id = || match &operation.id {
        Some(id) => ItemId::parse(id),
        None => Err(orrery_model::ids::missing_properties(&["id"])),
    };
    // Closures, because each kind of operation needs only some of these, and a missing one is an error only then.
    let body =
        || operation.body.as_ref().ok_or_else(|| orrery_model::ids::missing_properties(&["resourceBody"]));
    let named_key = || definition.check_full(required_key(key)?);
    let item = |missing| prepare_under(container, key, body()?, missing, env);
    let (key, id, kind) = match operation.kind {
        BatchKind::Create => {
            let (key, item) = item(Missing::Made)?;
            (key, item.id.clone(), ActionKind::Create(item))
        }
        BatchKind::Upsert => {
            let (key, item) = item(Missing::Made)?;
            (key, item.id.clone(), ActionKind::Upsert(item))
        }
        // The id comes from the request and the item from the body: if they differ, the item is renamed.
        BatchKind::Replace => {
            let id = named_id()?;
            let (key, item) = item(Missing::Found)?;
            (key, id, ActionKind::Replace(item))
        }
        BatchKind::Patch => (named_key()?, named_id()?, patch_action(container, body()?)?),
        BatchKind::Delete => (named_key()?, named_id()?, ActionKind::Delete),
        BatchKind::Read => (named_key()?, named_id()?, ActionKind::Read),
    };
    let action = Action {
        id,
        kind,
        if_match: operation.if_match.clone(),
        if_none_match: operation.if_none_match.clone(),
    };
    Ok((key, action))
}
