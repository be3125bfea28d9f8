//! The two processes: how they start, agree on their cores, set subjects up, and end.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use pinfold::{Endpoint, PeerId, copy::Algorithm};
use pinfold_sys::cpu::affinity;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    control::{ANSWER, Control},
    cores::{self, Unbound},
    fail::{Fail, Result},
    load::Load,
    meet::Met,
    plan::Made,
    shared::Shared,
    stage::Stage,
    sync::{self, Sync, Watch},
    terms::{Side, Spec},
    watchdog,
};

/// A message between the processes.
#[derive(Debug, Serialize, Deserialize)]
enum Talk {
    /// First: here I am.
    Hello { version: String, pid: u32, core: Option<usize>, your_core: Option<usize> },
    /// Second: so am I.
    Welcome { version: String, pid: u32, core: Option<usize> },
    /// First: set this subject up.
    SetUp(Made),
    /// Either, during a set-up: a message of the subject.
    Word(Value),
    /// Either: this side of the set-up is over; the reason if it failed.
    Outcome(Option<String>),
    /// First: do this run.
    Run(Spec),
    /// Second: the run is done, with this much processor time, and under this load.
    Done { cpu_ns: u64, load: Load },
    /// Second: I give up.
    Failed(String),
    /// First: that was all.
    Quit,
}

/// An order to the second process.
pub(crate) enum Order {
    /// Set this subject up.
    SetUp(Made),
    /// Do this run.
    Run(Spec),
    /// End.
    Quit,
}

/// One process's view of the other.
pub(crate) struct Pair {
    control: Control,
    side: Side,
    watch: Watch,
    peer_pid: u32,
    /// The cores of the first and the second process, if they are bound to one.
    cores: [Option<usize>; 2],
    /// The processors that this process might use before it was bound to one.
    free: Vec<usize>,
    /// Present only if the first process started the second.
    child: Option<Child>,
    /// The other side's outcome, if it came while this side still worked on a set-up.
    outcome: Option<Option<String>>,
    /// The connection through which the two processes met, if they met at an address.
    meeting: Option<(Endpoint, PeerId)>,
}

impl Pair {
    /// Starts the second process, the same program, with one end of a socket as its standard input.
    /// Each gets a core of its own if there are two, or those in `cores`. The second copies by
    /// `copy`, if that is named.
    pub(crate) fn start(
        cores: Option<[usize; 2]>,
        copy: Option<Algorithm>,
    ) -> Result<(Pair, Stage)> {
        let mut second = Pair::second(&["perf", "--second"]);
        second.envs(copy.map(|algorithm| ("PINFOLD_COPY", algorithm.to_string())));
        Pair::start_as(second, cores)
    }

    /// This program, to be started as a second process.
    pub(crate) fn second(args: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(args);
        command
    }

    /// The same with a second process of this command.
    pub(crate) fn start_as(
        mut second: Command,
        cores: Option<[usize; 2]>,
    ) -> Result<(Pair, Stage)> {
        let (here, there) = Control::pair()?;
        // This is done before this process is bound to a core: the child inherits that.
        let mut child = second
            .stdin(Stdio::from(there))
            .stdout(Stdio::null())
            .spawn()
            .map_err(Fail::os("starting the second process"))?;
        // The child holds the other end of the socket.
        drop(second);
        watchdog::take_along(child.id());
        let _busy = watchdog::busy("the start of the second process");
        match Pair::greet(Control::new(here), cores) {
            Ok((mut pair, stage)) => {
                pair.child = Some(child);
                Ok((pair, stage))
            }
            Err(why) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(why)
            }
        }
    }

    /// First: measures with a process met at an address.
    pub(crate) fn with_listener(met: Met, cores: Option<[usize; 2]>) -> Result<(Pair, Stage)> {
        let (mut pair, stage) = Pair::greet(met.control, cores)?;
        pair.meeting = Some((met.endpoint, met.peer));
        Ok((pair, stage))
    }

    /// Second: serves a process met at an address.
    pub(crate) fn with_caller(met: Met) -> Result<(Pair, Stage)> {
        let (mut pair, stage) = Pair::answer(met.control)?;
        pair.meeting = Some((met.endpoint, met.peer));
        Ok((pair, stage))
    }

    /// First: gets to know the second process at the other end of `control`.
    pub(crate) fn greet(control: Control, wish: Option<[usize; 2]>) -> Result<(Pair, Stage)> {
        let free = affinity::current_cpus();
        let wish = wish.or_else(|| cores::two_of(&free));
        let core = wish.and_then(|[core, _]| affinity::pin_to(core).ok().map(|()| core));
        let (page, file) = Shared::create("pinfold-perf", sync::BYTES)?;
        let hello = Talk::Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            core,
            your_core: wish.map(|[_, core]| core),
        };
        control.send_with(&hello, &[file.as_fd()])?;
        match control.recv(Some(ANSWER))? {
            Talk::Welcome { version, pid, core: theirs } => {
                same_version(&version)?;
                Ok(Pair::over(control, Side::First, page, pid, [core, theirs], free))
            }
            Talk::Failed(why) => Err(Fail::Said(why)),
            other => Err(unexpected(&other)),
        }
    }

    /// Second: gets to know the first process at the other end of `control`.
    pub(crate) fn answer(control: Control) -> Result<(Pair, Stage)> {
        let (hello, fds) = control.recv_with(Some(ANSWER))?;
        let Talk::Hello { version, pid, core, your_core } = hello else {
            return Err(unexpected(&hello));
        };
        same_version(&version).inspect_err(|why| {
            let _ = control.send(&Talk::Failed(why.to_string()));
        })?;
        let [file] = exactly(fds)?;
        let page = Shared::open(&file, sync::BYTES)?;
        let free = affinity::current_cpus();
        let choice = your_core.or_else(|| cores::other_than(&free, core?));
        let own = choice.and_then(|core| affinity::pin_to(core).ok().map(|()| core));
        let welcome = Talk::Welcome {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            core: own,
        };
        control.send(&welcome)?;
        Ok(Pair::over(control, Side::Second, page, pid, [core, own], free))
    }

    fn over(
        control: Control,
        side: Side,
        page: Shared,
        peer_pid: u32,
        cores: [Option<usize>; 2],
        free: Vec<usize>,
    ) -> (Pair, Stage) {
        let watch = Watch::new(&control, cores::only_one(cores));
        let sync = Sync::new(page, side, watch.clone());
        let pair = Pair {
            control,
            side,
            watch,
            peer_pid,
            cores,
            free,
            child: None,
            outcome: None,
            meeting: None,
        };
        (pair, Stage::new(sync))
    }

    /// The side that this process is.
    pub(crate) fn side(&self) -> Side {
        self.side
    }

    /// The connection through which the two processes met, once.
    pub(crate) fn take_meeting(&mut self) -> Option<(Endpoint, PeerId)> {
        self.meeting.take()
    }

    /// A watch over the other process.
    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// The other process.
    pub(crate) fn peer_pid(&self) -> u32 {
        self.peer_pid
    }

    /// The cores of the first and second process, if they are bound to one.
    pub(crate) fn cores(&self) -> [Option<usize>; 2] {
        self.cores
    }

    /// Lets this process run on the processors that it had before it was bound, until the guard is
    /// dropped.
    pub(crate) fn unbind(&self) -> Unbound {
        cores::unbind(&self.free)
    }

    /// In a set-up: sends something to the other side of the subject.
    pub(crate) fn tell(&self, word: &impl Serialize) -> Result<()> {
        self.tell_with(word, &[])
    }

    /// In a set-up: the same, with descriptors.
    pub(crate) fn tell_with(&self, word: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let word = serde_json::to_value(word).map_err(|why| Fail::Said(why.to_string()))?;
        self.control.send_with(&Talk::Word(word), fds)
    }

    /// In a set-up: receives a message of the other side of the subject.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.hear_with::<T, 0>().map(|(word, [])| word)
    }

    /// In a set-up: the same, with `N` descriptors.
    pub(crate) fn hear_with<T: DeserializeOwned, const N: usize>(
        &mut self,
    ) -> Result<(T, [OwnedFd; N])> {
        match self.control.recv_with(Some(ANSWER))? {
            (Talk::Word(word), fds) => {
                let word = serde_json::from_value(word);
                Ok((word.map_err(|why| Fail::Protocol(why.to_string()))?, exactly(fds)?))
            }
            (Talk::Outcome(Some(why)), _) => {
                self.outcome = Some(Some(why.clone()));
                Err(Fail::Said(why))
            }
            (Talk::Failed(why), _) => Err(Fail::Peer { pid: self.peer_pid, why }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// First: sets a subject up on both sides, this one with `make`. The inner error is the reason
    /// why it cannot be had.
    pub(crate) fn set_up<T>(
        &mut self,
        made: Made,
        make: impl FnOnce(&mut Pair) -> Result<T>,
    ) -> Result<Result<T, String>> {
        self.control.send(&Talk::SetUp(made))?;
        self.set_up_here(make)
    }

    /// Either: does this side's part of a set-up, and learns the result of the other side's.
    pub(crate) fn set_up_here<T>(
        &mut self,
        make: impl FnOnce(&mut Pair) -> Result<T>,
    ) -> Result<Result<T, String>> {
        self.outcome = None;
        let made = match make(self) {
            // It is no use to go on with a process that does not answer.
            Err(why @ Fail::Stuck(_)) => return Err(why),
            made => made.map_err(|why| why.to_string()),
        };
        self.control.send(&Talk::Outcome(made.as_ref().err().cloned()))?;
        let theirs = loop {
            if let Some(outcome) = self.outcome.take() {
                break outcome;
            }
            match self.control.recv(Some(ANSWER))? {
                Talk::Outcome(outcome) => break outcome,
                // The message was meant for the side that gave up.
                Talk::Word(_) => {}
                other => return Err(unexpected(&other)),
            }
        };
        Ok(match (made, theirs) {
            (_, Some(why)) | (Err(why), None) => Err(why),
            (Ok(made), None) => Ok(made),
        })
    }

    /// First: orders the second process to do a run. This side must do its part at once.
    pub(crate) fn order(&self, spec: &Spec) -> Result<()> {
        self.control.send(&Talk::Run(spec.clone()))
    }

    /// First: waits until the second process has done a run, and gets its processor time and load.
    pub(crate) fn wait_done(&self) -> Result<(u64, Load)> {
        match self.control.recv(Some(ANSWER))? {
            Talk::Done { cpu_ns, load } => Ok((cpu_ns, load)),
            Talk::Failed(why) => Err(Fail::Peer { pid: self.peer_pid, why }),
            other => Err(unexpected(&other)),
        }
    }

    /// Second: waits for an order.
    pub(crate) fn next_order(&self) -> Result<Order> {
        match self.control.recv(None)? {
            Talk::SetUp(made) => Ok(Order::SetUp(made)),
            Talk::Run(spec) => Ok(Order::Run(spec)),
            Talk::Quit => Ok(Order::Quit),
            other => Err(unexpected(&other)),
        }
    }

    /// Second: reports that a run is done.
    pub(crate) fn done(&self, cpu_ns: u64, load: Load) -> Result<()> {
        self.control.send(&Talk::Done { cpu_ns, load })
    }

    /// Second: tells the first process why it will get no more answers.
    pub(crate) fn give_up(&self, why: &Fail) {
        // If the first process is gone, the report is lost.
        let _ = self.control.send(&Talk::Failed(why.to_string()));
    }

    /// First: ends the second process in good order.
    pub(crate) fn finish(&mut self) {
        let _ = self.control.send(&Talk::Quit);
        self.child_status(Duration::from_secs(2));
    }

    /// First: finds the cause of a failure. A broken pipe on this side may have been a death, or an
    /// error with a better story, on the other.
    pub(crate) fn explain(&mut self, fail: Fail, doing: &str) -> Fail {
        if !fail.may_be_the_peers() {
            return fail;
        }
        loop {
            match self.control.recv(Some(Duration::from_millis(500))) {
                Ok(Talk::Failed(why)) => return Fail::Peer { pid: self.peer_pid, why },
                Ok(_) => {}
                // The other process is silent but alive: this side's error is all there is.
                Err(Fail::Stuck(_)) => return fail,
                Err(_) => break,
            }
        }
        let how = match self.child_status(Duration::from_millis(500)) {
            Some(status) => told(status),
            None => "ended".into(),
        };
        Fail::Died { pid: self.peer_pid, how, doing: doing.into() }
    }

    /// The end of the second process, if it was a child and ends within `patience`.
    fn child_status(&mut self, patience: Duration) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let start = Instant::now();
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
            if start.elapsed() > patience {
                return None;
            }
            pinfold_sys::cpu::clock::pause(Duration::from_millis(1));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both do nothing to a child that has ended and was waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn told(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (_, Some(code)) => format!("ended with status {code}"),
        _ => "ended".into(),
    }
}

fn same_version(theirs: &str) -> Result<()> {
    let ours = env!("CARGO_PKG_VERSION");
    if theirs == ours {
        return Ok(());
    }
    Err(Fail::Said(format!("one side is pinfold {ours}, the other {theirs}; use the same on both")))
}

fn exactly<const N: usize>(fds: Vec<OwnedFd>) -> Result<[OwnedFd; N]> {
    let found = fds.len();
    fds.try_into().map_err(|_| Fail::Protocol(format!("{found} descriptors, not {N}")))
}

fn unexpected(talk: &Talk) -> Fail {
    Fail::Protocol(format!("{talk:?}"))
}
