//! Hears of changes that other processes make to the announced partition. Only a hint: whoever waits also
//! looks for himself now and then, so a lost connection costs a fraction of a second, not a change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{AsyncMessage, Connection, NoTls, Socket};

use super::shared::Shared;
use super::tls::Tls;
use crate::contract::PartitionId;

/// How long to wait before listening again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often to see whether the announced partition lies on another node by now.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(super) fn start(shared: &Arc<Shared>, tls: Option<Tls>) {
    let mut closing = shared.closing.subscribe();
    let shared = Arc::downgrade(shared);
    tokio::spawn(async move {
        let listening = async {
            loop {
                listen(&shared, tls.as_ref()).await;
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = listening => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    });
}

async fn listen(shared: &Weak<Shared>, tls: Option<&Tls>) {
    // Notifications stay on the node where they were made: the one that has the announced partition.
    let Some(strong) = shared.upgrade() else { return };
    let node = strong.node_of(Shared::ANNOUNCED).await;
    drop(strong);
    let hearing = async {
        match tls {
            Some(tls) => {
                if let Ok((client, connection)) = node.hosts().connect(tls).await {
                    hear(shared, client, connection).await;
                }
            }
            None => {
                if let Ok((client, connection)) = node.hosts().connect(&NoTls).await {
                    hear(shared, client, connection).await;
                }
            }
        }
    };
    let moved = async {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let Some(shared) = shared.upgrade() else { return };
            if !Arc::ptr_eq(&shared.node_of(Shared::ANNOUNCED).await, &node) {
                return;
            }
        }
    };
    tokio::select! {
        () = hearing => {}
        () = moved => {}
    }
}

/// Until the connection ends.
async fn hear<T: AsyncRead + AsyncWrite + Unpin>(
    shared: &Weak<Shared>,
    client: tokio_postgres::Client,
    mut connection: Connection<Socket, T>,
) {
    let Some(channel) = shared.upgrade().map(|shared| shared.channel.clone()) else { return };
    let listen = format!("LISTEN {channel}");
    let mut asked = std::pin::pin!(client.batch_execute(&listen));
    let mut is_asked = false;
    loop {
        let message = tokio::select! {
            result = &mut asked, if !is_asked => {
                is_asked = true;
                match result {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            message = poll_fn(|context| connection.poll_message(context)) => message,
        };
        match message {
            Some(Ok(AsyncMessage::Notification(told))) => {
                let Some((id, lsn)) = told.payload().split_once(':') else { continue };
                if let (Ok(id), Ok(lsn), Some(shared)) = (id.parse(), lsn.parse(), shared.upgrade()) {
                    shared.advance(PartitionId(id), lsn);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}
