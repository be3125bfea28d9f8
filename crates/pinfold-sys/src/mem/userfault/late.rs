//! The time that this thread has waited for a processor.

use std::{fs::File, os::unix::fs::FileExt};

const STATISTICS: &str = "/proc/thread-self/schedstat";

/// A look at the kernel's counters of the thread that opened it. It takes no memory of the process.
#[derive(Debug)]
pub(super) struct Waits(File);

impl Waits {
    /// `None` where the kernel does not count, or nothing can be opened.
    pub(super) fn of_this_thread() -> Option<Waits> {
        let waits = Waits(File::open(STATISTICS).ok()?);
        waits.ns().map(|_| waits)
    }

    /// Nanoseconds in all that the thread could have run and did not. Some 600 ns.
    pub(super) fn ns(&self) -> Option<u64> {
        let mut line = [0; 96];
        let len = self.0.read_at(&mut line, 0).ok()?;
        parse(&line[..len])
    }
}

/// The waiting time in a line, which has the nanoseconds that the thread ran and waited, and how
/// often it ran. `None` if that is 0: then nothing is counted.
fn parse(line: &[u8]) -> Option<u64> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    let (waited, times): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (times > 0).then_some(waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        assert_eq!(parse(b"123 86327 2\n"), Some(86_327));
        let none: [&[u8]; 6] = [b"", b"0 0 0\n", b"1 2\n", b"1 x 3", b"1 -2 3", &[0xff, 0x20]];
        none.into_iter().for_each(|line| assert_eq!(parse(line), None));
    }

    #[test]
    fn who_shares_a_processor_waits() {
        let work = || {
            crate::cpu::affinity::pin_to(crate::cpu::affinity::current_cpus()[0]).unwrap();
            let waits = Waits::of_this_thread()?;
            // Both threads want all of it: each has to wait for the other.
            for _ in 0..20_000_000 {
                if waits.ns()? > 1_000_000 {
                    return Some(true);
                }
            }
            Some(false)
        };
        std::thread::scope(|scope| {
            let [one, other] = [scope.spawn(work), scope.spawn(work)].map(|it| it.join().unwrap());
            if one.is_none() || other.is_none() {
                return crate::skip::skip("this kernel does not count how long threads wait");
            }
            assert!(one == Some(true) || other == Some(true));
        });
    }
}
