//! Keeps the measured costs of this machine from run to run.
//!
//! They lie in a JSON file below `$XDG_CACHE_HOME/pinfold`, or `~/.cache/pinfold`, named after the
//! processor, the kernel and the library, so that a home directory may serve many machines. The
//! file is a convenience: whatever is wrong with it or its directory, the costs are measured anew.
//!
//! The environment variable `PINFOLD_CALIBRATE` changes that. With `0` nothing is measured, read
//! or written, and [`CostModel::DEFAULT`] is used. With `force` the costs are measured whatever
//! the file says, and kept.

#[cfg(test)]
mod tests;

use std::{
    env,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tracing::debug;

use super::{
    CostModel,
    calibrate::{self, Measured},
};

/// Goes up when [`Kept`] or the meaning of a constant changes.
const FORMAT: u32 = 2;

/// A machine may change in ways that its name does not show.
const AGE_MAX_S: u64 = 30 * 24 * 3600;

/// No file of ours is longer, bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// What the file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// When it was measured, seconds since 1970.
    measured_s: u64,
    costs: CostModel,
}

/// What `PINFOLD_CALIBRATE` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Use what is kept, or else measure and keep.
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

/// The costs to begin with in this process: those kept from an earlier run, or else measured
/// now, which takes one to five milliseconds, and kept. Later calls cost a load.
pub(crate) fn model() -> &'static CostModel {
    static MODEL: OnceLock<CostModel> = OnceLock::new();
    MODEL.get_or_init(|| {
        let wish = Wish::from_value(env::var_os("PINFOLD_CALIBRATE"));
        if wish == Wish::Defaults {
            return CostModel::DEFAULT;
        }
        let dir = directory(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"));
        let file = dir.map(|dir| dir.join(file_name()));
        decide(wish, file.as_deref(), now_s(), calibrate::measure)
    })
}

fn decide(
    wish: Wish,
    file: Option<&Path>,
    now_s: u64,
    measure: impl FnOnce() -> Measured,
) -> CostModel {
    if wish == Wish::Defaults {
        return CostModel::DEFAULT;
    }
    if wish == Wish::Usual
        && let Some(costs) = file.and_then(|file| load(file, now_s))
    {
        return costs;
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
    costs
}

/// Where the file goes, by the XDG base directory rules: relative paths do not count.
fn directory(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |dir: OsString| Some(PathBuf::from(dir)).filter(|dir| dir.is_absolute());
    let cache = cache.and_then(absolute);
    let dir = cache.or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
    Some(dir.join("pinfold"))
}

/// A name for this machine, this library, and whether this process may use cma at all: where it
/// may not, the file says nothing about it.
fn file_name() -> String {
    let cpu = beginning("/proc/cpuinfo");
    let kernel = beginning("/proc/sys/kernel/osrelease");
    let cma = if calibrate::cma_is_allowed() { "cma" } else { "nocma" };
    let parts = [
        "costs",
        cpu_model(&cpu).unwrap_or(env::consts::ARCH),
        kernel.trim(),
        env!("CARGO_PKG_VERSION"),
        &FORMAT.to_string(),
        cma,
    ];
    parts.map(plain).join("_") + ".json"
}

/// The first page of a file that the kernel makes up: all of `cpuinfo` takes milliseconds where
/// there are many processors. Empty if it cannot be read.
fn beginning(file: &str) -> String {
    let mut page = [0; 4096];
    let read = File::open(file).and_then(|mut file| file.read(&mut page)).unwrap_or(0);
    String::from_utf8_lossy(&page[..read]).into_owned()
}

/// The first processor's name, as the kernel lists it.
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let field = |name| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    // On Arm there is no name, only a number.
    field("model name").or_else(|| field("CPU part")).filter(|name| !name.is_empty())
}

/// `text` with nothing in it that a file name should not have, and not too long.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    text.chars().take(64).map(keep).collect()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The costs in the file, if there are any to be believed.
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
    // Whatever lies there must not make the open wait.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("too long"));
    }
    Ok(serde_json::from_str(&text)?)
}

/// Replaces the file at once and whole: others see the old one or the new one.
fn store(file: &Path, kept: &Kept) -> io::Result<()> {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(io::Error::other("no place for a file"));
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // The process and the time: a container's process id may be that of one that died here.
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos());
    let temporary = format!(".{}.{}.{moment}", Path::new(name).display(), process::id());
    let temporary = dir.join(temporary);
    let write = || {
        let mut out =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        out.write_all(&serde_json::to_vec_pretty(kept)?)?;
        drop(out);
        fs::rename(&temporary, file)
    };
    let written = write();
    if written.is_err() {
        // Best effort: it may not be there.
        let _ = fs::remove_file(&temporary);
    }
    written
}
