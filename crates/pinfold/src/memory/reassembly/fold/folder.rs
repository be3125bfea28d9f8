#![allow(unsafe_code)]
//! Folding.
//!
//! **Invariants.** The window's memory belongs to messages as the books say, and is registered with
//! the mover, if there is one, except ranges that a message has mapped. In a child of `fork(2)`
//! nothing is done.

use std::{io, ptr::NonNull, sync::Arc};

use parking_lot::Mutex;
use pinfold_sys::{
    fork::ForkMark,
    mem::{
        reserved::Reserved,
        userfault::{self, Mover},
    },
};

use super::{
    super::{
        HUGE_BYTES, HUGE_PAGES, PAGE_BYTES,
        gather::{self, Backing, Costs, How, Piece, Plan, Reasons, Target},
        pool::AnonPages,
    },
    FoldError, Folded, Measured, Receipt, Scattered, Settings, Unfolded,
    books::Books,
    carry,
    copying::Copying,
    folded::Kept,
    receipt::{Place, Unmoved, Why},
    scattered::is_file,
    settings::WINDOW_MIN,
    stock::Stock,
};

/// Makes messages contiguous. A handle that can be cloned; any thread may fold while others do.
///
/// The window and all else live until the last handle and the last folded message are gone.
#[derive(Clone)]
pub struct Folder(Arc<Inner>);

/// The window, and the mover of pages into it.
pub(super) struct Window {
    pub(super) reserved: Reserved,
    pub(super) mover: Option<Arc<Mover>>,
}

/// The costs that a folder knows.
struct Known {
    measured: Measured,
    /// The costs that plans are made with.
    plan: Costs,
}

pub(super) struct Inner {
    window: Option<Window>,
    mover: Option<Arc<Mover>>,
    refused: Option<userfault::Error>,
    pub(super) books: Mutex<Books>,
    pub(super) stock: Arc<Stock>,
    settings: Settings,
    mark: ForkMark,
    /// Room for the pieces of a message.
    pieces: Mutex<Vec<Piece>>,
}

/// Counts of the resources of a folder that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderCount {
    /// Messages in the window.
    pub messages: u32,
    /// Pages of addresses that they have.
    pub pages: u32,
    /// Mappings that may still be made.
    pub maps_left: u32,
    /// Memory that is kept for messages to come, bytes.
    pub stock_bytes: usize,
    /// Pages of addresses that the kernel would not take back, and that are not used again.
    pub lost_pages: u32,
}

impl Folder {
    /// A folder. Some 50 µs. Without a userfaultfd it moves nothing, without addresses to reserve
    /// it copies everything: see [`Folder::why_not_moving`], [`Folder::window_bytes`].
    ///
    /// # Errors
    /// `ENOMEM` where not even a page can be mapped.
    pub fn new(settings: Settings) -> io::Result<Folder> {
        let stock = Arc::new(Stock::new(settings.stock_bytes_max));
        Folder::with(settings, stock)
    }

    /// Another one, which has the memory for copies together with this one.
    ///
    /// # Errors
    /// As for [`Folder::new`].
    pub fn beside(&self, settings: Settings) -> io::Result<Folder> {
        Folder::with(settings, Arc::clone(&self.0.stock))
    }

    fn with(settings: Settings, stock: Arc<Stock>) -> io::Result<Folder> {
        let mark = ForkMark::new()?;
        let (mover, mut refused) = match settings.moves.then(Mover::new) {
            None => (None, None),
            Some(Ok(mover)) => (Some(Arc::new(mover)), None),
            Some(Err(error)) => (None, Some(error)),
        };
        let window = Window::reserve(settings.window(), mover.as_ref(), &mut refused);
        let len = window.as_ref().map_or(0, |window| window.reserved.len());
        let books = Mutex::new(Books::new(len, settings.maps()));
        let pieces = Mutex::new(Vec::new());
        let inner = Inner { window, mover, refused, books, stock, settings, mark, pieces };
        Ok(Folder(Arc::new(inner)))
    }

    /// Memory for a pool whose pages this folder can move, or no folder can, if this one moves
    /// none.
    ///
    /// # Errors
    /// As for [`AnonPages::new`].
    pub fn pages(&self, pages: u32) -> io::Result<AnonPages> {
        AnonPages::new(pages, self.0.mover.clone())
    }

    /// Has pages of memory that was made without a mover be moved by this folder from now on, if it
    /// moves any. Their contents stay, and other threads may be using them.
    ///
    /// # Errors
    /// The error of registering: [`Reason::Busy`](userfault::Reason::Busy) if another userfaultfd
    /// has some of the memory. Then they cannot be moved, as before.
    pub fn adopt(&self, memory: &AnonPages) -> Result<(), userfault::Error> {
        self.0.mover.as_ref().map_or(Ok(()), |mover| memory.adopt(mover))
    }

    /// Says that all filters on system calls let a userfaultfd be asked to move pages. Otherwise
    /// the folder asks it for nothing once a filter is in force that was not when the folder was
    /// made: it may kill the process that asks.
    pub fn let_pass(&self) {
        if let Some(mover) = &self.0.mover {
            mover.let_pass();
        }
    }

    /// Makes a message contiguous, the cheapest way. A receipt says how.
    ///
    /// A message that lies in a row already costs some ten nanoseconds and stays where it is; one
    /// that is copied costs its copy and some nanoseconds a piece; in the window some 4 µs are
    /// added to the time that [`gather::plan`] expects. The first call may measure costs: some
    /// milliseconds.
    ///
    /// # Errors
    /// [`FoldError::NoMemory`] where not even a copy can be made, [`FoldError::Child`] in a child
    /// of `fork(2)`; with the message, which is as it was.
    pub fn fold<M: Scattered>(&self, message: M) -> Result<Folded<M>, Unfolded<M>> {
        let inner = &self.0;
        if inner.mark.is_child() {
            return Err(Unfolded { error: FoldError::Child, message });
        }
        let mut pieces = std::mem::take(&mut *inner.pieces.lock());
        pieces.clear();
        message.gather(&mut pieces);
        let folded = inner.fold(message, &pieces);
        *inner.pieces.lock() = pieces;
        let (message, kept, at, receipt) = folded.map_err(|(message, bytes)| {
            let error = FoldError::NoMemory { bytes };
            Unfolded { error, message }
        })?;
        Ok(Folded::new(Arc::clone(inner), message, kept, at, receipt))
    }

    /// Copies a message to the beginning of the caller's memory.
    ///
    /// # Errors
    /// [`FoldError::Short`], [`FoldError::Child`]; nothing is copied.
    pub fn fold_into<M: Scattered>(
        &self,
        message: &M,
        to: &mut [u8],
    ) -> Result<Receipt, FoldError> {
        if self.0.mark.is_child() {
            return Err(FoldError::Child);
        }
        let mut pieces = Vec::new();
        message.gather(&mut pieces);
        let (bytes, room) = (sum(&pieces), to.len() as u64);
        if bytes > room {
            return Err(FoldError::Short { bytes, room });
        }
        let copying = Copying::new(bytes as usize, to.as_ptr());
        // SAFETY: `Scattered` says that the pieces can be read; `to` is long enough, and this
        // call's alone.
        unsafe { copying.copy_all(&pieces, to.as_mut_ptr()) };
        let mut receipt = Receipt::new(bytes, pieces.len(), Place::Memory(Why::Asked));
        receipt.copied = bytes;
        Ok(receipt)
    }

    /// Addresses that were reserved, bytes.
    pub fn window_bytes(&self) -> usize {
        self.0.window.as_ref().map_or(0, |window| window.reserved.len())
    }

    /// The reason why no pages are moved, if the kernel has refused it.
    pub fn why_not_moving(&self) -> Option<&userfault::Error> {
        self.0.refused.as_ref()
    }

    /// The costs that its plans go by. The first call may measure: some milliseconds.
    pub fn measured(&self) -> Measured {
        self.0.known().measured
    }

    /// Counts of its resources that are in use.
    pub fn count(&self) -> FolderCount {
        let books = self.0.books.lock();
        FolderCount {
            messages: books.live,
            pages: books.pages(),
            maps_left: books.maps_left(),
            stock_bytes: self.0.stock.bytes(),
            lost_pages: books.lost_pages,
        }
    }

    /// Returns whether an address is in the window.
    #[cfg(test)]
    pub(super) fn has(&self, at: usize) -> bool {
        self.0.window.as_ref().is_some_and(|window| {
            let start = window.reserved.as_ptr().addr();
            (start..start + window.reserved.len()).contains(&at)
        })
    }
}

impl Window {
    /// Reserves so many addresses, or as many as there are.
    fn reserve(
        len: usize,
        mover: Option<&Arc<Mover>>,
        refused: &mut Option<userfault::Error>,
    ) -> Option<Window> {
        let mut len = len;
        while len >= WINDOW_MIN {
            if let Ok(reserved) = Reserved::new(len, HUGE_BYTES) {
                let at = reserved.as_ptr().addr();
                let mover = mover.filter(|mover| {
                    // SAFETY: reserved for this, and no mover moves pages there when it is gone.
                    let done = unsafe { mover.register(at..at + len) };
                    done.map_err(|error| *refused = Some(error)).is_ok()
                });
                return Some(Window { mover: mover.cloned(), reserved });
            }
            len = (len / 2).next_multiple_of(WINDOW_MIN).min(len - WINDOW_MIN);
        }
        None
    }
}

/// A message, its place, its first byte, and its receipt.
type Done<M> = (M, Kept, NonNull<u8>, Receipt);

impl Inner {
    pub(super) fn is_child(&self) -> bool {
        self.mark.is_child()
    }

    /// The reason why it moves nothing, if so.
    fn unmoved(&self) -> Option<Unmoved> {
        let unwanted = (!self.settings.moves).then_some(Unmoved::Unwanted);
        unwanted.or_else(|| self.refused.as_ref().map(Unmoved::from))
    }

    pub(super) fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    fn known(&self) -> Known {
        let given = |costs| Measured { costs, ..Measured::DEFAULT };
        let measure = if self.settings.moves { Measured::here } else { Measured::unmoved };
        let mut measured = self.settings.costs.map_or_else(measure, given);
        if self.window.as_ref().is_none_or(|window| window.mover.is_none()) {
            measured.costs.move_call_ns = Costs::UNKNOWN;
        }
        let mut plan = measured.costs;
        if self.settings.just_written && self.settings.costs.is_none() {
            plan.copy_byte_ns = measured.copy_warm_byte_ns;
        }
        if self.settings.counts_return {
            let Costs { move_call_ns, move_page_ns, move_few_page_ns, move_huge_ns, .. } =
                &mut plan;
            for cost in [move_call_ns, move_page_ns, move_few_page_ns, move_huge_ns] {
                *cost *= 2.0;
            }
        }
        Known { measured, plan }
    }

    /// Returns whether pages are better moved back than given to the system and replaced by others.
    /// A huge page that is replaced has to be cleared.
    pub(super) fn is_back_cheaper(&self, pages: usize, huge: usize) -> bool {
        let costs = self.known().measured.costs;
        let back = costs.moving(pages as u64, huge as u64);
        let (pages, huge) = (pages as f64, huge as f64);
        // To free a page takes about a third of the time that it takes to get one.
        let fresh = costs.fault_ns * 4.0 / 3.0 * pages;
        let cleared = costs.copy_byte_ns * HUGE_BYTES as f64 / 2.0 * huge;
        back <= fresh + cleared
    }

    fn fold<M: Scattered>(&self, message: M, pieces: &[Piece]) -> Result<Done<M>, (M, u64)> {
        let bytes = sum(pieces);
        if let Some(at) = row(pieces) {
            let receipt = Receipt::new(bytes, pieces.len(), Place::InPlace);
            return Ok((message, Kept::Message, at, receipt));
        }
        let mut receipt = Receipt::new(bytes, pieces.len(), Place::Memory(Why::NoWindow));
        let filtered = self.mover.as_ref().is_some_and(|mover| !mover.may_ask());
        receipt.unmoved = if filtered { Some(Unmoved::Filtered) } else { self.unmoved() };
        let mut message = message;
        if let Some(window) = self.window.as_ref().filter(|_| !filtered) {
            let huge = pieces.iter().any(|piece| piece.huge);
            match self.lodge(window, &message, pieces, huge, &mut receipt) {
                Ok(carried) => {
                    if huge {
                        carried.tear(&mut message);
                    }
                    receipt.place = Place::Window;
                    let at = NonNull::new(carried.at(window)).unwrap_or(NonNull::dangling());
                    return Ok((message, Kept::Window(carried), at, receipt));
                }
                Err(why) => receipt.place = Place::Memory(why),
            }
        }
        let Some(buffer) = usize::try_from(bytes).ok().and_then(|len| self.stock.take(len)) else {
            return Err((message, bytes));
        };
        let copying = Copying::new(bytes as usize, buffer.at.as_ptr());
        // SAFETY: `Scattered` says that the pieces can be read; the buffer is as long, and this
        // call's alone.
        unsafe { copying.copy_all(pieces, buffer.at.as_ptr()) };
        receipt.copied = bytes;
        let at = buffer.at;
        Ok((message, Kept::Memory(buffer), at, receipt))
    }

    /// Puts a message into the window, if that is cheaper than to copy it.
    fn lodge<M: Scattered>(
        &self,
        window: &Window,
        message: &M,
        pieces: &[Piece],
        huge: bool,
        receipt: &mut Receipt,
    ) -> Result<carry::Carried, Why> {
        let Known { measured: Measured { window_ns, .. }, plan: costs } = &self.known();
        let bytes = receipt.bytes;
        // Memory that is kept is cold once only, and so counts as warm from the first time on.
        let warm = usize::try_from(bytes).is_ok_and(|len| self.stock.keeps(len));
        let fault_ns = if warm { 0.0 } else { costs.fault_ns.max(0.0) };
        let per_page = costs.copy_byte_ns.max(0.0) * PAGE_BYTES as f64 + fault_ns;
        let copy_ns = per_page * bytes.div_ceil(PAGE_BYTES as u64) as f64;
        receipt.expected_ns = copy_ns;
        if let Some(reasons) = why_no_plan(pieces, costs, per_page) {
            (receipt.moving, receipt.mapping) = reasons;
            return Err(Why::Cheapest);
        }
        let parts_max = self.books.lock().parts_max();
        let align = if huge { HUGE_BYTES } else { PAGE_BYTES } as u64;
        let plan = gather::plan(pieces, Target::Window { align, maps_max: parts_max }, costs);
        (receipt.moving, receipt.mapping) = (plan.moving, plan.mapping);
        if is_all_copied(&plan) || plan.cost_ns + window_ns >= copy_ns {
            for reasons in [&mut receipt.moving, &mut receipt.mapping] {
                reasons.dearer += std::mem::take(&mut reasons.cheapest);
            }
            let short = plan.mapping.no_maps > 0 && parts_max == 0;
            let (wanted, left) = (4, self.books.lock().maps_left());
            return Err(if short { Why::NoMaps { wanted, left } } else { Why::Cheapest });
        }
        let parts = carry::parts(message, pieces, &plan);
        let lodging = self.books.lock().take(bytes, huge, parts.len() as u32)?;
        let carried = carry::carry(self, window, lodging, &plan, &parts, receipt)?;
        receipt.expected_ns = plan.cost_ns + window_ns;
        Ok(carried)
    }
}

fn is_all_copied(plan: &Plan) -> bool {
    plan.only() == Some(How::Copy)
}

/// The reasons why no piece would be moved, and none mapped, if to copy a page costs so much;
/// `None` if any may be. A plan for many small pieces would take a good part of the time that
/// copying them takes.
fn why_no_plan(pieces: &[Piece], costs: &Costs, copy_page_ns: f64) -> Option<(Reasons, Reasons)> {
    // The fewest bytes for which a call may pay.
    let least = |knows: bool, call: f64, page: f64| {
        let saved = copy_page_ns - page;
        if knows && saved > 0.0 { call / saved * PAGE_BYTES as f64 } else { f64::INFINITY }
    };
    let [move_knows, map_knows] = [costs.knows_moving(), costs.knows_mapping()];
    let huge_pages = f64::from(HUGE_PAGES);
    let page_ns = costs.move_page_ns.min(costs.move_few_page_ns);
    let moved = least(move_knows, costs.move_call_ns, page_ns);
    let moved_huge = least(move_knows, costs.move_call_ns, costs.move_huge_ns / huge_pages);
    let mapped = least(map_knows, costs.map_call_ns, costs.map_page_ns);
    let mapped_huge = least(map_knows, costs.map_call_ns, costs.map_page_ns / huge_pages);
    let (mut anonymous, mut files) = (0, 0);
    for piece in pieces {
        let least = match (piece.backing, piece.huge) {
            (Backing::Anonymous, false) => moved,
            (Backing::Anonymous, true) => moved.min(moved_huge),
            (Backing::File { .. }, false) => mapped,
            (Backing::File { .. }, true) => mapped.min(mapped_huge),
            (Backing::Other, _) => f64::INFINITY,
        };
        if piece.room.min(piece.len + PAGE_BYTES as u64) as f64 > least {
            return None;
        }
        anonymous += u32::from(piece.backing == Backing::Anonymous);
        files += u32::from(is_file(piece));
    }
    let reasons = |of_kind: u32, knows: bool| {
        let (dearer, unmeasured) = if knows { (of_kind, 0) } else { (0, of_kind) };
        let backing = pieces.len() as u32 - of_kind;
        Reasons { dearer, unmeasured, backing, ..Reasons::default() }
    };
    Some((reasons(anonymous, move_knows), reasons(files, map_knows)))
}

fn sum(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.len).sum()
}

/// The first byte of a message, if its pieces lie in a row; a dangling pointer if it has none.
fn row(pieces: &[Piece]) -> Option<NonNull<u8>> {
    let Some(first) = pieces.first() else { return Some(NonNull::dangling()) };
    // Most often the first two pieces are not joined.
    let joined = pieces
        .windows(2)
        .all(|two| two[0].at + two[0].len == two[1].at && is_file(&two[0]) == is_file(&two[1]));
    let at = std::ptr::with_exposed_provenance_mut(first.at as usize);
    if joined { NonNull::new(at) } else { None }
}
