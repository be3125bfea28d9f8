#![allow(unsafe_code)]
//! From the lane to the connection.
//!
//! Accounting: the bytes to be sent next are the first run of `runs` from `done` on, then the other runs.
//! What lies in `scratch` goes in the order of the runs.
//!
//! **Invariant.** A run of bulk bytes is of a piece that was not given back: the descriptors of all runs
//! are beyond those that the peer has acknowledged. A part of a message is read until the message is named as
//! sent, and not after; or until the outlet has settled.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use pinfold_sys::{
    clock,
    process::Segment as Part,
    stream::{self, PARTS_MAX},
};
use smallvec::SmallVec;

use super::Word;
use crate::{
    SendMode,
    blockmem::Tally,
    link::{
        shm::{lane::LaneRx, ring::Violation, segment::Segment},
        tcp::outlet::{Departed, Outlet},
    },
    sync::LightFence,
    wire::{
        descriptor::{Header, Piece},
        layout::Direction,
        tcp::frame::{self, Brings, Head, Signal},
    },
};

/// Frames that are gathered before they are sent.
const FRAMES_A_CALL: usize = 128;

/// Bytes to be sent.
enum Run {
    /// So many of the scratch.
    Scratch(usize),
    /// Those of a piece.
    Bulk(Piece),
    /// A part of a message in its sender's memory, and how it is to be sent.
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
    /// Where in it the first run of it begins.
    scratch_at: usize,
    runs: VecDeque<Run>,
    /// Bytes of the first run that are sent.
    done: usize,
    /// What was said last, in a frame that is gathered.
    said: Word,
    /// Frames that brought something, ever.
    frames: u64,
    /// The numbers of those among them that brought long messages, as far as they are not acknowledged;
    /// all others are descriptors of the lane.
    longs: VecDeque<u64>,
    /// How many were acknowledged.
    longs_acknowledged: u64,
    /// How long messages leave, and which have left.
    outlet: Outlet,
    /// Frames that the peer has acknowledged.
    acknowledged: u64,
    /// Frames up to which an acknowledgement was asked for.
    asked: u64,
    ending: Ending,
}

/// How far the end of the connection has come.
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
            frames: 0,
            longs: VecDeque::new(),
            longs_acknowledged: 0,
            outlet: Outlet::plain(),
            acknowledged: 0,
            asked: 0,
            ending: Ending::No,
        }
    }

    /// The peer has said what it has got, and what credit it gives back. Descriptors that are done with.
    pub(super) fn heard(&mut self, word: Word) -> Result<u64, Violation> {
        if word.received > self.frames {
            return Err(Violation("it acknowledged what was not sent"));
        }
        if word.received > self.acknowledged || word.released > self.lane.released() {
            self.acknowledged = word.received.max(self.acknowledged);
            while self.longs.front().is_some_and(|number| *number <= self.acknowledged) {
                self.longs.pop_front();
                self.longs_acknowledged += 1;
            }
            self.lane.release(word.released.saturating_sub(self.lane.released()));
            // The endpoint looks at its lane at each turn; nobody sleeps while this runs.
            let _ = self.lane.publish_first(self.lane_acknowledged());
        }
        Ok(self.lane_acknowledged())
    }

    /// Descriptors of the lane that the peer has acknowledged.
    fn lane_acknowledged(&self) -> u64 {
        self.acknowledged - self.longs_acknowledged
    }

    /// Sends a message straight from its memory, after all that is in the lane. It is one of those that
    /// [`take_sent`](Sending::take_sent) names once that can be used again.
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
        self.frames += 1;
        self.longs.push_back(self.frames);
        let brings = Brings::Descriptor { number: self.frames, header, words: words.len() };
        self.put(word, false, brings);
        for word in words {
            self.put_bytes(&word.to_le_bytes());
        }
        let parts: SmallVec<[Part; 4]> = parts.filter(|part| part.len > 0).collect();
        let mode = self.outlet.choose(&parts);
        self.runs.extend(parts.into_iter().map(|part| Run::Direct(part, mode)));
        self.runs.push_back(Run::Sent(name));
        Ok(())
    }

    /// Long messages that are on their way, or not named as sent yet.
    pub(super) fn direct_ones(&self) -> usize {
        self.runs.iter().filter(|run| matches!(run, Run::Sent(_))).count() + self.outlet.unnamed()
    }

    /// The long messages whose memory is read no more.
    pub(super) fn take_sent(&mut self) -> Option<Departed> {
        if self.outlet.is_airborne() {
            self.outlet.land();
        }
        self.outlet.take_departed()
    }

    /// From here on long messages leave by this.
    pub(super) fn leave_by(&mut self, outlet: Outlet) {
        self.outlet = outlet;
    }

    /// Whether memory of messages is read that are sent as far as this is concerned.
    pub(super) fn is_airborne(&self) -> bool {
        self.outlet.is_airborne()
    }

    /// Has the memory of no message read any more; see [`Outlet::settle`].
    pub(super) fn settle(&mut self, socket: BorrowedFd<'_>) {
        self.outlet.settle(socket);
    }

    /// A goodbye is to follow all else.
    pub(super) fn end(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Due;
        }
    }

    /// Whether nothing is left to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.lane.head().is_none() && self.ending != Ending::Due
    }

    /// Whether the peer has got everything.
    #[cfg(test)]
    pub(super) fn is_flushed(&self) -> bool {
        self.is_empty() && self.acknowledged == self.frames
    }

    /// Whether the peer is told that, or is about to be.
    pub(super) fn has_told(&self, word: &Word) -> bool {
        self.said.received == word.received && self.said.released == word.released
    }

    /// Sends what there is, as far as there is room.
    pub(super) fn send(
        &mut self,
        socket: impl AsFd,
        word: &Word,
        waits: bool,
    ) -> Result<(), super::Ended> {
        loop {
            if self.runs.is_empty() {
                self.scratch.clear();
                self.scratch_at = 0;
                self.gather(word, waits, FRAMES_A_CALL)?;
                if self.runs.is_empty() {
                    break;
                }
            }
            if !self.send_some(&socket)? {
                break;
            }
        }
        self.lane.ask();
        Ok(())
    }

    /// Makes frames of what is in the lane.
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
            self.frames += 1;
            let number = self.frames;
            // Whoever waits for room hears of it no later than the last of these has come.
            let wants_word = waits && self.lane.head().is_none();
            let brings = Brings::Descriptor { number, header, words };
            self.put(word, wants_word, brings);
            for word in &body[..words] {
                self.put_bytes(&word.to_le_bytes());
            }
            if let Some(piece) = piece.filter(|piece| piece.len > 0) {
                self.runs.push_back(Run::Bulk(piece));
            }
            frames += 1;
        }
        if frames == 0 {
            let wants_word = waits && self.frames > self.acknowledged.max(self.asked);
            if wants_word || word.is_due && !self.has_told(word) {
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
        if wants_word {
            self.asked = self.frames;
        }
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

    /// Sends the runs. `false`: the connection takes no more.
    fn send_some(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let socket = socket.as_fd();
        // What is not copied goes by itself: what comes before and behind it is copied, and used again at once.
        let sent = match self.runs.front() {
            Some(&Run::Direct(_, mode)) if mode != SendMode::Plain => {
                let parts = self.parts(|run| matches!(run, Run::Direct(..)))?.0;
                // SAFETY: the parts are those of a message that is not named as sent; all up to the next
                // that is not, which is its end.
                unsafe { self.outlet.send(socket, mode, &parts) }
            }
            _ => None,
        };
        let sent = match sent {
            Some(sent) => sent,
            None => self.send_plainly(socket)?,
        };
        if sent > 0 {
            self.advance(sent);
        }
        Ok(sent > 0)
    }

    /// Sends by a call what is next and may be copied, and as much as there is room for of it: how many bytes.
    fn send_plainly(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut long = false;
        let mut first = true;
        let (parts, more) = self.parts(|run| {
            let direct = match run {
                Run::Direct(_, mode) => Some(*mode),
                _ => None,
            };
            long |= direct.is_some();
            // What is next is sent whatever was chosen for it.
            std::mem::take(&mut first) || direct.is_none_or(|mode| mode == SendMode::Plain)
        })?;
        let started = if long { clock::ticks() } else { 0 };
        // SAFETY: the parts are in `scratch`, or bulk bytes of pieces that were not given back, or those of
        // messages that are not named as sent.
        let sent = unsafe { stream::send(socket, &parts, more) }?;
        if long && sent > 0 {
            self.outlet.took(sent, started);
        }
        Ok(sent)
    }

    /// The bytes of the first runs that `may` go; whether others follow.
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
    fn advance(&mut self, mut sent: usize) {
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
                Some(Run::Sent(name)) => self.outlet.handed(name),
                _ => {}
            }
        }
    }
}
