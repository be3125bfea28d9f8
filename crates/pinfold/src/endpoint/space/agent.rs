#![allow(unsafe_code)]
//! The agent: it answers peers that ask for exposed memory by its addresses (U-Net/MM's kernel
//! agent, Welsh and others, section 4, as far as it needs no kernel).
//!
//! It runs where handlers of active messages run. It copies at once if the memory is there; bytes
//! that would have to be paged in, or made first, its crew copies, and answers later.
//!
//! **Invariant.** The program's memory is touched by system calls alone, at addresses that are
//! exposed for that, and an exposure does not end while a copy is under way (`Spaces::serve`).

use std::sync::Arc;

use pinfold_sys::mem::fault_safe_copy;

use super::crew::Crew;
use crate::{
    Active,
    endpoint::handlers::Handler,
    failpoint::{self, Point},
    wire::space::{ANSWER_HEAD, Answered, Ask, Claim, Refused, bytes_of},
};

/// Bytes that are read or written at a time, at most.
pub(super) const PART_MAX: usize = 64 << 10;

/// The agent of an endpoint.
pub(super) fn handler() -> Handler {
    let crew = Crew::default();
    Arc::new(move |active| serve(&crew, &active))
}

fn serve(crew: &Crew, active: &Active<'_>) {
    let shared = active.endpoint().shared();
    match Ask::read(active.payload()) {
        Some((Ask::Open, claim, _)) => {
            // In a child of this process there is nothing to answer.
            let Ok(mut engine) = shared.enter() else { return };
            let answer = engine.tell_of_space(active.peer(), &claim);
            drop(engine);
            failpoint::hit(Point::BeforeSpaceTold);
            say(active, bytes_of(&answer.words()));
            failpoint::hit(Point::AfterSpaceTold);
        }
        Some((Ask::Translate { address, writes }, claim, _)) => {
            let Ok(mut engine) = shared.enter() else { return };
            let answer = engine.translate_for(active.peer(), &claim, address, writes);
            drop(engine);
            failpoint::hit(Point::BeforeTranslated);
            say(active, bytes_of(&answer.words()));
            failpoint::hit(Point::AfterTranslated);
        }
        Some((Ask::Read { address, len }, claim, _)) if len <= PART_MAX as u64 => {
            copy(crew, active, &claim, address, What::Read(len as usize));
        }
        Some((Ask::Write { address }, claim, bytes)) if bytes.len() <= PART_MAX => {
            copy(crew, active, &claim, address, What::Write(bytes));
        }
        _ => say(active, bytes_of(&Answered::Refused(Refused::Senseless).words())),
    }
}

fn say(active: &Active<'_>, answer: Vec<u8>) {
    if let Err(error) = active.reply_owned(answer) {
        tracing::debug!(%error, "a peer is gone that asked for memory");
    }
}

/// The copy that a peer asks for.
#[derive(Clone, Copy)]
enum What<'a> {
    Read(usize),
    Write(&'a [u8]),
}

impl What<'_> {
    fn len(self) -> usize {
        match self {
            What::Read(len) => len,
            What::Write(bytes) => bytes.len(),
        }
    }

    /// Copies, and returns the answer.
    ///
    /// # Safety
    /// The memory at `address` is exposed to that.
    unsafe fn copy(self, address: u64) -> Vec<u8> {
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
        };
        match copied {
            Ok(copied) if copied == self.len() => answer,
            _ => bytes_of(&Answered::Refused(Refused::NotMapped).words()),
        }
    }
}

fn copy(crew: &Crew, active: &Active<'_>, claim: &Claim, address: u64, what: What<'_>) {
    let writes = matches!(what, What::Write(_));
    let Ok(mut engine) = active.endpoint().shared().enter() else { return };
    let served = engine.core.spaces.serve(claim, address, what.len() as u64, writes);
    drop(engine);
    let serving = match served {
        Ok(serving) => serving,
        Err(why) => return say(active, bytes_of(&Answered::Refused(why).words())),
    };
    if fault_safe_copy::is_resident(address, what.len() as u64) {
        failpoint::hit(Point::BeforeServed);
        // SAFETY: exposed, as was found; it stays so while `serving` lives.
        let answer = unsafe { what.copy(address) };
        drop(serving);
        say(active, answer);
        failpoint::hit(Point::AfterServed);
        return;
    }
    // To wait for a disk here would block all peers.
    let Some(later) = active.answer_later() else { return };
    let kept = match what {
        What::Read(len) => Err(len),
        What::Write(bytes) => Ok(bytes.to_vec()),
    };
    crew.hand(Box::new(move || {
        let what = match &kept {
            Err(len) => What::Read(*len),
            Ok(bytes) => What::Write(bytes),
        };
        failpoint::hit(Point::BeforePages);
        // SAFETY: as above.
        let answer = unsafe { what.copy(address) };
        failpoint::hit(Point::AfterPages);
        drop(serving);
        if let Err(error) = later.send_owned(answer) {
            tracing::debug!(%error, "a peer is gone that asked for memory");
        }
    }));
}
