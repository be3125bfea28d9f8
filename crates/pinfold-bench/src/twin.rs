//! Another pair of processes that does the same meanwhile, on the same two cores: this program
//! again, and the second process that it starts itself.
//!
//! Its standard input is a socket. It gets an order, carries it out again and again until it is
//! told to stop, and ends with the socket.

use std::{
    fmt::Display,
    os::fd::{AsFd, OwnedFd},
    process::{Child, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    bench,
    control::{ANSWER, Control},
    fail::{Fail, Result},
    pair::Pair,
    plan::Made,
    stage::Stage,
    subject::Bench,
    terms::Spec,
};

/// Time that it takes to notice an order to stop, about.
const RUN: Duration = Duration::from_millis(10);

/// An order to the twin.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// The cores of its processes, first of all.
    Start(Option<[usize; 2]>),
    /// Do this again and again.
    Begin(Made, Spec),
    /// Stop.
    End,
}

/// Its answer to each order: the reason if it cannot obey.
type Answer = Option<String>;

/// The other pair, idle until it is needed.
pub(crate) struct Twin {
    child: Child,
    control: Option<Control>,
}

impl Twin {
    /// Starts it. Its processes are bound to these cores, if both are known.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(cores: [Option<usize>; 2]) -> Result<Twin> {
        let (here, there) = Control::pair()?;
        let child = Pair::second(&["perf", "--twin"])
            .stdin(Stdio::from(there))
            .stdout(Stdio::null())
            .spawn()
            .map_err(Fail::os("starting another pair of processes"))?;
        let twin = Twin { child, control: Some(Control::new(here)) };
        let cores = cores[0].zip(cores[1]).map(|(first, second)| [first, second]);
        twin.order(&Order::Start(cores))?;
        Ok(twin)
    }

    /// Lets it do a run again and again until the returned guard is dropped.
    ///
    /// # Errors
    /// It is gone, or reports why it cannot.
    pub(crate) fn begin(&self, made: Made, spec: &Spec) -> Result<Doing<'_>> {
        self.order(&Order::Begin(made, spec.clone()))?;
        Ok(Doing(self))
    }

    fn order(&self, order: &Order) -> Result<()> {
        let control = self.control.as_ref().ok_or(Fail::Gone)?;
        let said = |why: &dyn Display| Fail::Said(format!("another pair of processes: {why}"));
        control.send(order).map_err(|why| said(&why))?;
        match control.recv::<Answer>(Some(ANSWER)).map_err(|why| said(&why))? {
            None => Ok(()),
            Some(why) => Err(said(&why)),
        }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        // The twin ends when its socket does.
        drop(self.control.take());
        let _ = self.child.wait();
    }
}

/// It does something.
pub(crate) struct Doing<'a>(&'a Twin);

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        // If the twin is gone, it does nothing any more.
        let _ = self.0.order(&Order::End);
    }
}

/// The first process of the other pair: obeys until its standard input ends.
///
/// # Errors
/// The error that ended it, in words.
pub(crate) fn obey(orders: OwnedFd) -> Result<()> {
    let control = Control::new(orders);
    let Order::Start(cores) = control.recv(None)? else { return Err(Fail::Gone) };
    let started = Pair::start(cores, None);
    control.send(&started.as_ref().err().map(Fail::to_string))?;
    let (pair, stage) = started?;
    let mut twin = Here { pair, stage, benches: Vec::new(), runs: 0 };
    loop {
        match control.recv(None) {
            Ok(Order::Begin(made, spec)) => twin.repeat(&control, made, &spec)?,
            // The twin has stopped already.
            Ok(_) => control.send(&Answer::None)?,
            Err(_) => break,
        }
    }
    twin.pair.finish();
    Ok(())
}

/// The other pair, from its first process's view.
struct Here {
    pair: Pair,
    stage: Stage,
    benches: Vec<(Made, Box<dyn Bench>)>,
    runs: u64,
}

impl Here {
    /// Does runs until there is an order.
    fn repeat(&mut self, control: &Control, made: Made, spec: &Spec) -> Result<()> {
        let subject = match self.benches.iter().position(|bench| bench.0 == made) {
            Some(there) => there,
            None => match self.pair.set_up(made, |pair| bench::set_up(made, pair))? {
                Ok(bench) => {
                    self.benches.push((made, bench));
                    self.benches.len() - 1
                }
                Err(why) => return control.send(&Answer::Some(why)),
            },
        };
        let mut told = false;
        loop {
            self.runs += 1;
            let spec = Spec { subject, run: self.runs, ..spec.clone() };
            self.stage.label = made.0.to_string().into();
            self.stage.allow(RUN);
            self.pair.order(&spec)?;
            if !told {
                control.send(&Answer::None)?;
                told = true;
            }
            self.benches[subject].1.run(&mut self.stage, &spec)?;
            self.pair.wait_done()?;
            if waits(control)? {
                return Ok(());
            }
        }
    }
}

/// Returns whether there is an order, or the end.
fn waits(control: &Control) -> Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::from_borrowed_fd(control.fd().as_fd(), PollFlags::IN)], Some(&now)) {
        Err(Errno::INTR) => Ok(false),
        done => done.map(|ready| ready > 0).map_err(Fail::os("poll")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_go_through_the_socket() {
        let (one, two) = Control::pair().unwrap();
        let (one, two) = (Control::new(one), Control::new(two));
        assert!(!waits(&two).unwrap());
        one.send(&Order::Start(Some([0, 1]))).unwrap();
        one.send(&Order::End).unwrap();
        assert!(waits(&two).unwrap());
        assert!(matches!(two.recv(None).unwrap(), Order::Start(Some([0, 1]))));
        assert!(matches!(two.recv(None).unwrap(), Order::End));
        // The end of the other side is to be noticed, too.
        drop(one);
        assert!(waits(&two).unwrap());
        assert!(two.recv::<Order>(None).is_err());
    }
}
