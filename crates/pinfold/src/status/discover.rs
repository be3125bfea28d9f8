//! Finding the pages of other processes.
//!
//! A page is a file without a name, so it is found by the descriptor that its process has of it: as
//! a link in `/proc/PID/fd` that reads [`LINK`]. Any process can make such a file, and a child of
//! `fork(2)` has those of its parent. So it counts only in the process that the page names, and
//! only if that process was there before the page was.

use std::{
    collections::HashSet,
    fs,
    io::{self, Read},
    os::{fd::AsFd, linux::fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use pinfold_sys::{
    cpu::clock,
    failed::Failed,
    mem::memfd::{self, SealError},
    user,
};
use rustix::io::Errno;

use super::{
    Problem, Trouble, View, decode,
    layout::{ARENA_LINK, FILE_BYTES, LINK, PAGE},
    page::Foreign,
};
use crate::{Error, Result};

/// Milliseconds in which the endpoints of one process may seal the pages that they have begun.
const IN_THE_MAKING: u32 = 50;

/// Every visible endpoint of this user's processes; for root, of all processes.
///
/// Looks at all descriptors of all those processes: about a microsecond for each. The processes do
/// not notice.
///
/// # Errors
/// [`Error::Os`](crate::Error::Os) if there is no `/proc`. Processes that cannot be seen are
/// counted in the [`View`].
pub fn endpoints() -> Result<View> {
    let failed = |error| crate::Error::os("openat", "/proc", error);
    let own = user::uid();
    let mut view = View::default();
    for entry in fs::read_dir("/proc").map_err(failed)?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that has just ended is not there.
        if let Ok(process) = Process::read(pid)
            && (own == 0 || process.uid == own)
        {
            process.look(&mut view);
        }
    }
    view.endpoints.sort_by_key(|endpoint| endpoint.pid);
    Ok(view)
}

/// Every endpoint of one process, of any user.
///
/// # Errors
/// [`Error::Os`](crate::Error::Os) if there is no such process.
pub fn endpoints_of(pid: u32) -> Result<View> {
    let mut view = View::default();
    Process::read(pid).map_err(Error::failed(format!("/proc/{pid}/status")))?.look(&mut view);
    Ok(view)
}

/// The system's facts about a process.
struct Process {
    place: PathBuf,
    pid: u32,
    /// The number by which it knows itself.
    own_pid: u64,
    uid: u32,
    command: String,
}

impl Process {
    /// # Errors
    /// `ESRCH`: there is none, or it has ended. Else the error that keeps this process from
    /// looking.
    fn read(pid: u32) -> Result<Process, Failed> {
        let none = Failed { call: "openat", errno: Errno::SRCH };
        let place = PathBuf::from(format!("/proc/{pid}"));
        let mut file =
            fs::File::open(place.join("status")).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => none,
                _ => Failed::of("openat")(error),
            })?;
        let mut status = Vec::new();
        file.read_to_end(&mut status).map_err(Failed::of("read"))?;
        Process::parse(place, pid, &String::from_utf8_lossy(&status)).ok_or(none)
    }

    /// `None`: it has ended.
    fn parse(place: PathBuf, pid: u32, status: &str) -> Option<Process> {
        let field = |name: &str| {
            let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
            lines.find_map(|rest| rest.strip_prefix(':')).map(str::trim)
        };
        // A process that has ended has no descriptors left, and may not be asked.
        if field("State")?.starts_with(['Z', 'X']) {
            return None;
        }
        let uid = field("Uid")?.split_whitespace().next()?.parse().ok()?;
        // Its number in each process-id namespace, its own last.
        let own_pid = field("NSpid").and_then(|all| all.split_whitespace().last()?.parse().ok());
        let own_pid = own_pid.unwrap_or(u64::from(pid));
        Some(Process { place, pid, own_pid, uid, command: decode::harmless(field("Name")?) })
    }

    /// Looks at its descriptors.
    fn look(&self, view: &mut View) {
        let entries = match fs::read_dir(self.place.join("fd")) {
            Ok(entries) => entries,
            Err(error) => {
                view.hidden += usize::from(error.kind() == io::ErrorKind::PermissionDenied);
                return;
            }
        };
        let (mut seen, first) = (HashSet::new(), view.endpoints.len());
        let mut patience = IN_THE_MAKING;
        let (mut arena_files, mut arena_bytes) = (0, 0);
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(link) = fs::read_link(&path) else { continue };
            if link == Path::new(ARENA_LINK) {
                // Descriptors of the same file count once.
                if let Ok(file) = fs::metadata(&path)
                    && seen.insert((file.st_dev(), file.st_ino()))
                {
                    arena_files += 1;
                    arena_bytes += file.st_blocks() * 512;
                }
            } else if link == Path::new(LINK)
                && let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok())
                && let Err(what) = self.look_at(fd, view, &mut seen, &mut patience)
            {
                view.troubles.push(Trouble { pid: self.pid, command: self.command.clone(), what });
            }
        }
        for endpoint in &mut view.endpoints[first..] {
            (endpoint.arena_files, endpoint.arena_bytes) = (arena_files, arena_bytes);
        }
    }

    /// Looks at a page that one of its descriptors seems to be of.
    fn look_at(
        &self,
        fd: u32,
        view: &mut View,
        seen: &mut HashSet<(u64, u64)>,
        patience: &mut u32,
    ) -> Result<(), Problem> {
        let unreadable = |error: io::Error| Problem::Unreadable(error.to_string());
        let opened = loop {
            let opened = memfd::open_sealed_of(self.pid, fd);
            // Its endpoint may be about to seal it.
            if *patience == 0
                || matches!(&opened, Ok(_) | Err(SealError::Os(_) | SealError::NotMemfd))
            {
                break opened;
            }
            *patience -= 1;
            thread::sleep(Duration::from_millis(1));
        };
        let (file, len) = match opened {
            Ok(opened) => opened,
            // It was closed meanwhile.
            Err(SealError::Os(failed)) if is_gone(&failed.into()) => return Ok(()),
            Err(SealError::Os(failed)) => return Err(Problem::Unreadable(failed.to_string())),
            Err(SealError::NotMemfd) => return Err(Problem::Nonsense("it is no memfd")),
            Err(_) => return Err(Problem::Nonsense("it is not sealed")),
        };
        if !seen.insert(memfd::identity(file.as_fd()).map_err(unreadable)?) {
            return Ok(());
        }
        if len < PAGE as u64 {
            return Err(Problem::Nonsense("it is too short"));
        }
        let begin = Foreign::map(file.as_fd(), PAGE).map_err(unreadable)?;
        decode::check(&begin, len)?;
        drop(begin);
        let page = Foreign::map(file.as_fd(), FILE_BYTES).map_err(unreadable)?;
        let copy = decode::copy(&page)?;
        // A child of the page's process has it, too, and nothing to do with it.
        if copy.header.pid != self.own_pid || self.began_after(copy.header.made_ns) {
            return Ok(());
        }
        let mut endpoint = copy.decode(clock::boot_ns(), clock::now_ns());
        (endpoint.pid, endpoint.uid) = (self.pid, self.uid);
        endpoint.command.clone_from(&self.command);
        view.endpoints.push(endpoint);
        Ok(())
    }

    /// True if it is a process that got the same number later.
    fn began_after(&self, made_ns: u64) -> bool {
        let stat = fs::read(self.place.join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        // Behind the name, which is in parentheses and may be anything, the state is field 3.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
        let ticks = fields.and_then(|mut fields| fields.nth(22 - 3)?.parse::<u64>().ok());
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        ticks.is_some_and(|ticks| ticks.saturating_mul(1_000_000_000 / per_second) > made_ns)
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH];
    gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
