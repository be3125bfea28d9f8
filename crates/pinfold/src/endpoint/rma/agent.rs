#![allow(unsafe_code)]
//! The agent: it answers peers that ask for exposed memory by its addresses (U-Net/MM's kernel
//! agent, Welsh and others, section 4, as far as it needs no kernel).
//!
//! It runs where handlers of active messages run. It copies at once if the memory is there; bytes
//! that would have to be paged in, or made first, its crew copies, and answers later.
//!
//! **Invariant.** The program's memory is touched at addresses that are exposed for that, and an
//! exposure does not end meanwhile (`Registry::serve_at`). It may go at any moment, so threads of
//! this process touch it by system calls alone; words are changed by a helper that a fault may end
//! ([`fault_safe_change`]).

use std::borrow::Cow;

use pinfold_sys::mem::{fault_safe_change, fault_safe_copy};

use super::{atomics, crew::Crew};
use crate::{
    Active,
    endpoint::active::Function,
    failpoint::{self, Point},
    protocol::{active::handlers::Handler, rma::translate},
    wire::{
        change::Change,
        space::{ANSWER_HEAD, Answered, Ask, Claim, PART_MAX, Refused, bytes_of},
    },
};

/// The agent of an endpoint.
pub(super) fn handler() -> Handler {
    let crew = Crew::default();
    Function::handler(move |active| serve(&crew, &active))
}

fn serve(crew: &Crew, active: &Active<'_>) {
    let shared = active.endpoint().shared();
    match Ask::read(active.payload()) {
        Some((Ask::Translate { address, writes }, claim, _)) => {
            // In a child of this process there is nothing to answer.
            let Ok(mut engine) = shared.enter() else { return };
            let answer =
                translate::translate_for(&mut engine, active.peer(), &claim, address, writes);
            drop(engine);
            failpoint::hit(Point::BeforeTranslated);
            say(active, bytes_of(&answer.words()));
            failpoint::hit(Point::AfterTranslated);
        }
        Some((Ask::Read { address, len }, claim, _)) if len <= PART_MAX as u64 => {
            touch(crew, active, &claim, address, What::Read(len as usize));
        }
        Some((Ask::Write { address }, claim, bytes)) if bytes.len() <= PART_MAX => {
            touch(crew, active, &claim, address, What::Write(Cow::Borrowed(bytes)));
        }
        Some((Ask::Change { address, change }, claim, _)) => {
            if !address.is_multiple_of(change.word.size()) {
                return say(active, bytes_of(&Answered::Refused(Refused::Misaligned).words()));
            }
            touch(crew, active, &claim, address, What::Change(change));
        }
        _ => say(active, bytes_of(&Answered::Refused(Refused::Senseless).words())),
    }
}

fn say(active: &Active<'_>, answer: Vec<u8>) {
    if let Err(error) = active.reply_owned(answer) {
        tracing::debug!(%error, "a peer is gone that asked for memory");
    }
}

/// The operation that a peer asks for.
enum What<'a> {
    Read(usize),
    Write(Cow<'a, [u8]>),
    /// The address is a multiple of the word's size.
    Change(Change),
}

impl What<'_> {
    fn len(&self) -> usize {
        match self {
            What::Read(len) => *len,
            What::Write(bytes) => bytes.len(),
            What::Change(change) => change.word.size() as usize,
        }
    }

    fn into_owned(self) -> What<'static> {
        match self {
            What::Read(len) => What::Read(len),
            What::Write(bytes) => What::Write(Cow::Owned(bytes.into_owned())),
            What::Change(change) => What::Change(change),
        }
    }

    /// Does it, and returns the answer.
    ///
    /// # Safety
    /// The memory at `address` is exposed to that.
    unsafe fn perform(&self, address: u64) -> Vec<u8> {
        let done = bytes_of(&Answered::Done.words());
        let (answer, copied) = match self {
            What::Read(len) => {
                let mut answer = done;
                answer.resize(ANSWER_HEAD + len, 0);
                let read = fault_safe_copy::read_own(address, &mut answer[ANSWER_HEAD..]);
                (answer, read)
            }
            // SAFETY: as the caller promised.
            What::Write(bytes) => (done, unsafe { fault_safe_copy::write_own(address, bytes) }),
            // SAFETY: as the caller promised.
            What::Change(asked) => return unsafe { change(address, *asked) },
        };
        match copied {
            Ok(copied) if copied == self.len() => answer,
            _ => bytes_of(&Answered::Refused(Refused::NotMapped).words()),
        }
    }
}

/// Changes a word, and returns the answer.
///
/// # Safety
/// The word at `address`, a multiple of its size, is exposed to that.
unsafe fn change(address: u64, asked: Change) -> Vec<u8> {
    let at = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: one atomic operation, on a word that is exposed to it.
    let was = unsafe { fault_safe_change::change_own(&|| atomics::by_number(at, asked)) };
    let answer = match was {
        Ok(Some(was)) => Answered::Was(was),
        Ok(None) => Answered::Refused(Refused::NotMapped),
        Err(error) => {
            tracing::warn!(%error, "no process can be started that changes a word for a peer");
            Answered::Refused(Refused::NoMeans)
        }
    };
    bytes_of(&answer.words())
}

fn touch(crew: &Crew, active: &Active<'_>, claim: &Claim, address: u64, what: What<'_>) {
    let writes = !matches!(what, What::Read(_));
    let Ok(mut engine) = active.endpoint().shared().enter() else { return };
    let served = engine.core.registry.serve_at(claim, address, what.len() as u64, writes);
    drop(engine);
    let serving = match served {
        Ok(serving) => serving,
        Err(why) => return say(active, bytes_of(&Answered::Refused(why).words())),
    };
    if fault_safe_copy::is_resident(address, what.len() as u64) {
        failpoint::hit(Point::BeforeServed);
        // SAFETY: exposed, as was found; it stays so while `serving` lives.
        let answer = unsafe { what.perform(address) };
        drop(serving);
        say(active, answer);
        failpoint::hit(Point::AfterServed);
        return;
    }
    let Ok(mut engine) = active.endpoint().shared().enter() else { return };
    let put_off = engine.core.registry.put_off(active.peer());
    drop(engine);
    let put_off = match put_off {
        Ok(put_off) => put_off,
        Err(why) => return say(active, bytes_of(&Answered::Refused(why).words())),
    };
    // To wait for a disk here would block all peers.
    let Some(later) = active.reply_later() else { return };
    let what = what.into_owned();
    crew.hand(Box::new(move || {
        failpoint::hit(Point::BeforePages);
        // SAFETY: as above.
        let answer = unsafe { what.perform(address) };
        failpoint::hit(Point::AfterPages);
        drop((serving, put_off));
        if let Err(error) = later.reply_owned(answer) {
            tracing::debug!(%error, "a peer is gone that asked for memory");
        }
    }));
}
