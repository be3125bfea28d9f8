#![allow(unsafe_code)]
//! Long reads and writes that go on while their caller does something else.
//!
//! **Invariant.** From when a copy is submitted until it has ended, nothing but the engine reaches
//! the bytes of the buffer: it lies in a box that is known by its address alone, under one borrow,
//! which lasts until the box is taken again. The region is kept as long, and with it its mapping.
//! Dropping a request waits for the end; one that is leaked leaks both.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    task::{Context, Poll, ready},
};

use super::{
    access::Inner,
    mapped::Mapped,
    remote::{Addressing, Remote},
};
use crate::{
    Error, Receipt, Result,
    copy::{
        Algorithm,
        engine::{Cancelled, CopyEngine, Ticket, Work},
    },
};

/// A write or read that was started; see [`Remote::write_request`]. A future of its result
/// and the buffer.
///
/// Dropped early it is cancelled, and waits for the part that a thread is in the middle of: 4 MiB
/// at most.
///
/// ```
/// use pinfold::{CopyEngine, Endpoint, EngineConfig, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-region-request-{}", std::process::id());
/// let engine = CopyEngine::new(EngineConfig::default());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(1 << 20, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// let writing = remote.write_request(&engine, 0, vec![9; 1 << 20]);
/// // The program does something else here, while threads of the engine copy.
/// let (receipt, buffer) = writing.wait().expect("its result was not taken before");
/// assert_eq!(receipt?.bytes, 1 << 20);
/// assert_eq!(region.to_vec()?, buffer);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a request cancels it"]
pub struct RegionRequest<B: Send + 'static> {
    memory: Arc<Inner>,
    state: State,
    /// `None` when it has been handed out.
    buffer: Option<Held<B>>,
}

/// A box that is known by its address alone.
struct Held<B>(NonNull<B>);

// SAFETY: it owns the buffer, as a box does.
unsafe impl<B: Send> Send for Held<B> {}

enum State {
    Copying(Copying),
    /// The copy was done when it was submitted, or could not be.
    Ended(Result<Receipt>),
}

struct Copying {
    ticket: Ticket,
    writes: bool,
    bytes: usize,
    algorithm: Algorithm,
}

impl<B: Send + 'static> Held<B> {
    fn new(buffer: B) -> Held<B> {
        Held(NonNull::from(Box::leak(Box::new(buffer))))
    }

    /// # Safety
    /// No copy is in flight.
    unsafe fn take(self) -> B {
        // SAFETY: leaked when it was made, and `self` is gone after this. There is no borrow any
        // more.
        *unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

impl<N: Addressing> Remote<N> {
    /// Starts writing `buffer` at a place, by the threads of `engine`; as [`Remote::write`]
    /// once it has ended. The engine does short ones at once, and so does this where the region is
    /// not mapped here or is this process's own.
    ///
    /// Requests to one engine take effect in their order where they overlap; other operations may
    /// overtake them.
    pub fn write_request<B>(&self, engine: &CopyEngine, at: u64, buffer: B) -> RegionRequest<B>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let held = Held::new(buffer);
        // SAFETY: leaked just now. The borrow lasts until the buffer is taken.
        let data = unsafe { held.0.as_ref() }.as_ref();
        let state = match self.mapped_from_elsewhere() {
            None => State::Ended(self.write(at, data)),
            Some(mapped) => match self.place(mapped, at, data.len(), Mapped::to_write) {
                Err(error) => State::Ended(Err(error)),
                Ok(to) => {
                    let work = Work::copy(data.as_ptr(), to, data.len());
                    // SAFETY: as `submit` asks: the one is borrowed, the other mapped until the
                    // end.
                    unsafe { submit(engine, true, work) }
                }
            },
        };
        RegionRequest { memory: Arc::clone(&self.0), state, buffer: Some(held) }
    }

    /// Starts reading the bytes at a place into `buffer`, likewise; as [`Remote::read`].
    pub fn read_request<B>(&self, engine: &CopyEngine, at: u64, buffer: B) -> RegionRequest<B>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let mut held = Held::new(buffer);
        // SAFETY: leaked just now. The borrow lasts until the buffer is taken.
        let into = unsafe { held.0.as_mut() }.as_mut();
        let state = match self.mapped_from_elsewhere() {
            None => State::Ended(self.read(at, into)),
            Some(mapped) => match self.place(mapped, at, into.len(), Mapped::to_read) {
                Err(error) => State::Ended(Err(error)),
                Ok(from) => {
                    let work = Work::copy(from, into.as_mut_ptr(), into.len());
                    // SAFETY: as `submit` asks: the one is mapped, the other borrowed until the
                    // end.
                    unsafe { submit(engine, false, work) }
                }
            },
        };
        RegionRequest { memory: Arc::clone(&self.0), state, buffer: Some(held) }
    }

    /// The mapping, if threads of this process reach its memory only as raw bytes.
    fn mapped_from_elsewhere(&self) -> Option<&Mapped> {
        self.0.mapped().ok().filter(|mapped| !mapped.own)
    }

    /// The address here of bytes of mapped memory.
    fn place<T>(
        &self,
        mapped: &Mapped,
        at: u64,
        len: usize,
        find: impl FnOnce(&Mapped, u64, usize) -> Result<T>,
    ) -> Result<T> {
        let offset = self.offset(at, len)?;
        find(mapped, offset, len).map_err(|error| self.told(error))
    }
}

/// # Safety
/// As for [`CopyEngine::submit`], for as long as the state is there, or its copy in flight.
unsafe fn submit(engine: &CopyEngine, writes: bool, work: Work) -> State {
    let work = work.planned();
    // SAFETY: as the caller promised.
    let ticket = unsafe { engine.submit(work) };
    State::Copying(Copying { ticket, writes, bytes: work.len(), algorithm: work.algorithm() })
}

impl Copying {
    /// The result of a copy that ended: the region has to stand still.
    fn conclude(&self, end: std::result::Result<(), Cancelled>, on: &Inner) -> Result<Receipt> {
        end.map_err(|Cancelled| Error::Cancelled)?;
        // The copy comes before the look.
        fence(Ordering::Acquire);
        on.mapped()?.confirm()?;
        Ok(on.copied(self.writes, self.bytes, self.algorithm))
    }
}

impl<B: Send + 'static> RegionRequest<B> {
    /// The result and the buffer, if it has ended. Never waits; `None` also when they were handed
    /// out before.
    pub fn try_wait(&mut self) -> Option<(Result<Receipt>, B)> {
        let result = match &mut self.state {
            State::Copying(copying) => {
                let end = copying.ticket.poll_end()?;
                self.buffer.as_ref()?;
                copying.conclude(end, &self.memory)
            }
            State::Ended(result) => std::mem::replace(result, Err(Error::Closed)),
        };
        // SAFETY: it has ended, or is the copy of a forked child, which no thread there goes on
        // with.
        let buffer = unsafe { self.buffer.take()?.take() };
        Some((result, buffer))
    }

    /// Waits for its end, and helps with the copy. `None`: the result was handed out before.
    pub fn wait(mut self) -> Option<(Result<Receipt>, B)> {
        if let State::Copying(copying) = &self.state {
            let _ = copying.ticket.wait();
        }
        self.try_wait()
    }

    /// Takes back the parts that have not been started. Returns whether there were any: then it
    /// will end with [`Error::Cancelled`], and some of the bytes may have been copied.
    pub fn cancel(&self) -> bool {
        match &self.state {
            State::Copying(copying) => copying.ticket.cancel(),
            State::Ended(_) => false,
        }
    }
}

impl<B: Send + 'static> Drop for RegionRequest<B> {
    fn drop(&mut self) {
        let Some(held) = self.buffer.take() else { return };
        if let State::Copying(copying) = &self.state {
            copying.ticket.cancel();
            let _ = copying.ticket.wait();
        }
        // SAFETY: it has ended.
        drop(unsafe { held.take() });
    }
}

impl<B: Send + 'static> Future for RegionRequest<B> {
    type Output = (Result<Receipt>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Copying(copying) = &mut self.state {
            let _ = ready!(Pin::new(&mut copying.ticket).poll(context));
        }
        // A request that is polled again after it was ready stays pending.
        self.try_wait().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<B: Send + 'static> fmt::Debug for RegionRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionRequest").field("peer", &self.memory.peer).finish_non_exhaustive()
    }
}
