//! Atomic operations on memory of peers, for C.

use pinfold::AtomicChange;

use crate::{
    queue::{pinfold_queue, the_queue},
    remote::{pinfold_remote, the_remote, with},
    status::{Failure, Outcome, pinfold_status, run, store},
};

/// The kind of a word.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pinfold_word {
    /// 32 bits, unsigned.
    PINFOLD_U32 = 0,
    /// 64 bits, unsigned.
    PINFOLD_U64 = 1,
    /// 32 bits, signed; operands and results have the word in their lower 32 bits.
    PINFOLD_I32 = 2,
    /// 64 bits, signed.
    PINFOLD_I64 = 3,
}

/// A change of a word.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pinfold_change {
    /// Adds the operand, wrapping.
    PINFOLD_ADD = 0,
    /// Bitwise and.
    PINFOLD_AND = 1,
    /// Bitwise or.
    PINFOLD_OR = 2,
    /// Bitwise exclusive or.
    PINFOLD_XOR = 3,
    /// The lesser of the word and the operand.
    PINFOLD_MIN = 4,
    /// The greater of them.
    PINFOLD_MAX = 5,
    /// The operand in place of the word.
    PINFOLD_SWAP = 6,
    /// The operand in place of the word, if the word is `compare`.
    PINFOLD_REPLACE = 7,
}

/// The change of a number.
fn change<W>(number: u32, operand: W, compare: W) -> Outcome<AtomicChange<W>> {
    Ok(match number {
        0 => AtomicChange::Add(operand),
        1 => AtomicChange::And(operand),
        2 => AtomicChange::Or(operand),
        3 => AtomicChange::Xor(operand),
        4 => AtomicChange::Min(operand),
        5 => AtomicChange::Max(operand),
        6 => AtomicChange::Swap(operand),
        7 => AtomicChange::Replace(compare, operand),
        _ => return Err(Failure::invalid(format!("{number} is no pinfold_change"))),
    })
}

/// Runs an expression with the change of a word of each kind.
macro_rules! of_kind {
    ($word:expr, $change:expr, $operand:expr, $compare:expr, $it:ident => $do:expr) => {
        match $word {
            0 => {
                let $it = change($change, $operand as u32, $compare as u32)?;
                $do
            }
            1 => {
                let $it = change($change, $operand, $compare)?;
                $do
            }
            2 => {
                let $it = change($change, $operand as i32, $compare as i32)?;
                $do
            }
            3 => {
                let $it = change($change, $operand as i64, $compare as i64)?;
                $do
            }
            other => return Err(Failure::invalid(format!("{other} is no pinfold_word"))),
        }
    };
}

/// Changes a word of a peer's memory, a pinfold_word, by a pinfold_change. `old` (may be NULL) is
/// set to what the word was; its upper bits are 0 if it is shorter.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_atomic(
    remote: *const pinfold_remote,
    at: u64,
    word: u32,
    change: u32,
    operand: u64,
    compare: u64,
    old: *mut u64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let remote = unsafe { the_remote(remote) }?;
        let was = of_kind!(word, change, operand, compare, asked => {
            bits(with!(remote, it => it.atomic(at, asked).wait())?)
        });
        // SAFETY: the caller's.
        unsafe { store(old, was) };
        Ok(())
    })
}

/// Posts the same: PINFOLD_WAS.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_post_atomic(
    remote: *const pinfold_remote,
    queue: *const pinfold_queue,
    context: u64,
    at: u64,
    word: u32,
    change: u32,
    operand: u64,
    compare: u64,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (remote, queue) = unsafe { (the_remote(remote)?, the_queue(queue)?) };
        of_kind!(word, change, operand, compare, asked => {
            with!(remote, it => queue.add(context, it.atomic(at, asked)));
        });
        Ok(())
    })
}

/// A word as its bits.
trait Word {
    fn bits(self) -> u64;
}

fn bits(word: impl Word) -> u64 {
    word.bits()
}

impl Word for u32 {
    fn bits(self) -> u64 {
        self.into()
    }
}

impl Word for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl Word for i32 {
    fn bits(self) -> u64 {
        self.cast_unsigned().into()
    }
}

impl Word for i64 {
    fn bits(self) -> u64 {
        self.cast_unsigned()
    }
}
