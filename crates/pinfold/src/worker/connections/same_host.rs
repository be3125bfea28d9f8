//! The local name of an endpoint that listens for other hosts: for those of its callers that are on
//! this host.

use pinfold_sys::io::poll::Epoll;

use super::{Connections, LISTENER, SAME_HOST, token, watch};
use crate::{
    Error, Result,
    transport::local::{Address, Listener, Us},
    wire::tcp::offer::LocalName,
    worker::{config::Config, pending_peer::PendingPeer},
};

/// Listens there. `None` if that is not wanted, or not possible: then callers stay with their
/// connections.
pub(super) fn listen(config: &Config, us: &Us, epoll: &Epoll) -> Option<Listener> {
    if !config.local_shortcut {
        return None;
    }
    let id = u128::from_be_bytes(us.endpoint_id);
    let bind = || -> Result<Listener> {
        let address = Address::same_host(id);
        let listener = Listener::bind(&address, &config.access)?;
        watch(epoll, listener.fd(), token(LISTENER, SAME_HOST, 0))?;
        Ok(listener)
    };
    let bound = bind();
    bound.inspect_err(|error| tracing::debug!(%error, "peers on this host stay with TCP")).ok()
}

impl Connections {
    /// The local name as peers are told it.
    pub(super) fn local_name(&self) -> Option<LocalName> {
        let name = self.same_host.as_ref()?.address().name().to_owned();
        Some(LocalName { user: pinfold_sys::user::uid(), name })
    }

    /// Keeps out a peer that comes by that name without having been let in over a connection.
    pub(super) fn check_admitted(&self, pending: &PendingPeer) -> Result<()> {
        let admitted = |id| self.greetings.iter().flatten().any(|it| it.handshake.admitted() == id);
        if admitted(Some(pending.endpoint_id)) {
            return Ok(());
        }
        Err(Error::NotAllowed {
            name: pending.label.clone(),
            why: "it called by a local name that is for those who have shown the key".into(),
        })
    }
}
