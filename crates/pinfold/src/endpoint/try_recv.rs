#![allow(unsafe_code)]
//! Receives that never wait, and post nothing.
//!
//! **Invariant.** The memory is borrowed for the whole call, and nothing keeps it.

use crate::{
    Endpoint, Received, Result, Source, TagMatch, memory::scatter::Part, worker::next_message,
};

impl Endpoint {
    /// Receives a matching message into `buf` if it is the next in its peer's ring, whole and
    /// short, and no receive that was posted before takes it. `None`: there is none such, or the
    /// one that is there takes a posted receive; nothing was received then. Makes no progress: a
    /// caller that gets `None` does that next, and posts a receive if there was some, or if
    /// [messages are stored](Endpoint::has_stored).
    ///
    /// # Errors
    /// [`Error::Truncated`](crate::Error::Truncated) as of [`Endpoint::recv_into`],
    /// [`Error::Closed`](crate::Error::Closed), [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub fn try_recv_into(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buf: &mut [u8],
    ) -> Result<Option<Received>> {
        // SAFETY: borrowed for the whole call.
        let memory = unsafe { Part::new(buf.as_mut_ptr(), buf.len()) };
        let mut engine = self.shared().enter()?;
        engine.check()?;
        let took = next_message::take_next(&mut engine, from.into(), tag.into(), memory);
        took.map(|took| took.received()).transpose()
    }

    /// Returns whether messages are stored here that came before their receives. As long as there
    /// are, [`Endpoint::try_recv_into`] receives nothing. Some nanoseconds; makes no progress.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub fn has_stored(&self) -> Result<bool> {
        Ok(!self.shared().enter()?.core.matcher.stores_none())
    }
}
