//! The two cores that the two processes run on.

use std::fs;

use pinfold_sys::cpu::affinity;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Two of `allowed` that do not share a core's execution units if there are such, otherwise two
/// that do; `None` if there is only one.
pub(crate) fn two_of(allowed: &[usize]) -> Option<[usize; 2]> {
    let first = *allowed.first()?;
    other_than(allowed, first).map(|second| [first, second])
}

/// One of `allowed` that is not `taken`, and if possible no hardware thread of the same core.
pub(crate) fn other_than(allowed: &[usize], taken: usize) -> Option<usize> {
    let threads = threads_of(taken);
    let others = || allowed.iter().copied().filter(|&cpu| cpu != taken);
    others().find(|cpu| !threads.contains(cpu)).or_else(|| others().next())
}

/// Returns whether both processes run on the same core, as far as is known.
pub(crate) fn only_one(cores: [Option<usize>; 2]) -> bool {
    match cores {
        [Some(first), Some(second)] => first == second,
        _ => pinfold_sys::cpu::affinity::current_cpus().len() < 2,
    }
}

/// The calling thread may run on more processors, until this is dropped.
pub(crate) struct Unbound(Vec<usize>);

/// Lets the calling thread, and threads that it starts, run on these processors for a while.
pub(crate) fn unbind(free: &[usize]) -> Unbound {
    let bound = affinity::current_cpus();
    bind(free);
    Unbound(bound)
}

impl Drop for Unbound {
    fn drop(&mut self) {
        bind(&self.0);
    }
}

/// Binds the calling thread to these processors. If the kernel denies that, it stays as it is.
fn bind(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    let _ = sched_setaffinity(None, &set);
}

/// The hardware threads of the core that `cpu` is one of.
fn threads_of(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(path).map(|list| parse_list(&list)).unwrap_or_default()
}

/// Reads the kernel's lists of processors: `0-3,8`.
fn parse_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..=to.trim().parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0\n"), [0]);
        assert_eq!(parse_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(parse_list(""), [0usize; 0]);
        assert_eq!(parse_list("x,3-"), [0usize; 0]);
    }

    #[test]
    fn a_bound_thread_is_let_go_and_bound_again() {
        std::thread::spawn(|| {
            let free = affinity::current_cpus();
            affinity::pin_to(free[0]).unwrap();
            let unbound = unbind(&free);
            assert_eq!(affinity::current_cpus(), free);
            drop(unbound);
            assert_eq!(affinity::current_cpus(), [free[0]]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn two_are_chosen_where_there_are_two() {
        assert_eq!(two_of(&[]), None);
        assert_eq!(two_of(&[900]), None);
        assert_eq!(two_of(&[900, 901, 902]), Some([900, 901]));
        assert_eq!(other_than(&[900, 901], 901), Some(900));
        assert_eq!(other_than(&[900], 900), None);
        assert!(only_one([Some(1), Some(1)]));
        assert!(!only_one([Some(1), Some(2)]));
    }
}
