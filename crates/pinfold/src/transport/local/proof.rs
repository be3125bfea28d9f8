//! The trial of paths: this pair of processes finds out by trying whether each can use the other's
//! memory.
//!
//! Each side holds a nonce for the other to read and scratch for the other to write, and sends
//! their addresses. Behind the nonce lies a mark that was also sent over the socket: a side that
//! reads the mark knows that the process id belongs to the peer and not to a stranger that got the
//! same id, and that the peer still waits; only then does it write. All three lie in one of the
//! [`SLOTS`], where a write that comes too late does no harm.
#![allow(unsafe_code)]
// Invariant: within this process the trial writes nothing but scratch of `SLOTS`, which others
// may write at any time.

use std::{io, os::fd::BorrowedFd};

use pinfold_sys::{
    mem::presence::{Presence, Touch},
    process::{pidfd_alive, read_remote_into, write_remote_from},
    stopping::{self, Stopping},
};
use rustix::io::Errno;

use super::{
    fickle,
    slots::{Lease, SLOTS},
};
use crate::{
    policy::route::{MISSING, Refusal},
    random,
    wire::hello::{Proof, Verdict},
};

/// Length of a nonce and the mark behind it.
const SECRET_BYTES: usize = 32;
const TOKEN_BYTES: usize = 16;

/// The words that the peer has to read and to write.
#[derive(Debug)]
pub(crate) struct Target(Lease);

impl Target {
    /// Draws a nonce and a mark.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn new() -> crate::Result<Target> {
        Ok(Target(SLOTS.take(nonce()?, nonce()?)))
    }

    /// Words of zeros, for a greeting that fails anyway.
    pub(crate) fn blank() -> Target {
        Target(SLOTS.take([0; 16], [0; 16]))
    }

    /// The address of the nonce, followed by the mark.
    pub(crate) fn nonce_addr(&self) -> u64 {
        self.0.nonce_addr()
    }

    /// The address of the 16 bytes that the peer may write.
    pub(crate) fn scratch_addr(&self) -> u64 {
        self.0.scratch_addr()
    }

    /// The mark behind the nonce.
    pub(crate) fn mark(&self) -> [u8; 16] {
        self.0.mark()
    }

    /// Checks the peer's proof against the words.
    pub(crate) fn judge(&self, proof: &Proof) -> Verdict {
        let right = |is: bool| if is { Ok(()) } else { Err(Refusal::WrongProcess) };
        Verdict {
            read: proof.read.and_then(|nonce| right(nonce == self.0.nonce())),
            write: proof.write.and_then(|token| right(token == self.0.scratch())),
        }
    }
}

/// The peer that is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// Its process id as the kernel tells it; 0 in another process-id namespace.
    pub pid: u32,
    /// Its user, as the kernel tells it.
    pub uid: u32,
    /// A pidfd that came from the kernel and not from the peer.
    pub pidfd: Option<BorrowedFd<'a>>,
    /// The address of its nonce, as it says.
    pub nonce_addr: u64,
    /// The address of its scratch, as it says.
    pub scratch_addr: u64,
    /// The mark behind its nonce, as it says.
    pub mark: [u8; 16],
    /// True if it has shown that it reads this process's memory, or writes it; `None` if it has
    /// yet to do so.
    pub reaches_us: Option<bool>,
}

/// The results of the trial.
#[derive(Debug)]
pub(crate) struct Tried {
    pub proof: Proof,
    /// Tells whether memory of the peer is present, if that is of any use.
    pub presence: Option<Presence>,
    /// True if the path may be used only if the peer shows that it reaches this process.
    pub on_condition: bool,
}

/// The proof of a side that has the path switched off, or whose peer has.
pub(crate) const NOT_TRIED: Proof =
    Proof { read: Err(Refusal::SwitchedOff), write: Err(Refusal::SwitchedOff) };

/// Tries to read the peer's nonce and to write its scratch: some twenty system calls.
pub(crate) fn attempt(peer: &Subject<'_>) -> Tried {
    let neither = |why| {
        let proof = Proof { read: Err(why), write: Err(why) };
        Tried { proof, presence: None, on_condition: false }
    };
    // Another user's process is not touched even by a process that may, such as root: it could
    // become a program of more rights in the meantime.
    if peer.uid != pinfold_sys::user::uid() {
        return neither(denied(Errno::PERM));
    }
    if peer.pid == 0 {
        return neither(denied(Errno::SRCH));
    }
    // A copy would have to wait for memory that another process has to provide first.
    let presence = match Presence::of(peer.pid) {
        Ok(presence) => presence,
        Err(error) => return neither(denied(errno_of(&error))),
    };
    // A page that is present at a look may be gone at the copy, which waits for it then. A peer
    // that could stop this process by a signal gains nothing by that.
    let stopping = stopping::of(peer.pid);
    if stopping == Stopping::Cannot {
        return neither(Refusal::Confined);
    }
    if fickle::is_noted(peer.pid) {
        return neither(Refusal::Fickle);
    }
    let is_there = |at, len, touch| match presence.vouches(at, len, touch) {
        Ok(true) => Ok(()),
        Ok(false) => Err(denied(MISSING)),
        Err(error) => Err(denied(errno_of(&error))),
    };
    let read =
        is_there(peer.nonce_addr, SECRET_BYTES as u64, Touch::Read).and_then(|()| read_nonce(peer));
    let is_peer = match read {
        Ok(_) => true,
        Err(Refusal::WrongProcess) => return neither(Refusal::WrongProcess),
        // Reading may be forbidden where writing is not. A live pidfd from the kernel means
        // that the process id is still the peer's.
        Err(_) => peer.pidfd.is_some_and(pidfd_alive),
    };
    let write = match is_peer {
        true => is_there(peer.scratch_addr, TOKEN_BYTES as u64, Touch::Write)
            .and_then(|()| write_token(peer)),
        false => read,
    };
    let has_to_show = stopping == Stopping::ToShow;
    let shown = match peer.reaches_us {
        Some(false) if has_to_show => Err(Refusal::Confined),
        _ => Ok(()),
    };
    let both = |done: Result<[u8; 16], Refusal>| done.and_then(|bytes| shown.map(|()| bytes));
    let proof = Proof { read: both(read), write: both(write) };
    let reaches = proof.read.is_ok() || proof.write.is_ok();
    Tried {
        proof,
        presence: Some(presence).filter(|_| reaches),
        on_condition: has_to_show && peer.reaches_us.is_none(),
    }
}

fn read_nonce(peer: &Subject<'_>) -> Result<[u8; 16], Refusal> {
    let mut secret = [0; SECRET_BYTES];
    match read_remote_into(peer.pid, peer.nonce_addr, &mut secret) {
        Ok(SECRET_BYTES) if secret[16..] == peer.mark => {
            let mut nonce = [0; 16];
            nonce.copy_from_slice(&secret[..16]);
            Ok(nonce)
        }
        Ok(SECRET_BYTES) => Err(Refusal::WrongProcess),
        Ok(_) => Err(denied(Errno::FAULT)),
        Err(error) => Err(denied(errno_of(&error))),
    }
}

fn write_token(peer: &Subject<'_>) -> Result<[u8; 16], Refusal> {
    let token = nonce().map_err(|_| denied(Errno::IO))?;
    if peer.pid == std::process::id() && !SLOTS.has_scratch_at(peer.scratch_addr) {
        return Err(Refusal::WrongProcess);
    }
    // SAFETY: if the process is this one, the address is that of a slot's scratch, 16 bytes of
    // atomics that are never freed.
    match unsafe { write_remote_from(peer.pid, peer.scratch_addr, &token) } {
        Ok(TOKEN_BYTES) => Ok(token),
        Ok(_) => Err(denied(Errno::FAULT)),
        Err(error) => Err(denied(errno_of(&error))),
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn denied(errno: Errno) -> Refusal {
    Refusal::Denied(errno.raw_os_error())
}

fn nonce() -> crate::Result<[u8; 16]> {
    random::bytes("a nonce")
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    fn attempt(peer: &Subject<'_>) -> Proof {
        super::attempt(peer).proof
    }

    use super::*;

    fn subject(target: &Target) -> Subject<'static> {
        Subject {
            pid: std::process::id(),
            uid: pinfold_sys::user::uid(),
            pidfd: None,
            nonce_addr: target.nonce_addr(),
            scratch_addr: target.scratch_addr(),
            mark: target.mark(),
            reaches_us: None,
        }
    }

    const WRONG: Result<[u8; 16], Refusal> = Err(Refusal::WrongProcess);

    #[test]
    fn a_true_proof_is_accepted() {
        let target = Target::new().unwrap();
        let proof = attempt(&subject(&target));
        if matches!(proof.read, Err(Refusal::Denied(_))) {
            return; // A filter forbids the calls here.
        }
        assert_eq!(target.judge(&proof), Verdict { read: Ok(()), write: Ok(()) });
    }

    #[test]
    fn false_proofs_are_not() {
        let target = Target::new().unwrap();
        let made_up = Proof { read: Ok([1; 16]), write: Ok([2; 16]) };
        let wrong = Err(Refusal::WrongProcess);
        assert_eq!(target.judge(&made_up), Verdict { read: wrong, write: wrong });
        let denied = Err(Refusal::Denied(1));
        let verdict = target.judge(&Proof { read: Err(Refusal::Denied(1)), write: Ok([2; 16]) });
        assert_eq!(verdict, Verdict { read: denied, write: wrong });
    }

    #[test]
    fn without_the_mark_nothing_is_written() {
        let target = Target::new().unwrap();
        let stranger = Subject { mark: [9; 16], ..subject(&target) };
        let proof = attempt(&stranger);
        if proof.read == WRONG {
            assert_eq!(proof.write, WRONG);
        }
        assert_eq!(target.0.scratch(), [0; 16]);
    }

    #[test]
    fn a_peer_that_was_given_up_is_not_written_to() {
        let target = Target::new().unwrap();
        let late = subject(&target);
        drop(target);
        let proof = attempt(&late);
        assert!(proof.read == WRONG || matches!(proof.read, Err(Refusal::Denied(_))));
        assert!(proof.write.is_err());
        let next = Target::new().unwrap();
        let proof = attempt(&subject(&next));
        if proof.read.is_ok() {
            assert_eq!(next.judge(&proof), Verdict { read: Ok(()), write: Ok(()) });
        }
    }

    #[test]
    fn this_process_is_written_in_scratch_alone() {
        let target = Target::new().unwrap();
        let precious = Box::new([7u64; 2]);
        let addr = precious.as_ptr() as u64;
        let proof = attempt(&Subject { scratch_addr: addr, ..subject(&target) });
        assert!(proof.write.is_err());
        assert_eq!(*precious, [7; 2]);
    }

    #[test]
    fn processes_out_of_reach_are_denied() {
        let target = Target::new().unwrap();
        let here = subject(&target);
        let other = attempt(&Subject { uid: here.uid + 1, ..here });
        assert_eq!(other.read, Err(denied(Errno::PERM)));
        assert_eq!(attempt(&Subject { pid: 0, ..here }).write, Err(denied(Errno::SRCH)));
        // The page is new, and was not touched yet.
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, which stays.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, rights, flags) }.unwrap();
        let missing = page.expose_provenance() as u64;
        for (nonce_addr, scratch_addr) in [(missing, here.scratch_addr), (here.nonce_addr, missing)]
        {
            let proof = attempt(&Subject { nonce_addr, scratch_addr, ..here });
            assert!([proof.read, proof.write].contains(&Err(denied(MISSING))), "{proof:?}");
        }
        let nowhere = attempt(&Subject { nonce_addr: 8, ..here });
        assert!(matches!(nowhere.read, Err(Refusal::Denied(_))));
        assert!(nowhere.write.is_err());
    }
}
