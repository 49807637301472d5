//! Listens for changes that other processes make to the announced partition (LISTEN/NOTIFY).
//!
//! Notifications are only a hint: waiters poll as well, so a lost connection costs a fraction of a second, not a change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{AsyncMessage, Connection, NoTls, Socket};

use super::shared::Shared;
use super::tls::Tls;
use crate::contract::PartitionId;

/// Delay before reconnecting.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// How often to check whether the announced partition has moved to another node.
const MOVE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(super) fn start(shared: &Arc<Shared>, tls: Option<Tls>) {
    let mut closing = shared.closing.subscribe();
    // Weak references only: a listener must not keep a dropped store open.
    let shared = Arc::downgrade(shared);
    orrery_env::task::spawn("listen", async move {
        let listening = async {
            loop {
                listen(&shared, tls.as_ref()).await;
                orrery_env::task::sleep(RECONNECT_DELAY).await;
            }
        };
        tokio::select! {
            () = listening => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    });
}

async fn listen(shared: &Weak<Shared>, tls: Option<&Tls>) {
    // Notifications are delivered only on the node that sent them: the owner of the announced partition.
    let Some(strong) = shared.upgrade() else { return };
    let node = strong.node_of(Shared::ANNOUNCED).await;
    drop(strong);
    let listening = async {
        match tls {
            Some(tls) => {
                if let Ok((client, connection)) = node.hosts().connect(tls).await {
                    receive(shared, client, connection).await;
                }
            }
            None => {
                if let Ok((client, connection)) = node.hosts().connect(&NoTls).await {
                    receive(shared, client, connection).await;
                }
            }
        }
    };
    let moved = async {
        loop {
            orrery_env::task::sleep(MOVE_CHECK_INTERVAL).await;
            let Some(shared) = shared.upgrade() else { return };
            if !Arc::ptr_eq(&shared.node_of(Shared::ANNOUNCED).await, &node) {
                return;
            }
        }
    };
    tokio::select! {
        () = listening => {}
        () = moved => {}
    }
}

/// Receives notifications until the connection is lost.
async fn receive<T: AsyncRead + AsyncWrite + Unpin>(
    shared: &Weak<Shared>,
    client: tokio_postgres::Client,
    mut connection: Connection<Socket, T>,
) {
    let Some(channel) = shared.upgrade().map(|shared| shared.channel.clone()) else { return };
    let listen = format!("LISTEN {channel}");
    // Polled together with the connection: the reply arrives through the connection, which somebody has to poll.
    let mut listen_command = std::pin::pin!(client.batch_execute(&listen));
    let mut is_listening = false;
    loop {
        let message = tokio::select! {
            result = &mut listen_command, if !is_listening => {
                is_listening = true;
                match result {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            message = poll_fn(|context| connection.poll_message(context)) => message,
        };
        match message {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                // The payload is `partition:lsn`, as `group.rs` announces it. Anything else on the channel is ignored.
                let Some((id, lsn)) = notification.payload().split_once(':') else { continue };
                if let (Ok(id), Ok(lsn), Some(shared)) = (id.parse(), lsn.parse(), shared.upgrade()) {
                    shared.advance(PartitionId(id), lsn);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}
