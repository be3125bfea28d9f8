//! The copy of a part of one of our messages into its receiver's memory, in the engine or outside
//! of it.

use pinfold_sys::mem::presence::Touch;
use rustix::io::Errno;

use crate::{
    copy::CopyBytes,
    memory::scatter::Scatter,
    protocol::{
        rendezvous::transfer::{There, errno_of},
        rma::cma::{CmaAccess, Way},
    },
    wire::rendezvous::Place,
};

/// Reason why a part was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The receiver cannot have the part any more.
    Errno(u32),
    /// The part has to come in another way.
    Short,
}

/// The result of copying a part.
#[derive(Clone, Copy, Default)]
pub(crate) struct Went {
    /// Bytes copied at user level, and by the kernel.
    pub user: u64,
    pub kernel: u64,
    pub stop: Option<Stop>,
}

impl Went {
    /// A part that was stopped before its first byte.
    pub(crate) fn stopped(stop: Stop) -> Went {
        Went { stop: Some(stop), ..Went::default() }
    }
}

/// Copies `len` bytes from byte `from` of `memory` to byte `at` of the receiver's memory, which is
/// `want` bytes long and lies at `place`. If its mapping lacks memory, the kernel copies, and `to`
/// says so from then on.
pub(crate) fn put_part(
    to: &mut There,
    (place, want): (Place, u64),
    cma_access: &CmaAccess,
    (memory, from): (&Scatter, u64),
    (at, len): (u64, u64),
    copier: &mut impl CopyBytes,
) -> Went {
    // The kernel knows the receiver by a process id, which another process gets one day. A part
    // that is lent may have waited for a thread.
    if !cma_access.is_alive() {
        return Went::stopped(Stop::Errno(Errno::SRCH.raw_os_error().unsigned_abs()));
    }
    if let There::Mapped { mapping, offset } = to {
        match memory.copy_into(copier, mapping, *offset + at, from, len) {
            Ok(user) => return Went { user, ..Went::default() },
            Err(error) => tracing::debug!(%error, "a peer's arena lacks memory"),
        }
        // The kernel cannot use this side's mappings for the copy.
        let reaches = cma_access.reaches(place);
        let find = || cma_access.find(place, want, Touch::Write);
        match reaches.then(|| find().ok()).flatten() {
            Some(remote) => *to = There::Remote(remote),
            None => return Went::stopped(Stop::Short),
        }
    }
    let There::Remote(remote) = to else { return Went::stopped(Stop::Short) };
    let mut went = Went::default();
    while went.kernel < len {
        let done = went.kernel;
        let put = || memory.put(from + done, cma_access.pid, (remote, at + done), len - done);
        match cma_access.copy(Way::WeWrite, put) {
            Ok(bytes) => went.kernel += bytes,
            Err(error) => {
                went.stop = Some(Stop::Errno(errno_of(&error)));
                break;
            }
        }
    }
    went
}
