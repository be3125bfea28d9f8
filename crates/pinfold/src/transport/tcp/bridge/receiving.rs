#![allow(unsafe_code)]
//! From the connection to the lane.
//!
//! Bytes come into a buffer; the bulk bytes of a piece, as far as they are not there already, come
//! straight to their place in the lane.
//!
//! **Invariant.** Bytes are written only to the buffer, or to a range that the lane has lent to the
//! next descriptor, which was not pushed yet.

use std::sync::Arc;

use pinfold_sys::{process::Segment as Part, socket::stream::Received};

use super::{Ended, Word, partial_receive::PartialReceive};
use crate::{
    copy::Tally,
    transport::{
        shm::{budget::Budget, lane::LaneTx, ring::Violation, segment::Segment},
        tcp::connection::Connection,
    },
    wire::{
        descriptor::{Body, Eager, Header, Kind, Piece},
        layout::{BULK_BYTES_MAX, Direction},
        tcp::{
            frame::{self, Brings, Follows, HEAD_BYTES, Head, Signal},
            offer::Reached,
        },
    },
};

/// Bytes that are taken at a time, but for those of pieces.
const BUFFER_BYTES: usize = 16 << 10;
/// Bytes that are taken with the end of a long message if another is expected to follow: the
/// beginning of that one, and not the bytes that are to come straight to their place.
const AHEAD_BYTES: usize = 128;
/// Descriptors that have come, bytes that have come with them, or credit that was given back, after
/// which the peer hears of it in a frame of its own if there is no other. A peer whose lane is full
/// before that asks.
const WORD_DESCRIPTORS: u64 = 16;
const WORD_BYTES: u64 = 32 << 10;
const WORD_CREDIT: u64 = 64 << 10;
/// A piece is not cut into less, unless the lane has no more.
const RANGE_MIN: u32 = 1024;

const NO_PIECE: Piece = Piece { offset: 0, len: 0, sample: 0 };

/// The stage of parsing: the kind of the next bytes.
enum Stage {
    Head,
    Body {
        header: Header,
        words: usize,
    },
    Bulk(PartialReceive),
    /// Nothing: the peer has said goodbye.
    Over,
}

/// The reason why the bytes that are there do not make a frame.
#[derive(PartialEq, Eq)]
enum Pause {
    /// More bytes have to come.
    Bytes,
    /// The lane is full, or they are to be taken directly.
    Room,
    /// There will be none.
    Over,
}

/// The receiving half.
pub(super) struct Receiving {
    lane: LaneTx,
    /// True if the senders of long messages wait until they have come.
    resumes: bool,
    received: u64,
    /// True if bytes have come since the last [`Receiving::has_moved`].
    moved: bool,
    /// True if the connection had nothing more at the last look.
    drained: bool,
    /// Bulk bytes that came since the peer was told.
    bytes: u64,
    told: Word,
    asked: bool,
    heard: Word,
    stage: Stage,
    /// The number of long messages among the last frames, in a row.
    longs: u32,
    /// The message that was coming when the connection broke. It goes on when its frame comes
    /// again.
    parted: Option<PartialReceive>,
    buffer: Vec<u8>,
    /// The range of it that has come and is not used up.
    start: usize,
    end: usize,
}

impl Receiving {
    pub(super) fn new(
        segment: &Arc<Segment>,
        way: Direction,
        tally: &Arc<Tally>,
        resumes: bool,
        rest: Vec<u8>,
    ) -> Receiving {
        Receiving {
            lane: LaneTx::new(segment, way, tally).without_waiting(),
            resumes,
            received: 0,
            moved: false,
            drained: false,
            bytes: 0,
            told: Word::default(),
            asked: false,
            heard: Word::default(),
            stage: Stage::Head,
            longs: 0,
            parted: None,
            start: 0,
            end: rest.len(),
            buffer: rest,
        }
    }

    /// Returns whether bytes have come since the last call. The end of the connection may come
    /// behind them, and then no event reports it.
    pub(super) fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Returns whether the connection had nothing more at the last look: it reports bytes that come
    /// now.
    pub(super) fn is_drained(&self) -> bool {
        self.drained
    }

    /// The connection has broken. The bytes of a frame that have come stay where they are; bytes
    /// that were not parsed come again.
    pub(super) fn break_off(&mut self) {
        if let Stage::Bulk(partial) = std::mem::replace(&mut self.stage, Stage::Head) {
            self.parted = Some(partial);
        }
        (self.start, self.end) = (0, 0);
    }

    /// The count of frames and bytes that have come.
    pub(super) fn reached(&self) -> Reached {
        let coming = match &self.stage {
            Stage::Bulk(partial) => Some(partial),
            _ => self.parted.as_ref(),
        };
        Reached { frames: self.received, bytes: coming.map_or(0, PartialReceive::reached) }
    }

    /// Goes on over another connection, of which `rest` has come already. The peer has got
    /// `received` frames.
    pub(super) fn resume(&mut self, received: u64, rest: Vec<u8>) {
        self.break_off();
        self.heard.received = self.heard.received.max(received);
        (self.end, self.buffer) = (rest.len(), rest);
        // The peer learnt from the greeting how much has come, but not how much credit it has.
        self.told = Word { received: self.received, ..Word::default() };
    }

    /// The peer's last acknowledgement and credit.
    pub(super) fn heard(&self) -> Word {
        self.heard
    }

    /// So many descriptors of the other direction are done with. A thread that sees that in the
    /// lane's cursor sees no less in a descriptor that is pushed after it.
    pub(super) fn acknowledge(&mut self, count: u64) {
        self.lane.acknowledge(count);
    }

    /// The acknowledgement and credit for the peer.
    pub(super) fn word(&self, waits: bool) -> Word {
        let (received, released) = (self.received, self.lane.released());
        let news = received != self.told.received || released != self.told.released;
        let is_due = news
            && (waits
                || self.asked
                || received - self.told.received >= WORD_DESCRIPTORS
                || self.bytes >= WORD_BYTES
                || (released - self.told.released >= WORD_CREDIT && !self.ends_soon()));
        Word { received, released, is_due }
    }

    /// Returns whether a long message is about to end, and its sender is told of that then.
    fn ends_soon(&self) -> bool {
        self.resumes && matches!(&self.stage, Stage::Bulk(partial) if partial.ends_soon())
    }

    /// The peer is told that.
    pub(super) fn told(&mut self, word: &Word) {
        self.told = *word;
        self.bytes = 0;
        self.asked = false;
    }

    pub(super) fn budgeted(&self) -> usize {
        self.lane.budgeted()
    }

    /// Takes the bytes that have come, as far as the lane has room for them.
    pub(super) fn take(
        &mut self,
        socket: &mut Connection,
        budget: &mut Budget,
    ) -> Result<(), Ended> {
        let mut more = true;
        self.drained = false;
        loop {
            match self.parse(budget)? {
                Pause::Over => return Err(Ended::Closed),
                Pause::Room => return Ok(()),
                // The connection reports bytes that come after this look (`epoll(7)`).
                Pause::Bytes if !more => return Ok(()),
                Pause::Bytes => match self.read(socket)? {
                    Received::Bytes(_) => {
                        self.moved = true;
                        more = self.end == BUFFER_BYTES;
                    }
                    Received::Nothing => {
                        self.drained = true;
                        return Ok(());
                    }
                    Received::End => return Err(Ended::Gone),
                },
            }
        }
    }

    /// Reads from the connection: first the missing bytes of the piece that is coming.
    fn read(&mut self, socket: &mut Connection) -> Result<Received, Ended> {
        self.buffer.resize(BUFFER_BYTES, 0);
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let free = &mut self.buffer[self.end..];
        let buffer = Part { ptr: free.as_mut_ptr(), len: free.len() };
        let lacking = match &mut self.stage {
            Stage::Bulk(PartialReceive { range: Some(range), filled, .. }) => {
                let ptr = self.lane.place(*range)?.wrapping_add(*filled as usize);
                Some((Part { ptr, len: (range.len - *filled) as usize }, filled))
            }
            _ => None,
        };
        let Some((part, filled)) = lacking else {
            // SAFETY: the buffer's own bytes.
            let got = unsafe { socket.recv(&[buffer]) }?;
            if let Received::Bytes(bytes) = got {
                self.end += bytes;
            }
            return Ok(got);
        };
        // SAFETY: the rest of a range that is lent to the descriptor to come, and the buffer's own
        // bytes.
        let got = unsafe { socket.recv(&[part, buffer]) }?;
        if let Received::Bytes(bytes) = got {
            let there = bytes.min(part.len);
            *filled += there as u32;
            self.end += bytes - there;
        }
        Ok(got)
    }

    /// Makes descriptors of the bytes in the buffer.
    fn parse(&mut self, budget: &mut Budget) -> Result<Pause, Violation> {
        loop {
            let there = &self.buffer[self.start..self.end];
            match &mut self.stage {
                Stage::Over => return Ok(Pause::Over),
                Stage::Head => {
                    let Some(bytes) = there.first_chunk::<HEAD_BYTES>() else {
                        return Ok(Pause::Bytes);
                    };
                    let head = Head::read(bytes).ok_or(Violation("it sent no frame"))?;
                    self.start += HEAD_BYTES;
                    self.begin(head)?;
                }
                Stage::Body { header, words } => {
                    let (header, len) = (*header, *words * 8);
                    if there.len() < len {
                        return Ok(Pause::Bytes);
                    }
                    if !self.lane.has_room(budget)? {
                        return Ok(Pause::Room);
                    }
                    let mut body = Body::default();
                    frame::read_words(&there[..len], &mut body);
                    self.start += len;
                    if let Some(partial) = self.parted.take() {
                        if partial.frame.bare() != header.bare() {
                            return Err(Violation("it sent another frame in the place of one"));
                        }
                        self.stage = Stage::Bulk(partial);
                        continue;
                    }
                    let (body, follows) = frame::arrived(header, &body)
                        .ok_or(Violation("it sent a descriptor that makes no sense"))?;
                    self.follow(header, body, follows);
                }
                Stage::Bulk(_) => {
                    if let Some(pause) = self.fill(budget)? {
                        return Ok(pause);
                    }
                }
            }
        }
    }

    /// A frame begins.
    fn begin(&mut self, head: Head) -> Result<(), Violation> {
        let Head { received, released, wants_word, brings } = head;
        if received < self.heard.received || released < self.heard.released {
            return Err(Violation("it took back what it had acknowledged"));
        }
        self.heard = Word { received, released, is_due: false };
        self.asked |= wants_word;
        match brings {
            Brings::Signal(Signal::Word) => {}
            Brings::Signal(Signal::Goodbye) => {
                self.lane.say_closed();
                self.stage = Stage::Over;
            }
            Brings::Descriptor { number, header, words } => {
                if number != self.received + 1 {
                    return Err(Violation("it sent frames out of their order"));
                }
                self.stage = Stage::Body { header, words };
            }
        }
        Ok(())
    }

    /// The body of a frame is to come next, after its words.
    fn follow(&mut self, header: Header, mut body: Body, follows: Follows) {
        self.longs =
            if matches!(follows, Follows::Long(_)) { self.longs.saturating_add(1) } else { 0 };
        match follows {
            Follows::Nothing => {
                self.push(header, &body);
                self.came();
            }
            Follows::Piece(len) => {
                self.stage =
                    Stage::Bulk(PartialReceive::new(header, header, body, len.into(), false));
            }
            Follows::Long(len) => {
                if header.kind() == Some(Kind::Eager) {
                    // The descriptor is pushed first, so that the message's place is known.
                    let eager = Eager { piece: NO_PIECE, ..Eager::read(&body) };
                    body[..3].copy_from_slice(&eager.body());
                    self.push(header, &body);
                }
                let next = Header::new(Kind::Data, 0, header.aux());
                self.stage = Stage::Bulk(PartialReceive::new(header, next, body, len, true));
                if len == 0 {
                    self.came();
                }
            }
        }
    }

    /// The message whose bytes come next and can be put to their place, and how many there are.
    pub(super) fn direct(&self) -> Option<(u32, u64)> {
        match &self.stage {
            Stage::Bulk(PartialReceive { direct: true, range: None, left, header, .. }) => {
                Some((header.aux(), *left))
            }
            _ => None,
        }
    }

    /// They go through the lane after all.
    pub(super) fn through_lane(&mut self) {
        if let Stage::Bulk(partial) = &mut self.stage {
            partial.direct = false;
        }
    }

    /// Puts bytes that [`direct`](Receiving::direct) tells of to their place and returns how many,
    /// 0 if no more have come yet. `put` copies the bytes that have come already; the kernel does
    /// the rest.
    ///
    /// # Safety
    /// `to` can be written.
    pub(super) unsafe fn take_directly(
        &mut self,
        socket: &mut Connection,
        to: Part,
        put: impl FnOnce(&[u8]),
    ) -> Result<usize, Ended> {
        let Some((_, left)) = self.direct() else { return Ok(0) };
        let len = to.len.min(usize::try_from(left).unwrap_or(usize::MAX));
        let there = &self.buffer[self.start..self.end];
        let took = match there.len().min(len) {
            0 => {
                (self.start, self.end) = (0, 0);
                self.buffer.resize(BUFFER_BYTES, 0);
                let ahead = if self.longs > 1 { AHEAD_BYTES } else { BUFFER_BYTES };
                let buffer = Part { ptr: self.buffer.as_mut_ptr(), len: ahead };
                let parts = [Part { ptr: to.ptr, len }, buffer];
                // Nothing is read beyond the message's last bytes but the beginning of the next
                // frame.
                let parts = if len as u64 == left { &parts[..] } else { &parts[..1] };
                // SAFETY: `to` by contract; the buffer's own bytes.
                match unsafe { socket.recv(parts) }? {
                    Received::Nothing => {
                        self.drained = true;
                        0
                    }
                    Received::End => return Err(Ended::Gone),
                    Received::Bytes(bytes) => {
                        self.end = bytes.saturating_sub(len);
                        bytes.min(len)
                    }
                }
            }
            len => {
                put(&there[..len]);
                self.start += len;
                len
            }
        };
        if let Stage::Bulk(partial) = &mut self.stage {
            partial.left -= took as u64;
            if partial.left == 0 {
                self.came();
            }
        }
        Ok(took)
    }

    /// Brings the piece that is coming further. `None`: it is all there.
    fn fill(&mut self, budget: &mut Budget) -> Result<Option<Pause>, Violation> {
        let Stage::Bulk(partial) = &mut self.stage else { return Ok(None) };
        if partial.direct {
            return Ok(Some(Pause::Room));
        }
        let range = match partial.range {
            Some(range) => range,
            None => {
                if !self.lane.has_room(budget)? {
                    return Ok(Some(Pause::Room));
                }
                let left = partial.left.min(BULK_BYTES_MAX.into()) as u32;
                let least = left.min(RANGE_MIN);
                let range = match left {
                    0 => Some(NO_PIECE),
                    _ => self.lane.lend(left, least, budget)?,
                };
                let Some(range) = range else { return Ok(Some(Pause::Room)) };
                (partial.range, partial.filled) = (Some(range), 0);
                partial.left -= u64::from(range.len);
                range
            }
        };
        let there = &self.buffer[self.start..self.end];
        let len = there.len().min((range.len - partial.filled) as usize) as u32;
        if len > 0 {
            let part = Piece { offset: range.offset + partial.filled, len, sample: 0 };
            // SAFETY: the buffer has so many bytes.
            unsafe { self.lane.fill_part(part, there.as_ptr()) }?;
            self.start += len as usize;
            partial.filled += len;
        }
        if partial.filled < range.len {
            return Ok(Some(Pause::Bytes));
        }
        let piece = Piece { sample: 0, ..range };
        let (header, mut body, left) = (partial.header, partial.body, partial.left);
        match header.kind() {
            Some(Kind::Eager) => {
                let eager = Eager { piece, ..Eager::read(&body) };
                body[..3].copy_from_slice(&eager.body());
            }
            _ => body[..1].copy_from_slice(&piece.body()),
        }
        // A message that does not fit into the lane in one range goes on as any message does.
        partial.header = Header::new(Kind::Data, 0, header.aux());
        partial.range = None;
        self.push(header, &body);
        self.bytes += u64::from(range.len);
        if left == 0 {
            self.came();
        }
        Ok(None)
    }

    fn push(&mut self, header: Header, body: &Body) {
        let bare = Header::from_word(header.bare());
        self.lane.push(bare, body);
    }

    /// A descriptor has come, and all that belongs to it.
    fn came(&mut self) {
        self.received += 1;
        // Its sender may wait for nothing else.
        self.asked |=
            self.resumes && matches!(&self.stage, Stage::Bulk(partial) if partial.is_long);
        self.stage = Stage::Head;
    }
}
