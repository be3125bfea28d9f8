#![allow(unsafe_code)]
//! From the lane to the connection.
//!
//! Accounting: the bytes to be sent next are the first run of `runs` from `done` on, then the other
//! runs. The bytes in `scratch` go in the order of the runs.
//!
//! **Invariant.** A run of bulk bytes is of a piece that was not given back: the descriptors of all
//! runs are beyond those that the peer has acknowledged. A part of a message is read until the
//! message is named as sent, and not after: that is when the kernel looks at it no more and, if the
//! pair outlives its connections, the peer has acknowledged it; or until the transmitter has
//! settled.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use pinfold_sys::{cpu::clock, process::Segment as Part, socket::stream::PARTS_MAX};
use smallvec::SmallVec;

use super::{
    Word,
    retransmit::{Bytes, Frame, Parts, Retransmit, Stretch},
    transmit_done::TransmitDone,
};
use crate::{
    SendMode,
    copy::Tally,
    sync::LightFence,
    transport::{
        shm::{lane::LaneRx, ring::Violation, segment::Segment},
        tcp::{
            connection::Connection,
            transmit::{Transmitted, Transmitter},
        },
    },
    wire::{
        descriptor::{Body, Header, Piece},
        layout::Direction,
        tcp::{
            frame::{self, Brings, Head, Signal},
            offer::Reached,
        },
    },
};

/// Bytes that a turn sends, about, if other peers may wait for their turn: half a millisecond.
const BYTES_A_TURN: usize = 4 << 20;

/// Frames that are gathered before they are sent.
const FRAMES_A_CALL: usize = 128;

/// Bytes to be sent.
enum Run {
    /// So many of the scratch.
    Scratch(usize),
    /// Bulk bytes of a piece.
    Bulk(Piece),
    /// A part of a message in its sender's memory, and its mode of sending.
    Direct(Part, SendMode),
    /// No bytes: all those of this message are sent.
    Sent(u64),
}

impl Run {
    fn len(&self) -> usize {
        match self {
            Run::Scratch(len) => *len,
            Run::Bulk(piece) => piece.len as usize,
            Run::Direct(part, _) => part.len,
            Run::Sent(_) => 0,
        }
    }
}

/// The sending half.
pub(super) struct Sending {
    lane: LaneRx,
    scratch: Vec<u8>,
    /// The offset of its first run in it.
    scratch_at: usize,
    runs: VecDeque<Run>,
    /// Bytes of the first run that are sent.
    done: usize,
    /// The last word, in a frame that is gathered.
    said: Word,
    /// Frames that brought something and are not acknowledged.
    kept: Retransmit,
    /// The transmitter of long messages.
    transmitter: Transmitter,
    /// The long messages that have left.
    transmit_done: TransmitDone,
    /// Frames up to which an acknowledgement was asked for.
    asked: u64,
    /// True if anything was sent since the last [`Sending::take_has_sent`].
    has_sent: bool,
    /// See [`Sending::send`], and [`Sending::is_cut_short`].
    pub(super) share: usize,
    is_cut_short: bool,
    ending: Ending,
}

/// The progress of ending the connection.
#[derive(PartialEq, Eq)]
enum Ending {
    No,
    /// A goodbye goes after all else.
    Due,
    Gathered,
}

impl Sending {
    pub(super) fn new(
        segment: &Arc<Segment>,
        way: Direction,
        fence: LightFence,
        tally: &Arc<Tally>,
        resumes: bool,
    ) -> Sending {
        let lane = LaneRx::new(segment, way, fence, tally);
        lane.ask();
        Sending {
            lane,
            scratch: Vec::new(),
            scratch_at: 0,
            runs: VecDeque::new(),
            done: 0,
            said: Word::default(),
            kept: Retransmit::default(),
            transmitter: Transmitter::plain(),
            transmit_done: TransmitDone::new(resumes),
            asked: 0,
            has_sent: false,
            share: BYTES_A_TURN,
            is_cut_short: false,
            ending: Ending::No,
        }
    }

    /// The peer has said how much it has got, and how much credit it gives back. Returns the number
    /// of descriptors that are done with.
    pub(super) fn heard(&mut self, word: Word) -> Result<u64, Violation> {
        if word.received != self.kept.acknowledged() || word.released > self.lane.released() {
            let transmit_done = &mut self.transmit_done;
            self.kept.acknowledge(word.received, |name| transmit_done.acknowledged(name))?;
            self.lane.release(word.released.saturating_sub(self.lane.released()));
            // The endpoint looks at its lane at each turn; no thread sleeps while this runs.
            let _ = self.lane.publish_first(self.kept.lane_acknowledged());
        }
        Ok(self.kept.lane_acknowledged())
    }

    /// The connection has broken, if there was one. The beginning of the next one says how much is
    /// to be sent again.
    pub(super) fn break_off(&mut self, socket: Option<BorrowedFd<'_>>) {
        if let Some(socket) = socket {
            self.transmitter.break_off(socket);
            self.collect();
        }
        self.transmit_done.settled();
        self.runs.clear();
        self.scratch.clear();
        (self.scratch_at, self.done) = (0, 0);
        // It may not have come.
        self.said = Word::default();
    }

    /// Goes on over another connection, with the frames that the peer has not received.
    ///
    /// # Errors
    /// The peer cannot have received as much as it says.
    pub(super) fn resume(&mut self, received: Reached, word: &Word) -> Result<(), Violation> {
        self.break_off(None);
        let released = self.lane.released();
        self.heard(Word { received: received.frames, released, is_due: false })?;
        self.transmit_done.settled();
        self.transmit_done.again();
        if received.frames != self.kept.acknowledged() {
            return Err(Violation("it took back what it had acknowledged"));
        }
        self.asked = received.frames;
        let kept = std::mem::take(&mut self.kept);
        let mut skip = received.bytes;
        if skip > 0 && received.frames == kept.last() {
            return Err(Violation("it has got more of a frame than there is"));
        }
        for (number, frame) in kept.again() {
            self.put_frame(word, false, number, frame, std::mem::take(&mut skip))?;
        }
        self.kept = kept;
        Ok(())
    }

    /// Sends a message straight from its memory, after all that is in the lane.
    /// [`take_sent`](Sending::take_sent) names it once its memory can be used again.
    ///
    /// # Safety
    /// The parts can be read until then, or until this is gone.
    pub(super) unsafe fn send_directly(
        &mut self,
        name: u64,
        word: &Word,
        header: Header,
        words: &[u64],
        parts: impl Iterator<Item = Part>,
    ) -> Result<(), Violation> {
        while self.lane.head().is_some() {
            self.gather(word, false, usize::MAX)?;
        }
        let mut body = Body::default();
        body[..words.len()].copy_from_slice(words);
        let parts: Parts = parts.filter(|part| part.len > 0).collect();
        let follows = Bytes::Message { name, parts };
        self.add(word, false, Frame { header, body, words: words.len(), follows })
    }

    /// Keeps a frame, and makes it ready to be sent.
    fn add(&mut self, word: &Word, wants_word: bool, frame: Frame) -> Result<(), Violation> {
        let number = self.kept.last() + 1;
        self.put_frame(word, wants_word, number, &frame, 0)?;
        self.kept.push(frame);
        Ok(())
    }

    /// Makes a frame ready to be sent, without the first `skip` bytes behind its words.
    fn put_frame(
        &mut self,
        word: &Word,
        wants_word: bool,
        number: u64,
        frame: &Frame,
        skip: u64,
    ) -> Result<(), Violation> {
        let (header, words) = (frame.header, frame.words);
        if wants_word {
            self.asked = number;
        }
        self.put(word, wants_word, Brings::Descriptor { number, header, words });
        for word in &frame.body[..words] {
            self.put_bytes(&word.to_le_bytes());
        }
        let (runs, mut parts) = (&mut self.runs, Parts::new());
        frame.bytes_from(skip, |stretch| match stretch {
            Stretch::Bulk(piece) if piece.len > 0 => runs.push_back(Run::Bulk(piece)),
            Stretch::Part(part) if part.len > 0 => parts.push(part),
            _ => {}
        })?;
        if let Bytes::Message { name, .. } = frame.follows {
            let mode = self.transmitter.choose(&parts);
            runs.extend(parts.into_iter().map(|part| Run::Direct(part, mode)));
            runs.push_back(Run::Sent(name));
        }
        Ok(())
    }

    /// Long messages that the peer has not acknowledged, or that are not named as sent yet.
    pub(super) fn direct_ones(&self) -> usize {
        self.kept.messages() + self.transmit_done.held()
    }

    /// The long messages whose memory is read no more.
    pub(super) fn take_sent(&mut self, socket: Option<BorrowedFd<'_>>) -> Option<Transmitted> {
        if let Some(socket) = socket
            && self.transmitter.has_in_flight()
        {
            self.transmitter.land(socket);
        }
        self.collect();
        self.transmit_done.take()
    }

    /// Takes the names of messages that the kernel no longer looks at.
    fn collect(&mut self) {
        while let Some(message) = self.transmitter.take_transmitted() {
            self.transmit_done.transmitted(message);
        }
    }

    /// From here on long messages leave by this.
    pub(super) fn leave_by(&mut self, transmitter: Transmitter) {
        self.transmitter = transmitter;
    }

    /// Returns whether the kernel still reads memory of messages that are sent as far as this is
    /// concerned.
    pub(super) fn has_in_flight(&self) -> bool {
        self.transmitter.has_in_flight()
    }

    /// Has the memory of no message read any more; see [`Transmitter::settle`].
    pub(super) fn settle(&mut self, socket: BorrowedFd<'_>) {
        self.transmitter.settle(socket);
    }

    /// A goodbye is to follow all else.
    pub(super) fn end(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Due;
        }
    }

    /// Returns whether nothing is left to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.lane.head().is_none() && self.ending != Ending::Due
    }

    /// Returns whether anything was sent since the last call.
    #[inline]
    pub(super) fn take_has_sent(&mut self) -> bool {
        std::mem::take(&mut self.has_sent)
    }

    /// Returns whether the peer has got everything.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_empty() && self.kept.acknowledged() == self.kept.last()
    }

    /// Returns whether the peer has that word, or is about to be sent it.
    pub(super) fn has_told(&self, word: &Word) -> bool {
        self.said.received == word.received && self.said.released == word.released
    }

    /// Sends as much as there is room for. Unless the endpoint waits, it is given back after its
    /// share, [`BYTES_A_TURN`]: a peer that takes as fast as this side sends would keep it from all
    /// others.
    pub(super) fn send(
        &mut self,
        socket: &mut Connection,
        word: &Word,
        waits: bool,
    ) -> Result<(), super::Ended> {
        let mut room = if waits { usize::MAX } else { self.share };
        self.is_cut_short = false;
        loop {
            if self.runs.is_empty() {
                self.scratch.clear();
                self.scratch_at = 0;
                self.gather(word, waits, FRAMES_A_CALL)?;
                if self.runs.is_empty() {
                    socket.flush()?;
                    break;
                }
            }
            let sent = self.send_some(socket)?;
            if sent == 0 {
                break;
            }
            room = room.saturating_sub(sent);
            if room == 0 {
                self.is_cut_short = true;
                break;
            }
        }
        self.lane.ask();
        Ok(())
    }

    /// Makes frames of the descriptors in the lane.
    fn gather(&mut self, word: &Word, waits: bool, most: usize) -> Result<(), Violation> {
        let mut frames = 0;
        while frames < most
            && (self.runs.len() + 2 <= PARTS_MAX || most == usize::MAX)
            && let Some(header) = self.lane.head()
        {
            let mut body = self.lane.body();
            let (words, piece) = frame::crossing(header, &mut body)
                .ok_or(Violation("what it is told does not go to other hosts"))?;
            self.lane.advance(header)?;
            // A sender that waits for room hears of it no later than the last of these has come.
            let wants_word = waits && self.lane.head().is_none();
            let follows = piece.map_or(Bytes::Nothing, Bytes::Bulk);
            self.add(word, wants_word, Frame { header, body, words, follows })?;
            frames += 1;
        }
        if frames == 0 {
            let wants_word = waits && self.kept.last() > self.kept.acknowledged().max(self.asked);
            if wants_word || word.is_due && !self.has_told(word) {
                if wants_word {
                    self.asked = self.kept.last();
                }
                self.put(word, wants_word, Brings::Signal(Signal::Word));
            }
        }
        if self.ending == Ending::Due && self.lane.head().is_none() {
            self.ending = Ending::Gathered;
            self.put(word, false, Brings::Signal(Signal::Goodbye));
        }
        Ok(())
    }

    fn put(&mut self, word: &Word, wants_word: bool, brings: Brings) {
        let Word { received, released, .. } = *word;
        self.put_bytes(&Head { received, released, wants_word, brings }.bytes());
        self.said = *word;
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.scratch.extend_from_slice(bytes);
        match self.runs.back_mut() {
            Some(Run::Scratch(len)) => *len += bytes.len(),
            _ => self.runs.push_back(Run::Scratch(bytes.len())),
        }
    }

    /// Returns whether it was given back before the connection was full: that will not report its
    /// room.
    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Sends the runs. Returns how many bytes went. `None`: the connection takes no more.
    fn send_some(&mut self, socket: &mut Connection) -> io::Result<usize> {
        // A run that is not copied goes by itself: the runs before and behind it are copied, and
        // their memory is used again at once.
        let sent = match self.runs.front() {
            Some(&Run::Direct(_, mode)) if mode != SendMode::Plain => {
                let parts = self.parts(|run| matches!(run, Run::Direct(..)))?.0;
                // SAFETY: the parts are those of a message that is not named as sent; all up to the
                // next that is not, which is its end.
                unsafe { self.transmitter.send(socket.as_fd(), mode, &parts) }
            }
            _ => None,
        };
        let sent = match sent {
            Some(sent) => sent,
            None => self.send_plainly(socket)?,
        };
        if sent > 0 {
            self.has_sent = true;
            socket.has_sent(sent);
            self.advance(sent, socket.as_fd());
        }
        Ok(sent)
    }

    /// Sends by a call the next runs that may be copied, as far as there is room, and returns how
    /// many bytes.
    fn send_plainly(&mut self, socket: &mut Connection) -> io::Result<usize> {
        let mut long = false;
        let mut first = true;
        let (parts, more) = self.parts(|run| {
            let direct = match run {
                Run::Direct(_, mode) => Some(*mode),
                _ => None,
            };
            long |= direct.is_some();
            // The first run is sent whatever mode was chosen for it.
            std::mem::take(&mut first) || direct.is_none_or(|mode| mode == SendMode::Plain)
        })?;
        let started = if long { clock::ticks() } else { 0 };
        // SAFETY: the parts are in `scratch`, or bulk bytes of pieces that were not given back, or
        // those of messages that are not named as sent.
        let sent = unsafe { socket.send(&parts, more) }?;
        if long && sent > 0 {
            self.transmitter.took(sent, started);
        }
        Ok(sent)
    }

    /// The bytes of the first runs for which `may` is true, and whether others follow.
    fn parts(&self, mut may: impl FnMut(&Run) -> bool) -> io::Result<(SmallVec<[Part; 4]>, bool)> {
        let mut parts = SmallVec::new();
        let (mut at, mut done) = (self.scratch_at, self.done);
        for run in self.runs.iter().take(PARTS_MAX) {
            if run.len() > 0 && !may(run) {
                return Ok((parts, true));
            }
            let start = match run {
                Run::Scratch(len) => {
                    let start = self.scratch[at..].as_ptr().cast_mut();
                    at += len;
                    start
                }
                Run::Bulk(piece) => match self.lane.place(*piece) {
                    Ok(start) => start,
                    // It was asked for before.
                    Err(_) => return Err(io::ErrorKind::InvalidInput.into()),
                },
                Run::Direct(part, _) => part.ptr,
                Run::Sent(_) => continue,
            };
            // `done` is less than the first run's length, and 0 for the others.
            parts.push(Part { ptr: start.wrapping_add(done), len: run.len() - done });
            done = 0;
        }
        Ok((parts, false))
    }

    /// So many bytes are sent.
    fn advance(&mut self, mut sent: usize, socket: BorrowedFd<'_>) {
        while let Some(run) = self.runs.front() {
            let left = run.len() - self.done;
            if sent < left {
                self.done += sent;
                break;
            }
            sent -= left;
            self.done = 0;
            match self.runs.pop_front() {
                Some(Run::Scratch(len)) => self.scratch_at += len,
                Some(Run::Sent(name)) => self.transmitter.handed(name, socket),
                _ => {}
            }
        }
    }
}
