//! The plan: the runs, their order and their durations. Nothing here does anything.
//!
//! Subjects take turns: each round goes through all measures and sizes, and through all subjects
//! within each, beginning with another one every time. So those that are compared run side by side,
//! and every row gets its share of the machine's states meanwhile, near or far.

mod sizes;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::terms::{Cell, Group, Id, Kind, Memory, Route, Setting, What};

/// The measurements that the user wants.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) whats: Vec<What>,
    /// Message sizes in bytes; none means the usual ones of each measure.
    pub(crate) sizes: Vec<usize>,
    /// Longer messages of the usual sizes are left out, bytes.
    pub(crate) size_max: usize,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) routes: Vec<Route>,
    /// Under which circumstances.
    pub(crate) settings: Vec<Setting>,
    /// Subjects left out all the same.
    pub(crate) but: Vec<Id>,
    /// The memory that messages lie in.
    pub(crate) memories: Vec<Memory>,
    pub(crate) rounds: u32,
    /// True if every message is written before and read after it went. Otherwise only some are, of
    /// the usual sizes.
    pub(crate) touched: bool,
    pub(crate) quick: bool,
}

/// A subject, and the setting that it was set up for.
pub(crate) type Made = (Id, Setting);

/// One turn of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) cell: Cell,
    pub(crate) subject: Id,
    pub(crate) round: u32,
}

impl Step {
    /// The subject that has the turn, as it is set up.
    pub(crate) fn made(&self) -> Made {
        (self.subject, self.cell.setting.made_for(self.subject))
    }
}

/// Messages from this long on, bytes, have their turns in every other round only: a turn takes as
/// long as those of many others.
const LONG_BYTES: usize = 16 << 20;

impl Wish {
    /// Every subject that is wanted and can do one of the wanted cells.
    pub(crate) fn subjects(&self) -> Vec<Id> {
        let cells = self.cells();
        Id::all().filter(|&id| cells.iter().any(|&cell| self.wants(cell, id))).collect()
    }

    /// All set-ups that these subjects need.
    pub(crate) fn made(&self) -> Vec<Made> {
        let cells = self.cells();
        let of = |id| {
            let wanted = cells.iter().filter(move |&&cell| self.wants(cell, id));
            let mut all: Vec<Made> = wanted.map(|cell| (id, cell.setting.made_for(id))).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        self.subjects().into_iter().flat_map(of).collect()
    }

    /// Returns whether a subject has its turns in a row.
    pub(crate) fn wants(&self, cell: Cell, id: Id) -> bool {
        let named = self.kinds.contains(&id.kind)
            && !self.but.contains(&id)
            && id.route.is_none_or(|route| self.routes.contains(&route));
        // Subjects other than Pinfold stand beside all groups that there are.
        let has = |group| self.cells_in(group).contains(&cell);
        let placed = match id.group() {
            Some(group) => has(group),
            // Giving a buffer costs the same at any size, so it is measured with sizes that would
            // take everything else for ever.
            None => {
                let hop = id.kind == Kind::Line && has(Group::Given);
                hop || has(Group::Heap) || has(Group::Arena)
            }
        };
        named && placed && id.can(cell)
    }

    /// Every row of the plan.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> =
            Group::ALL.into_iter().flat_map(|group| self.cells_in(group)).collect();
        cells.sort_unstable();
        cells.dedup();
        cells
    }

    /// The rows of a group.
    fn cells_in(&self, group: Group) -> Vec<Cell> {
        if !self.memories.contains(&group.memory()) {
            return Vec::new();
        }
        let mut cells = Vec::new();
        let mut add = |what, sizes: &[usize], touched, setting| {
            cells.extend(sizes.iter().map(|&size| Cell { what, size, touched, setting }));
        };
        let pairs = What::ALL.into_iter().flat_map(|what| Setting::ALL.map(|at| (what, at)));
        for (what, setting) in pairs {
            if !self.whats.contains(&what) || !self.settings.contains(&setting) {
                continue;
            }
            if setting != Setting::Alone {
                // The usual kind of messages.
                let wanted = group == Group::Heap && setting.measures(what);
                let named = !self.sizes.is_empty() && what != What::Rate;
                let usual = sizes::in_setting(what, setting, self.quick);
                let sizes = if named { &self.sizes } else { usual };
                add(what, if wanted { sizes } else { &[] }, self.touched, setting);
                continue;
            }
            if self.sizes.is_empty() || what == What::Rate {
                // A rate of other than small messages is a bandwidth.
                add(what, sizes::usual(what, group, self.quick), self.touched, setting);
            } else {
                add(what, &self.sizes, self.touched, setting);
            }
            if self.sizes.is_empty() && !self.touched {
                add(what, sizes::touched_too(what, group, self.quick), true, setting);
            }
        }
        // Without a Pinfold subject there is no row.
        let in_group = |id: &Id| id.kind == Kind::Pinfold && id.group() == Some(group);
        cells.retain(|&cell| {
            let fits = !self.sizes.is_empty() || cell.size <= self.size_max;
            fits && Id::all().any(|id| in_group(&id) && id.can(cell))
        });
        cells
    }
}

/// The turns, in order, of the subjects that could be set up.
pub(crate) fn steps(wish: &Wish, made: &[Made]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut cells = wish.cells();
    // Short messages come first: long ones may take all the time there is.
    cells.sort_by_key(|cell| cell.size);
    for round in 0..wish.rounds {
        for &cell in &cells {
            if cell.size >= LONG_BYTES && round % 2 == 0 && wish.rounds > 1 {
                continue;
            }
            let able =
                |made: &&Made| made.1 == cell.setting.made_for(made.0) && wish.wants(cell, made.0);
            let able: Vec<Id> = made.iter().filter(able).map(|made| made.0).collect();
            let turns = able.iter().cycle().skip(round as usize % able.len().max(1));
            let turns = turns.take(able.len());
            steps.extend(turns.map(|&subject| Step { cell, subject, round }));
        }
    }
    steps
}

/// Shares the time among the steps: each gets the same part of the time left, or a few such parts,
/// and every subject of a row is measured for as long as any other.
///
/// On a machine where steps take longer than they should, later ones get less, and the last ones
/// are left out: there are fewer rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    total: Duration,
}

/// The decision about the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Take this long for it.
    Take(Duration),
    /// The step would take longer than the time left: leave it out.
    Skip,
    /// All the time is up.
    Stop,
}

/// The most time of one step: more samples would not say more.
const STEP_MAX: Duration = Duration::from_millis(250);
/// The factor for a step with a message every millisecond.
const PACED_PARTS: u32 = 3;
/// The least time that a step is worth doing for, as long as there is time at all.
const STEP_MIN: Duration = Duration::from_millis(1);

impl Budget {
    /// `total` for everything.
    pub(crate) const fn new(total: Duration) -> Budget {
        Budget { total }
    }

    /// The decision about `steps[at]` when `elapsed` has passed and there is memory for messages of
    /// `ready_bytes` already.
    pub(crate) fn next(
        &self,
        elapsed: Duration,
        steps: &[Step],
        at: usize,
        ready_bytes: usize,
    ) -> Turn {
        if elapsed >= self.total {
            return Turn::Stop;
        }
        let left = self.total - elapsed;
        if left < least(steps[at].cell.size, ready_bytes) {
            return Turn::Skip;
        }
        let all: u32 = steps[at..].iter().map(parts).sum();
        let share = left / all.max(1);
        Turn::Take((share.clamp(STEP_MIN, STEP_MAX) * parts(&steps[at])).min(left))
    }
}

/// The number of turns' time that a turn takes: in one turn's time a paced step would send too few
/// messages.
const fn parts(step: &Step) -> u32 {
    if matches!(step.cell.setting, Setting::Paced) { PACED_PARTS } else { 1 }
}

/// The time of a turn with a single message of `size` bytes, with writing and checking and, the
/// first time, memory for it: a guess, which matters for messages of many megabytes only.
pub(crate) fn least(size: usize, ready_bytes: usize) -> Duration {
    let ns_per_byte = if size > ready_bytes { 10 } else { 3 };
    Duration::from_nanos(size as u64 * ns_per_byte)
}
