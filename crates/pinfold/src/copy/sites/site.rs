//! The times of one call site's copies by each algorithm, by classes of sizes.

use std::fmt;

use pinfold_sys::cpu::block::Algorithm;

use super::class::{Choice, Class};

/// Classes are powers of two from 2^10 bytes.
const CLASS_MIN: u32 = 10;

/// Everything from 2^26 bytes on is one class.
const CLASS_MAX: u32 = 26;

/// The shortest copies that are learnt about, bytes.
pub const LEARNT_MIN: usize = 1 << CLASS_MIN;

const CLASSES: usize = (CLASS_MAX - CLASS_MIN + 1) as usize;

/// The class of a copy, if it is long enough to be in one.
#[inline]
fn class_of(len: usize) -> Option<usize> {
    let log = len.checked_ilog2()?.min(CLASS_MAX);
    Some(log.checked_sub(CLASS_MIN)? as usize)
}

/// The part of a class that most copies need: the rest of it is asked when `left` is zero.
struct Ready<A> {
    /// Copies before the next sample.
    left: u32,
    /// The algorithm they use. There is always one if `left` is not zero.
    using: Option<A>,
}

impl<A> Ready<A> {
    const NONE: Ready<A> = Ready { left: 0, using: None };
}

/// The learner of one call site: a lane of a ring, a line of a program.
///
/// A class of sizes that is used takes some 150 bytes. After the machine has changed so that the
/// algorithm in use has become 1.5 times as slow or fast, the best candidate is in use within 24
/// samples, if the change before was 100 samples ago. A sample is one copy of those that take 51 µs
/// together, at most one in 4 and at least one in 8,192. If another candidate has become better,
/// with the one in use as it was, that is found out within `80 r²` samples, where `r` says how many
/// times as slow it used to be, 8 at most.
///
/// Copies that take less than 64 ns, including the clock's time, are too quick to be told apart:
/// after the first tries they stay as they are until they take longer.
///
/// Its candidates need not be algorithms: any ways to do the same thing will do.
pub struct Site<A = Algorithm> {
    ready: [Ready<A>; CLASSES],
    classes: [Option<Box<Class<A>>>; CLASSES],
}

impl<A> Default for Site<A> {
    fn default() -> Site<A> {
        Site::new()
    }
}

impl<A> Site<A> {
    /// Knows nothing.
    pub const fn new() -> Site<A> {
        Site { ready: [const { Ready::NONE }; CLASSES], classes: [const { None }; CLASSES] }
    }

    /// Forgets everything: the candidates may have changed.
    pub fn forget(&mut self) {
        *self = Site::new();
    }
}

impl<A: Copy + PartialEq + Default> Site<A> {
    /// The way to make the next copy, of `len` bytes. `None`: those below [`LEARNT_MIN`] are not
    /// learnt about.
    ///
    /// `candidates` names the algorithms in question, the likeliest first; it is asked when the
    /// class of sizes is new. More than [`CANDIDATES_MAX`](super::CANDIDATES_MAX) are left out.
    /// A nanosecond or two, mostly.
    #[inline]
    pub fn next<I: IntoIterator<Item = A>>(
        &mut self,
        len: usize,
        candidates: impl FnOnce() -> I,
    ) -> Option<Choice<A>> {
        match self.ready(len) {
            Some(algorithm) => Some(Choice { algorithm, timed: false }),
            None => self.consult(len, candidates),
        }
    }

    /// The algorithm of the next copy, if there is nothing to decide or to time; it counts as made.
    #[inline]
    pub(in crate::copy) fn ready(&mut self, len: usize) -> Option<A> {
        let ready = &mut self.ready[class_of(len)?];
        ready.left = ready.left.checked_sub(1)?;
        ready.using
    }

    /// The choice for the next copy, if there is something to decide or to time.
    #[cold]
    pub(in crate::copy) fn consult<I: IntoIterator<Item = A>>(
        &mut self,
        len: usize,
        candidates: impl FnOnce() -> I,
    ) -> Option<Choice<A>> {
        let at = class_of(len)?;
        let new = || Box::new(Class::new(at, candidates().into_iter()));
        let class = self.classes[at].get_or_insert_with(new);
        let ready = &mut self.ready[at];
        let choice = class.sample(&mut ready.left);
        ready.using = Some(class.using());
        Some(choice)
    }

    /// A copy of `len` bytes by `algorithm` took `ns` nanoseconds, with its reader's time if that
    /// is known. A few nanoseconds.
    ///
    /// It may come late, or not at all. An algorithm that is no candidate is not learnt from.
    // Not in line if most copies are none to learn from.
    #[cold]
    pub fn observe(&mut self, len: usize, algorithm: A, ns: u64) {
        let Some(at) = class_of(len) else { return };
        let (ready, Some(class)) = (&mut self.ready[at], &mut self.classes[at]) else { return };
        // The shortest time that can be told: costs stay above zero.
        let cost = (ns.max(1) as f64 * 1024.0 / len as f64) as f32;
        class.observe(&mut ready.left, algorithm, cost);
        ready.using = Some(class.using());
    }

    /// Returns whether copies of `len` bytes go on as they are for now: no candidate is about to be
    /// tried.
    pub fn is_settled(&self, len: usize) -> bool {
        let class = class_of(len).and_then(|at| self.classes[at].as_ref());
        class.is_none_or(|class| class.is_settled())
    }

    /// The algorithm that copies of `len` bytes use at present. `None`: there was none yet.
    pub fn using(&self, len: usize) -> Option<A> {
        self.ready[class_of(len)?].using
    }
}

impl<A: Copy + fmt::Debug> fmt::Debug for Site<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = self.ready.iter().enumerate();
        let using = classes
            .filter_map(|(at, ready)| Some((1usize << (CLASS_MIN as usize + at), ready.using?)));
        f.debug_map().entries(using).finish()
    }
}
