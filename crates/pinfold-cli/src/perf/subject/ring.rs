//! `ring`: the floor of every two-copy message: a bare single-producer single-consumer ring of
//! 64-byte slots in shared memory, one in each direction. No tags, no matching, no limits.
//!
//! A slot is a sequence word and up to 56 bytes. Longer messages go through a chunk area, a slot
//! for each chunk, so that the receiver copies the first chunk out while the sender copies the
//! next one in.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Messages, Subject};
use crate::perf::{
    fail::Result,
    pair::Pair,
    shared::{LINE, Shared},
    sync::{Side, Watch},
};

/// Slots in a direction.
const SLOTS: u64 = 64;
static AHEAD: std::sync::LazyLock<u64> =
    std::sync::LazyLock::new(|| std::env::var("AHEAD").map_or(0, |v| v.parse().unwrap()));
static BATCH: std::sync::LazyLock<u64> =
    std::sync::LazyLock::new(|| std::env::var("BATCH").map_or(32, |v| v.parse().unwrap()));
/// Bytes that fit into a slot beside its sequence word.
const SLOT_BYTES: usize = 56;
/// Bytes of the chunk area of a direction: half of what an inner cache of today holds.
const AREA_BYTES: usize = 512 << 10;
/// How far a receiver of many lets the sender get ahead before it takes as many at once, so that
/// the lines travel side by side and not one after the other.
const BATCH_: u64 = 32;

/// First line of the slots in a direction; before it, the line with the consumer's progress.
const FIRST_SLOT: usize = 2;
const DIRECTION_BYTES: usize = (FIRST_SLOT + SLOTS as usize) * LINE + AREA_BYTES;
const BYTES: usize = (2 * DIRECTION_BYTES).next_multiple_of(4096);

/// One end of one direction.
struct End {
    /// Its first line.
    base: usize,
    /// Slots used or taken so far.
    next: u64,
    /// Producer: what the consumer had taken when last seen. Consumer: what it last published.
    taken: u64,
}

/// One side of the ring.
pub(super) struct Ring {
    shared: Shared,
    watch: Watch,
    out: End,
    into: End,
}

impl Ring {
    pub(super) fn set_up(pair: &mut Pair) -> Result<Ring> {
        let shared = match pair.side() {
            Side::First => {
                let (shared, file) = Shared::create("pinfold-perf-ring", BYTES)?;
                pair.tell_with(&(), &[file.as_fd()])?;
                shared
            }
            Side::Second => {
                let ((), [file]) = pair.hear_with()?;
                Shared::open(&file, BYTES)?
            }
        };
        let end = |direction| End { base: direction * DIRECTION_BYTES / LINE, next: 0, taken: 0 };
        let (out, into) = if pair.side() == Side::First { (0, 1) } else { (1, 0) };
        Ok(Ring { shared, watch: pair.watch(), out: end(out), into: end(into) })
    }

    #[inline]
    fn slot(&self, end: &End, number: u64) -> &[AtomicU64; 8] {
        &self.shared.lines()[end.base + FIRST_SLOT + (number % SLOTS) as usize].0
    }

    #[inline]
    fn progress(&self, end: &End) -> &AtomicU64 {
        &self.shared.lines()[end.base].0[0]
    }

    /// Where chunk `number` lies, and how many chunks of this size there are.
    #[inline]
    fn chunk(end: &End, number: u64, bytes: usize) -> usize {
        let chunks = (AREA_BYTES / bytes) as u64;
        (end.base + FIRST_SLOT) * LINE + SLOTS as usize * LINE + (number % chunks) as usize * bytes
    }

    /// Whether the producer may use another slot, if `room` may be in use at once.
    #[inline]
    fn has_room(&mut self, room: u64) -> bool {
        if self.out.next - self.out.taken < room {
            return true;
        }
        // Pairs with the release in `publish`: what was taken has been copied out.
        self.out.taken = self.progress(&self.out).load(Ordering::Acquire);
        self.out.next - self.out.taken < room
    }

    #[inline]
    fn wait_for_room(&mut self, room: u64) -> Result<()> {
        if self.has_room(room) {
            return Ok(());
        }
        let (next, word) = (self.out.next, self.progress(&self.out));
        self.watch.until(|| next - word.load(Ordering::Acquire) < room)?;
        self.out.taken = self.progress(&self.out).load(Ordering::Acquire);
        Ok(())
    }

    /// Writes a message of at most [`SLOT_BYTES`] into the next slot, which is free.
    #[inline]
    fn push(&mut self, message: &[u8]) {
        let slot = self.slot(&self.out, self.out.next);
        if message.len() == 8 {
            slot[1].store(word_of(&message[..8]), Ordering::Relaxed);
            slot[0].store(self.out.next + 1, Ordering::Release);
            self.out.next += 1;
            return;
        }
        let words = message.chunks_exact(8);
        let rest = words.remainder();
        for (bytes, word) in words.zip(&slot[1..]) {
            word.store(word_of(bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            slot[1 + message.len() / 8].store(word_of(rest), Ordering::Relaxed);
        }
        // Releases the bytes: pairs with the acquire in `arrived`.
        slot[0].store(self.out.next + 1, Ordering::Release);
        self.out.next += 1;
        let ahead = (self.out.next + *AHEAD) % SLOTS;
        self.shared.prefetch_to_write(self.out.base + FIRST_SLOT + ahead as usize);
    }

    /// Whether slot `number` has been filled.
    #[inline]
    fn arrived(&self, number: u64) -> bool {
        self.slot(&self.into, number)[0].load(Ordering::Acquire) == number + 1
    }

    /// Copies the next slot, which has arrived, out.
    #[inline]
    fn pop(&mut self, into: &mut [u8]) {
        let slot = self.slot(&self.into, self.into.next);
        if into.len() == 8 {
            into.copy_from_slice(&slot[1].load(Ordering::Relaxed).to_le_bytes());
            self.into.next += 1;
            return;
        }
        for (bytes, word) in into.chunks_mut(8).zip(&slot[1..]) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        self.into.next += 1;
    }

    /// Lets the producer have back what was taken, once it is `step` slots.
    #[inline]
    fn publish(&mut self, step: u64) {
        if self.into.next - self.into.taken >= step {
            self.into.taken = self.into.next;
            self.progress(&self.into).store(self.into.next, Ordering::Release);
        }
    }

    /// Copies one chunk in; there is room.
    #[inline]
    fn push_chunk(&mut self, bytes: &[u8], chunk_bytes: usize) {
        self.shared.copy_in(Ring::chunk(&self.out, self.out.next, chunk_bytes), bytes);
        let slot = self.slot(&self.out, self.out.next);
        slot[0].store(self.out.next + 1, Ordering::Release);
        self.out.next += 1;
    }

    /// Copies one chunk out; it has arrived.
    #[inline]
    fn pop_chunk(&mut self, into: &mut [u8], chunk_bytes: usize) {
        self.shared.copy_out(Ring::chunk(&self.into, self.into.next, chunk_bytes), into);
        self.into.next += 1;
        self.publish(1);
    }
}

#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Bytes in a chunk of a message of `size` bytes: short enough that the copies in and out
/// overlap, long enough that a chunk's slot costs little beside it.
#[inline]
fn chunk_bytes(size: usize) -> usize {
    match size {
        0..=4096 => 1 << 10,
        4097..=65536 => 4 << 10,
        _ => 16 << 10,
    }
}

/// How many chunks may be in use at once.
#[inline]
fn room(chunk_bytes: usize) -> u64 {
    ((AREA_BYTES / chunk_bytes) as u64).min(SLOTS)
}

impl Subject for Ring {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        if message.len() <= SLOT_BYTES {
            self.wait_for_room(SLOTS)?;
            self.push(message);
            return Ok(());
        }
        let bytes = chunk_bytes(message.len());
        for chunk in message.chunks(bytes) {
            self.wait_for_room(room(bytes))?;
            self.push_chunk(chunk, bytes);
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        if into.len() <= SLOT_BYTES {
            let next = self.into.next;
            self.watch.until(|| self.arrived(next))?;
            self.pop(into);
            self.publish(SLOTS / 4);
            return Ok(());
        }
        let bytes = chunk_bytes(into.len());
        for chunk in into.chunks_mut(bytes) {
            let next = self.into.next;
            self.watch.until(|| self.arrived(next))?;
            self.pop_chunk(chunk, bytes);
        }
        Ok(())
    }

    fn stream_in(&mut self, into: &mut Messages, count: usize) -> Result<()> {
        if into.size() > SLOT_BYTES {
            return (0..count).try_for_each(|number| self.recv(into.get_mut(number)));
        }
        let mut number = 0;
        while number < count {
            let batch = (*BATCH).min((count - number) as u64);
            let last = self.into.next + batch - 1;
            self.watch.until(|| self.arrived(last))?;
            for _ in 0..batch {
                self.pop(into.get_mut(number));
                number += 1;
            }
            self.publish(SLOTS / 4);
        }
        self.publish(1);
        Ok(())
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        let size = out.size();
        let small = size <= SLOT_BYTES;
        let bytes = if small { size } else { chunk_bytes(size) };
        let room = if small { SLOTS } else { room(bytes) };
        let watch = self.watch.clone();
        let mut patience = watch.patience();
        let (mut sent, mut received) = ((0, 0), (0, 0));
        while sent.0 < count || received.0 < count {
            let mut moved = false;
            if sent.0 < count && self.has_room(room) {
                let end = size.min(sent.1 + bytes);
                let chunk = &out.get(sent.0)[sent.1..end];
                if small {
                    self.push(chunk)
                } else {
                    self.push_chunk(chunk, bytes)
                }
                sent = if end == size { (sent.0 + 1, 0) } else { (sent.0, end) };
                moved = true;
            }
            if received.0 < count && self.arrived(self.into.next) {
                let end = size.min(received.1 + bytes);
                let chunk = &mut into.get_mut(received.0)[received.1..end];
                if small {
                    self.pop(chunk);
                    self.publish(SLOTS / 4);
                } else {
                    self.pop_chunk(chunk, bytes);
                }
                received = if end == size { (received.0 + 1, 0) } else { (received.0, end) };
                moved = true;
            }
            if !moved {
                patience.again()?;
            }
        }
        self.publish(1);
        Ok(())
    }
}
