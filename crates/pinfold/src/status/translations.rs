//! Translations of this process's endpoints, sent to the program that asked for them:
//! `pinfold trace record --translations`.
//!
//! Each is a datagram, to the socket that [`SOCKET`] names. A process that sends waits until its
//! datagram has room there, at most [`PATIENCE`], and sends no more once nobody listens.

use std::{
    env,
    os::unix::net::UnixDatagram,
    path::Path,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::memory::translate::told;

/// The environment variable that names the socket's file. Unset or empty: nothing is sent.
pub const SOCKET: &str = "PINFOLD_TRANSLATIONS";

/// The longest wait for a recorder that does not read.
const PATIENCE: Duration = Duration::from_secs(1);

static ONCE: Once = Once::new();

/// Begins to send translations, if that is asked for. Later calls do nothing: they cost a load.
pub(crate) fn begin() {
    ONCE.call_once(|| {
        let Some(path) = env::var_os(SOCKET).filter(|path| !path.is_empty()) else { return };
        match connected(Path::new(&path)) {
            Ok(socket) => hand_to(socket),
            Err(error) => tracing::warn!(%error, "translations are not sent"),
        }
    });
}

fn connected(path: &Path) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn hand_to(socket: UnixDatagram) {
    let is_over = AtomicBool::new(false);
    told::hand_translations_to(move |one| {
        if is_over.load(Relaxed) {
            return;
        }
        let sent = loop {
            match socket.send(&one.to_bytes()) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                sent => break sent,
            }
        };
        if let Err(error) = sent {
            is_over.store(true, Relaxed);
            tracing::warn!(%error, "translations are not sent any more");
        }
    });
}
