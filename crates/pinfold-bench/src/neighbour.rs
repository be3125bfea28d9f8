//! A third process that computes all the time, as most machines have one: this program again.
//!
//! Its standard input is a pipe. One byte makes it begin, another one makes it stop; it ends with
//! the pipe.

use std::{
    io::Write,
    os::fd::AsFd,
    process::{Child, ChildStdin, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
};

use super::{
    fail::{Fail, Result},
    pair::Pair,
};

/// Steps of the computation between two looks at the pipe: some tens of microseconds.
const STEPS: u64 = 1 << 14;

/// The process, asleep until it is needed.
pub(crate) struct Neighbour {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Neighbour {
    /// Starts it, to run on the processors of the calling thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start() -> Result<Neighbour> {
        let mut child = Pair::second(&["perf", "--burn"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(Fail::os("starting a third process"))?;
        let orders = child.stdin.take();
        Ok(Neighbour { child, orders })
    }

    /// Lets it compute until the returned guard is dropped.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn burn(&mut self) -> Result<Burning<'_>> {
        self.order()?;
        Ok(Burning(self))
    }

    fn order(&mut self) -> Result<()> {
        let mut orders = self.orders.as_ref().ok_or(Fail::Gone)?;
        orders
            .write_all(b"x")
            .map_err(|source| Fail::Os { call: "writing to a third process", source })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // The process ends when its pipe does.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// It computes.
pub(crate) struct Burning<'a>(&'a mut Neighbour);

impl Drop for Burning<'_> {
    fn drop(&mut self) {
        // If the process is gone, it does not compute any more.
        let _ = self.0.order();
    }
}

/// The third process: obeys until its standard input ends.
///
/// # Errors
/// An error if standard input is no pipe.
pub(crate) fn obey(orders: impl AsFd) -> Result<()> {
    let mut sum = 0u64;
    while next(&orders)? {
        while !waits(&orders)? {
            for step in 0..STEPS {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(step));
            }
        }
        if !next(&orders)? {
            break;
        }
    }
    Ok(())
}

/// Waits for the next order; `false` if there are no more.
fn next(orders: &impl AsFd) -> Result<bool> {
    loop {
        match read(orders, &mut [0u8; 1]) {
            Err(Errno::INTR) => {}
            done => return done.map(|count| count > 0).map_err(Fail::os("read")),
        }
    }
}

/// Returns whether there is an order, or the end.
fn waits(orders: &impl AsFd) -> Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(orders, PollFlags::IN)], Some(&now)) {
        Err(Errno::INTR) => Ok(false),
        done => done.map(|ready| ready > 0).map_err(Fail::os("poll")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_obeys_until_the_pipe_ends() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let third = std::thread::spawn(move || obey(read));
        // It begins, ends, and begins again.
        for _ in 0..3 {
            rustix::io::write(&write, b"x").unwrap();
        }
        drop(write);
        third.join().unwrap().unwrap();
    }
}
