//! Files that are kept from run to run, for one machine each.
//!
//! A home directory may serve many machines, so the names of the files say which one each is for.
//! Their contents are believed only as far as they make sense: every reader checks them.

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
    time::{SystemTime, UNIX_EPOCH},
};

use pinfold_sys::{mem::memfd, refused::may_pass};

/// The directory that `variable` names, or else `fallback` in the user's home, for one kind of the
/// library's files. By the XDG base directory rules, relative paths do not count.
pub(crate) fn directory(variable: &str, fallback: &str) -> Option<PathBuf> {
    directory_of(env::var_os(variable), env::var_os("HOME"), fallback)
}

fn directory_of(base: Option<OsString>, home: Option<OsString>, fallback: &str) -> Option<PathBuf> {
    let absolute = |dir: OsString| Some(PathBuf::from(dir)).filter(|dir| dir.is_absolute());
    let base = base.and_then(absolute);
    let base = base.or_else(|| Some(home.and_then(absolute)?.join(fallback)))?;
    Some(base.join("pinfold"))
}

/// A file name of these parts, without characters that a file name should not have.
pub(crate) fn name<const N: usize>(parts: [&str; N]) -> String {
    parts.map(plain).join("_") + ".json"
}

fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    text.chars().take(64).map(keep).collect()
}

/// The first processor's name, as the kernel lists it; that of the architecture if it does not.
///
/// # Errors
/// Those of [`beginning`].
pub(crate) fn cpu_model() -> io::Result<String> {
    Ok(model_in(&beginning("/proc/cpuinfo")?).unwrap_or(env::consts::ARCH).to_owned())
}

fn model_in(cpuinfo: &str) -> Option<&str> {
    let field = |name| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    // On Arm there is no name, only a number.
    field("model name").or_else(|| field("CPU part")).filter(|name| !name.is_empty())
}

/// The kernel's release; empty if it does not say.
///
/// # Errors
/// Those of [`beginning`].
pub(crate) fn kernel() -> io::Result<String> {
    Ok(beginning("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

/// The first page of a file that the kernel makes up: all of `cpuinfo` takes milliseconds where
/// there are many processors. Empty if it cannot be read.
///
/// # Errors
/// It cannot be read just now, for want of a descriptor or memory.
pub(crate) fn beginning(file: impl AsRef<Path>) -> io::Result<String> {
    let mut page = vec![0; 4096];
    match File::open(file).and_then(|mut file| file.read(&mut page)) {
        Err(error) if may_pass(&error) => Err(error),
        read => Ok(String::from_utf8_lossy(&page[..read.unwrap_or(0)]).into_owned()),
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// All of a file of at most `bytes_max` bytes.
///
/// # Errors
/// Those of `open(2)` and `read(2)`; others where it is no file, is longer, or is not text.
pub(crate) fn read(file: &Path, bytes_max: u64) -> io::Result<String> {
    // A special file there must not make the open wait.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::other("too long"));
    }
    Ok(text)
}

/// Replaces the file at once and whole: readers see the old one or the new one. Missing directories
/// are made. Only this user may read either.
///
/// # Errors
/// Those of `mkdir(2)`, `open(2)`, `write(2)` and `rename(2)`. Then only directories are left
/// behind. `EFBIG` where a file may not have so many bytes: to write them would end the process
/// (`SIGXFSZ`).
pub(crate) fn store(file: &Path, contents: &[u8]) -> io::Result<()> {
    memfd::check_limit(contents.len())?;
    beside(file, |temporary, mut out| {
        out.write_all(contents)?;
        drop(out);
        fs::rename(temporary, file)
    })
}

/// Checks that [`store`] would succeed, as far as can be told without doing it.
///
/// # Errors
/// Those of [`store`].
pub(crate) fn can_store(file: &Path) -> io::Result<()> {
    if fs::symlink_metadata(file).is_ok_and(|there| there.is_dir()) {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    beside(file, |temporary, _| fs::remove_file(temporary))
}

/// Makes a file with a name of its own in the directory of `file`, and the directory if necessary.
/// It is removed if `then` fails.
fn beside(file: &Path, then: impl FnOnce(&Path, File) -> io::Result<()>) -> io::Result<()> {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(io::Error::other("no place for a file"));
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // The process and the time: a container's process id may be that of one that died here.
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos());
    let temporary = format!(".{}.{}.{moment}", Path::new(name).display(), process::id());
    let temporary = dir.join(temporary);
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let done = then(&temporary, out);
    if done.is_err() {
        // Best effort: the file may not be there.
        let _ = fs::remove_file(&temporary);
    }
    done
}
