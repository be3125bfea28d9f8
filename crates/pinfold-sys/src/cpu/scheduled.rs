//! The scheduler's treatment of a thread, and the host's of this machine's processors: the time
//! that others ran while something was measured.
//!
//! All of it is read from `/proc`: a filter may kill a process that makes a call it does not know.

use std::{cell::Cell, fs};

const STATUS: &str = "/proc/thread-self/status";

/// The time of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Time that it ran, nanoseconds.
    pub ran_ns: u64,
    /// Time that it waited for a processor while it could have run, nanoseconds; a quota that is
    /// spent counts. `None` where the kernel does not say (`/proc/thread-self/schedstat`).
    pub waited_ns: Option<u64>,
    /// Preemptions: another one took its processor. `None` where the kernel does not say.
    pub preempted: Option<u64>,
    /// Voluntary switches: it gave its processor up, to wait for something. `None` where the
    /// kernel does not say.
    pub slept: Option<u64>,
}

impl Scheduled {
    /// The calling thread's. Some 20 µs.
    pub fn own() -> Scheduled {
        let ran_ns = thread_ns();
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let status = fs::read_to_string(STATUS).unwrap_or_default();
        Scheduled {
            ran_ns: ran_ns.unwrap_or(0),
            waited_ns: waited_in(&text),
            preempted: preempted_in(&status),
            // Without the time that it ran nothing can be said of its waits.
            slept: ran_ns.and_then(|_| number_in(&status, "voluntary_ctxt_switches:")),
        }
    }

    /// Time that something that took `took_ns` waited in the kernel, at least, nanoseconds; this is
    /// from before it began, `after` from when it had ended. 0 where the kernel does not say
    /// enough. A process that was stopped meanwhile has waited.
    pub fn blocked_ns(&self, after: &Scheduled, took_ns: u64) -> u64 {
        let rose = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        if rose(after.slept, self.slept).is_none_or(|times| times == 0) {
            return 0;
        }
        let undisturbed = || (rose(after.preempted, self.preempted)? == 0).then_some(0);
        let waited_ns = rose(after.waited_ns, self.waited_ns).or_else(undisturbed);
        let ran_ns = after.ran_ns.saturating_sub(self.ran_ns);
        waited_ns.map_or(0, |ns| took_ns.saturating_sub(ran_ns).saturating_sub(ns))
    }
}

/// Time that the calling thread ran, nanoseconds. `None` where a filter denies the call, on which
/// the safe function of rustix panics.
#[allow(unsafe_code)]
fn thread_ns() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local that the call fills in.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (answer == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Preemptions of the calling thread: another one took its processor (`nonvoluntary_ctxt_switches`
/// of `/proc/thread-self/status`, see `proc_pid_status(5)`). `None` where the kernel does not say.
/// Some 10 µs.
pub fn preempted() -> Option<u64> {
    preempted_in(&fs::read_to_string(STATUS).ok()?)
}

/// Returns whether another thread took the processor of the calling thread since that last asked;
/// false the first time. Some 10 µs.
///
/// Time that the host of a virtual machine takes, or an interrupt, is no preemption.
pub fn was_preempted() -> bool {
    thread_local! {
        static LAST: Cell<Option<u64>> = const { Cell::new(None) };
    }
    let Some(now) = preempted() else { return false };
    LAST.replace(Some(now)).is_some_and(|last| now > last)
}

fn preempted_in(status: &str) -> Option<u64> {
    number_in(status, "nonvoluntary_ctxt_switches:")
}

fn number_in(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Threads of this machine that run or want a processor now, the calling one among them
/// (`/proc/loadavg`, see `proc_loadavg(5)`). `None` where the system does not say. Some 5 µs.
pub fn runnable() -> Option<usize> {
    runnable_in(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// The number before the stroke of the fourth field.
fn runnable_in(loadavg: &str) -> Option<usize> {
    loadavg.split_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

/// Time that the host let these processors wait since the machine began, nanoseconds (`steal` of
/// `/proc/stat`, see `proc_stat(5)`), to 10 ms. `None` where the system does not say.
pub fn stolen_ns(cpus: &[usize]) -> Option<u64> {
    stolen_in(&fs::read_to_string("/proc/stat").ok()?, cpus)
}

/// The second number.
fn waited_in(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// The eighth number of each processor's line, in hundredths of a second.
fn stolen_in(stat: &str, cpus: &[usize]) -> Option<u64> {
    let of = |cpu: &usize| {
        let name = format!("cpu{cpu}");
        let line = stat.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
        line.split_whitespace().nth(7)?.parse::<u64>().ok()
    };
    let ticks = cpus.iter().map(of).sum::<Option<u64>>()?;
    ticks.checked_mul(10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        assert_eq!(waited_in("228648 2871224 2\n"), Some(2_871_224));
        assert_eq!(waited_in(""), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(preempted_in(status), Some(7));
        assert_eq!(preempted_in("Name:\tx\n"), None);
        assert_eq!(number_in(status, "voluntary_ctxt_switches:"), Some(5));
        assert_eq!(runnable_in("0.32 0.97 0.77 3/81 8481\n"), Some(3));
        assert_eq!(runnable_in("0.32 0.97 0.77\n"), None);
        assert_eq!(runnable_in(""), None);
        let stat = "cpu  9 9 9 9 9 9 9 1262 0 0\ncpu0 9 9 9 9 9 9 9 623 0 0\n\
                    cpu1 9 9 9 9 9 9 9 639 0 0\ncpu10 1 1 1 1 1 1 1 7 0 0\nintr 5\n";
        assert_eq!(stolen_in(stat, &[0, 1]), Some(12_620_000_000));
        assert_eq!(stolen_in(stat, &[10]), Some(70_000_000));
        assert_eq!(stolen_in(stat, &[]), Some(0));
        assert_eq!(stolen_in(stat, &[2]), None);
        assert_eq!(stolen_in("", &[0]), None);
    }

    #[test]
    fn what_nothing_explains_was_waited() {
        let before =
            Scheduled { ran_ns: 1000, waited_ns: Some(2000), preempted: Some(3), slept: Some(4) };
        let after = |ran: u64, waited: u64, preempted: u64, slept: u64| Scheduled {
            ran_ns: 1000 + ran,
            waited_ns: Some(2000 + waited),
            preempted: Some(3 + preempted),
            slept: Some(4 + slept),
        };
        assert_eq!(before.blocked_ns(&after(100, 50, 1, 1), 1000), 850);
        assert_eq!(before.blocked_ns(&after(100, 950, 1, 1), 1000), 0);
        // A thread that wakes up may wait for its processor.
        assert_eq!(before.blocked_ns(&after(100, 50, 0, 1), 1000), 850);
        assert_eq!(before.blocked_ns(&after(100, 50, 1, 0), 1000), 0);
        let silent = Scheduled { waited_ns: None, ..after(100, 0, 1, 1) };
        assert_eq!(before.blocked_ns(&silent, 1000), 0);
        assert_eq!(before.blocked_ns(&Scheduled { preempted: Some(3), ..silent }, 1000), 900);
        assert_eq!(before.blocked_ns(&Scheduled { slept: None, ..silent }, 1000), 0);
    }

    #[test]
    fn who_sleeps_is_blocked() {
        let before = Scheduled::own();
        let begun = std::time::Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let took_ns = begun.elapsed().as_nanos() as u64;
        let blocked_ns = before.blocked_ns(&Scheduled::own(), took_ns);
        // Only if the kernel counts.
        assert!(before.slept.is_none() || blocked_ns > 0, "{blocked_ns} of {took_ns}");
    }

    #[test]
    fn time_that_was_run_counts() {
        let before = Scheduled::own();
        let mut sum = 0u64;
        while Scheduled::own().ran_ns < before.ran_ns + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let after = Scheduled::own();
        assert!(after.preempted >= before.preempted && after.waited_ns >= before.waited_ns);
    }
}
