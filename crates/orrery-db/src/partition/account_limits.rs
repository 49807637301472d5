//! How often an account may create databases and containers and change throughput.
//!
//! The figures are the service's published ones. Test suites exceed them at once, so they apply only where the operator
//! asks for them. Each process counts its own requests, since its start.

use std::collections::VecDeque;

use orrery_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::Partitions;
use super::heat::{ThrottleCause, ThrottleEvent};

/// A request that changes what the account has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountChange {
    CreateDatabase,
    CreateContainer,
    ReplaceOffer,
}

impl AccountChange {
    /// How many requests are allowed in how many seconds, and what they are called.
    fn limit(self) -> (f64, i64, &'static str) {
        match self {
            Self::CreateDatabase => (100.0, 60, "databases to be created"),
            Self::CreateContainer => (100.0, 60, "containers to be created"),
            Self::ReplaceOffer => (25.0, 300, "changes of throughput"),
        }
    }
}

/// When the latest requests of each kind came, in milliseconds, oldest first.
#[derive(Debug, Default)]
pub(super) struct AccountLimits(Mutex<[VecDeque<i64>; 3]>);

impl Partitions {
    /// Admits a change, or throttles it if there were too many.
    pub fn admit_change(&self, change: AccountChange) -> Result<()> {
        let Some(scale) = self.options.account_limits_scale else { return Ok(()) };
        let (count, seconds, what) = change.limit();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
        let count = (count * scale).max(1.0) as usize;
        let now_ms = self.env.now_ms();
        let retry_after_ms = {
            let mut times = self.budgets.account_limits.0.lock();
            let times = &mut times[change as usize];
            // A clock that was set back must not block the account: times in the future are dropped too.
            times.retain(|at| (0..seconds * 1000).contains(&(now_ms - *at)));
            if times.len() < count {
                times.push_back(now_ms);
                return Ok(());
            }
            // The request that leaves room for this one: usually the oldest.
            times[times.len() - count] + seconds * 1000 - now_ms
        };
        let retry_after_ms = u32::try_from(retry_after_ms.max(1)).unwrap_or(u32::MAX);
        self.budgets.events.push(ThrottleEvent {
            at_ms: now_ms,
            container: None,
            range_id: 0,
            key: None,
            key_share_percent: 0,
            budget_per_second: 0,
            cause: ThrottleCause::AccountLimit,
            retry_after_ms,
        });
        Err(Error::new(
            ErrorKind::TooManyRequests { retry_after_ms },
            format!(
                "Request rate is large. The request did not complete due to a high rate of metadata requests. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429 The account allows {count} {what} in {seconds} seconds; the next is possible in {retry_after_ms} ms."
            ),
        ))
    }
}
