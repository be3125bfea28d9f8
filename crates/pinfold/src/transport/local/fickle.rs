//! Processes whose memory made this one wait: none of them is copied from again, even if it
//! connects again.

use std::collections::VecDeque;

use parking_lot::Mutex;
use pinfold_sys::process;

/// The processes, by process id and start time: process ids are used again.
static NOTED: Mutex<Noted> = Mutex::new(Noted(VecDeque::new()));

/// Number of processes that are remembered; beyond it the first are forgotten.
const NOTED_MAX: usize = 256;

struct Noted(VecDeque<(u32, u64)>);

impl Noted {
    fn note(&mut self, process: (u32, u64)) {
        if self.0.contains(&process) {
            return;
        }
        self.0.truncate(NOTED_MAX - 1);
        self.0.push_front(process);
    }

    /// Start times of the processes with this process id.
    fn began(&self, pid: u32) -> impl Iterator<Item = u64> {
        self.0.iter().filter(move |noted| noted.0 == pid).map(|noted| noted.1)
    }
}

/// Remembers a process that is still alive.
pub(crate) fn note(pid: u32) {
    if let Some(began) = process::began_ticks(pid) {
        NOTED.lock().note((pid, began));
    }
}

/// Returns whether this process is remembered.
pub(crate) fn is_noted(pid: u32) -> bool {
    let mut noted = NOTED.lock().began(pid).collect::<Vec<_>>().into_iter().peekable();
    noted.peek().is_some()
        && process::began_ticks(pid).is_some_and(|began| noted.any(|it| it == began))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered() {
        let mut noted = Noted(VecDeque::new());
        for pid in 0..300 {
            noted.note((pid, 1));
            noted.note((pid, 1));
        }
        assert_eq!(noted.0.len(), NOTED_MAX);
        assert_eq!(noted.began(43).count(), 0);
        noted.note((299, 2));
        assert_eq!(noted.began(299).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_process_is_remembered_while_it_lives() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_noted(child.id()));
        note(child.id());
        assert!(is_noted(child.id()) && !is_noted(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_noted(child.id()));
    }
}
