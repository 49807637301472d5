//! Request bodies, read completely with limits on size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use orrery_env::monotonic;

use tokio::time::{Instant, timeout_at};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("the server has no memory left for the body")]
    NoMemory,
    #[error("the body did not arrive in time")]
    TimedOut,
    #[error("the body is broken or ended early: {0}")]
    Broken(String),
}

/// How much of a rejected body is read and discarded before the connection is closed.
const DISCARDED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Reads a body of at most `bytes_max` bytes, with a known length or chunked, all of it within `time_max`.
pub async fn read_body(body: Incoming, bytes_max: usize, time_max: Duration) -> Result<Bytes, BodyError> {
    let deadline = monotonic::timer_now() + time_max;
    collect(body, bytes_max, deadline).await
}

/// Reads and discards the body of a rejected request.
pub async fn discard_body(body: Incoming, time_max: Duration) {
    discard(body, monotonic::timer_now() + time_max).await;
}

async fn collect(mut body: Incoming, bytes_max: usize, deadline: Instant) -> Result<Bytes, BodyError> {
    let hint = body.size_hint();
    // Reject a too large announced length before allocating anything.
    if usize::try_from(hint.lower()).map_or(true, |length| length > bytes_max) {
        discard(body, deadline).await;
        return Err(BodyError::TooLarge);
    }
    let mut first = Bytes::new();
    let mut gathered: Option<BytesMut> = None;
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| BodyError::TimedOut)?;
        let Some(frame) = frame else { break };
        // Ignore trailers.
        let Ok(data) = frame.map_err(|error| BodyError::Broken(error.to_string()))?.into_data() else {
            continue;
        };
        // Counted as it arrives: a chunked body announces nothing.
        let length = gathered.as_ref().map_or(first.len(), BytesMut::len) + data.len();
        if length > bytes_max {
            discard(body, deadline).await;
            return Err(BodyError::TooLarge);
        }
        match &mut gathered {
            Some(gathered) => gathered.extend_from_slice(&data),
            // Most bodies arrive in one piece, which is then not copied.
            None if first.is_empty() => first = data,
            None => {
                // Do not allocate for the announced length before data has arrived.
                let announced = usize::try_from(hint.lower()).unwrap_or(0).min(length.saturating_mul(8));
                let mut all = BytesMut::with_capacity(announced.max(length));
                all.extend_from_slice(&first);
                all.extend_from_slice(&data);
                gathered = Some(all);
            }
        }
    }
    Ok(gathered.map_or(first, BytesMut::freeze))
}

/// Discards the rest of a rejected body, up to a bound.
///
/// Responding while the client is still writing would reset the connection, and the Go and Java clients then report the
/// broken connection instead of the error.
async fn discard(mut body: Incoming, deadline: Instant) {
    let mut left = DISCARDED_BYTES_MAX;
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}
