//! A proxy to a server that can be closed, cut and made silent while the server keeps running.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::wait;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    /// Forwards nothing and closes nothing, like a machine without power.
    Silent,
    /// Connections are cut and new ones refused, like a process that has died.
    Closed,
}

/// Forwards connections from a local port to a server's socket.
pub struct Proxy {
    port: u16,
    server: PathBuf,
    mode: watch::Sender<Mode>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    passed: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts a proxy on a free port. The server is given by its socket.
    ///
    /// # Panics
    /// If this machine has no free port.
    pub async fn start(server: PathBuf) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let this = Self {
            port,
            server,
            mode: watch::Sender::new(Mode::Open),
            accepting: Mutex::default(),
            passed: Arc::default(),
        };
        this.accept(listener).await;
        this
    }

    /// The local port it accepts connections on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Number of connections forwarded so far.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Cuts all connections and refuses new ones.
    pub async fn close(&self) {
        if let Some(task) = self.accepting.lock().await.take() {
            task.abort();
            drop(task.await);
        }
        self.mode.send_replace(Mode::Closed);
    }

    /// Keeps all connections and accepts new ones, but forwards nothing.
    pub fn silence(&self) {
        self.mode.send_replace(Mode::Silent);
    }

    /// Forwards new connections again. Connections from the silent period are cut.
    ///
    /// # Panics
    /// If the port has been taken.
    pub async fn open(&self) {
        self.mode.send_replace(Mode::Open);
        if self.accepting.lock().await.is_some() {
            return;
        }
        let place = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener =
            wait::eventually("the proxy's port", async || TcpListener::bind(place).await.ok()).await;
        self.accept(listener).await;
    }

    async fn accept(&self, listener: TcpListener) {
        let (server, mode, passed) = (self.server.clone(), self.mode.subscribe(), Arc::clone(&self.passed));
        let accepting = async move {
            while let Ok((client, _)) = listener.accept().await {
                drop(tokio::spawn(pass(client, server.clone(), mode.clone(), Arc::clone(&passed))));
            }
        };
        *self.accepting.lock().await = Some(tokio::spawn(accepting));
    }
}

/// Handles one connection until it closes.
async fn pass(
    mut client: TcpStream,
    server: PathBuf,
    mut mode: watch::Receiver<Mode>,
    passed: Arc<AtomicU64>,
) {
    if *mode.borrow_and_update() == Mode::Open {
        let Ok(mut server) = UnixStream::connect(server).await else { return };
        passed.fetch_add(1, Ordering::Relaxed);
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
            _ = mode.changed() => {}
        }
        // The server's side is kept open too, so that the server does not notice either.
        while *mode.borrow_and_update() == Mode::Silent && mode.changed().await.is_ok() {}
        return;
    }
    while *mode.borrow_and_update() == Mode::Silent && mode.changed().await.is_ok() {}
}
