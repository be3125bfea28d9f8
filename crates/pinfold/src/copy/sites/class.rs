//! The times of one call site's copies of one size by each algorithm, and the next algorithm to
//! use.
//!
//! Time is counted in copies: there are no clocks here. Of each size class every so many-th copy is
//! a *sample*, which its maker times: as many as it takes for the clock to be a small part of them
//! all, by the times reported so far ([`LOOK_NS`]). Nearly all samples are of the algorithm in use.
//! The others are *visits* to the other candidates: two tries, of which the faster counts, so that
//! an interruption must come twice to mislead.
//!
//! **Accounting.** A try of an algorithm that is not in use takes a token. A class begins with
//! [`TOKENS_MAX`] and earns one in [`TOKEN_SAMPLES`] samples. So of `n` copies at most
//! `TOKENS_MAX + n / (TOKEN_SAMPLES * period)` are such tries, for any observations; `period` is 4
//! or more, so that is 1 in 64. The rate of a candidate's tries falls with the square of its cost:
//! one that is `r` times as slow (up to 8) adds less than `2 (r - 1) / (64 r² · 4)`, 0.2 %.

use pinfold_sys::cpu::block::Algorithm;

/// Algorithms that a site learns about for one size class.
pub const CANDIDATES_MAX: usize = 4;

/// Copies that take so many nanoseconds together have one sample among them. To read a clock twice
/// takes 40 to 90 of them, and the code and branches that a try of another algorithm finds
/// unprepared cost about as much: all in all 0.3 %.
const LOOK_NS: f32 = 51_200.0;

/// Samples are at least so many copies apart, which bounds the tries.
pub(super) const PERIOD_MIN: u32 = 4;

/// The most: copies of 1 KiB within the nearest cache take some 10 ns.
const PERIOD_MAX: u32 = 1 << 13;

/// Copies that take less, nanoseconds with the clock's own 20 to 45, are known once they were
/// tried: their time by a clock is mostly the clock's, and to go on trying would cost more than the
/// 1 % that learning may. Every [`PERIOD_MAX`]th is still timed, to notice that they have become
/// slower than this.
const QUICK_NS: f32 = 64.0;

/// As long as no time of copies is reported, they are taken to be as slow as this.
const UNKNOWN_NS_PER_KIB: f32 = 100.0;

/// Copies from one sample to the next, of those that take `ns` each.
pub(super) fn period_of(ns: f32) -> u32 {
    if is_quick(ns) {
        return PERIOD_MAX;
    }
    ((LOOK_NS / ns) as u32).clamp(PERIOD_MIN, PERIOD_MAX)
}

/// Returns whether copies that take `ns` are too quick to be told apart.
fn is_quick(ns: f32) -> bool {
    ns < QUICK_NS
}

/// Tries of other algorithms than the one in use that a class may have in store.
pub(super) const TOKENS_MAX: u32 = 2 * (CANDIDATES_MAX as u32 - 1);

/// Samples for which there is one more.
pub(super) const TOKEN_SAMPLES: u32 = 16;

/// Samples between two visits to a candidate that looks as good as the one in use.
pub(super) const VISIT_SAMPLES: u32 = 64;

/// A candidate that looks more times as slow is visited as if it were so many times as slow.
const RATIO_MAX: f32 = 8.0;

/// The weight of a sample of the algorithm in use.
const WEIGHT: f32 = 0.3;

/// The weight of a visit: much time has passed since the last.
const WEIGHT_VISIT: f32 = 0.75;

/// If the algorithm in use has become so many times as slow or fast since it was visited, the
/// machine has changed.
const CHANGE: f32 = 1.25;

/// The same for weaker evidence: one sample, or a visit long ago.
const JUMP: f32 = 1.5;

/// A replacement of the algorithm in use must cost less than this part of it.
const BETTER: f32 = 0.95;

/// The way to make a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<A = Algorithm> {
    /// The algorithm to use.
    pub algorithm: A,
    /// True if [`Site::observe`](super::Site::observe) is to be told the copy's time.
    pub timed: bool,
}

/// The knowledge of one candidate.
#[derive(Clone, Copy)]
struct Cell<A> {
    algorithm: A,
    /// Nanoseconds a KiB; infinite as long as nothing is known.
    cost: f32,
    /// The last two samples while in use.
    recent: [f32; 2],
    /// The time of the first try of a visit.
    first: Option<f32>,
    /// The sample of the last visit.
    seen: u32,
}

/// One class of sizes. Its owner counts the copies to come before the next sample (`left`).
pub(super) struct Class<A> {
    /// The size of the shortest in it, KiB.
    kib: f32,
    /// Copies that were to come before the next sample when tries got in between.
    put_off: u32,
    /// Copies from one sample to the next.
    period: u32,
    /// Samples so far; tries are not counted.
    samples: u32,
    tokens: u32,
    best: usize,
    /// The cost of the algorithm in use when it was visited or came into use.
    anchor: f32,
    count: usize,
    /// A bit for each candidate to visit at once.
    due: u8,
    /// The candidate that is visited, and the tries that are left.
    visit: Option<(usize, u32)>,
    cells: [Cell<A>; CANDIDATES_MAX],
}

impl<A: Copy + PartialEq + Default> Class<A> {
    pub(super) fn new(at: usize, candidates: impl Iterator<Item = A>) -> Class<A> {
        let nothing = Cell {
            algorithm: A::default(),
            cost: f32::INFINITY,
            recent: [f32::INFINITY; 2],
            first: None,
            seen: 0,
        };
        let mut cells = [nothing; CANDIDATES_MAX];
        let mut count = 0;
        for algorithm in candidates {
            let known = cells[..count].iter().any(|cell| cell.algorithm == algorithm);
            if count < CANDIDATES_MAX && !known {
                cells[count].algorithm = algorithm;
                count += 1;
            }
        }
        let kib = (1u32 << at) as f32;
        Class {
            kib,
            put_off: 0,
            period: period_of(UNKNOWN_NS_PER_KIB * kib),
            samples: 0,
            tokens: TOKENS_MAX,
            best: 0,
            anchor: f32::INFINITY,
            count: count.max(1),
            due: (1 << count.max(1)) - 1,
            visit: None,
            cells,
        }
    }

    /// The algorithm of copies that are neither samples nor tries.
    pub(super) fn using(&self) -> A {
        self.cells[self.best].algorithm
    }

    pub(super) fn is_settled(&self) -> bool {
        let may_try = self.due != 0 && self.tokens >= 2;
        self.count == 1 || self.visit.is_none() && !may_try
    }

    /// The purpose of the copy after `left` others.
    pub(super) fn sample(&mut self, left: &mut u32) -> Choice<A> {
        if self.count == 1 {
            // There is nothing to learn.
            *left = u32::MAX;
            return Choice { algorithm: self.using(), timed: false };
        }
        if self.visit.is_none() && self.due == 0 {
            self.look_around();
        }
        match self.next_try() {
            // The next try comes at once.
            Some(at) => Choice { algorithm: self.cells[at].algorithm, timed: true },
            None if self.put_off > 0 => {
                *left = std::mem::take(&mut self.put_off) - 1;
                Choice { algorithm: self.using(), timed: false }
            }
            None => {
                *left = self.period - 1;
                self.samples = self.samples.wrapping_add(1);
                if self.samples.is_multiple_of(TOKEN_SAMPLES) {
                    self.tokens = (self.tokens + 1).min(TOKENS_MAX);
                }
                Choice { algorithm: self.using(), timed: true }
            }
        }
    }

    /// Notes which candidate has not been visited for long, by its cost.
    fn look_around(&mut self) {
        let best = self.cells[self.best].cost;
        if is_quick(best * self.kib) {
            return;
        }
        let due = (0..self.count).filter(|at| *at != self.best).find(|at| {
            let ratio = self.cells[*at].cost / best;
            // Neither cost is known: as good as any.
            let ratio = if ratio.is_nan() { 1.0 } else { ratio.clamp(1.0, RATIO_MAX) };
            let idle = self.samples.wrapping_sub(self.cells[*at].seen);
            idle as f32 >= VISIT_SAMPLES as f32 * ratio * ratio
        });
        if let Some(at) = due {
            self.due = 1 << at;
        }
    }

    /// The candidate to try, if one is to be tried and may.
    fn next_try(&mut self) -> Option<usize> {
        let (at, left) = match self.visit {
            Some(visit) => visit,
            None if self.due == 0 => return None,
            None => {
                let is_first = self.due & 1 << self.best != 0;
                let at = if is_first { self.best } else { self.due.trailing_zeros() as usize };
                if at != self.best && self.tokens < 2 {
                    return None;
                }
                self.due &= !(1 << at);
                let samples = self.samples;
                let cell = &mut self.cells[at];
                (cell.first, cell.seen) = (None, samples);
                (at, 2)
            }
        };
        if at != self.best {
            match self.tokens.checked_sub(1) {
                Some(tokens) => self.tokens = tokens,
                // It went out of use in the middle of its visit.
                None => {
                    self.visit = None;
                    return None;
                }
            }
        }
        self.visit = (left > 1).then_some((at, left - 1));
        Some(at)
    }

    /// A copy by `algorithm` took so many nanoseconds a KiB. An algorithm that is no candidate is
    /// not learnt from.
    pub(super) fn observe(&mut self, left: &mut u32, algorithm: A, cost: f32) {
        let known = |cell: &Cell<A>| cell.algorithm == algorithm;
        let Some(at) = self.cells[..self.count].iter().position(known) else { return };
        self.weigh(left, at, cost);
        let best = self.cells[self.best].cost;
        if best.is_finite() {
            self.period = period_of(best * self.kib);
            // The former count may have been for faster copies; and if this one took long, so may
            // the next, which is to be known soon.
            let soon = if at == self.best { best.max(cost) } else { best };
            *left = (*left).min(period_of(soon * self.kib) - 1);
        }
    }

    fn weigh(&mut self, left: &mut u32, at: usize, cost: f32) {
        let is_try = at != self.best || self.visits(at);
        let cell = &mut self.cells[at];
        if is_try || cell.cost == f32::INFINITY {
            match cell.first.take() {
                None => cell.first = Some(cost),
                Some(first) => self.settle(left, at, first.min(cost)),
            }
            return;
        }
        // The middle one of three: a copy that was interrupted counts for nothing.
        let [first, second] = cell.recent;
        let middle = first.min(second).max(first.max(second).min(cost));
        cell.recent = [second, cost];
        cell.cost += (middle.clamp(cell.cost / 2.0, cell.cost * 2.0) - cell.cost) * WEIGHT;
        let cost = cell.cost;
        if is_quick(cost.max(middle) * self.kib) {
            self.anchor = cost;
        } else if is_far(middle, self.anchor, JUMP) || is_far(cost, self.anchor, CHANGE) {
            // Perhaps two of the three were interrupted: two tries will tell.
            self.due |= 1 << at;
            self.hurry(left);
        } else {
            self.decide();
        }
    }

    /// Has tries made at once. The next sample comes when it would have come.
    fn hurry(&mut self, left: &mut u32) {
        self.put_off += std::mem::take(left);
    }

    /// Returns whether a candidate is to be visited, or is in the middle of it.
    fn visits(&self, at: usize) -> bool {
        let visited = self.visit.is_some_and(|(visited, _)| visited == at);
        visited || self.due & 1 << at != 0 || self.cells[at].first.is_some()
    }

    /// A visit is over.
    fn settle(&mut self, left: &mut u32, at: usize, cost: f32) {
        let is_best = at == self.best;
        let cell = &mut self.cells[at];
        let is_new = is_best || is_far(cost, cell.cost, JUMP);
        cell.cost = if is_new { cost } else { cell.cost + (cost - cell.cost) * WEIGHT_VISIT };
        cell.recent = [cell.cost; 2];
        if is_best {
            if is_far(cost, self.anchor, CHANGE) {
                // The machine has changed: the knowledge of the others is out of date.
                self.due = ((1 << self.count) - 1) & !(1 << at);
                self.hurry(left);
            }
            self.anchor = cost;
        }
        self.decide();
    }

    fn decide(&mut self) {
        let cost = |at: &usize| self.cells[*at].cost;
        let cheapest = (0..self.count).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let Some(cheapest) = cheapest else { return };
        if cost(&cheapest) < cost(&self.best) * BETTER {
            // Its former cost is known well now.
            self.cells[self.best].seen = self.samples;
            self.best = cheapest;
            self.anchor = self.cells[cheapest].cost;
        }
    }
}

/// Returns whether one is at least `times` the other.
fn is_far(a: f32, b: f32, times: f32) -> bool {
    a > b * times || a < b / times
}
