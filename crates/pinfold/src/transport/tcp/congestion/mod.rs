//! The control of congestion on a connection, for hosts whose own way holds the connection back for
//! no reason.
//!
//! A way that sends at a pace has the kernel do so for as long as the connection lasts, even if
//! another is chosen later. So a socket leaves such a way before it connects or listens
//! ([`HostsWay::put_off`]), and takes it when it is known where the connection leads
//! ([`HostsWay::settle`]), before anything but the greeting has gone.
//!
//! - [`choice`]: the way to take; no I/O.

mod choice;

use std::{os::fd::AsFd, sync::Arc};

use pinfold_sys::socket::stream::congestion;

use self::choice::{Change, Choice};

/// Bytes sent from one look to the next.
const STRIDE: u64 = 4 << 20;

/// The host's way, if sockets do without it until their route is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostsWay(Option<Arc<str>>);

impl HostsWay {
    /// Of a socket that is about to connect or to be connected to. Two system calls.
    pub(crate) fn put_off(socket: impl AsFd) -> HostsWay {
        let paced = congestion::way(&socket).ok().filter(|way| Choice::is_paced(way));
        let left = paced.filter(|_| congestion::choose(&socket, congestion::RENO).is_ok());
        HostsWay(left.map(Arc::from))
    }

    /// The connection is there, and a few bytes have gone to and fro. Returns the [`Congestion`] to
    /// ask from here on, if any. Two system calls at most.
    pub(crate) fn settle(self, socket: impl AsFd) -> Option<Congestion> {
        let own = self.0?;
        let mut congestion = Congestion { own, choice: Choice::default(), left: STRIDE };
        congestion.look(socket).then_some(congestion)
    }
}

/// The ways that one connection takes.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// The host's.
    own: Arc<str>,
    choice: Choice,
    /// Bytes that may be sent before the next look.
    left: u64,
}

impl Congestion {
    /// So many bytes were sent. Returns whether it is time for a [look](Congestion::look).
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) -> bool {
        self.left = self.left.saturating_sub(bytes as u64);
        self.left == 0
    }

    /// Looks at the progress. One system call, two if the way changes. `false`: there is nothing
    /// more to look for.
    pub(crate) fn look(&mut self, socket: impl AsFd) -> bool {
        self.left = STRIDE;
        let progress = congestion::progress(&socket).ok().flatten();
        // Without progress to judge by, the host's own way is taken.
        let change = progress.map_or(Some(Change::ToOwn), |progress| self.choice.look(progress));
        let Some(change) = change else { return true };
        let way = match change {
            Change::ToReno => congestion::RENO,
            Change::ToOwn => &self.own,
        };
        let chosen = congestion::choose(&socket, way);
        tracing::debug!(way, ?progress, ?chosen, "congestion is controlled another way");
        progress.is_some() && chosen.is_ok() && !self.choice.is_final()
    }
}

#[cfg(test)]
mod tests;
