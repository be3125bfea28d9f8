//! How one posted operation ended, for C.

use std::ffi::c_char;

use pinfold::{Completed, Completion, Error, MultiReceived};

use crate::{
    message::pinfold_message,
    messages::truncated,
    peers::{number, pinfold_peer},
    receipt::pinfold_receipt,
    sized::Plain,
    status::{Failure, PINFOLD_OK, status_of},
};

/// The kind of operation that ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pinfold_kind {
    /// It failed, which its status says; which operation it was, its context.
    PINFOLD_FAILED = 0,
    /// A message was sent, or a handler called: its memory is the program's again.
    PINFOLD_SENT = 1,
    /// A message came into the memory.
    PINFOLD_RECEIVED = 2,
    /// A message came into the memory of a receive of many, at `offset`.
    PINFOLD_RECEIVED_ONE = 3,
    /// A message of any length came, or the answer of a handler: `message`, to be freed.
    PINFOLD_MESSAGE = 4,
    /// Bytes of a peer's memory were read or written.
    PINFOLD_COPIED = 5,
    /// An atomic operation was done: `old` is what the word was.
    PINFOLD_WAS = 6,
    /// The peer that was called is connected.
    PINFOLD_CONNECTED = 7,
    /// A peer has called, and is connected.
    PINFOLD_ACCEPTED = 8,
    /// A kind that this version has no name for.
    PINFOLD_UNNAMED = 9,
}

/// How one posted operation ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinfold_completion {
    /// The number that was given with the operation.
    pub context: u64,
    /// A pinfold_status. With PINFOLD_TRUNCATED the fields of a received message are set as well.
    pub status: u32,
    /// A pinfold_kind.
    pub kind: u32,
    /// The peer of a message, or the one that is connected.
    pub peer: pinfold_peer,
    /// The tag of a received message.
    pub tag: u64,
    /// The length of a message or transfer, bytes.
    pub len: u64,
    /// Where a message of a receive of many begins.
    pub offset: u64,
    /// The word of an atomic operation before it.
    pub old: u64,
    /// A message to be freed; NULL for all but PINFOLD_MESSAGE.
    pub message: *mut pinfold_message,
    /// The sentence of the failure, good until this thread asks a queue again; NULL if all went
    /// well.
    pub error: *const c_char,
    /// Nonzero: the last completion of its operation. Zero for a receive of many that goes on.
    pub last: u32,
    /// 0.
    pub reserved: u32,
    /// How it was done.
    pub receipt: pinfold_receipt,
}

// SAFETY: integers, and pointers that may be NULL.
unsafe impl Plain for pinfold_completion {}

/// A completion as C sees it, with the failure behind it.
pub(crate) fn of(completion: Completion) -> (pinfold_completion, Option<Failure>) {
    let context = completion.context;
    let empty = pinfold_completion {
        context,
        status: PINFOLD_OK as u32,
        kind: pinfold_kind::PINFOLD_FAILED as u32,
        peer: 0,
        tag: 0,
        len: 0,
        offset: 0,
        old: 0,
        message: std::ptr::null_mut(),
        error: std::ptr::null(),
        last: 1,
        reserved: 0,
        receipt: pinfold_receipt::NONE,
    };
    match completion.result {
        Ok(done) => went_well(empty, done),
        Err(error) => failed(empty, error),
    }
}

type Told = (pinfold_completion, Option<Failure>);

fn went_well(empty: pinfold_completion, done: Completed) -> Told {
    use pinfold_kind::*;
    let told = match done {
        Completed::Sent(receipt) | Completed::Copied(receipt) => {
            let sent = matches!(done, Completed::Sent(_));
            let kind = if sent { PINFOLD_SENT } else { PINFOLD_COPIED } as u32;
            let receipt = pinfold_receipt::from(&receipt);
            pinfold_completion { kind, len: receipt.bytes, receipt, ..empty }
        }
        Completed::Received(it) => pinfold_completion {
            kind: PINFOLD_RECEIVED as u32,
            peer: number(it.peer),
            tag: it.tag,
            len: it.len,
            receipt: (&it.receipt).into(),
            ..empty
        },
        Completed::MultiReceived(one) => return one_of_many(empty, one),
        Completed::Message(message) => pinfold_completion {
            kind: PINFOLD_MESSAGE as u32,
            peer: number(message.peer()),
            tag: message.tag(),
            len: message.len() as u64,
            receipt: (&message.receipt()).into(),
            message: Box::into_raw(Box::new(pinfold_message(message))),
            ..empty
        },
        Completed::Was(old) => pinfold_completion { kind: PINFOLD_WAS as u32, old, ..empty },
        Completed::Connected(peer) => {
            pinfold_completion { kind: PINFOLD_CONNECTED as u32, peer: number(peer), ..empty }
        }
        Completed::Accepted(peer) => {
            pinfold_completion { kind: PINFOLD_ACCEPTED as u32, peer: number(peer), ..empty }
        }
        _ => pinfold_completion { kind: PINFOLD_UNNAMED as u32, ..empty },
    };
    (told, None)
}

fn one_of_many(empty: pinfold_completion, one: MultiReceived) -> Told {
    let told = pinfold_completion {
        kind: pinfold_kind::PINFOLD_RECEIVED_ONE as u32,
        peer: number(one.peer),
        tag: one.tag,
        len: one.len,
        offset: one.range.start as u64,
        last: one.is_last.into(),
        ..empty
    };
    match one.result {
        Ok(receipt) => (pinfold_completion { receipt: (&receipt).into(), ..told }, None),
        Err(error) => failed(told, error),
    }
}

fn failed(told: pinfold_completion, error: Error) -> Told {
    let told = match truncated(&error) {
        Some(facts) => pinfold_completion {
            peer: facts.peer,
            tag: facts.tag,
            len: facts.len,
            receipt: facts.receipt,
            ..told
        },
        None => told,
    };
    (pinfold_completion { status: status_of(&error) as u32, ..told }, Some(error.into()))
}
