//! Keeps the measured costs of this machine from run to run.
//!
//! They lie in a JSON file below `$XDG_CACHE_HOME/pinfold`, or `~/.cache/pinfold`, named after the
//! processor, the kernel and the library, so that a home directory may serve many machines. The
//! file is a convenience: if it or its directory is faulty in any way, the costs are measured anew.
//!
//! The environment variable `PINFOLD_CALIBRATE` changes that. With `0` nothing is measured, read or
//! written, and [`CostModel::DEFAULT`] is used. With `force` the costs are measured in spite of the
//! file, and kept.

#[cfg(test)]
mod tests;

use std::{env, ffi::OsString, io, path::Path, sync::OnceLock};

use serde::{Deserialize, Serialize};
use tracing::debug;

use super::{
    CostModel,
    calibrate::{self, Measured},
};
use crate::persisted;

/// Goes up when [`Kept`] or the meaning of a constant changes.
const FORMAT: u32 = 2;

/// Age at which the file is no longer used: a machine may change in ways that its name does not
/// show.
const AGE_MAX_S: u64 = 30 * 24 * 3600;

/// The longest file that is read, bytes: none of ours is longer.
const FILE_BYTES_MAX: u64 = 4096;

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The time of the measurement, seconds since 1970.
    measured_s: u64,
    costs: CostModel,
}

/// The request of `PINFOLD_CALIBRATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Use the costs that are kept, or else measure and keep.
    Usual,
    /// Use the defaults.
    Defaults,
    /// Measure and keep.
    Measure,
}

impl Wish {
    fn from_value(value: Option<OsString>) -> Wish {
        match value.as_ref().map(|value| value.to_string_lossy()) {
            None => Wish::Usual,
            Some(value) if value == "0" => Wish::Defaults,
            Some(value) if value == "force" => Wish::Measure,
            Some(value) => {
                debug!(%value, "PINFOLD_CALIBRATE is neither 0 nor force: ignored");
                Wish::Usual
            }
        }
    }
}

/// The costs to begin with in this process: those kept from an earlier run, or else measured now,
/// which takes one to five milliseconds, and kept. Later calls cost a load, unless some costs could
/// not be measured: then the measurement is tried again, and until it succeeds the first result
/// holds.
pub(crate) fn model() -> &'static CostModel {
    static MODEL: OnceLock<CostModel> = OnceLock::new();
    static MEANWHILE: OnceLock<CostModel> = OnceLock::new();
    known_or(&MODEL, &MEANWHILE, || {
        let wish = Wish::from_value(env::var_os("PINFOLD_CALIBRATE"));
        if wish == Wish::Defaults {
            return Measured { costs: CostModel::DEFAULT, complete: true };
        }
        let dir = persisted::directory("XDG_CACHE_HOME", ".cache");
        // Without a name for this machine nothing is read or kept.
        let file = dir.zip(file_name().ok()).map(|(dir, name)| dir.join(name));
        decide(wish, file.as_deref(), persisted::now_s(), calibrate::measure)
    })
}

fn known_or<'a>(
    known: &'a OnceLock<CostModel>,
    meanwhile: &'a OnceLock<CostModel>,
    find: impl FnOnce() -> Measured,
) -> &'a CostModel {
    if let Some(costs) = known.get() {
        return costs;
    }
    let Measured { costs, complete } = find();
    if complete { known.get_or_init(|| costs) } else { meanwhile.get_or_init(|| costs) }
}

/// Returns whether costs may be measured in this process.
pub(crate) fn measures() -> bool {
    Wish::from_value(env::var_os("PINFOLD_CALIBRATE")) != Wish::Defaults
}

fn decide(
    wish: Wish,
    file: Option<&Path>,
    now_s: u64,
    measure: impl FnOnce() -> Measured,
) -> Measured {
    if wish == Wish::Defaults {
        return Measured { costs: CostModel::DEFAULT, complete: true };
    }
    if wish == Wish::Usual
        && let Some(costs) = file.and_then(|file| load(file, now_s))
    {
        return Measured { costs, complete: true };
    }
    let Measured { costs, complete } = measure();
    debug!(?costs, complete, "measured");
    // A machine too busy to be measured may have time at the next start.
    if let Some(file) = file.filter(|_| complete) {
        let kept = Kept { measured_s: now_s, costs };
        if let Err(error) = store(file, &kept) {
            debug!(file = %file.display(), %error, "the measured costs cannot be kept");
        }
    }
    Measured { costs, complete }
}

/// A name for this machine, this library, and this process's right to use cma: without the right,
/// the file has no costs of it.
///
/// # Errors
/// Those of [`persisted::beginning`].
fn file_name() -> io::Result<String> {
    let (cpu, kernel, format) = (persisted::cpu_model()?, persisted::kernel()?, FORMAT.to_string());
    let cma = if calibrate::cma_is_allowed() { "cma" } else { "nocma" };
    Ok(persisted::name(["costs", &cpu, &kernel, env!("CARGO_PKG_VERSION"), &format, cma]))
}

/// The costs in the file, if there are any that can be believed.
fn load(file: &Path, now_s: u64) -> Option<CostModel> {
    let kept = match read(file) {
        Ok(kept) => kept,
        Err(error) => {
            debug!(file = %file.display(), %error, "no costs are kept");
            return None;
        }
    };
    let fresh = now_s.checked_sub(kept.measured_s).is_some_and(|age| age <= AGE_MAX_S);
    if !fresh || !kept.costs.is_plausible() {
        debug!(file = %file.display(), fresh, "the costs that are kept are not used");
        return None;
    }
    Some(kept.costs)
}

fn read(file: &Path) -> io::Result<Kept> {
    Ok(serde_json::from_str(&persisted::read(file, FILE_BYTES_MAX)?)?)
}

fn store(file: &Path, kept: &Kept) -> io::Result<()> {
    persisted::store(file, &serde_json::to_vec_pretty(kept)?)
}
