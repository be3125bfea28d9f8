//! A publisher at its door: it lets subscribers join.
//!
//! Its thread does not wait for the members while the program publishes, which may take as long as
//! the publisher has patience, and needs the endpoint's thread: whoever has the members lets those
//! join who have come meanwhile.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};

use parking_lot::Mutex;

use super::{
    address::{Side, Topic},
    call::call_all,
    control::{Answer, Control, Join},
    door::Host,
    kind::{Kind, Refused},
    members::Members,
};
use crate::{Active, Endpoint, Error, PeerId, Replier, Result};

/// The publisher's side of its door.
pub(super) struct PublisherHost {
    kind: Kind,
    members: Mutex<Members>,
    joining: Mutex<Vec<Joining>>,
    /// True if there may be somebody in `joining`.
    is_awaited: AtomicBool,
}

/// A subscriber that waits for an answer.
struct Joining {
    peer: PeerId,
    join: Join,
    replier: Replier,
}

/// The outcome of calling all subscribers.
pub(super) struct Called {
    pub refused: Option<Refused>,
    pub is_to_repeat: bool,
}

impl PublisherHost {
    pub(super) fn new(kind: Kind, members: Members) -> PublisherHost {
        let (members, joining) = (Mutex::new(members), Mutex::default());
        PublisherHost { kind, members, joining, is_awaited: AtomicBool::new(false) }
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The members, for a thread of the program's.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub(super) fn with_members<T>(
        &self,
        endpoint: &Endpoint,
        with: impl FnOnce(&mut Members) -> T,
    ) -> Result<T> {
        // In a child the lock may be held by a thread that is not there.
        if endpoint.shared().is_forked() {
            return Err(Error::Forked);
        }
        let mut members = self.members.lock();
        let done = with(&mut members);
        drop(members);
        // A thread in `admit` that did not get the members has set this before.
        fence(SeqCst);
        if self.is_awaited.load(SeqCst) {
            self.admit(endpoint);
        }
        Ok(done)
    }

    /// Lets those join who wait, unless another thread has the members, which does it then.
    #[cold]
    fn admit(&self, endpoint: &Endpoint) {
        while self.is_awaited.load(SeqCst) {
            fence(SeqCst);
            let Some(mut members) = self.members.try_lock() else { return };
            self.is_awaited.store(false, SeqCst);
            let joining = std::mem::take(&mut *self.joining.lock());
            for Joining { peer, join, replier } in joining {
                let answer = self.join(&mut members, endpoint, peer, &join);
                let answer = Control::Answer { answer, kind: self.kind.clone() };
                if let Err(error) = replier.reply(&answer.encode()) {
                    tracing::debug!(%error, "an answer to a subscriber");
                }
            }
        }
    }

    fn join(
        &self,
        members: &mut Members,
        endpoint: &Endpoint,
        peer: PeerId,
        join: &Join,
    ) -> Answer {
        match join.kind == self.kind {
            true => members.join(endpoint, peer, join),
            false => Answer::OtherType,
        }
    }

    /// Calls all subscribers, which join.
    ///
    /// # Errors
    /// As [`call_all`].
    pub(super) fn call(&self, endpoint: &Endpoint, topic: &Topic, place: u32) -> Result<Called> {
        let here = Control::Here { place, kind: self.kind.clone() };
        let called = call_all(endpoint, topic, Side::Subscribers, |_| true, &here)?;
        let mut refused = None;
        for (_, peer, control) in called.answers {
            let Control::Join(join) = control else {
                endpoint.disconnect(peer);
                continue;
            };
            let joins = |members: &mut Members| self.join(members, endpoint, peer, &join);
            let answer = self.with_members(endpoint, joins)?;
            if answer != Answer::Joined {
                endpoint.disconnect(peer);
            }
            if answer == Answer::OtherType {
                refused.get_or_insert(Refused::OtherType(join.kind));
            }
        }
        Ok(Called { refused, is_to_repeat: called.is_to_repeat })
    }
}

impl Host for PublisherHost {
    fn hear(&self, active: &Active<'_>, control: Control) -> bool {
        let (Control::Join(join), Some(replier)) = (control, active.reply_later()) else {
            return false;
        };
        self.joining.lock().push(Joining { peer: active.peer(), join, replier });
        self.is_awaited.store(true, SeqCst);
        self.admit(active.endpoint());
        true
    }
}
