#![allow(unsafe_code)]
//! The costs of folding on this machine, measured in a few milliseconds.
//!
//! **Invariant.** All memory that is moved, mapped and copied here is made here, and no code has a
//! reference to it.

use std::{cell::Cell, io, os::fd::AsFd, sync::OnceLock};

use parking_lot::Mutex;
use pinfold_sys::{
    cpu::{block, clock},
    mem::{
        memfd,
        reserved::Reserved,
        userfault::{Mover, Pages},
    },
    refused::may_pass,
};

use super::{
    super::{HUGE_BYTES, PAGE_BYTES, gather::Costs},
    copying::Copying,
};
use crate::policy::backoff::Backoff;

/// The costs on this machine, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The costs that plans are made by.
    pub costs: Costs,
    /// To open a range of the window and to close it again.
    pub window_ns: f64,
    /// Each byte copied that was just written.
    pub copy_warm_byte_ns: f64,
}

impl Measured {
    /// The values assumed where nothing was measured.
    pub const DEFAULT: Measured = Measured {
        costs: Costs::DEFAULT,
        window_ns: 4000.0,
        copy_warm_byte_ns: Costs::DEFAULT.copy_byte_ns,
    };

    /// The costs as measured once in this process. The first call takes some milliseconds, and 10
    /// MiB for as long. A cost that could not be measured for want of a descriptor or memory is
    /// measured by a later call.
    pub fn here() -> Measured {
        static HERE: Known = Known::new();
        HERE.get_or(|| measure(true))
    }

    /// The same where nothing is moved: it asks for no userfaultfd, for which a filter on system
    /// calls may kill the process.
    pub fn unmoved() -> Measured {
        static HERE: Known = Known::new();
        HERE.get_or(|| measure(false))
    }
}

/// The costs as measured, and those that hold until all of them could be.
struct Known {
    whole: OnceLock<Measured>,
    part: Mutex<(Option<Measured>, Backoff)>,
}

impl Known {
    const fn new() -> Known {
        Known { whole: OnceLock::new(), part: Mutex::new((None, Backoff::new())) }
    }

    /// `measure` returns also whether all costs were measured.
    fn get_or(&self, measure: impl FnOnce() -> (Measured, bool)) -> Measured {
        if let Some(whole) = self.whole.get() {
            return *whole;
        }
        let mut part = self.part.lock();
        if let Some(whole) = self.whole.get() {
            return *whole;
        }
        if let (Some(part), rest) = &*part
            && !rest.is_over(clock::now_ns())
        {
            return *part;
        }
        match measure() {
            (measured, true) => *self.whole.get_or_init(|| measured),
            (measured, false) => {
                part.0 = Some(measured);
                part.1.failed(clock::now_ns());
                measured
            }
        }
    }
}

/// Measures all costs. A way that cannot be measured cannot be used, but for copying. Returns also
/// whether none of them is to be measured again.
fn measure(moves: bool) -> (Measured, bool) {
    let mut found = Measured { costs: Costs::COPY_ONLY, ..Measured::DEFAULT };
    let whole = Cell::new(true);
    let failed = |error: &io::Error| whole.set(whole.get() && !may_pass(error));
    if let Ok((cold, warm)) = copying().inspect_err(failed) {
        (found.costs.copy_byte_ns, found.copy_warm_byte_ns) = (cold, warm);
    }
    if let Ok((call, page)) = mapping().inspect_err(failed) {
        (found.costs.map_call_ns, found.costs.map_page_ns) = (call, page);
    }
    if let Some(mover) = moves.then(Mover::new) {
        match mover {
            Ok(mover) => {
                if let Ok((call, few, page)) = moving(&mover).inspect_err(failed) {
                    found.costs.move_call_ns = call;
                    (found.costs.move_few_page_ns, found.costs.move_page_ns) = (few, page);
                }
                found.costs.move_huge_ns = huge(&mover).unwrap_or(Costs::DEFAULT.move_huge_ns);
            }
            Err(error) => failed(&error.errno().into()),
        }
    }
    if let Ok((window, fault)) = window().inspect_err(failed) {
        (found.window_ns, found.costs.fault_ns) = (window, fault);
    }
    tracing::debug!(?found, "costs of folding");
    (found, whole.get())
}

fn timed<R>(what: impl FnOnce() -> R) -> (f64, R) {
    let start = clock::now_ns();
    let done = what();
    (clock::now_ns().saturating_sub(start) as f64, done)
}

/// The median of some times.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// A cost of so much for each call and so much for each page, from the times of one page and of
/// `MANY`.
fn line(one: Vec<f64>, many: Vec<f64>) -> (f64, f64) {
    let (one, many) = (median(one), median(many));
    let page = ((many - one) / (MANY as f64 - 1.0)).max(0.0);
    ((one - page).max(0.0), page)
}

const MANY: usize = 16;
const TIMES: usize = 9;

/// More pages than count as few.
const LONG: usize = 128;
const _: () = assert!(MANY as u64 <= Costs::FEW_PAGES && LONG as u64 > Costs::FEW_PAGES);

/// The times that a call takes, each of few pages, and each of many.
fn moving(mover: &Mover) -> io::Result<(f64, f64, f64)> {
    let len = TIMES * (LONG + MANY + 1) * PAGE_BYTES;
    let mut source = Pages::new(len, false)?;
    let mut window = mover.window(len, false)?;
    source.populate(0..len)?;
    let mut at = 0;
    let mut times = |pages: usize| {
        (0..TIMES)
            .map(|_| {
                let from = at..at + pages * PAGE_BYTES;
                at = from.end;
                let (time, moved) =
                    timed(|| mover.fold(&mut window, from.start, &mut source, from));
                if moved?.stop.is_some() {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                Ok(time)
            })
            .collect::<io::Result<Vec<f64>>>()
    };
    let (call, few) = line(times(1)?, times(MANY)?);
    let page = (median(times(LONG)?) - call).max(0.0) / LONG as f64;
    Ok((call, few, page))
}

fn huge(mover: &Mover) -> io::Result<f64> {
    let mut source = Pages::new(HUGE_BYTES, true)?;
    let mut window = mover.window(HUGE_BYTES, true)?;
    source.as_mut_slice()[0] = 1;
    if source.resident(0..HUGE_BYTES)? < HUGE_BYTES / PAGE_BYTES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut times = Vec::new();
    for _ in 0..2 {
        let (time, moved) = timed(|| mover.fold(&mut window, 0, &mut source, 0..HUGE_BYTES));
        if moved?.stop.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        times.push(time);
        // Back, so that it can be moved again.
        // SAFETY: there is no reference to either.
        unsafe { mover.register(source.addr()..source.addr() + HUGE_BYTES) }.ok();
        mover.fold(&mut source, 0, &mut window, 0..HUGE_BYTES)?;
    }
    Ok(times.into_iter().fold(f64::INFINITY, f64::min))
}

/// The times to map a part, and each page of it: as messages do, many behind each other, which are
/// read and then taken away at once.
fn mapping() -> io::Result<(f64, f64)> {
    let file = memfd::create_fixed("pinfold-costs", MANY * PAGE_BYTES)?;
    rustix::io::pwrite(&file, &[1; MANY * PAGE_BYTES], 0)?;
    let reserved = Reserved::new(MANY * MANY * PAGE_BYTES, MANY * PAGE_BYTES)?;
    let times = |pages: usize| {
        let len = pages * PAGE_BYTES;
        let all = 0..MANY * len;
        (0..TIMES)
            .map(|_| {
                let (time, done) = timed(|| {
                    for start in all.clone().step_by(len) {
                        // SAFETY: no code has a reference to the bytes there.
                        unsafe { reserved.map(start..start + len, file.as_fd(), 0) }?;
                    }
                    for at in all.clone().step_by(PAGE_BYTES) {
                        // SAFETY: the file has so many bytes, and was just mapped.
                        unsafe { reserved.as_ptr().add(at).read_volatile() };
                    }
                    // SAFETY: as above.
                    unsafe { reserved.clear(all.clone()) }
                });
                done.map(|()| time / MANY as f64)
            })
            .collect::<io::Result<Vec<f64>>>()
    };
    Ok(line(times(1)?, times(MANY)?))
}

/// The times to open and close a range, and to write to a page of it for the first time.
fn window() -> io::Result<(f64, f64)> {
    let reserved = Reserved::new(64 * PAGE_BYTES, PAGE_BYTES)?;
    let mut faults = Vec::new();
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let range = 8 * PAGE_BYTES..24 * PAGE_BYTES;
        let (open, done) = timed(|| reserved.open(range.clone()));
        done?;
        let (fault, ()) = timed(|| {
            for at in range.clone().step_by(PAGE_BYTES) {
                // SAFETY: it was opened.
                unsafe { reserved.as_ptr().add(at).write_volatile(1) };
            }
        });
        faults.push(fault / 16.0);
        // SAFETY: no code uses the bytes there.
        let (close, done) = timed(|| unsafe { reserved.clear(range) });
        done?;
        times.push(open + close);
    }
    Ok((median(times), median(faults)))
}

/// The times to copy a byte from memory to memory, and one that was just written, nanoseconds.
fn copying() -> io::Result<(f64, f64)> {
    const PIECE: usize = 1 << 16;
    const PIECES: usize = 32;
    let len = PIECE * PIECES;
    let mut from = Pages::new(len, true)?;
    let mut to = Pages::new(len, true)?;
    from.populate(0..len)?;
    to.populate(0..len)?;
    let (from, to) = (from.as_mut_slice(), to.as_mut_slice());
    let copying = Copying::new(len, to.as_ptr());
    let mut batches = Vec::new();
    // The bytes just written may be in the caches.
    block::flush(from);
    block::flush(to);
    for batch in 0..4 {
        let (time, ()) = timed(|| {
            for at in batch * PIECES / 4..(batch + 1) * PIECES / 4 {
                // Not in order: nothing is fetched ahead.
                let source = at * 13 % PIECES * PIECE;
                // SAFETY: both are within their slices.
                unsafe {
                    let to = to.as_mut_ptr().add(at * PIECE);
                    copying.copy(from.as_ptr().add(source), to, PIECE);
                }
            }
        });
        batches.push(time / (len / 4) as f64);
    }
    let cold = median(batches);
    let warm = (0..5u8).map(|round| {
        from.fill(round);
        let (time, ()) = timed(|| {
            for at in (0..len).step_by(PIECE) {
                // SAFETY: as above.
                unsafe { copying.copy(from.as_ptr().add(at), to.as_mut_ptr().add(at), PIECE) };
            }
        });
        time / len as f64
    });
    Ok((cold, median(warm.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_numbers() {
        let Measured { costs, window_ns, copy_warm_byte_ns } = Measured::here();
        assert!(costs.copy_byte_ns > 0.0 && costs.fault_ns > 0.0 && window_ns > 0.0);
        assert!(copy_warm_byte_ns > 0.0);
        assert!(costs.knows_mapping());
        assert_eq!(costs.knows_moving(), Mover::new().is_ok());
        assert_eq!(Measured::here(), Measured::here());
        let Measured { costs, .. } = Measured::unmoved();
        assert!(costs.knows_mapping() && !costs.knows_moving() && costs.copy_byte_ns > 0.0);
        eprintln!("{:?}", Measured::here());
    }

    #[test]
    fn what_could_not_be_measured_is_measured_later() {
        let known = Known::new();
        let part = Measured { costs: Costs::COPY_ONLY, ..Measured::DEFAULT };
        assert_eq!(known.get_or(|| (part, false)), part);
        assert_eq!(known.get_or(|| unreachable!()), part);
        known.part.lock().1 = Backoff::new();
        assert_eq!(known.get_or(|| (Measured::DEFAULT, true)), Measured::DEFAULT);
        assert_eq!(known.get_or(|| unreachable!()), Measured::DEFAULT);
    }

    #[test]
    fn two_points_are_a_line() {
        let (call, page) = line(vec![1100.0, 9e9, 0.0], vec![2600.0]);
        assert_eq!((call, page), (1000.0, 100.0));
        assert_eq!(line(vec![5.0], vec![4.0]), (5.0, 0.0));
    }
}
