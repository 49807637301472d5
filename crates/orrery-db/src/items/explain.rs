//! Itemises what an item operation would be charged, without executing it.

use orrery_model::{Charge, ErrorKind, Result};
use orrery_storage::{Decision, Key, Lsn, Op, View};

use orrery_metering::cost::{self, Part};

use super::Items;
use super::batch::{BatchOperation, prepare};
use super::transaction::{ActionKind, Effect, ItemTransaction, TransactionOutcome};
use crate::failure::commit_failure;
use crate::partition::Receipt;

/// A charge and its components.
#[derive(Clone, Debug)]
pub struct ChargeExplanation {
    pub charge: Charge,
    pub parts: Vec<Part>,
}

impl Items {
    /// Decides the operation on the current data without writing, and returns its charge. An operation that would fail
    /// fails here in the same way.
    pub async fn explain_charge(
        &self,
        (database, container): (&str, &str),
        operation: &BatchOperation,
    ) -> Result<ChargeExplanation> {
        let mut attempt = 0;
        loop {
            let container = self.item_container(&mut Receipt::default(), database, container, None)?;
            let definition = &container.definition.partition_key;
            let (key, action) = prepare(&container, operation.partition_key.as_ref(), operation, self.env())?;
            let patch_count = match &action.kind {
                ActionKind::Patch { patch, .. } => patch.len(),
                _ => 0,
            };
            let effective = definition.effective_key(&key);
            let partition = container.partition_of(&effective).clone();
            let transaction = ItemTransaction {
                operation_id: self.operation_id(),
                range_id: partition.range_id,
                partition_key: key,
                effective,
                now_ms: self.env.now_ms(),
                logical_partition_bytes_max: self.options.logical_partition_bytes_max,
                actions: std::sync::Arc::new(vec![action]),
                entries: Vec::new(),
                script: None,
                container,
            };
            // Decided by the store like a real one, in order and on the newest values, and then rejected.
            let decided = orrery_storage::commit(&*self.store, partition.store, DryRun(transaction)).await;
            match decided.map_err(commit_failure) {
                // Prepared with an older index: look at the catalog and try again.
                Ok(decided) if decided.out.stale => {}
                Ok(decided) => {
                    let result = decided.out.results.into_iter().next().expect("one action has one result");
                    let success = result.outcome?;
                    let bytes = success.item.body.len();
                    let parts = match success.effect {
                        Effect::Read => cost::read_parts(bytes),
                        Effect::NotModified => {
                            vec![Part { what: "notModified", quantity: 1, charge: result.charge }]
                        }
                        Effect::Created => write_parts(result.charge, Some(bytes), false, patch_count),
                        Effect::Replaced => write_parts(result.charge, Some(bytes), true, patch_count),
                        Effect::Deleted => write_parts(result.charge, None, true, 0),
                    };
                    return Ok(ChargeExplanation { charge: result.charge, parts });
                }
                Err(error) if error.kind == ErrorKind::PartitionGone => {}
                Err(error) => return Err(error),
            }
            let gone = orrery_model::Error::new(ErrorKind::PartitionGone, "the partition moved");
            if !self.may_route_again(&gone, &mut attempt).await {
                return Err(gone);
            }
        }
    }
}

/// The components of a write's total charge: what is not size, removal or patching is index terms.
fn write_parts(charge: Charge, new_bytes: Option<usize>, removes: bool, patch_count: usize) -> Vec<Part> {
    let without_terms: Charge =
        // Without terms first, to find out what the rest of the charge stands for.
        cost::write_parts(new_bytes, removes, 0, patch_count).iter().map(|part| part.charge).sum();
    let terms = cost::terms_for(charge.hundredths().saturating_sub(without_terms.hundredths()));
    cost::write_parts(new_bytes, removes, terms, patch_count)
}

/// Decides, but changes nothing.
struct DryRun(ItemTransaction);

impl Op for DryRun {
    type Out = TransactionOutcome;

    fn id(&self) -> u128 {
        self.0.id()
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        self.0.reads(keys);
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<TransactionOutcome> {
        match self.0.decide(view, lsn) {
            // The outcome without the writes; a rejected decision consumes no LSN.
            Decision::Write(_, outcome) => Decision::Reject(outcome),
            other => other,
        }
    }
}
