//! A back end that does parts in any order, late, in part, wrongly or twice, as it may.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::{Backend, Capabilities, Completion, Key, Notify, Outcome, Part};

/// The faults of the back end beside late completions in another order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Ends before all is done, and leaves a mess behind that.
    pub(super) partial: bool,
    /// Fails, and leaves a mess.
    pub(super) fail: bool,
    /// Says that it has done more than it was asked for, or nothing.
    pub(super) lie: bool,
    /// Has no room.
    pub(super) refuse: bool,
    /// Says that parts have ended that had ended before.
    pub(super) repeat: bool,
}

struct State {
    parts: Vec<Part>,
    old: Vec<Key>,
    random: u64,
    holds: bool,
}

/// A back end that never notifies: its completions have to be polled.
#[derive(Clone)]
pub(super) struct Faulty {
    state: Arc<Mutex<State>>,
    faults: Faults,
}

impl Faulty {
    pub(super) fn new(seed: u64, faults: Faults) -> Faulty {
        let state = State { parts: Vec::new(), old: Vec::new(), random: seed, holds: false };
        Faulty { state: Arc::new(Mutex::new(state)), faults }
    }

    /// Sets whether it does nothing for the time being.
    pub(super) fn hold(&self, holds: bool) {
        self.state.lock().holds = holds;
    }
}

impl State {
    fn random(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.random >> 33) as usize) % below
    }
}

/// Leaves a mess where a part was to write.
fn spoil(part: &Part, from: usize) {
    // SAFETY: inside the destination, which is the back end's for now.
    unsafe { part.work.to().add(from).write_bytes(0xEE, part.work.len() - from) };
}

// SAFETY: a part is done inside `poll`, before its completion is handed out. Each is handed out in
// the end if it is polled often enough.
unsafe impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        Capabilities { lanes: 2, part_bytes_max: 30_000, notifies: false }
    }

    fn start(&self, _: Notify) {}

    unsafe fn submit(&self, part: Part) -> Result<(), Part> {
        let mut state = self.state.lock();
        if self.faults.refuse && state.random(3) == 0 {
            return Err(part);
        }
        state.parts.push(part);
        Ok(())
    }

    fn poll(&self, done: &mut dyn FnMut(Completion)) {
        let mut state = self.state.lock();
        if state.holds || state.parts.is_empty() || state.random(3) == 0 {
            return;
        }
        let count = state.parts.len();
        let at = state.random(count);
        let part = state.parts.swap_remove(at);
        let len = part.work.len();
        let outcome = match state.random(6) {
            0 if self.faults.partial && len > 1 => {
                let moved = 1 + state.random(len - 1);
                // SAFETY: the part is this back end's.
                unsafe { part.work.piece(0, moved).perform() };
                spoil(&part, moved);
                Outcome::Moved(moved)
            }
            1 if self.faults.fail => {
                spoil(&part, 0);
                Outcome::Failed
            }
            2 if self.faults.lie => {
                spoil(&part, 0);
                Outcome::Moved(if state.random(2) == 0 { 0 } else { len + 1 })
            }
            _ => {
                // SAFETY: as above.
                unsafe { part.work.perform() };
                Outcome::Moved(len)
            }
        };
        done(Completion { id: part.id, outcome });
        state.old.push(part.id);
        if self.faults.repeat && state.random(3) == 0 {
            let count = state.old.len();
            let at = state.random(count);
            done(Completion { id: state.old[at], outcome: Outcome::Moved(len) });
        }
    }

    fn stop(&self) {}
}
