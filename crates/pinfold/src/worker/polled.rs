//! Peers whose lanes are polled.

use crate::worker::{engine::Engine, gauges};

/// Starts polling a peer's lane.
pub(crate) fn heat(engine: &mut Engine, index: u32) {
    if let Some(peer) = engine.peers.at_mut(index) {
        peer.rx.unask();
        peer.idle_polls = 0;
        if !peer.hot {
            peer.hot = true;
            engine.hot.push(index);
            if peer.is_turned() {
                engine.poll_set.begin();
            }
        }
    }
}

/// Leaves a peer on another host to the epoll if its connection was looked at in vain and there
/// are many. The peer must then be taken off the list of those that are polled.
pub(crate) fn may_leave(engine: &mut Engine, index: u32) -> bool {
    let Some(peer) = engine.peers.at_mut(index) else { return false };
    let leaves = !peer.is_leaving()
        && engine.poll_set.is_in_vain(peer.idle_polls)
        && peer.rx.head().is_none()
        && peer.transport.is_drained();
    if leaves {
        peer.hot = false;
        engine.poll_set.leave(index);
        gauges::update_peer_gauges(&engine.core.ops, peer);
    }
    leaves
}
