//! The learner: real times of transfers with one peer, and when to try another path again.
//!
//! The learner keeps, for each size class and path, the factor by which transfers were slower or
//! faster than the model says. Time is counted in transfers of the class: there are no clocks here.
//!
//! It assumes, and `replay` tests on recorded costs, that
//! - the path with the least reported time is the one by which users wait least: the reported time
//!   of a message is that of its slower side, and all of them add up to the time that went by; in a
//!   dialogue it is the time until the receiver has all of it;
//! - interruptions meet all paths alike, so that medians put paths into the order of means;
//! - within a class, and for some hundred messages, the costs of a path stay the same;
//! - a transfer that follows one by another path tells nothing of its own path.

#[cfg(test)]
mod replay;
#[cfg(test)]
mod tests;

use std::mem;

use tracing::trace;

use super::{CostModel, Path, PathSet};

/// Classes are powers of two from 2^10 bytes; shorter messages never pay for a system call.
const CLASS_MIN: u32 = 10;

/// Everything from 2^26 bytes on is one class.
const CLASS_MAX: u32 = 26;

const CLASSES: usize = (CLASS_MAX - CLASS_MIN + 1) as usize;

/// The weight of an observation. Ten of them carry the estimate 19/20 of the way to new values.
const WEIGHT: f32 = 0.3;

/// The weight of an observation that follows none for [`RETRY_TURNS`]: the estimate of before is
/// hardly worth anything.
const WEIGHT_STALE: f32 = 0.75;

/// Transfers of a class between two tries of a path that looks as good as the one in use. A path
/// that looks `r` times as costly is tried `r²` times as rarely, so that all tries together cost
/// less than one part in 120.
const EXPLORE_TURNS: u32 = 96;

/// The same for a path that was not tried yet, and for one that was in use until lately: the cause
/// of its bad times may be over, as when the host had taken its processor away for a moment. Four
/// times as many with every try in vain.
const RETRY_TURNS: u32 = 6;

/// Transfers of a try. The first of them meets the remains of those before, by another path, and
/// its time is not counted; nor is that of the first one after the try.
const TRY_TURNS: u32 = 3;

/// A path that looks this many times as costly is not tried.
const EXPLORE_RATIO: f64 = 4.0;

/// An estimate that was not confirmed for so many transfers gives way to the model again.
const FORGET_TURNS: u32 = 1024;

/// An observation counts as at most so many times the estimate: a transfer that was interrupted
/// must not rule a path out. A real slowdown is repeated, and so learnt nonetheless.
const JUMP_MAX: f32 = 2.0;

/// Factors beyond these, up or down, are mistakes of measurement.
const FACTOR_MAX: f32 = 64.0;

/// The state of one path in one class.
#[derive(Clone, Copy)]
struct Cell {
    /// Real time over the model's.
    factor: f32,
    /// The last two factors observed.
    recent: [f32; 2],
    /// Observations, counted up to 2.
    count: u8,
    /// The turn of the last observation.
    seen: u32,
    /// The turn of the last try.
    tried: u32,
    /// Turns that the path rests before it is tried, if it looks as good as the one in use.
    rest: u32,
    /// True if the next observation is of a transfer that followed one by another path.
    is_first: bool,
}

impl Cell {
    const NEW: Cell = Cell {
        factor: 1.0,
        recent: [1.0; 2],
        count: 0,
        seen: 0,
        tried: 0,
        rest: RETRY_TURNS,
        is_first: false,
    };

    fn observe(&mut self, factor: f32, turn: u32) {
        if mem::take(&mut self.is_first) {
            return;
        }
        let stale = self.count > 0 && turn.wrapping_sub(self.seen) >= RETRY_TURNS;
        // The middle one of three: a transfer that was interrupted counts for nothing.
        let [first, second] = self.recent;
        let middle = first.min(second).max(first.max(second).min(factor));
        let (value, weight) = match self.count {
            // The model is about machines in general.
            0 => (factor, WEIGHT_STALE),
            _ if stale => (factor, WEIGHT_STALE),
            1 => (factor, WEIGHT),
            _ => (middle, WEIGHT),
        };
        self.recent = if stale || self.count == 0 { [factor; 2] } else { [second, factor] };
        self.factor += (value.min(self.factor * JUMP_MAX) - self.factor) * weight;
        self.count = self.count.saturating_add(1).min(2);
        self.seen = turn;
    }

    /// Transfers since the path was last observed or tried.
    fn idle(&self, turn: u32) -> u32 {
        turn.wrapping_sub(self.seen).min(turn.wrapping_sub(self.tried))
    }
}

/// The paths that are learnt about: those open to long messages whose memory is not given away.
const LONG: [Path; 3] = [Path::Eager, Path::Cma, Path::Mapped];

/// The place of a path in [`LONG`].
fn index(path: Path) -> Option<usize> {
    LONG.iter().position(|long| *long == path)
}

/// One class of sizes.
#[derive(Clone, Copy)]
struct Class {
    turn: u32,
    /// The path in use, by its place in [`LONG`], once there is one.
    used: Option<usize>,
    /// The path that was taken last.
    last: Option<usize>,
    /// The path that is being tried, and for how many transfers more.
    trying: Option<(usize, u32)>,
    cells: [Cell; LONG.len()],
}

/// The state of the paths between one pair of peers.
pub(crate) struct Learner {
    model: CostModel,
    /// The lengths below which eager is the answer, for each path; see [`Learner::from`].
    from: [u64; LONG.len()],
    /// For each path a bit for each class in which it could pay.
    pays: [u32; LONG.len()],
    classes: [Class; CLASSES],
}

/// The path to take, of those that are open to every length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) path: Path,
    /// Set if the path is taken only to see how it does: the path that is expected to be faster.
    pub(super) instead_of: Option<Path>,
}

/// The class of a message, if it is long enough to be in one.
fn class_of(len: u64) -> Option<usize> {
    let log = len.checked_ilog2()?.min(CLASS_MAX);
    Some(log.checked_sub(CLASS_MIN)? as usize)
}

impl Learner {
    /// A learner that begins with `model`.
    pub(crate) fn new(model: &CostModel) -> Learner {
        let class =
            Class { turn: 0, used: None, last: None, trying: None, cells: [Cell::NEW; LONG.len()] };
        let zero = [0; LONG.len()];
        let mut learner =
            Learner { model: *model, from: zero, pays: [0; LONG.len()], classes: [class; CLASSES] };
        (0..CLASSES).for_each(|class| learner.weigh(class));
        learner
    }

    /// The length below which `path` is neither used nor tried where eager is open, too; `u64::MAX`
    /// if it is never used.
    #[inline]
    pub(crate) fn from(&self, path: Path) -> u64 {
        index(path).map_or(0, |at| self.from[at])
    }

    /// A transfer of `len` bytes over `path` took `ns` nanoseconds. A few nanoseconds.
    ///
    /// Only messages of 1 KiB and more are learnt from, and nothing from inline ones.
    pub(crate) fn observe(&mut self, path: Path, len: u64, ns: u64) {
        let (Some(at), Some(long)) = (class_of(len), index(path)) else { return };
        trace!(target: "pinfold::learn", path = long, len, ns);
        let expected = self.model.predict(path, len);
        let factor = ((ns as f64 / expected) as f32).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        let class = &mut self.classes[at];
        class.cells[long].observe(factor, class.turn);
        self.weigh(at);
    }

    /// Returns whether `path` is the one in use for messages of `len` bytes; if not, it is at most
    /// tried.
    pub(crate) fn uses(&self, path: Path, len: u64) -> bool {
        let used = class_of(len).and_then(|at| self.classes[at].used);
        used.is_none_or(|used| LONG[used] == path)
    }

    /// The expected time of `len` bytes over `path`, nanoseconds: the model's, corrected by the
    /// times of transfers of the class.
    pub(crate) fn predict(&self, path: Path, len: u64) -> f64 {
        let expected = self.model.predict(path, len);
        match (class_of(len), index(path)) {
            (Some(at), Some(long)) => expected * f64::from(self.classes[at].cells[long].factor),
            _ => expected,
        }
    }

    /// Picks one of the `open` paths for the next transfer, eager among them, and counts the
    /// transfer.
    pub(super) fn pick(&mut self, len: u64, open: PathSet) -> Pick {
        let eager = Pick { path: Path::Eager, instead_of: None };
        let Some(at) = class_of(len) else { return eager };
        let pays = |long: usize| open.contains(LONG[long]) && self.pays[long] & 1 << at != 0;
        let candidates: [bool; LONG.len()] =
            std::array::from_fn(|long| LONG[long] == Path::Eager || pays(long));
        if candidates.iter().filter(|candidate| **candidate).count() == 1 {
            return eager;
        }
        self.next_turn(at);
        let costs = LONG.map(|path| self.predict(path, len));
        let candidates = || (0..LONG.len()).filter(|long| candidates[*long]);
        let cheapest = |a: &usize, b: &usize| costs[*a].total_cmp(&costs[*b]);
        let best = candidates().min_by(cheapest).unwrap_or(0);
        let class = &mut self.classes[at];
        let turn = class.turn;
        if let Some(before) = class.used.replace(best).filter(|before| *before != best) {
            class.cells[before].rest = RETRY_TURNS;
        }
        // At most one path is tried in so many turns, whatever their number.
        let since = |long: usize| turn.wrapping_sub(class.cells[long].tried);
        let since = candidates().map(since).min().unwrap_or(0);
        let due = || {
            candidates().filter(|long| *long != best).find(|long| {
                let (ratio, cell) = (costs[*long] / costs[best], &class.cells[*long]);
                ratio <= EXPLORE_RATIO
                    && since >= cell.rest
                    && f64::from(cell.idle(turn)) >= f64::from(cell.rest) * (ratio * ratio).max(1.0)
            })
        };
        let trying = match class.trying {
            Some((long, left)) => (candidates().any(|open| open == long)).then_some((long, left)),
            None => due().map(|long| (long, TRY_TURNS)),
        };
        let taken = match trying {
            Some((long, left)) => {
                let cell = &mut class.cells[long];
                if left == TRY_TURNS {
                    (cell.tried, cell.rest) = (turn, (4 * cell.rest).min(EXPLORE_TURNS));
                }
                class.trying = (left > 1).then_some((long, left - 1));
                long
            }
            None => {
                class.trying = None;
                best
            }
        };
        let before = class.last.replace(taken);
        class.cells[taken].is_first |= before.is_some_and(|before| before != taken);
        let instead_of = (taken != best).then_some(LONG[best]);
        Pick { path: LONG[taken], instead_of }
    }

    /// Counts a transfer of a class, and forgets estimates that have not been confirmed for long.
    fn next_turn(&mut self, at: usize) {
        let class = &mut self.classes[at];
        class.turn = class.turn.wrapping_add(1);
        let turn = class.turn;
        let mut forgot = false;
        for cell in &mut class.cells {
            if cell.count > 0 && turn.wrapping_sub(cell.seen) >= FORGET_TURNS {
                *cell = Cell { tried: cell.tried, seen: turn, ..Cell::NEW };
                forgot = true;
            }
        }
        if forgot {
            self.weigh(at);
        }
    }

    /// Notes the paths that could pay in a class: those within reach of exploration at the upper
    /// end of the class, by their estimates or by the model alone.
    fn weigh(&mut self, at: usize) {
        let len = (1 << (CLASS_MIN as usize + at + 1)) - 1;
        let cells = &self.classes[at].cells;
        let eager = self.model.predict(Path::Eager, len) * f64::from(cells[0].factor);
        for (long, path) in LONG.into_iter().enumerate().skip(1) {
            let cost = self.model.predict(path, len) * f64::from(cells[long].factor.min(1.0));
            // The last class has no upper end: the longest messages decide there.
            let endless = at == CLASSES - 1
                && self.model.predict(path, u64::MAX) < self.model.predict(Path::Eager, u64::MAX);
            if cost <= EXPLORE_RATIO * eager || endless {
                self.pays[long] |= 1 << at;
            } else {
                self.pays[long] &= !(1 << at);
            }
            self.from[long] = match self.pays[long] {
                0 => u64::MAX,
                pays => 1 << (CLASS_MIN + pays.trailing_zeros()),
            };
        }
    }
}
