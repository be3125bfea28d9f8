//! The names by which others find the endpoint: checks that they still lead to it.
//!
//! A name is a file, and any process with the right to can remove it. Only `inotify(7)` would tell
//! of that, of which a user has few, so the endpoint looks: while it makes progress every second,
//! and it wakes up from its sleep for that.

use super::{Connections, LISTENER, SAME_HOST, accepts, connect, token, watch};
use crate::{
    Error, Source,
    status::Tally,
    transport::local::Listener,
    worker::{ends, engine::Engine},
};

/// Between looks while the endpoint makes progress.
const AWAKE_NS: u64 = 1_000_000_000;

/// Between looks while it sleeps, and while another endpoint has its name.
const ASLEEP_NS: u64 = 10_000_000_000;

impl Connections {
    /// The time at which a sleeping endpoint looks at its names; `None` without one.
    pub(super) fn names_due_ns(&self) -> Option<u64> {
        let has_names = self.listener.is_some() || self.same_host.is_some();
        has_names.then(|| self.names_looked_ns.saturating_add(ASLEEP_NS))
    }

    /// Reports once that peers can no longer connect, since another endpoint has the name.
    pub(crate) fn take_lost(&mut self) -> Option<Error> {
        self.lost_name.take().map(|name| Error::NameLost { name })
    }
}

/// Checks the names, if that is due: a few system calls.
pub(super) fn look_after_names(engine: &mut Engine, now_ns: u64) {
    if now_ns < engine.connections.names_ns {
        return;
    }
    engine.connections.names_looked_ns = now_ns;
    engine.connections.names_ns = now_ns.saturating_add(AWAKE_NS);
    for same_host in [false, true] {
        look_after_name(engine, same_host, now_ns);
    }
}

fn look_after_name(engine: &mut Engine, same_host: bool, now_ns: u64) {
    let Some(listener) = listener_of(&mut engine.connections, same_host) else { return };
    let was_lost = listener.is_lost();
    if !listener.is_in_place() {
        // Callers by the file that is gone are in the queue of the socket that goes.
        connect::answer_callers(engine, same_host);
    }
    let Some(listener) = listener_of(&mut engine.connections, same_host) else { return };
    let looked = listener.look_after(now_ns);
    let (name, is_lost) = (listener.address().to_string(), listener.is_lost());
    match looked {
        Ok(None) => {}
        Ok(Some(old)) => {
            tracing::warn!(name, "the file of a name was removed, and is made again");
            let Connections { listener, same_host: other, epoll, .. } = &mut engine.connections;
            let _ = epoll.remove(&old);
            let (listener, index) = if same_host { (other, SAME_HOST) } else { (listener, 0) };
            let listener = listener.as_ref().map(Listener::fd);
            if let Some(Err(error)) = listener.map(|fd| watch(epoll, fd, token(LISTENER, index, 0)))
            {
                tracing::warn!(name, %error, "nobody is heard who calls by it");
            }
        }
        Err(error) => {
            if !was_lost {
                tracing::warn!(name, %error, "nobody finds this endpoint by its name");
            }
            engine.connections.names_ns = now_ns.saturating_add(ASLEEP_NS);
        }
    }
    if !same_host && is_lost != was_lost {
        engine.core.status.name_lost.set(u64::from(is_lost));
        engine.connections.lost_name = None;
        if is_lost && engine.connections.tcp.is_none() {
            tell_of_lost(engine, name);
        }
    }
}

/// No peer can connect: threads that wait for one are told, and operations that only a newcomer
/// could end, end.
fn tell_of_lost(engine: &mut Engine, name: String) {
    if engine.peers.live() == 0 {
        for key in engine.core.matcher.drop_posted(|from| from == Source::Any) {
            ends::finish(&mut engine.core, key, Err(Error::NameLost { name: name.clone() }));
        }
    }
    engine.connections.lost_name = Some(name);
    accepts::settle_accepts(engine);
}

fn listener_of(connections: &mut Connections, same_host: bool) -> Option<&mut Listener> {
    let Connections { listener, same_host: other, .. } = connections;
    if same_host { other.as_mut() } else { listener.as_mut() }
}
