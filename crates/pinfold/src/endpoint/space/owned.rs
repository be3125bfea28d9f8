#![allow(unsafe_code)]
//! Operations on exposed memory of peers that own their buffers, and atomic operations.
//!
//! **Invariant.** As for all [requests](crate::endpoint::request): the bytes of a buffer are the
//! operation's until it has ended.

use super::{remote::RemoteSpace, served::Does, ways::Inner};
use crate::{
    AtomicChange, AtomicRequest, AtomicWord, CopyRequest, Error, OwnedBuf, OwnedBufMut, Result,
    endpoint::region::atomics::{self, atomic_methods},
    memory::scatter::Part,
    worker::op::{Done, OpKey},
};

impl RemoteSpace {
    /// Writes `buffer` at an address of the peer's, and does not wait for the peer, if its agent
    /// performs the operation; elsewhere as [`RemoteSpace::write`], which has ended when this
    /// returns. Its end can go to a [`CompletionQueue`](crate::CompletionQueue).
    ///
    /// Operations that are under way at the same time are done in any order.
    ///
    /// # Errors
    /// The result's: as for [`RemoteSpace::write`]; [`Error::Withdrawn`] if the peer is gone.
    ///
    /// ```
    /// # fn main() -> pinfold::Result<()> {
    /// # let name = format!("local:doc-space-{}", std::process::id());
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use pinfold::{AtomicChange, Completed, CompletionQueue, Endpoint, Progress, Rights};
    ///
    /// // The owner lets peers use two words of its own.
    /// static WORDS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(40)];
    /// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
    /// let start = WORDS.as_ptr().expose_provenance();
    /// // SAFETY: atomics may be changed by anybody at any time.
    /// let exposed = unsafe { owner.expose(start..start + 16, Rights::ReadWrite)? };
    ///
    /// // A peer knows the key, and uses them by their addresses.
    /// let user = Endpoint::new()?;
    /// let peer = user.connect(&name)?;
    /// let space = user.open_space(peer, &exposed.key())?;
    /// let at = space.addresses().start;
    /// let queue = CompletionQueue::new()?;
    /// queue.add(1, space.write_owned(at, 7u64.to_ne_bytes().to_vec()));
    /// queue.add(2, space.atomic(at + 8, AtomicChange::Add(2u64)));
    /// let mut ended = Vec::new();
    /// while queue.outstanding() > 0 {
    ///     queue.wait(&mut ended, 16, None)?;
    /// }
    /// for completion in ended {
    ///     match completion.result? {
    ///         Completed::Copied(receipt) => assert_eq!(receipt.bytes, 8),
    ///         Completed::Was(old) => assert_eq!((completion.context, old), (2, 40)),
    ///         other => panic!("{other:?}"),
    ///     }
    /// }
    /// assert_eq!(space.fetch_add(at + 8, 1u64)?, 42);
    /// exposed.revoke()?;
    /// assert_eq!(WORDS.each_ref().map(|word| word.load(Ordering::SeqCst)), [7, 43]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_owned<B>(&self, address: u64, buffer: B) -> CopyRequest<B>
    where
        B: OwnedBuf + AsRef<[u8]>,
    {
        let (inner, shared) = (&*self.0, &self.0.agent.shared);
        match inner.write_here(address, buffer.as_ref()) {
            Err(error) => CopyRequest::ended(shared, Err(error), buffer),
            Ok(Some(receipt)) => CopyRequest::ended(shared, Ok(receipt), buffer),
            Ok(None) => CopyRequest::posted(shared, buffer, |buffer| {
                let (ptr, len) = buffer.bytes();
                // SAFETY: `OwnedBuf` keeps the bytes in place; the request keeps the buffer until
                // the operation has ended.
                let memory = unsafe { Part::new(ptr.cast_mut(), len) };
                inner.begin(inner.writes(inner.spans([(address, memory)].into_iter())))
            }),
        }
    }

    /// Reads the bytes at an address of the peer's into `buffer`, likewise; as
    /// [`RemoteSpace::read`].
    ///
    /// # Errors
    /// The result's: as for [`RemoteSpace::read`]; [`Error::Withdrawn`] if the peer is gone.
    pub fn read_owned<B>(&self, address: u64, mut buffer: B) -> CopyRequest<B>
    where
        B: OwnedBufMut + AsMut<[u8]>,
    {
        let (inner, shared) = (&*self.0, &self.0.agent.shared);
        match inner.read_here(address, buffer.as_mut()) {
            Err(error) => CopyRequest::ended(shared, Err(error), buffer),
            Ok(Some(receipt)) => CopyRequest::ended(shared, Ok(receipt), buffer),
            Ok(None) => CopyRequest::posted(shared, buffer, |buffer| {
                let (ptr, len) = buffer.bytes_mut();
                // SAFETY: as in `write_owned`.
                let memory = unsafe { Part::new(ptr, len) };
                inner.begin(inner.reads(inner.spans([(address, memory)].into_iter())))
            }),
        }
    }

    /// Changes the word at an address of the peer's, likewise; as [`RemoteSpace::fetch_add`] and
    /// the other atomic operations.
    ///
    /// # Errors
    /// The result's: as for [`RemoteSpace::fetch_add`]; [`Error::Withdrawn`] if the peer is gone.
    pub fn atomic<W: AtomicWord>(&self, address: u64, change: AtomicChange<W>) -> AtomicRequest<W> {
        let (inner, shared) = (&*self.0, &self.0.agent.shared);
        match inner.change_here(address, change) {
            Err(error) => AtomicRequest::ended(shared, Err(error)),
            Ok(Some(was)) => AtomicRequest::ended(shared, Ok(was)),
            Ok(None) => AtomicRequest::posted(shared, inner.begin(inner.changes(address, change))),
        }
    }

    fn change<W: AtomicWord>(&self, address: u64, change: AtomicChange<W>) -> Result<W> {
        let inner = &*self.0;
        match inner.change_here(address, change)? {
            Some(was) => Ok(was),
            None => match inner.agent.perform(inner.changes(address, change))? {
                Done::Was(bits) => Ok(atomics::of_bits(bits)),
                _ => Err(Error::Withdrawn),
            },
        }
    }

    atomic_methods!(
        address,
        "Words of an arena that are mapped here are changed by this processor, in some 50 ns. All \
         others the peer's agent changes, while the peer makes progress: a message there, the \
         start of a process that shares the peer's memory and may come to harm instead of it, and \
         a message back; some 100 µs. (The kernel changes no words, also where \
         [`RemoteSpace::path`] is [`Path::Cma`](crate::Path::Cma).) Either is the processor's \
         atomic instruction on the same memory, so operations of all peers, and the peer's own, \
         are of one order.",
        "As [`RemoteSpace::write`], and [`Error::Misaligned`]; [`Error::PathRefused`] if the word \
         is not mapped here, and the peer cannot start a process."
    );
}

impl Inner {
    fn begin(&self, does: Does) -> Result<OpKey> {
        match &does {
            Does::Write(_, receipt) => drop(self.wrote(*receipt)),
            Does::Read(_, receipt) => drop(self.read(*receipt)),
            Does::Change(..) => {}
        }
        self.agent.begin(does)
    }

    /// Changes a word, unless the agent has to.
    fn change_here<W: AtomicWord>(
        &self,
        address: u64,
        change: AtomicChange<W>,
    ) -> Result<Option<W>> {
        let size = size_of::<W>() as u64;
        if !address.is_multiple_of(size) {
            return Err(Error::Misaligned { offset: address, size });
        }
        let was = match self.find(address, size, true)? {
            Some(piece) => Some(self.at(&piece, address, |memory, offset| {
                atomics::on_mapped(memory, offset, change)
            })?),
            None => None,
        };
        self.tallies.changed();
        Ok(was)
    }

    /// The change, for the agent.
    fn changes<W: AtomicWord>(&self, address: u64, change: AtomicChange<W>) -> Does {
        Does::Change(address, atomics::asked(change))
    }
}
