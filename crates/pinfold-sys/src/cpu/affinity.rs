//! The processors that this thread may run on.

use std::io;

use rustix::{
    io::Errno,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// The processors the calling thread may run on, lowest number first. If the kernel does not say,
/// as many as the standard library counts. See `sched_getaffinity(2)`.
pub fn current_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

/// How many processors are in use on this machine, whoever may run on them. `None` where the
/// system does not say. See `cpu(7)` and `/sys/devices/system/cpu/online`.
pub fn online_cpus() -> Option<usize> {
    online_in(&std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// The sum of ranges such as `0-3,8`.
fn online_in(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.trim().split(',').map(count).sum()
}

/// Binds the calling thread to one processor. See `sched_setaffinity(2)`.
///
/// # Errors
/// `EINVAL` if there is no such processor or the thread may not use it.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_bound() {
        std::thread::spawn(|| {
            let cpus = current_cpus();
            assert!(!cpus.is_empty());
            let last = *cpus.last().unwrap();
            pin_to(last).unwrap();
            assert_eq!(current_cpus(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn ranges_are_counted() {
        assert_eq!(online_in("0-1\n"), Some(2));
        assert_eq!(online_in("0"), Some(1));
        assert_eq!(online_in("0-3,8,10-11\n"), Some(7));
        assert_eq!(online_in("3-0"), None);
        assert_eq!(online_in(""), None);
    }

    #[test]
    fn absent_processors_are_errors() {
        assert!(pin_to(usize::MAX).is_err());
        assert!(pin_to(CpuSet::MAX_CPU - 1).is_err() || current_cpus().len() >= CpuSet::MAX_CPU);
    }
}
