//! `ring`: the floor of every two-copy message: a bare single-producer single-consumer ring of
//! 64-byte slots in shared memory, one in each direction. No tags, no matching, no limits.
//!
//! A slot is a sequence word and up to 56 bytes. Longer messages go through a chunk area, a slot
//! for each chunk, so that the receiver copies the first chunk out while the sender copies the
//! next one in.

mod learner;

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
};

use pinfold::copy::Algorithm;
use pinfold_sys::cpu::clock;

use self::learner::took;
use super::{Subject, Waiting};
use crate::{
    fail::Result,
    pair::Pair,
    payload::Messages,
    shared::{LINE, Line, Shared, Way},
    sync::Watch,
    terms::Side,
};

/// Slots in a direction: few enough that they stay in the innermost cache, where a line is
/// passed on soonest.
const SLOTS: usize = 128;
/// Bytes that fit into a slot beside its sequence word.
const SLOT_BYTES: usize = 56;
/// Bytes of the chunk area of a direction.
const AREA_BYTES: usize = 512 << 10;
/// The number of messages that a receiver of many waits for before it takes them all at once, so
/// that their lines travel side by side and not one after the other.
const BATCH: usize = 16;

/// First line of the slots in a direction; before it, the line with the consumer's progress, and
/// the one in which it answers samples.
const FIRST_SLOT: usize = 2;
const DIRECTION_BYTES: usize = (FIRST_SLOT + SLOTS) * LINE + AREA_BYTES;
/// Bytes of the shared memory.
pub(crate) const BYTES: usize = (2 * DIRECTION_BYTES).next_multiple_of(4096);

/// One end of one direction.
struct End {
    /// Its first line.
    base: usize,
    /// Slots used or taken so far.
    next: u64,
    /// Producer: the consumer's count when last seen. Consumer: the count that it last published.
    taken: u64,
}

/// One side of the ring.
pub(crate) struct Ring {
    shared: Shared,
    watch: Watch,
    out: End,
    into: End,
    manner: Manner,
    /// The learners of the copies, if they learn.
    copies_in: learner::CopyIn,
    copies_out: learner::CopyOut,
    /// The algorithm of the last chunk that was copied in or out.
    last: Algorithm,
}

/// The way in which messages are copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Into the ring.
    pub(crate) into: Way,
    /// True if the copies learn the best algorithm, those into the ring for themselves and their
    /// reader together, as those of the library's lanes do. Then `into` and `out_of` are not used.
    pub(crate) learns: bool,
    /// Out of it.
    pub(crate) out_of: Way,
    /// Bytes of a chunk, a part of [`AREA_BYTES`]; `None` to suit the size.
    pub(crate) chunk: Option<usize>,
}

impl Manner {
    /// By the C library, in chunks that suit the size.
    const PLAIN: Manner = Manner {
        into: Way::By(Algorithm::LIBC),
        learns: false,
        out_of: Way::By(Algorithm::LIBC),
        chunk: None,
    };

    /// Returns whether messages arrive where they are to.
    pub(crate) fn delivers(&self) -> bool {
        !matches!(self.out_of, Way::Lines(_))
    }
}

/// The way in which a message is cut.
#[derive(Clone, Copy)]
struct Cut {
    /// Bytes in a chunk.
    bytes: usize,
    /// Chunks that may be in use at once.
    room: u64,
}

impl Cut {
    /// For messages of `size` bytes: chunks short enough that the copies in and out overlap, long
    /// enough that a chunk's slot costs little beside it; and so few chunks that they stay in a
    /// cache.
    fn of(size: usize) -> Cut {
        let (bytes, room) = match size {
            0..=SLOT_BYTES => (SLOT_BYTES, SLOTS as u64),
            57..=4096 => (1 << 10, 8),
            4097..=65536 => (4 << 10, 16),
            _ => (16 << 10, 32),
        };
        Cut { bytes, room }
    }
}

impl Ring {
    pub(crate) fn set_up(pair: &mut Pair) -> Result<Ring> {
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
        Ok(Ring::new(shared, pair.side(), pair.watch()))
    }

    /// Over [`BYTES`] that are zero.
    pub(crate) fn new(shared: Shared, side: Side, watch: Watch) -> Ring {
        let end = |direction| End { base: direction * DIRECTION_BYTES / LINE, next: 0, taken: 0 };
        let (out, into) = if side == Side::First { (0, 1) } else { (1, 0) };
        let (manner, last) = (Manner::PLAIN, Algorithm::LIBC);
        let (copies_in, copies_out) = (learner::CopyIn::new(), learner::CopyOut::new());
        let (out, into) = (end(out), end(into));
        Ring { shared, watch, out, into, manner, copies_in, copies_out, last }
    }

    /// Sets the way in which messages of more than [`SLOT_BYTES`] are copied. Both sides must
    /// agree, and nothing may be in flight.
    pub(crate) fn set_manner(&mut self, manner: Manner) {
        self.manner = manner;
    }

    /// The algorithm of the last chunk that this side copied.
    pub(crate) fn last_algorithm(&self) -> Algorithm {
        self.last
    }

    /// The cut of messages of `size` bytes.
    #[inline]
    fn cut(&self, size: usize) -> Cut {
        match self.manner.chunk {
            Some(bytes) if size > SLOT_BYTES => Cut { bytes, room: (AREA_BYTES / bytes) as u64 },
            _ => Cut::of(size),
        }
    }

    #[inline]
    fn slots(&self, end: &End) -> &[Line] {
        let first = end.base + FIRST_SLOT;
        &self.shared.lines()[first..first + SLOTS]
    }

    #[inline]
    fn progress(&self, end: &End) -> &AtomicU64 {
        &self.shared.lines()[end.base].0[0]
    }

    /// Waits until the producer may use the next slot, if `room` may be in use at once.
    #[inline]
    fn wait_for_room(&mut self, room: u64) -> Result<()> {
        if self.out.next - self.out.taken < room {
            return Ok(());
        }
        let (next, word) = (self.out.next, self.progress(&self.out));
        // Pairs with the release in `publish`: the slots taken have been copied out.
        self.watch.until(|| next - word.load(Ordering::Acquire) < room)?;
        self.out.taken = self.progress(&self.out).load(Ordering::Acquire);
        Ok(())
    }

    /// Returns whether there is room now.
    #[inline]
    fn has_room(&mut self, room: u64) -> bool {
        if self.out.next - self.out.taken >= room {
            self.out.taken = self.progress(&self.out).load(Ordering::Acquire);
        }
        self.out.next - self.out.taken < room
    }

    /// Waits until slot `number` has been filled.
    #[inline]
    fn wait_for(&self, number: u64) -> Result<()> {
        let word = &slot(self.slots(&self.into), number)[0];
        self.watch.until(|| word.load(Ordering::Acquire) == number + 1)
    }

    /// Gives the taken slots back to the producer, once there are `step` of them.
    #[inline]
    fn publish(&mut self, step: u64) {
        if self.into.next - self.into.taken >= step {
            self.into.taken = self.into.next;
            self.progress(&self.into).store(self.into.next, Ordering::Release);
        }
    }

    /// The place of chunk `number`, if there are `room` of `bytes` bytes.
    #[inline]
    fn chunk_at(end: &End, number: u64, cut: Cut) -> usize {
        (end.base + FIRST_SLOT + SLOTS) * LINE + (number % cut.room) as usize * cut.bytes
    }

    /// Copies one part of a message in, for which there is room.
    #[inline]
    fn push(&mut self, part: &[u8], cut: Cut) {
        let number = self.out.next;
        if part.len() <= SLOT_BYTES {
            fill(slot(self.slots(&self.out), number), number, part);
        } else {
            let at = Ring::chunk_at(&self.out, number, cut);
            let mut sample = 0;
            if self.manner.learns {
                let answer = &self.shared.lines()[self.out.base + 1].0[0];
                sample = self.copies_in.copy_in(&self.shared, at, part, answer);
                self.last = self.copies_in.using(part.len());
            } else {
                self.last = self.shared.copy_in(self.manner.into, at, part);
            }
            let slot = slot(self.slots(&self.out), number);
            slot[1].store(sample, Ordering::Relaxed);
            // Releases the bytes: pairs with the acquire in `wait_for`.
            slot[0].store(number + 1, Ordering::Release);
        }
        self.out.next = number + 1;
    }

    /// Copies one part of a message out, which has arrived.
    #[inline]
    fn pop(&mut self, part: &mut [u8], cut: Cut) {
        let number = self.into.next;
        self.into.next = number + 1;
        if part.len() <= SLOT_BYTES {
            empty(slot(self.slots(&self.into), number), part);
        } else {
            let at = Ring::chunk_at(&self.into, number, cut);
            let sample = slot(self.slots(&self.into), number)[1].load(Ordering::Relaxed);
            let start = if sample != 0 { clock::ticks() } else { 0 };
            self.last = if self.manner.learns {
                self.copies_out.copy_out(&self.shared, at, part)
            } else {
                self.shared.copy_out(self.manner.out_of, at, part)
            };
            if sample != 0 {
                let answer = &self.shared.lines()[self.into.base + 1].0[0];
                let ns = clock::ns_of(clock::ticks().saturating_sub(start));
                answer.store(took(sample, ns), Ordering::Relaxed);
            }
        }
        self.publish(if cut.bytes == SLOT_BYTES { SLOTS as u64 / 4 } else { 1 });
    }
}

#[inline]
fn slot(slots: &[Line], number: u64) -> &[AtomicU64; 8] {
    &slots[number as usize % SLOTS].0
}

/// Writes a message of at most [`SLOT_BYTES`] into a free slot.
#[inline]
fn fill(slot: &[AtomicU64; 8], number: u64, message: &[u8]) {
    let words = message.chunks_exact(8);
    let (rest, at) = (words.remainder(), 1 + message.len() / 8);
    for (bytes, word) in words.zip(&slot[1..]) {
        let mut value = [0; 8];
        value.copy_from_slice(bytes);
        word.store(u64::from_le_bytes(value), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut value = [0; 8];
        value[..rest.len()].copy_from_slice(rest);
        slot[at].store(u64::from_le_bytes(value), Ordering::Relaxed);
    }
    // Releases the bytes: pairs with the acquire in `wait_for`.
    slot[0].store(number + 1, Ordering::Release);
}

/// Copies a message of at most [`SLOT_BYTES`] out of a slot that has arrived.
#[inline]
fn empty(slot: &[AtomicU64; 8], into: &mut [u8]) {
    let mut words = into.chunks_exact_mut(8);
    let mut from = slot[1..].iter();
    for (bytes, word) in (&mut words).zip(&mut from) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let rest = words.into_remainder();
    if let (false, Some(word)) = (rest.is_empty(), from.next()) {
        let value = word.load(Ordering::Relaxed).to_le_bytes();
        rest.copy_from_slice(&value[..rest.len()]);
    }
}

impl Subject for Ring {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let cut = self.cut(message.len());
        for part in message.chunks(cut.bytes) {
            self.wait_for_room(cut.room)?;
            self.push(part, cut);
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        let cut = self.cut(into.len());
        for part in into.chunks_mut(cut.bytes) {
            self.wait_for(self.into.next)?;
            self.pop(part, cut);
        }
        Ok(())
    }

    fn stream_out(&mut self, messages: &Messages, count: usize) -> Result<()> {
        if messages.size() > SLOT_BYTES {
            return (0..count).try_for_each(|number| self.send(messages.get(number)));
        }
        let mut done = 0;
        while done < count {
            self.wait_for_room(SLOTS as u64)?;
            let room = SLOTS - (self.out.next - self.out.taken) as usize;
            let some = room.min(count - done);
            // No memory but the slots is written in here: other stores would queue up behind the
            // lines that are still on their way.
            let (first, slots) = (self.out.next, self.slots(&self.out));
            for at in 0..some {
                let number = first + at as u64;
                fill(slot(slots, number), number, messages.get(done + at));
            }
            self.out.next += some as u64;
            done += some;
        }
        Ok(())
    }

    fn stream_in(&mut self, into: &mut Messages, count: usize) -> Result<()> {
        if into.size() > SLOT_BYTES {
            return (0..count).try_for_each(|number| self.recv(into.get_mut(number)));
        }
        let mut done = 0;
        while done < count {
            let some = BATCH.min(count - done);
            self.wait_for(self.into.next + some as u64 - 1)?;
            let (first, slots) = (self.into.next, self.slots(&self.into));
            for at in 0..some {
                empty(slot(slots, first + at as u64), into.get_mut(done + at));
            }
            self.into.next += some as u64;
            self.publish(SLOTS as u64 / 4);
            done += some;
        }
        self.publish(1);
        Ok(())
    }

    fn set_waiting(&mut self, _waiting: Waiting) -> Result<()> {
        // A run begins, perhaps with messages of another size that may use fewer slots at once: no
        // taken slot may be held back.
        self.publish(1);
        Ok(())
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        let size = out.size();
        let cut = self.cut(size);
        let watch = self.watch.clone();
        let mut patience = watch.patience();
        // Messages done, and bytes of the next one.
        let (mut sent, mut received) = ((0, 0), (0, 0));
        while sent.0 < count || received.0 < count {
            let mut moved = false;
            if sent.0 < count && self.has_room(cut.room) {
                let end = size.min(sent.1 + cut.bytes);
                self.push(&out.get(sent.0)[sent.1..end], cut);
                sent = if end == size { (sent.0 + 1, 0) } else { (sent.0, end) };
                moved = true;
            }
            let next = self.into.next;
            let word = &slot(self.slots(&self.into), next)[0];
            if received.0 < count && word.load(Ordering::Acquire) == next + 1 {
                let end = size.min(received.1 + cut.bytes);
                self.pop(&mut into.get_mut(received.0)[received.1..end], cut);
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

const _: () = assert!(SLOTS.is_power_of_two() && BATCH <= SLOTS / 4);

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::{control::Control, terms::Memory};

    #[test]
    fn every_message_fits() {
        for size in [1, 56, 57, 4096, 4097, 65536, 65537, 1 << 30] {
            let cut = Cut::of(size);
            assert!(cut.room <= SLOTS as u64, "a chunk has a slot of its own");
            assert!(size <= SLOT_BYTES || cut.bytes * cut.room as usize <= AREA_BYTES);
        }
    }

    #[test]
    fn any_size_may_follow_any_other() {
        const SIZES: [usize; 9] = [8, 5000, 1, 4100, 56, 65540, 57, 70000, 4097];
        let (first, second) = Control::pair().unwrap();
        let (_, file) = Shared::create("pinfold-test", BYTES).unwrap();
        let again = file.try_clone().unwrap();
        let go = |control, file: OwnedFd, side| {
            let control = Control::new(control);
            let shared = Shared::open(&file, BYTES).unwrap();
            let mut ring = Ring::new(shared, side, Watch::new(&control, true));
            let (mut out, mut into) = (Messages::new(), Messages::new());
            for (round, size) in SIZES.into_iter().cycle().take(40).enumerate() {
                ring.set_waiting(Waiting::Spin).unwrap();
                out.shape(size, 4, Memory::Heap).unwrap();
                into.shape(size, 4, Memory::Heap).unwrap();
                out.fill(round as u64);
                for _ in 0..20 {
                    if side == Side::First {
                        ring.send(out.get(0)).unwrap();
                        ring.recv(into.get_mut(0)).unwrap();
                        ring.stream_out(&out, 300).unwrap();
                    } else {
                        ring.recv(into.get_mut(0)).unwrap();
                        ring.send(out.get(0)).unwrap();
                        ring.stream_in(&mut into, 300).unwrap();
                    }
                    into.check(round as u64, 1).unwrap();
                    ring.exchange(&out, &mut into, 9).unwrap();
                    into.check(round as u64, 4).unwrap();
                }
            }
        };
        std::thread::scope(|scope| {
            let second = scope.spawn(|| go(second, again, Side::Second));
            go(first, file, Side::First);
            second.join().unwrap();
        });
    }

    #[test]
    fn slots_carry_any_length() {
        let slot: [AtomicU64; 8] = Default::default();
        for len in 0..=SLOT_BYTES {
            let message: Vec<u8> = (1..=len as u8).collect();
            fill(&slot, 41, &message);
            assert_eq!(slot[0].load(Ordering::Relaxed), 42);
            let mut out = vec![0; len];
            empty(&slot, &mut out);
            assert_eq!(out, message);
        }
    }
}
