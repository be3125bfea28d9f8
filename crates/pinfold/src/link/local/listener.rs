//! Listening under a name.
//!
//! Whoever binds or removes a name holds a lock on the directory's lock file meanwhile, so two
//! endpoints never take one name, and a file whose owner was killed is removed only while nobody
//! can be replacing it. The kernel drops the lock with its holder.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use pinfold_sys::socket::{self, Credentials};
use rustix::{
    fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags},
    io::{Errno, fcntl_dupfd_cloexec},
};

use super::{
    access::Access,
    address::{Address, is_beside},
    directory::{Directory, Kind, Origin, Places},
};
use crate::{
    Error, Result,
    wire::hello::{self, Refuse},
};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// The lock file of a directory. No name begins with a dot.
const LOCK: &str = ".lock";

/// How long the lock is waited for. Its holders make a dozen system calls.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// A name that is being listened at.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    address: Address,
    directory: Directory,
    /// The socket file: device and inode.
    file: (u64, u64),
    /// Given up for a moment to answer whoever calls when there are no others left.
    spare: Option<OwnedFd>,
    made_by: u32,
}

impl Listener {
    /// Takes the name. The file of a killed owner is replaced, and those of others are swept.
    ///
    /// # Errors
    /// [`Error::NameInUse`]; [`Error::NotAllowed`] if the directory is not safe, the rule names
    /// somebody unknown or the address is another user's; [`Error::Os`].
    pub(crate) fn bind(address: &Address, access: &Access) -> Result<Listener> {
        Listener::bind_in(&Places::from_env(), address, access)
    }

    /// As [`Listener::bind`], in these places.
    pub(crate) fn bind_in(places: &Places, address: &Address, access: &Access) -> Result<Listener> {
        access.check()?;
        if address.owner(places.uid)? != places.uid {
            return Err(Error::NotAllowed {
                name: address.to_string(),
                why: format!(
                    "the name is another user's; listen at local:{}, and have others connect to \
                     local:USER/{0} with this user's name",
                    address.name()
                ),
            });
        }
        let kind = if access.admits_others() { Kind::Open } else { Kind::Private };
        let directory = places.listening(kind)?;
        let _lock = Lock::take(&directory)?;
        sweep(&directory, address.name());
        if !is_free(places, &directory, address)? {
            return Err(Error::NameInUse { name: address.to_string() });
        }
        let os = |call| {
            let on = format!("{}/{}", directory.name(), address.name());
            move |source: io::Error| Error::os(call, on, source)
        };
        let socket =
            socket::bind_listen(&directory.reach(address.name()), BACKLOG).map_err(os("bind"))?;
        let mode = Mode::from_raw_mode(if kind == Kind::Open { 0o666 } else { 0o600 });
        fs::chmodat(&directory, address.name(), mode, AtFlags::empty())
            .map_err(|errno| os("chmod")(errno.into()))?;
        let file =
            identity(&directory, address.name()).map_err(|errno| os("stat")(errno.into()))?;
        Ok(Listener {
            socket,
            address: address.clone(),
            spare: spare(&directory),
            directory,
            file,
            made_by: std::process::id(),
        })
    }

    /// The next connection and who made it, if one is waiting.
    ///
    /// # Errors
    /// [`Error::Os`] if there are no descriptors left; the connection keeps waiting, or can be
    /// [turned away](Listener::turn_away).
    pub(crate) fn accept(&self) -> Result<Option<(OwnedFd, Credentials)>> {
        let os = |call, source| Error::os(call, self.address().to_string(), source);
        let Some(socket) = socket::accept(&self.socket).map_err(|error| os("accept", error))?
        else {
            return Ok(None);
        };
        let who = socket::peer_credentials(&socket).map_err(|error| os("getsockopt", error))?;
        Ok(Some((socket, who)))
    }

    /// Tells the next caller that it cannot be accepted, `why` being that there are no descriptors
    /// left. Whether it was told: other threads may be faster to take the one that this needs.
    pub(crate) fn turn_away(&mut self, why: &Error) -> bool {
        let Error::Os { source, .. } = why else { return false };
        let Some(errno @ (Errno::MFILE | Errno::NFILE)) = Errno::from_io_error(source) else {
            return false;
        };
        let Some(room) = self.spare.take().or_else(|| spare(&self.directory)) else {
            return false;
        };
        drop(room);
        let accepted = socket::accept(&self.socket).ok().flatten();
        if let Some(caller) = &accepted {
            // What it has said already would reset the connection if it were left unread.
            let _ = socket::recv(caller, &mut [0; hello::MESSAGE_MAX], 0);
            let refuse = Refuse::Exhausted { errno: errno.raw_os_error() };
            let _ = socket::send(caller, &hello::encode_refuse(&refuse), &[]);
        }
        let told = accepted.is_some();
        drop(accepted);
        self.spare = spare(&self.directory);
        told
    }

    /// Readable while a connection is waiting.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The name.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A forked child holds a copy; the name is its parent's.
        if self.made_by != std::process::id() {
            return;
        }
        // If the lock cannot be had the file stays, as after a kill, and is swept later.
        let Ok(_lock) = Lock::take(&self.directory) else { return };
        if identity(&self.directory, self.address.name()) == Ok(self.file) {
            let _ = fs::unlinkat(&self.directory, self.address.name(), AtFlags::empty());
        }
    }
}

/// A descriptor of no use but to be closed. Without one, callers wait instead of being told.
fn spare(directory: &Directory) -> Option<OwnedFd> {
    fcntl_dupfd_cloexec(directory, 0).ok()
}

/// The directory's lock, held until dropped.
struct Lock {
    _file: OwnedFd,
}

impl Lock {
    fn take(directory: &Directory) -> Result<Lock> {
        let os =
            |call, errno: Errno| Error::os(call, format!("{}/{LOCK}", directory.name()), errno);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(directory, LOCK, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| os("openat", errno))?;
        let start = Instant::now();
        loop {
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(errno) => return Err(os("flock", errno)),
            }
        }
    }
}

fn identity(directory: &Directory, file: &str) -> Result<(u64, u64), Errno> {
    let stat = fs::statat(directory, file, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether no endpoint has the name, here (whatever lies there after a sweep is in the way) or
/// in another directory that this user's names are looked for in.
fn is_free(places: &Places, directory: &Directory, address: &Address) -> Result<bool> {
    match identity(directory, address.name()) {
        Err(Errno::NOENT) => {}
        Ok(_) => return Ok(false),
        Err(errno) => {
            let on = format!("{}/{}", directory.name(), address.name());
            return Err(Error::os("stat", on, errno));
        }
    }
    for candidate in places.candidates(address)? {
        // A directory that cannot be used holds no name that anybody could find.
        let Ok(Some(other)) = candidate.open() else { continue };
        if socket::is_bound(&other.reach(address.name())).unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the socket files of owners that are gone: all of them where there are only Pinfold's.
/// Called with the lock held; what cannot be removed stays.
fn sweep(directory: &Directory, wanted: &str) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = fs::openat(directory, ".", flags, Mode::empty()).and_then(fs::Dir::new)
    else {
        return;
    };
    // Where others may put their sockets, too, those with a name that nobody else gives.
    let may_go = |name: &str| directory.origin() == Origin::Ours || is_beside(name);
    for entry in listing.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name != wanted && !may_go(name) {
            continue;
        }
        let is_socket = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        if is_socket && socket::is_bound(&directory.reach(name)).is_ok_and(|bound| !bound) {
            let _ = fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::Path};

    use pinfold_sys::user::uid;

    use super::*;

    fn places(base: &Path) -> Places {
        Places {
            explicit: None,
            runtime: None,
            sessions: base.join("run"),
            tmp: base.to_owned(),
            uid: uid(),
        }
    }

    fn address(name: &str) -> Address {
        format!("local:{name}").parse().unwrap()
    }

    fn bind(places: &Places, name: &str) -> Result<Listener> {
        Listener::bind_in(places, &address(name), &Access::same_user())
    }

    fn file(places: &Places, name: &str) -> std::path::PathBuf {
        places.tmp.join(format!("pinfold-{}/{name}", uid()))
    }

    /// What a killed process leaves: a socket file that nobody is bound to.
    fn leave_stale(path: &Path) {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        // A process that another test is starting may hold a copy for a moment.
        while socket::is_bound(path).unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_name_is_taken_once_and_given_back() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path());
        let one = bind(&places, "box").unwrap();
        assert_eq!(one.address(), &address("box"));
        let mode = file(&places, "box").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let taken = bind(&places, "box");
        assert!(matches!(taken, Err(Error::NameInUse { name }) if name == "local:box"));
        // Asking did not look like a connection.
        assert!(one.accept().unwrap().is_none());
        let two = bind(&places, "box2").unwrap();
        drop(one);
        assert!(!file(&places, "box").exists());
        bind(&places, "box").unwrap();
        assert!(file(&places, "box2").exists());
        drop(two);
    }

    #[test]
    fn the_files_of_the_dead_are_swept_and_replaced() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path());
        let alive = bind(&places, "alive").unwrap();
        for name in ["box", "other"] {
            leave_stale(&file(&places, name));
        }
        std::fs::write(file(&places, "notes"), "mine").unwrap();
        let listener = bind(&places, "box").unwrap();
        assert!(file(&places, "box").exists() && file(&places, "alive").exists());
        assert!(!file(&places, "other").exists());
        assert!(matches!(bind(&places, "notes"), Err(Error::NameInUse { .. })));
        assert_eq!(std::fs::read(file(&places, "notes")).unwrap(), b"mine");
        drop((alive, listener));
    }

    #[test]
    fn dead_files_of_other_programs_are_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let mut places = places(base.path());
        places.explicit = Some(base.path().join("given"));
        let file = |name: &str| base.path().join("given").join(name);
        drop(bind(&places, "first").unwrap());
        let beside = Address::beside(7);
        for name in ["theirs", "box", beside.name()] {
            leave_stale(&file(name));
        }
        let _listener = bind(&places, "box").unwrap();
        assert!(file("theirs").exists() && file("box").exists());
        assert!(!file(beside.name()).exists());
        let _other = bind(&places, "theirs").unwrap();
    }

    #[test]
    fn a_name_that_was_taken_over_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path());
        let first = bind(&places, "box").unwrap();
        std::fs::remove_file(file(&places, "box")).unwrap();
        let second = bind(&places, "box").unwrap();
        drop(first);
        assert!(file(&places, "box").exists());
        assert!(socket::connect(&file(&places, "box")).is_ok());
        drop(second);
        assert!(!file(&places, "box").exists());
    }

    #[test]
    fn a_name_is_one_name_in_all_directories() {
        let base = tempfile::tempdir().unwrap();
        let mut places = places(base.path());
        let _here = bind(&places, "box").unwrap();
        let open = Access::same_user().user(uid() + 1);
        let taken = Listener::bind_in(&places, &address("box"), &open);
        assert!(matches!(taken, Err(Error::NameInUse { .. })));
        places.runtime = Some(base.path().join("session"));
        Directory::make(&base.path().join("session"), uid(), Kind::Private, Origin::Ours).unwrap();
        assert!(matches!(bind(&places, "box"), Err(Error::NameInUse { .. })));
        bind(&places, "box2").unwrap();
    }

    #[test]
    fn others_are_let_in_only_on_request() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path());
        let access = Access::same_user().user(uid() + 1);
        let listener = Listener::bind_in(&places, &address("box"), &access).unwrap();
        let path = places.tmp.join(format!("pinfold-{}.open/box", uid()));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
        drop(listener);
        assert!(!path.exists());
        let unknown = Access::same_user().user("no such user");
        let refused = Listener::bind_in(&places, &address("box"), &unknown);
        assert!(matches!(refused, Err(Error::NotAllowed { .. })));
        let theirs = "local:4000000011/box".parse().unwrap();
        let refused = Listener::bind_in(&places, &theirs, &access).unwrap_err().to_string();
        assert!(refused.contains("listen at local:box, and"), "{refused}");
    }

    #[test]
    fn connections_come_with_credentials() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path());
        let listener = bind(&places, "box").unwrap();
        assert!(listener.accept().unwrap().is_none());
        let _client = socket::connect(&file(&places, "box")).unwrap();
        let (_socket, who) = listener.accept().unwrap().unwrap();
        assert_eq!((who.pid, who.uid), (std::process::id(), uid()));
    }

    #[test]
    fn racing_for_a_name_has_one_winner() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path());
        let place = base.path().join(format!("pinfold-{}", uid()));
        Directory::make(&place, uid(), Kind::Private, Origin::Ours).unwrap();
        leave_stale(&file(&places, "box"));
        let won = std::thread::scope(|scope| {
            let racers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| bind(&places, "box").ok())).collect();
            let won: Vec<_> =
                racers.into_iter().filter_map(|racer| racer.join().unwrap()).collect();
            won.len()
        });
        assert_eq!(won, 1);
    }
}
