//! An atomic operation on memory of a peer: asked of its owner, in the order of requests.
#![allow(unsafe_code)]
// Invariant: operands are copied within the call; results are written to the program's memory
// before it is told that they are there.

use std::ffi::c_int;

use pinfold::{Completed, Completion};

use crate::{
    access::Block,
    arithmetic::{Call, Op, Type},
    cq::Event,
    ffi::{
        atomic::{FiIoc, FiRmaIoc},
        flags::*,
    },
    guard::{Answer, Code},
    op::Kind,
    served,
    served_wire::{self, Change, Range},
    state::{self, Inside},
};

/// Bytes of the elements of an operation.
const BYTES_MAX: usize = 4096;

/// An operation as the program asks for it.
pub struct Ask<'a> {
    pub call: Call,
    pub op: c_int,
    pub of: c_int,
    pub to: u64,
    pub ranges: &'a [FiRmaIoc],
    pub operands: &'a [FiIoc],
    pub compares: &'a [FiIoc],
    pub results: &'a [FiIoc],
    pub context: usize,
    /// The flags of the operation. `None`: those of the endpoint, of an injected one that nothing
    /// tells of.
    pub flags: Option<u64>,
}

/// The most elements of a type, and their size, if such an operation is there.
pub fn limits(of: c_int, op: c_int, call: Call) -> Answer<(usize, usize)> {
    let absent = Code(libc::EOPNOTSUPP);
    let (of, op) = (Type::numbered(of).ok_or(absent)?, Op::numbered(op).ok_or(absent)?);
    if !op.is_valid(of, call) {
        return Err(absent);
    }
    Ok((BYTES_MAX / of.bytes(), of.bytes()))
}

/// The bytes of all elements.
///
/// # Safety
/// The lists are the program's, and its memory may be read.
unsafe fn gathered(lists: &[FiIoc], bytes: usize, count: u64) -> Answer<Vec<u8>> {
    let mut all = Vec::new();
    for block in blocks(lists, bytes, count)? {
        // SAFETY: the caller's; blocks of no bytes are left out.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(block.at, block.len) });
    }
    Ok(all)
}

/// The memory of lists of elements, `count` of them in all.
fn blocks(lists: &[FiIoc], bytes: usize, count: u64) -> Answer<Vec<Block>> {
    let mut sum = 0u64;
    let mut blocks = Vec::new();
    for list in lists {
        sum =
            sum.checked_add(list.count as u64).filter(|sum| *sum <= count).ok_or(Code::INVALID)?;
        if list.addr.is_null() && list.count > 0 {
            return Err(Code::INVALID);
        }
        blocks.push(Block { at: list.addr.cast(), len: list.count * bytes });
    }
    blocks.retain(|block| block.len > 0);
    if sum == count { Ok(blocks) } else { Err(Code::INVALID) }
}

impl Inside<'_> {
    /// Posts an atomic operation.
    ///
    /// # Safety
    /// The lists are the program's, and their memory may be used until the operation has ended.
    pub unsafe fn change(&mut self, ask: &Ask<'_>) -> Answer {
        let (count_max, bytes) = limits(ask.of, ask.op, ask.call)?;
        if ask.ranges.is_empty() || ask.ranges.len() > crate::rma::PARTS_MAX {
            return Err(Code::INVALID);
        }
        let add = |sum: u64, range: &FiRmaIoc| sum.checked_add(range.count as u64);
        let count = ask.ranges.iter().try_fold(0, add).ok_or(Code::INVALID)?;
        if count == 0 || count > count_max as u64 {
            return Err(Code::INVALID);
        }
        let reads = Op::numbered(ask.op) == Some(Op::Read);
        // SAFETY: the caller's.
        let (operands, compares) = unsafe {
            let operands = if reads { Vec::new() } else { gathered(ask.operands, bytes, count)? };
            let compares = match ask.call {
                Call::Compare => gathered(ask.compares, bytes, count)?,
                _ => Vec::new(),
            };
            (operands, compares)
        };
        let results = match ask.call {
            Call::Change => Vec::new(),
            _ => blocks(ask.results, bytes, count)?,
        };
        let flags = ask.flags.unwrap_or(0);
        let reports = ask.flags.is_some() && self.state.tx.reports(flags);
        let peer = self.peer_for(ask.to, reports)?;
        let range = |it: &FiRmaIoc| Range { at: it.addr, key: it.key, count: it.count as u64 };
        let ranges: Vec<Range> = ask.ranges.iter().map(range).collect();
        let asked = Change::asked(ask.call, ask.op, ask.of, &ranges, &operands, &compares);
        let kind = if ask.call == Call::Change { FI_WRITE } else { FI_READ };
        let event = Event { context: ask.context, flags: FI_ATOMIC | kind, ..Event::default() };
        let len: usize = results.iter().map(|block| block.len).sum();
        let finish = move |inside: &mut Inside<'_>, op: crate::op::Op, completion: Completion| {
            let done = match &completion.result {
                Ok(Completed::Message(answer)) => served_wire::fetched(answer, len),
                Ok(_) => Err(Code::OTHER),
                Err(pinfold::Error::NotHandled { .. }) => Err(Code(FI_ENOKEY)),
                Err(error) => Err(state::code(error)),
            };
            match done {
                Ok(fetched) => {
                    // SAFETY: the program's memory, until it is told of the end, below.
                    unsafe { scatter(fetched, &results) };
                    inside.report(&op, Ok(op.event));
                }
                Err(code) => {
                    inside.forget_if_lost(peer);
                    inside.fail(&op, code);
                }
            }
        };
        let key = self.state.ops.insert(Kind::Other(Box::new(finish)), event, reports);
        self.begin(flags, move |inside| {
            let request = inside.state.endpoint.request_owned(peer, served::CHANGE, asked);
            inside.queue().add(key.number(), request);
        });
        Ok(())
    }
}

/// Writes bytes to the program's memory.
///
/// # Safety
/// The blocks may be written, and have as many bytes.
unsafe fn scatter(mut bytes: &[u8], to: &[Block]) {
    for block in to {
        let Some((part, rest)) = bytes.split_at_checked(block.len) else { return };
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), block.at, part.len()) };
        bytes = rest;
    }
}
