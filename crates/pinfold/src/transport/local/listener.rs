//! `Listener`: listening under a name.
//!
//! A process that binds or removes a name holds a lock on the directory's lock file meanwhile, so
//! two endpoints never take one name, and a file of a killed owner is removed only while no process
//! can be replacing it. The kernel drops the lock with its holder ([`claim`]).
//!
//! Names lie where temporary files are cleaned up by age. A listener shows that its file is in use
//! by everything that cleaners check: the path it is bound by, the sticky bit, a lock on the
//! directory, and times that are never old. If the file is removed all the same, the endpoint is
//! unreachable, though its socket is as it was; so the listener checks its file and makes another
//! ([`Listener::look_after`]).

mod claim;
#[cfg(test)]
mod tests;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use pinfold_sys::{
    cpu::clock,
    failed::{Failed, may_be_denied},
    socket::seqpacket::{self, Credentials, Socket},
};
use rustix::{
    fs::{self, AtFlags, Mode, Timespec, Timestamps, UTIME_NOW},
    io::{Errno, fcntl_dupfd_cloexec},
};

use self::claim::{LOCK, Lock, identity, is_free, sweep};

use super::{
    access::Access,
    address::Address,
    directory::{Directory, Kind, Places},
    handshake::exhausted,
};
use crate::{
    Error, Result,
    wire::hello::{self, Refuse},
};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// Longest wait for the lock. Its holders make a dozen system calls.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Interval at which files are made to look new. Cleaners by age know hours at the least.
const TOUCH_NS: u64 = 1_800_000_000_000;

/// A name at which this endpoint listens.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    address: Address,
    places: Places,
    kind: Kind,
    directory: Directory,
    /// True if the directory is locked.
    held: bool,
    /// Device and inode of the socket file.
    file: (u64, u64),
    /// Time at which the files were last made to look new.
    touched_ns: u64,
    /// True if another endpoint has taken the name.
    lost: bool,
    /// Closed for a moment to answer a caller when there are no other descriptors left.
    spare: Option<OwnedFd>,
    made_by: u32,
}

impl Listener {
    /// Takes the name. The file of a killed owner is replaced, and those of others are swept.
    ///
    /// # Errors
    /// [`Error::NameInUse`]; [`Error::NotAllowed`] if the directory is not safe, the rule names an
    /// unknown user or group, or the address is another user's; [`Error::Os`].
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
        let (directory, socket, file) = take(places, kind, address, LOCK_PATIENCE)?;
        Ok(Listener {
            socket,
            address: address.clone(),
            places: places.clone(),
            kind,
            spare: spare(&directory),
            held: directory.hold(),
            directory,
            file,
            touched_ns: clock::now_ns(),
            lost: false,
            made_by: std::process::id(),
        })
    }

    /// The next connection and the credentials of the process that made it, if one is waiting.
    ///
    /// # Errors
    /// [`Error::Os`] if there are no descriptors left; the connection keeps waiting, or can be
    /// [turned away](Listener::turn_away).
    pub(crate) fn accept(&self) -> Result<Option<(Socket, Credentials)>> {
        let os = |call, source| Error::os(call, self.address().to_string(), source);
        let Some(socket) = seqpacket::accept(&self.socket).map_err(|error| os("accept4", error))?
        else {
            return Ok(None);
        };
        match seqpacket::peer_credentials(&socket) {
            Ok(who) => Ok(Some((socket, who))),
            Err(error) => {
                let error = os("getsockopt", error);
                refuse(&socket, &exhausted(&error));
                Err(error)
            }
        }
    }

    /// Tells the next caller that it cannot be accepted, `why` being that there are no descriptors
    /// left. Returns whether it was told: another thread may take the descriptor that this needs.
    pub(crate) fn turn_away(&mut self, why: &Error) -> bool {
        let Error::Os { source, .. } = why else { return false };
        let Some(errno @ (Errno::MFILE | Errno::NFILE)) = Errno::from_io_error(source) else {
            return false;
        };
        let Some(room) = self.spare.take().or_else(|| spare(&self.directory)) else {
            return false;
        };
        drop(room);
        let accepted = seqpacket::accept(&self.socket).ok().flatten();
        if let Some(caller) = &accepted {
            let errno = errno.raw_os_error();
            refuse(caller, &Refuse::Exhausted { call: "accept4", errno });
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

    /// The address of the name.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns whether the endpoint is unreachable because another has taken the name.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Returns whether its file is still in place. Two system calls.
    pub(crate) fn is_in_place(&self) -> bool {
        identity(&self.directory, self.address.name()) == Ok(self.file)
            && !self.directory.is_removed()
    }

    /// Keeps the file from looking old, now and then, and makes another if it is gone, as after a
    /// cleaner of temporary files. Then the socket is another as well, and the old one, which no
    /// peer finds any more, is returned. Two system calls if the file is in place.
    ///
    /// # Errors
    /// The file cannot be made again, for the time being; [`Error::NameLost`]: another endpoint has
    /// taken the name.
    pub(crate) fn look_after(&mut self, now_ns: u64) -> Result<Option<Socket>> {
        if self.is_in_place() {
            self.lost = false;
            if now_ns.saturating_sub(self.touched_ns) >= TOUCH_NS {
                self.touched_ns = now_ns;
                self.touch();
            }
            return Ok(None);
        }
        // The lock is not waited for, but tried again at the next look.
        match take(&self.places, self.kind, &self.address, Duration::ZERO) {
            Ok((directory, socket, file)) => {
                (self.directory, self.file) = (directory, file);
                (self.held, self.spare) = (self.directory.hold(), spare(&self.directory));
                (self.touched_ns, self.lost) = (now_ns, false);
                Ok(Some(std::mem::replace(&mut self.socket, socket)))
            }
            Err(Error::NameInUse { name }) => {
                self.lost = true;
                Err(Error::NameLost { name })
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the files' times to the present.
    fn touch(&mut self) {
        // A cleaner may have had the directory locked.
        self.held = self.held || self.directory.hold();
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        for file in [self.address.name(), LOCK] {
            let _ = fs::utimensat(&self.directory, file, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
    }
}

/// Takes a name: the directory, a socket that listens, and its file.
fn take(
    places: &Places,
    kind: Kind,
    address: &Address,
    patience: Duration,
) -> Result<(Directory, Socket, (u64, u64))> {
    let directory = places.listening(kind)?.open_up();
    // The lock on the directory is held from now on, so that the lock file is not removed while it
    // is locked.
    directory.hold();
    let _lock = Lock::take(&directory, patience)?;
    sweep(&directory, address.name());
    if !is_free(places, &directory, address)? {
        return Err(Error::NameInUse { name: address.to_string() });
    }
    let on = || format!("{}/{}", directory.name(), address.name());
    let socket = listen(&directory, address.name()).map_err(Error::failed(on()))?;
    // The sticky bit of a file says that it must not be removed by its age (XDG base directories).
    let mode = Mode::from_raw_mode(if kind == Kind::Open { 0o1666 } else { 0o1600 });
    let changed = fs::chmodat(&directory, address.name(), mode, AtFlags::empty());
    // A private directory keeps other users out, with any mode that the umask has left to the file.
    if let Err(errno) = changed
        && !(kind == Kind::Private && may_be_denied(errno))
    {
        return Err(Error::os("fchmodat", on(), errno));
    }
    let file = identity(&directory, address.name())
        .map_err(|errno| Error::os("newfstatat", on(), errno))?;
    Ok((directory, socket, file))
}

/// Makes the socket file, by the path by which all processes know it, where that is safe.
fn listen(directory: &Directory, name: &str) -> Result<Socket, Failed> {
    match directory.settled(name).map(|path| seqpacket::bind_listen(&path, BACKLOG)) {
        Some(Ok(socket)) if identity(directory, name).is_ok() => return Ok(socket),
        // The file exists: only listening failed.
        Some(Err(failed)) if failed.call == "listen" => return Err(failed),
        _ => {}
    }
    seqpacket::bind_listen(&directory.reach(name), BACKLOG)
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A forked child holds a copy; the name is its parent's.
        if self.made_by != std::process::id() {
            return;
        }
        // If the lock cannot be taken the file stays, as after a kill, and is swept later.
        let Ok(_lock) = Lock::take(&self.directory, LOCK_PATIENCE) else { return };
        if identity(&self.directory, self.address.name()) == Ok(self.file) {
            let _ = fs::unlinkat(&self.directory, self.address.name(), AtFlags::empty());
        }
    }
}

/// Tells a caller that is not accepted the reason.
fn refuse(caller: &Socket, why: &Refuse) {
    // A message that the caller has sent already would reset the connection if it were left unread.
    let _ = seqpacket::recv(caller, &mut [0; hello::MESSAGE_MAX], 0);
    let _ = seqpacket::send(caller, &hello::encode_refuse(why), &[]);
}

/// A descriptor that serves only to be closed. Without one, callers wait instead of being told.
fn spare(directory: &Directory) -> Option<OwnedFd> {
    fcntl_dupfd_cloexec(directory, 0).ok()
}
