//! The folding of messages that lie in pieces, as they are handed out.
//!
//! To move pages takes a userfaultfd, which is asked for when a message would gain by it. Where a
//! filter on system calls is in force it is not, unless the program says so: it may be one that
//! kills a process that asks. A userfaultfd that cannot be had is asked for again later, ever more
//! rarely: a limit may have been lifted.

use std::{io, sync::OnceLock};

use parking_lot::{Mutex, RwLock};
use pinfold_sys::{mem::userfault, trial};

use super::POOL_BYTES;
use crate::{
    memory::reassembly::{
        PAGE_BYTES,
        fold::{Folded, Folder, Receipt, Settings, Unfolded, Unmoved},
        gather::Costs,
        pool::{AnonPages, Filled, Pool},
    },
    policy::route,
};

/// No message gains whose pieces are all shorter: on no machine that was measured is it cheaper to
/// move them.
pub(super) const PIECE_MIN: u64 = 64 << 10;

/// Addresses for messages that are moved; each half has room for all that the pool can hold, and
/// for gaps.
const WINDOW_BYTES: usize = 8 * POOL_BYTES;

/// Memory of copies that are gone that is kept, bytes.
const STOCK_BYTES: usize = POOL_BYTES;

/// Messages that are copied before a refused request is made again, at first, and at most.
const REST: u32 = 64;
const REST_MAX: u32 = 1 << 20;

type Message = Filled<AnonPages>;

/// A message made contiguous, and its receipt.
pub(super) type InARow = (Folded<Message>, Receipt);

/// The folder of the store's messages.
pub(super) struct Folding {
    copies: Folder,
    moves: OnceLock<Folder>,
    /// The costs to reckon with; if none, the measured ones.
    pub(super) costs: Option<Costs>,
    /// The lock of the thread that tries to make the folder.
    asking: Mutex<Asking>,
}

/// The time to ask next, and the last answer.
struct Asking {
    said: Unmoved,
    left: u32,
    rest: u32,
}

impl Folding {
    /// A folder that copies. It takes no descriptor, and no call that a filter could refuse.
    pub(super) fn new() -> io::Result<Folding> {
        let copies = Folder::new(Settings {
            window_bytes: 0,
            stock_bytes_max: STOCK_BYTES,
            costs: Some(Costs::COPY_ONLY),
            moves: false,
            ..Settings::default()
        })?;
        let asking = Mutex::new(Asking { said: Unmoved::Unwanted, left: 0, rest: REST });
        let costs = (!route::measures()).then_some(Costs::DEFAULT);
        Ok(Folding { copies, moves: OnceLock::new(), costs, asking })
    }

    /// Makes the pieces of a message contiguous. Pages may be moved for that as `wanted` says, or
    /// else if no filter is in force.
    pub(super) fn fold(
        &self,
        pool: &RwLock<Pool<AnonPages>>,
        message: Message,
        wanted: Option<bool>,
    ) -> Result<InARow, Unfolded<Message>> {
        match self.mover(pool, &message, wanted) {
            Ok(folder) => folder.fold(message).map(|folded| {
                let receipt = *folded.receipt();
                (folded, receipt)
            }),
            Err(why) => self.copies.fold(message).map(|folded| {
                let receipt = Receipt { unmoved: Some(why), ..*folded.receipt() };
                (folded, receipt)
            }),
        }
    }

    /// The mover of pages, if it may be asked for and can be had.
    fn mover(
        &self,
        pool: &RwLock<Pool<AnonPages>>,
        message: &Message,
        wanted: Option<bool>,
    ) -> Result<&Folder, Unmoved> {
        match wanted {
            Some(true) => {}
            Some(false) => return Err(Unmoved::Unwanted),
            // Looked at each time: a filter may come later.
            None if trial::is_unfiltered() => {}
            None => return Err(Unmoved::Filtered),
        }
        if let Some(folder) = self.moves.get() {
            if wanted.is_some() {
                folder.let_pass();
            }
            return Ok(folder);
        }
        if message.spans().all(|span| (span.len as u64) < PIECE_MIN) {
            return Err(Unmoved::Short);
        }
        // The measurement takes some milliseconds: one thread waits for it, once.
        let Some(mut asking) = self.asking.try_lock() else { return Err(Unmoved::Unready) };
        if let Some(folder) = self.moves.get() {
            return Ok(folder);
        }
        if asking.left > 0 {
            asking.left -= 1;
            return Err(asking.said);
        }
        match self.begin(pool) {
            Ok(folder) => Ok(self.moves.get_or_init(|| folder)),
            Err(why) => {
                tracing::debug!(%why, "messages in pieces are copied");
                (asking.said, asking.left) = (why, asking.rest);
                asking.rest = (2 * asking.rest).min(REST_MAX);
                Err(why)
            }
        }
    }

    /// Asks for a userfaultfd.
    fn begin(&self, pool: &RwLock<Pool<AnonPages>>) -> Result<Folder, Unmoved> {
        let settings = Settings {
            window_bytes: WINDOW_BYTES,
            costs: self.costs,
            // A program with many messages has to give back as many.
            counts_return: true,
            just_written: true,
            ..Settings::default()
        };
        let no_memory =
            |_| Unmoved::Refused(userfault::Reason::Exhausted, rustix::io::Errno::NOMEM);
        let folder = self.copies.beside(settings).map_err(no_memory)?;
        if let Some(error) = folder.why_not_moving() {
            return Err(error.into());
        }
        let here = pool.read().clone();
        if let Err(error) = folder.adopt(here.memory()) {
            if error.reason() != userfault::Reason::Busy {
                return Err((&error).into());
            }
            // A userfaultfd of another user watches a message, say to send it on from where it
            // lies. Messages that come from now on lie in a pool that is not watched yet.
            let pages = folder.pages((POOL_BYTES / PAGE_BYTES) as u32).map_err(no_memory)?;
            pages.inherit().map_err(no_memory)?;
            *pool.write() = Pool::new(pages);
        }
        folder.measured();
        Ok(folder)
    }
}
