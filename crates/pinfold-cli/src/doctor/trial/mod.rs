//! Trials: facts that are found by doing. Nothing here reads a setting or draws a conclusion.
//!
//! - [`calls`]: single facilities of the kernel; [`sockets`]: those of them that are sockets.
//! - [`reach`]: other processes' memory.
//! - [`connect`]: two processes that connect and exchange messages through the library.
//! - [`costs`]: the time that this takes.

pub(crate) mod calls;
pub(crate) mod connect;
pub(crate) mod costs;
pub(crate) mod reach;
mod sockets;

use rustix::process::{Resource, Rlimit, setrlimit};

use self::{calls::Calls, connect::ConnectTrial, reach::Reach};
use super::child::{self, Denial, Tried};
use pinfold_bench::brief::Brief;

/// A limit's name, and its soft and hard value; `None` for no limit.
pub(crate) type Rlimits = (&'static str, Option<u64>, Option<u64>);

/// Everything that was tried.
pub(crate) struct Trials {
    /// Succeeds if there can be another process at all. Everything else takes one.
    pub(crate) process: Tried<()>,
    /// The filter of this process's calls.
    pub(crate) seccomp_mode: Tried<i32>,
    /// True if other processes of this user may look into this process.
    pub(crate) dumpable: Tried<bool>,
    /// The processors this process may run on.
    pub(crate) cpus: Tried<Vec<usize>>,
    pub(crate) name: Tried<Option<String>>,
    pub(crate) rlimits: Tried<Vec<Rlimits>>,
    pub(crate) calls: Calls,
    pub(crate) reach: Reach,
    pub(crate) meeting: ConnectTrial,
    /// `None` if that was not asked for, or nothing can be measured.
    pub(crate) costs: Option<Tried<Brief>>,
}

/// Tries everything, and measures as well if asked to.
pub(crate) fn all(measure: bool) -> Trials {
    // Processes that a filter kills need not leave core dumps.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
    child::bind();
    let meeting = connect::hold();
    let measure = measure && meeting.works();
    Trials {
        process: child::attempt("", || Ok(())),
        seccomp_mode: child::attempt("prctl", || {
            pinfold_sys::trial::seccomp_mode().map_err(Denial::of("prctl"))
        }),
        dumpable: child::attempt("prctl", reach::is_dumpable),
        cpus: child::attempt(
            "sched_getaffinity",
            || Ok(pinfold_sys::cpu::affinity::current_cpus()),
        ),
        name: child::attempt("", || Ok(pinfold_sys::user::name_of(pinfold_sys::user::uid()))),
        rlimits: rlimits(),
        calls: Calls::make(),
        reach: Reach::out(),
        costs: measure.then(|| costs::measure(&meeting)),
        meeting,
    }
}

/// Every limit that matters here.
///
/// The limits are read in this very process: its C library asked for some before it began.
fn rlimits() -> Tried<Vec<Rlimits>> {
    let all = [
        ("nofile", libc::RLIMIT_NOFILE),
        ("as", libc::RLIMIT_AS),
        ("memlock", libc::RLIMIT_MEMLOCK),
        ("nproc", libc::RLIMIT_NPROC),
        ("fsize", libc::RLIMIT_FSIZE),
    ];
    let read = |(name, which)| {
        let (soft, hard) = pinfold_sys::trial::limits(which).map_err(Denial::of("getrlimit"))?;
        Ok((name, soft, hard))
    };
    all.into_iter().map(read).collect()
}
