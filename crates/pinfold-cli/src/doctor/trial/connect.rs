//! Two processes that meet as two programs would: one listens, one connects, and messages go to and
//! fro. Pinfold works here if this does.

use std::{env, os::fd::OwnedFd, path::PathBuf, time::Duration};

use pinfold::{Endpoint, PathSet, PeerId};
use rustix::{
    fs::{Access, access, statvfs},
    pipe::{PipeFlags, pipe_with},
};
use serde::{Deserialize, Serialize};

use super::super::child::{self, Denial, Tried, attempt};

/// Time that either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time that the listener has to report its error, after the caller has failed.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// Bytes of messages for which every path is the best.
const LENGTHS: [usize; 4] = [0, 8, 4096, 1 << 20];
const TAG: u64 = 7;

/// The library's report of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// The error number, if a system call failed.
    pub(crate) errno: Option<i32>,
    pub(crate) call: Option<String>,
}

impl Failure {
    fn of(error: &pinfold::Error) -> Failure {
        let (errno, call) = match error {
            pinfold::Error::Os { call, source, .. } => {
                (source.raw_os_error(), Some((*call).to_owned()))
            }
            _ => (None, None),
        };
        Failure { text: error.to_string(), errno, call }
    }
}

/// The result of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Side {
    /// Names of the paths it could take.
    pub(crate) paths: Vec<String>,
    pub(crate) cma_refused: Option<String>,
    /// The path that each message took.
    pub(crate) taken: Vec<(usize, String)>,
}

impl Side {
    fn of(endpoint: &Endpoint, peer: PeerId) -> Side {
        let info = endpoint.peer(peer);
        let paths = info.as_ref().map_or(PathSet::none(), |info| info.paths);
        let refused = info.and_then(|info| info.cma_refused).map(|why| why.to_string());
        let paths = paths.iter().map(|path| path.to_string()).collect();
        Side { paths, cma_refused: refused, taken: Vec::new() }
    }
}

/// The directory of the socket files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Names {
    /// `None` if the directory was not found again.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) free_bytes: Option<u64>,
    /// `None` if the file system has no fixed number of them.
    pub(crate) free_files: Option<u64>,
}

/// One attempt: the results of both sides, and the directory of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) listener: Option<Tried<Result<Side, Failure>>>,
    pub(crate) caller: Option<Tried<Result<Side, Failure>>>,
    pub(crate) names: Option<Names>,
}

/// The attempts, and their results.
pub(crate) struct ConnectTrial {
    /// As things are.
    pub(crate) plain: Attempt,
    /// A second attempt with another directory, if the first failed for want of one.
    pub(crate) elsewhere: Option<(PathBuf, Attempt)>,
}

impl Attempt {
    /// Returns whether all messages went to and fro.
    pub(crate) fn works(&self) -> bool {
        [&self.listener, &self.caller].into_iter().all(|side| matches!(side, Some(Ok(Ok(_)))))
    }

    /// The first failure, as far as it is known.
    pub(crate) fn failure(&self) -> Option<Result<&Failure, &Denial>> {
        let sides = [&self.listener, &self.caller].into_iter().flatten();
        let all: Vec<_> = sides
            .filter_map(|side| match side {
                Ok(Ok(_)) => None,
                Ok(Err(failure)) => Some(Ok(failure)),
                Err(denial) => Some(Err(denial)),
            })
            .collect();
        // A side that was killed makes the other one fail, too.
        let killed = all.iter().find(|why| matches!(why, Err(Denial::Killed { .. })));
        let own = all.iter().find(|why| matches!(why, Ok(Failure { errno: Some(_), .. })));
        let said = all.iter().find(|why| why.is_ok());
        killed.or(own).or(said).or(all.first()).copied()
    }
}

impl ConnectTrial {
    /// Returns whether it works, with some help if need be.
    pub(crate) fn works(&self) -> bool {
        self.plain.works() || self.elsewhere.as_ref().is_some_and(|(_, there)| there.works())
    }

    /// The attempt that says most.
    pub(crate) fn best(&self) -> &Attempt {
        match &self.elsewhere {
            Some((_, there)) if !self.plain.works() => there,
            _ => &self.plain,
        }
    }

    /// The directory for names that was needed.
    pub(crate) fn elsewhere(&self) -> Option<&PathBuf> {
        self.elsewhere.as_ref().filter(|(_, there)| there.works()).map(|(place, _)| place)
    }
}

/// Has them meet.
pub(crate) fn hold() -> ConnectTrial {
    let plain = meet(None);
    let nowhere = matches!(&plain.listener, Some(Ok(Err(_)))) && plain.names.is_none();
    let elsewhere = if nowhere {
        places().into_iter().find(|place| is_writable(place)).map(|place| {
            let place = place.join(format!("pinfold-{}", pinfold_sys::user::uid()));
            let there = meet(Some(&place));
            (place, there)
        })
    } else {
        None
    };
    ConnectTrial { plain, elsewhere }
}

/// Places for a directory of names, best first.
fn places() -> Vec<PathBuf> {
    let uid = pinfold_sys::user::uid();
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let known = [format!("/run/user/{uid}"), "/dev/shm".into(), "/var/tmp".into(), "/tmp".into()];
    let own = [set("XDG_RUNTIME_DIR"), set("HOME"), set("TMPDIR")];
    let [runtime, home, temporary] = own;
    runtime.into_iter().chain(known.map(PathBuf::from)).chain(temporary).chain(home).collect()
}

fn is_writable(place: &std::path::Path) -> bool {
    let place = place.to_owned();
    attempt("mkdir", move || {
        access(&place, Access::WRITE_OK | Access::EXEC_OK).map_err(Denial::of("access"))?;
        let file = place.join(format!(".pinfold-doctor-{}", std::process::id()));
        std::fs::create_dir(&file).map_err(Denial::of("mkdir"))?;
        std::fs::remove_dir(&file).map_err(Denial::of("rmdir"))
    })
    .is_ok()
}

/// One attempt, with this directory for names if one is given.
fn meet(place: Option<&PathBuf>) -> Attempt {
    let name = format!("local:doctor-{}", std::process::id());
    let (ready, is_ready) = match pipe_with(PipeFlags::CLOEXEC) {
        Ok(pipe) => pipe,
        Err(errno) => {
            let why = Denial::of(child::PIPE)(errno);
            return Attempt { listener: Some(Err(why)), ..Attempt::default() };
        }
    };
    let address = name.clone();
    let listener = child::start("", move || {
        child::look_for_names_in(place);
        Ok(listen(&address, is_ready).map_err(|error| Failure::of(&error)))
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(why) => return Attempt { listener: Some(Err(why)), ..Attempt::default() },
    };
    let mut word = vec![0; 8192];
    let word = match rustix::io::read(&ready, &mut word) {
        Ok(len) => serde_json::from_slice::<Option<PathBuf>>(&word[..len]).ok(),
        Err(_) => None,
    };
    let Some(directory) = word else {
        let listener = Some(listener.finish(PATIENCE));
        return Attempt { listener, ..Attempt::default() };
    };
    // The two processes do not call `statfs` themselves, so a child of its own does.
    let free = directory.as_ref().map(|place| attempt("statfs", || free_in(place)));
    let (free_bytes, free_files) = free.and_then(Result::ok).unwrap_or_default();
    let names = Names { directory, free_bytes, free_files };
    let caller = child::attempt("", move || {
        child::look_for_names_in(place);
        Ok(call(&name).map_err(|error| Failure::of(&error)))
    });
    // Without a caller it waits in vain.
    let patience = if matches!(caller, Ok(Ok(_))) { PATIENCE } else { AFTERWARDS };
    let listener = Some(listener.finish(patience));
    Attempt { listener, caller: Some(caller), names: Some(names) }
}

fn listen(address: &str, is_ready: OwnedFd) -> pinfold::Result<Side> {
    let endpoint = Endpoint::builder().label("pinfold doctor").listen(address).build()?;
    let word = serde_json::to_vec(&find_names(address)).unwrap_or_default();
    // If the other side is gone, no caller will come.
    let _ = rustix::io::write(&is_ready, &word);
    drop(is_ready);
    let peer = endpoint.accept_timeout(PATIENCE)?;
    let mut side = Side::of(&endpoint, peer);
    for len in LENGTHS {
        let message = endpoint.recv_timeout(peer, TAG, PATIENCE)?;
        check(&message, len)?;
        let receipt = endpoint.send(peer, TAG, &message)?;
        side.taken.push((len, receipt.path.to_string()));
    }
    Ok(side)
}

fn call(address: &str) -> pinfold::Result<Side> {
    let endpoint = Endpoint::builder().label("pinfold doctor").connect_timeout(PATIENCE).build()?;
    let peer = endpoint.connect(address)?;
    let mut side = Side::of(&endpoint, peer);
    for len in LENGTHS {
        let receipt = endpoint.send(peer, TAG, &pattern(len))?;
        side.taken.push((len, receipt.path.to_string()));
        check(&endpoint.recv_timeout(peer, TAG, PATIENCE)?, len)?;
    }
    Ok(side)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn check(message: &[u8], len: usize) -> pinfold::Result<()> {
    if message == pattern(len) {
        return Ok(());
    }
    let source = std::io::Error::other("a message did not arrive as it was sent");
    Err(pinfold::Error::Os { call: "recv", on: "a message".into(), source })
}

/// The place where the library put the name that this process listens at: looked for in all
/// directories that names may be in.
fn find_names(address: &str) -> Option<PathBuf> {
    let name = address.strip_prefix("local:").unwrap_or(address);
    let uid = pinfold_sys::user::uid();
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let candidates = [
        set("PINFOLD_DIR"),
        set("XDG_RUNTIME_DIR").map(|path| path.join("pinfold")),
        Some(PathBuf::from(format!("/tmp/pinfold-{uid}"))),
    ];
    let directory = candidates
        .into_iter()
        .flatten()
        .find(|place| place.join(name).symlink_metadata().is_ok())?;
    Some(std::path::absolute(&directory).unwrap_or(directory))
}

/// Bytes and files that there is room for; files only if the file system has a fixed number of
/// them.
fn free_in(place: &PathBuf) -> Tried<(Option<u64>, Option<u64>)> {
    let space = statvfs(place).map_err(Denial::of("statfs"))?;
    let bytes = space.f_bavail.saturating_mul(space.f_frsize);
    Ok((Some(bytes), (space.f_files > 0).then_some(space.f_favail)))
}
