//! Modes and times of arriving files and directories, and notes on those that the file system does
//! not keep.

use std::{
    fmt::Display,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{FileType, Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, futimens},
    io::Errno,
};

use crate::{progress::say, transfer::name::RelativeName};

/// The most notes that are printed; the others are only counted.
const NOTES_MAX: u64 = 5;

/// Counts, and reports, the modes and times that could not be kept.
#[derive(Debug, Default)]
pub(in super::super) struct Unkept(AtomicU64);

impl Unkept {
    /// Notes `what` about `name`.
    pub(super) fn note(&self, name: &RelativeName, what: impl Display) {
        if self.0.fetch_add(1, Ordering::Relaxed) < NOTES_MAX {
            say(format_args!("{name}: {what}"));
        }
    }

    /// The number of notes.
    pub(in super::super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Prints how many notes were not printed.
    pub(super) fn end(&self) {
        let left = self.count().saturating_sub(NOTES_MAX);
        if left > 0 {
            say(format_args!("{left} more like that"));
        }
    }
}

/// Sets the permission bits of `file`, which is open. A directory that passes its group on to its
/// files (set-group-ID) keeps that bit.
pub(super) fn set_mode(
    file: BorrowedFd<'_>,
    mode: u32,
    name: &RelativeName,
    unkept: &Unkept,
) -> Result<(), Errno> {
    let before = fstat(file)?.st_mode;
    let of_group = if FileType::from_raw_mode(before).is_dir() { before & 0o2000 } else { 0 };
    let refused = tolerate(fchmod(file, Mode::from_raw_mode(mode | of_group)))?;
    let is = fstat(file)?.st_mode & 0o777;
    if is != mode {
        let why = refused.map(|why| format!(" ({why})")).unwrap_or_default();
        unkept.note(name, format_args!("its mode is {is:04o} here, not {mode:04o}{why}"));
    }
    Ok(())
}

/// Sets the time of last modification of `file`, which is open.
pub(super) fn set_time(
    file: BorrowedFd<'_>,
    (seconds, nanoseconds): (i64, u32),
    name: &RelativeName,
    unkept: &Unkept,
) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    };
    if let Some(why) = tolerate(futimens(file, &times))? {
        unkept.note(name, format_args!("its time could not be set ({why})"));
    }
    Ok(())
}

/// Tolerates a file system without modes or times of this kind; returns its error.
fn tolerate(result: Result<(), Errno>) -> Result<Option<Errno>, Errno> {
    match result {
        Ok(()) => Ok(None),
        Err(
            why @ (Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL | Errno::OVERFLOW | Errno::NOSYS),
        ) => Ok(Some(why)),
        Err(why) => Err(why),
    }
}
