//! What transfers with one peer really take, and when to try the other path again.
//!
//! The learner keeps, for each size class and path, by what factor transfers were slower or faster
//! than the model says. Time is counted in transfers of the class: there are no clocks here.

#[cfg(test)]
mod tests;

use super::{CostModel, Path};

/// Classes are powers of two from 2^10 bytes; shorter messages never pay for a system call.
const CLASS_MIN: u32 = 10;

/// Everything from 2^26 bytes on is one class.
const CLASS_MAX: u32 = 26;

const CLASSES: usize = (CLASS_MAX - CLASS_MIN + 1) as usize;

/// The weight of an observation. Ten of them carry the estimate 19/20 of the way to new values.
const WEIGHT: f32 = 0.3;

/// The weight of an observation that follows none for [`EXPLORE_TURNS`]: what went before is
/// hardly worth anything.
const WEIGHT_STALE: f32 = 0.75;

/// Transfers of a class between two tries of a path that looks as good as the one in use. One
/// that looks `r` times as costly is tried `r²` times as rarely, so that all tries together cost
/// less than one part in 190.
const EXPLORE_TURNS: u32 = 48;

/// A path that looks this many times as costly is not tried.
const EXPLORE_RATIO: f64 = 4.0;

/// An estimate that was not confirmed for so many transfers gives way to the model again.
const FORGET_TURNS: u32 = 1024;

/// An observation counts as at most so many times the estimate: a transfer that was interrupted
/// must not rule a path out. A real slowdown is repeated, and so learnt nonetheless.
const JUMP_MAX: f32 = 2.0;

/// Factors beyond these, up or down, are mistakes of measurement.
const FACTOR_MAX: f32 = 64.0;

/// What is known of one path in one class.
#[derive(Clone, Copy)]
struct Cell {
    /// Real time over the model's.
    factor: f32,
    /// The last two observed.
    recent: [f32; 2],
    /// Observations, counted up to 2.
    count: u8,
    /// The turn of the last observation.
    seen: u32,
    /// The turn of the last try.
    tried: u32,
}

impl Cell {
    const NEW: Cell = Cell { factor: 1.0, recent: [1.0; 2], count: 0, seen: 0, tried: 0 };

    fn observe(&mut self, factor: f32, turn: u32) {
        let stale = self.count > 0 && turn.wrapping_sub(self.seen) >= EXPLORE_TURNS;
        // The middle one of three: a transfer that was interrupted counts for nothing.
        let [first, second] = self.recent;
        let middle = first.min(second).max(first.max(second).min(factor));
        let (value, weight) = match self.count {
            // The model stands for one observation.
            0 => (factor, 0.5),
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

/// One class of sizes.
#[derive(Clone, Copy)]
struct Class {
    turn: u32,
    eager: Cell,
    cma: Cell,
}

/// What one pair of peers has learnt about the paths between them.
pub(crate) struct Learner {
    model: CostModel,
    /// The length below which eager is the answer; see [`Learner::cma_from`].
    cma_from: u64,
    /// A bit for each class in which cma could pay.
    pays: u32,
    classes: [Class; CLASSES],
}

/// The path to take, of those two that are open to every length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    /// Eager or cma.
    pub(super) path: Path,
    /// Whether it is taken only to see how it does; the other is expected to be faster.
    pub(super) exploring: bool,
}

/// The class of a message, if it is long enough to be in one.
fn class_of(len: u64) -> Option<usize> {
    let log = len.checked_ilog2()?.min(CLASS_MAX);
    Some(log.checked_sub(CLASS_MIN)? as usize)
}

impl Learner {
    /// Knows what `model` says.
    pub(crate) fn new(model: &CostModel) -> Learner {
        let class = Class { turn: 0, eager: Cell::NEW, cma: Cell::NEW };
        let mut learner =
            Learner { model: *model, cma_from: 0, pays: 0, classes: [class; CLASSES] };
        (0..CLASSES).for_each(|class| learner.weigh(class));
        learner
    }

    /// The length below which cma is neither used nor tried, `u64::MAX` if that is all of them.
    #[inline]
    pub(crate) fn cma_from(&self) -> u64 {
        self.cma_from
    }

    /// A transfer of `len` bytes over `path` took `ns` nanoseconds. A few nanoseconds.
    ///
    /// Only messages of 1 KiB and more are learnt from, and nothing from inline ones.
    pub(crate) fn observe(&mut self, path: Path, len: u64, ns: u64) {
        let Some(at) = class_of(len) else { return };
        let expected = self.model.predict(path, len);
        let factor = ((ns as f64 / expected) as f32).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        let class = &mut self.classes[at];
        match path {
            Path::Inline => return,
            Path::Eager => class.eager.observe(factor, class.turn),
            Path::Cma => class.cma.observe(factor, class.turn),
        }
        self.weigh(at);
    }

    /// The expected time of `len` bytes over `path`, nanoseconds: the model's, corrected by what
    /// transfers of the class took.
    pub(crate) fn predict(&self, path: Path, len: u64) -> f64 {
        let expected = self.model.predict(path, len);
        let Some(class) = class_of(len).map(|at| &self.classes[at]) else { return expected };
        match path {
            Path::Inline => expected,
            Path::Eager => expected * f64::from(class.eager.factor),
            Path::Cma => expected * f64::from(class.cma.factor),
        }
    }

    /// Picks eager or cma for the next transfer, both being allowed, and counts the transfer.
    pub(super) fn pick(&mut self, len: u64) -> Pick {
        let eager = Pick { path: Path::Eager, exploring: false };
        let Some(at) = class_of(len).filter(|at| self.pays & 1 << at != 0) else { return eager };
        self.next_turn(at);

        let costs = [self.predict(Path::Eager, len), self.predict(Path::Cma, len)];
        let class = &mut self.classes[at];
        let turn = class.turn;
        let cma_is_best = costs[1] < costs[0];
        let (best, other, ratio, idle) = if cma_is_best {
            (Path::Cma, Path::Eager, costs[0] / costs[1], class.eager.idle(turn))
        } else {
            (Path::Eager, Path::Cma, costs[1] / costs[0], class.cma.idle(turn))
        };
        if idle < EXPLORE_TURNS
            || ratio > EXPLORE_RATIO
            || f64::from(idle) < f64::from(EXPLORE_TURNS) * ratio * ratio
        {
            return Pick { path: best, exploring: false };
        }
        match other {
            Path::Cma => class.cma.tried = turn,
            _ => class.eager.tried = turn,
        }
        Pick { path: other, exploring: true }
    }

    /// Counts a transfer of a class, and forgets what has not been confirmed for long.
    fn next_turn(&mut self, at: usize) {
        let class = &mut self.classes[at];
        class.turn = class.turn.wrapping_add(1);
        let turn = class.turn;
        let mut forgot = false;
        for cell in [&mut class.eager, &mut class.cma] {
            if cell.count > 0 && turn.wrapping_sub(cell.seen) >= FORGET_TURNS {
                *cell = Cell { tried: cell.tried, seen: turn, ..Cell::NEW };
                forgot = true;
            }
        }
        if forgot {
            self.weigh(at);
        }
    }

    /// Notes whether cma could pay in a class: whether it is within reach of exploration at the
    /// upper end of the class, by what is known of it or by the model alone.
    fn weigh(&mut self, at: usize) {
        let len = (1 << (CLASS_MIN as usize + at + 1)) - 1;
        let class = &self.classes[at];
        let cma = self.model.predict(Path::Cma, len) * f64::from(class.cma.factor.min(1.0));
        let eager = self.model.predict(Path::Eager, len) * f64::from(class.eager.factor);
        // The last class has no upper end: what is longest decides there.
        let endless =
            at == CLASSES - 1 && self.model.cma.ns_per_byte < self.model.eager.ns_per_byte;
        if cma <= EXPLORE_RATIO * eager || endless {
            self.pays |= 1 << at;
        } else {
            self.pays &= !(1 << at);
        }
        self.cma_from = match self.pays {
            0 => u64::MAX,
            pays => 1 << (CLASS_MIN + pays.trailing_zeros()),
        };
    }
}
