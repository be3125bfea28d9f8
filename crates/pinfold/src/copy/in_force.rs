//! The plan of this process.
//!
//! With the environment variable `PINFOLD_COPY` set to the name of an algorithm (`libc`,
//! `avx2+streaming`), that one is used for everything of 2 KiB or more (by
//! [`copy_as_planned`](super::copy_as_planned) wherever that has a choice). Without it, the table
//! is used that was measured on this machine and kept; without that, rules that hold on most
//! machines.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use parking_lot::Mutex;
use pinfold_sys::{
    cpu::{block::Algorithm, clock},
    refused::may_pass,
};
use tracing::{debug, error, warn};

use super::{
    Block, Machine, Maker, Origin, Plan,
    table::Table,
    tuned::{self, Tuned},
};
use crate::policy::backoff::Backoff;

static PLAN: OnceLock<Plan> = OnceLock::new();

/// Has `algorithm` used for everything in this process, as the variable `PINFOLD_COPY` does.
///
/// # Errors
/// [`TooLate`] if there is another plan already: something has been copied; or
/// if the processor lacks the algorithm.
pub fn insist(algorithm: Algorithm) -> Result<(), TooLate> {
    let table = Table::uniform(algorithm);
    let made = || Plan::new(table, Origin::Variable(algorithm), Algorithm::is_supported);
    let same = |origin: &Origin| *origin == Origin::Variable(algorithm);
    let in_force = algorithm.is_supported() && same(PLAN.get_or_init(made).origin());
    if in_force { Ok(()) } else { Err(TooLate(algorithm)) }
}

/// An algorithm that cannot be insisted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLate(pub Algorithm);

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_supported() {
            true => write!(f, "{} cannot be insisted on once there is a plan", self.0),
            false => write!(f, "this processor lacks what {} takes", self.0),
        }
    }
}

impl std::error::Error for TooLate {}

/// The plan of this process, which names nothing that the processor lacks. The first call reads a
/// file, which takes some 100 µs; later ones cost a load. If the file cannot be read just now,
/// rules that hold on most machines are used meanwhile.
pub fn plan() -> &'static Plan {
    static REST: Mutex<Backoff> = Mutex::new(Backoff::new());
    known_or(&PLAN, &REST, || {
        let machine = Machine::now()?;
        let file = tuned::file(&machine);
        decide(wish(), file.as_deref(), &machine, Algorithm::is_supported)
    })
}

fn wish() -> Option<OsString> {
    env::var_os("PINFOLD_COPY")
}

/// The known plan, or the one that `find` finds, which is known from then on. A search that fails
/// for want of a descriptor or memory is tried again later.
fn known_or(
    known: &'static OnceLock<Plan>,
    rest: &Mutex<Backoff>,
    find: impl FnOnce() -> io::Result<Plan>,
) -> &'static Plan {
    static MEANWHILE: OnceLock<Plan> = OnceLock::new();
    if let Some(plan) = known.get() {
        return plan;
    }
    if let Some(mut rest) = rest.try_lock()
        && rest.is_over(clock::now_ns())
    {
        match find() {
            Ok(plan) => return known.get_or_init(|| plan),
            Err(error) => {
                debug!(%error, "no plan yet");
                rest.failed(clock::now_ns());
            }
        }
    }
    MEANWHILE.get_or_init(|| {
        let named = wish().and_then(|name| wished(&name, Algorithm::is_supported));
        by_default(named, &Machine::this(), Algorithm::is_supported)
    })
}

/// The same if there has been a first call.
#[inline(always)]
pub(super) fn plan_if_any() -> Option<&'static Plan> {
    PLAN.get()
}

/// The algorithm by the plan of this process to copy a block ([`Plan::pick`]). If there is no
/// choice the plan is not even looked for.
#[inline]
pub(crate) fn pick(block: &Block) -> Algorithm {
    if block.is_short() { Algorithm::LIBC } else { plan().pick(block) }
}

/// The same of one that is to be zeroed.
#[inline]
pub(crate) fn pick_zero(block: &Block) -> Algorithm {
    if block.is_short() { Algorithm::LIBC } else { plan().pick_zero(block) }
}

/// The plan that takes effect if `wish` is in the environment and the tuned table in `file`.
///
/// # Errors
/// The file cannot be read just now, for want of a descriptor or memory.
fn decide(
    wish: Option<OsString>,
    file: Option<&Path>,
    machine: &Machine,
    supported: impl Fn(Algorithm) -> bool,
) -> io::Result<Plan> {
    let named = wish.and_then(|name| wished(&name, &supported));
    let kept = match file {
        Some(file) if named.is_none() => kept(file, machine)?,
        _ => None,
    };
    let plan = match kept {
        Some((Tuned { table, measured_s, seen }, file)) => {
            Plan::new(table, Origin::Tuned { file, measured_s, seen }, supported)
        }
        None => by_default(named, machine, supported),
    };
    debug!(origin = ?plan.origin(), "plan");
    Ok(plan)
}

/// The plan if there is no file.
fn by_default(
    named: Option<Algorithm>,
    machine: &Machine,
    supported: impl Fn(Algorithm) -> bool,
) -> Plan {
    if let Some(algorithm) = named {
        return Plan::new(Table::uniform(algorithm), Origin::Variable(algorithm), supported);
    }
    let table = Table::defaults(Maker::this(), machine.last_cache_bytes(), &supported);
    Plan::new(table, Origin::Defaults, supported)
}

/// The algorithm that the variable names, if this processor has it.
fn wished(name: &OsStr, supported: impl Fn(Algorithm) -> bool) -> Option<Algorithm> {
    match name.to_string_lossy().parse::<Algorithm>() {
        Ok(algorithm) if supported(algorithm) => Some(algorithm),
        Ok(algorithm) => {
            error!(%algorithm, "PINFOLD_COPY names what this processor lacks: ignored");
            None
        }
        Err(unknown) => {
            error!("PINFOLD_COPY is ignored: {unknown}");
            None
        }
    }
}

fn kept(file: &Path, machine: &Machine) -> io::Result<Option<(Tuned, PathBuf)>> {
    match tuned::load(file, machine) {
        Ok(tuned) => Ok(Some((tuned, file.to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if may_pass(&error) => Err(error),
        Err(error) => {
            warn!(
                file = %file.display(), %error,
                "the tuned copy table is ignored; pinfold tune makes a new one"
            );
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{
        super::{Reader, tuned::Seen},
        *,
    };

    fn large() -> Block {
        Block { len: 1 << 20, to: 2048, reader: Reader::Nobody, ..Block::default() }
    }

    const FAR: Seen = Seen { near: 0, far: 3, mixed: 0 };

    fn tuned_to(table: Table) -> Tuned {
        Tuned { table, measured_s: 7, seen: FAR }
    }

    #[test]
    fn the_variable_comes_first_then_the_file() {
        let home = tempfile::tempdir().unwrap();
        let (file, machine) = (home.path().join("copy.json"), Machine::this());
        let run = |wish: Option<&str>| {
            let plan = decide(wish.map(Into::into), Some(&file), &machine, |_| true).unwrap();
            let picked = (plan.pick(&large()).to_string(), plan.pick_zero(&large()).to_string());
            (plan.origin().clone(), picked)
        };
        let both = |name: &str| (name.to_owned(), name.to_owned());
        assert_eq!(run(None), (Origin::Defaults, both("avx2+streaming")));
        let rep: Algorithm = "rep".parse().unwrap();
        tuned::store(&file, &machine, &tuned_to(Table::uniform(rep))).unwrap();
        let origin = Origin::Tuned { file: file.clone(), measured_s: 7, seen: FAR };
        assert_eq!(run(None), (origin.clone(), both("rep")));
        let word = "word".parse().unwrap();
        assert_eq!(run(Some("word")), (Origin::Variable(word), both("word")));
        // A word that names no algorithm changes nothing.
        for nonsense in ["", "mmx", "Word", "avx2 ", "libc+streaming"] {
            assert_eq!(run(Some(nonsense)), (origin.clone(), both("rep")), "{nonsense:?}");
        }
        fs::write(&file, "{}").unwrap();
        assert_eq!(run(None), (Origin::Defaults, both("avx2+streaming")));
    }

    #[test]
    fn what_the_processor_lacks_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let (file, machine) = (home.path().join("copy.json"), Machine::this());
        let only_libc = |algorithm| algorithm == Algorithm::LIBC;
        let wish = Some("avx512+streaming".into());
        let plan = decide(wish, Some(&file), &machine, only_libc).unwrap();
        assert_eq!((plan.origin(), plan.pick(&large())), (&Origin::Defaults, Algorithm::LIBC));
        let table = Table::uniform("avx512".parse().unwrap());
        tuned::store(&file, &machine, &tuned_to(table)).unwrap();
        let plan = decide(None, Some(&file), &machine, only_libc).unwrap();
        assert!(matches!(plan.origin(), Origin::Tuned { .. }));
        assert_eq!(plan.pick(&large()), Algorithm::LIBC);
    }

    #[test]
    fn what_cannot_be_read_now_is_read_later() {
        static KNOWN: OnceLock<Plan> = OnceLock::new();
        let algorithm: Algorithm = "word".parse().unwrap();
        let tuned = || {
            let origin = Origin::Tuned { file: PathBuf::new(), measured_s: 7, seen: FAR };
            Ok(Plan::new(Table::uniform(algorithm), origin, |_| true))
        };
        let starved = || Err(io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()));
        let rest = Mutex::new(Backoff::new());
        assert_eq!(known_or(&KNOWN, &rest, starved).origin(), &Origin::Defaults);
        assert_eq!(known_or(&KNOWN, &rest, || unreachable!()).origin(), &Origin::Defaults);
        *rest.lock() = Backoff::new();
        assert_eq!(known_or(&KNOWN, &rest, tuned).pick(&large()), algorithm);
        assert_eq!(known_or(&KNOWN, &rest, || unreachable!()).pick(&large()), algorithm);
    }

    #[test]
    fn the_plan_of_this_process_does_not_change() {
        assert!(std::ptr::eq(plan(), plan()));
        assert!(plan().pick(&large()).is_supported());
        for len in [100, 2048, 1 << 20] {
            for reader in Reader::ALL {
                let block = Block { len, reader, ..large() };
                assert_eq!(pick(&block), plan().pick(&block));
                assert_eq!(pick_zero(&block), plan().pick_zero(&block));
            }
        }
    }
}
