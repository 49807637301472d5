//! Implements duties with advisory locks of the server, and notes with a small table.

use std::time::Duration;

use super::pool::Session;
use super::shared::Shared;
use super::{Postgres, sql};
use crate::contract::{BoxFuture, Pending, StoreError};
use crate::contract::{Coordination, Duty};
use bytes::Bytes;

/// An advisory lock, which lives as long as its connection.
struct Lock {
    session: Session,
    name: String,
}

impl Duty for Lock {
    fn check(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let lost = |fault: super::server_error::ServerError| {
                StoreError::Unavailable(format!("a duty was lost: {}", fault.text()))
            };
            // The lock lives exactly as long as its session, so a reply proves that it is still held.
            self.session.run("SELECT 1").await.map_err(lost)
        })
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Self { session, name } = *self;
            // If unlocking fails, the connection is closed, which releases the lock as well.
            if session.query(sql::END_DUTY, &[&name]).await.is_ok() {
                session.release();
            }
        })
    }
}

/// Identifies a process among the others.
pub(super) fn member_id(writer: u128) -> String {
    format!("{writer:032x}")
}

impl Coordination for Postgres {
    fn try_duty(&self, name: &str) -> Pending<'_, Option<Box<dyn Duty>>> {
        let name = format!("orrery:{}:duty:{name}", self.shared.options.schema);
        Box::pin(async move {
            self.shared
                .repeat(Shared::ANNOUNCED, || {
                    Box::pin(async {
                        let session = self.shared.cluster.main().snapshot_session().await?;
                        let rows = session.query(sql::TRY_DUTY, &[&name]).await?;
                        if rows.first().is_some_and(|row| row.get(0)) {
                            // The session is not released: while it is open, the lock is held.
                            let name = name.clone();
                            return Ok(Some(Box::new(Lock { session, name }) as Box<dyn Duty>));
                        }
                        session.release();
                        Ok(None)
                    })
                })
                .await
        })
    }

    fn exchange_notes(&self, note: Bytes, age_max: Duration) -> Pending<'_, Vec<Bytes>> {
        Box::pin(async move {
            let id = member_id(self.shared.writer);
            let age_ms = i64::try_from(age_max.as_millis()).unwrap_or(i64::MAX);
            self.shared
                .repeat(Shared::ANNOUNCED, || {
                    Box::pin(async {
                        let session = self.shared.cluster.main().writing_session().await?;
                        session.query(sql::LEAVE_NOTE, &[&id, &note.as_ref()]).await?;
                        let rows = session.query(sql::READ_NOTES, &[&id, &age_ms]).await?;
                        session.release();
                        Ok(rows.iter().map(|row| Bytes::copy_from_slice(row.get(0))).collect())
                    })
                })
                .await
        })
    }
}

/// Deletes this process's note, so that the others need not wait for it to expire.
pub(super) async fn withdraw_note(shared: &Shared) {
    if let Ok(session) = shared.cluster.main().session().await {
        // If that fails, the note expires.
        if session.query(sql::DROP_NOTE, &[&member_id(shared.writer)]).await.is_ok() {
            session.release();
        }
    }
}
