//! The page references of U-Net's interface (Welsh, Basu, von Eicken, section 6.2) and PM's areas
//! (Tezuka and others, section 5), from the transfers of a program.
//!
//! A process's memory, page by page: its receive buffers, the page of its small messages, the
//! staging buffers of long ones if it has any, and the program's own. Transfers go in messages of a
//! page at most. A message that is sent refers to its pages, one that comes to the next receive
//! buffer. A get is a small message, which the other rank answers.

use super::{Kind, Log, Transfer};

/// Bytes of a page, and of a message at most.
pub const PAGE_BYTES: u32 = 4096;
/// Receive buffers of a process, a page each (section 6.2).
pub const BUFFERS: u32 = 64;
/// The page of small messages: 64 buffers of 64 bytes (section 6.2).
const SMALL: u32 = BUFFERS;
/// The page at which the staging buffers begin.
const STAGING: u32 = SMALL + 1;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It leaves.
    Transmit,
    /// It comes.
    Receive,
}

/// A reference to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The direction.
    pub way: Way,
    /// The page, counted from the process's first.
    pub page: u32,
}

/// An event at a rank, before receive buffers are told apart.
#[derive(Clone, Copy)]
enum Event {
    Sends(u32),
    Receives,
}

/// The state of a rank.
struct Rank {
    staging: u32,
    next_staging: u32,
    next_buffer: u32,
}

impl Rank {
    /// The pages of bytes that leave, message by message.
    fn sends(&mut self, from: u32, bytes: u32, events: &mut Vec<Event>) {
        for at in (0..bytes).step_by(PAGE_BYTES as usize) {
            if self.staging > 0 {
                events.push(Event::Sends(STAGING + self.next_staging));
                self.next_staging = (self.next_staging + 1) % self.staging;
                continue;
            }
            let (start, end) = (from + at, from + bytes.min(at + PAGE_BYTES));
            let pages = start / PAGE_BYTES..=(end - 1) / PAGE_BYTES;
            events.extend(pages.map(|page| Event::Sends(STAGING + page)));
        }
    }

    /// The events of a transfer that this rank began.
    fn own(&mut self, transfer: &Transfer, events: &mut Vec<Event>) {
        match transfer.kind {
            Kind::Store => events.push(Event::Sends(SMALL)),
            Kind::Put => self.sends(transfer.own, transfer.bytes, events),
            Kind::Get => {
                events.push(Event::Sends(SMALL));
                let messages = transfer.bytes.div_ceil(PAGE_BYTES);
                events.extend((0..messages).map(|_| Event::Receives));
            }
        }
    }

    /// The events of one that another rank began.
    fn other(&mut self, transfer: &Transfer, events: &mut Vec<Event>) {
        match transfer.kind {
            Kind::Store => events.push(Event::Receives),
            Kind::Put => {
                let messages = transfer.bytes.div_ceil(PAGE_BYTES);
                events.extend((0..messages).map(|_| Event::Receives));
            }
            Kind::Get => {
                events.push(Event::Receives);
                self.sends(transfer.theirs, transfer.bytes, events);
            }
        }
    }

    fn refer(&mut self, event: Event) -> Reference {
        match event {
            Event::Sends(page) => Reference { way: Way::Transmit, page },
            Event::Receives => {
                let page = self.next_buffer;
                self.next_buffer = (page + 1) % BUFFERS;
                Reference { way: Way::Receive, page }
            }
        }
    }
}

/// The references of a rank. With `staging` buffers, long messages leave from these in turn; with
/// none, from the program's memory. Within a phase the rank's own transfers and the others' take
/// turns, evenly: when they really meet is a matter of time.
pub fn pages(logs: &[Log], rank: usize, staging: u32) -> Vec<Reference> {
    let mut state = Rank { staging, next_staging: 0, next_buffer: 0 };
    let mut all = Vec::new();
    for phase in 0..logs.first().map_or(0, Vec::len) {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for transfer in &logs[rank][phase] {
            state.own(transfer, &mut own);
        }
        // The others take turns, too: rank after rank, a transfer each.
        let to_me = |log: &Log| -> Vec<Transfer> {
            log[phase].iter().filter(|it| it.peer as usize == rank).copied().collect()
        };
        let queues: Vec<Vec<Transfer>> = logs.iter().map(to_me).collect();
        for at in 0..queues.iter().map(Vec::len).max().unwrap_or(0) {
            for transfer in queues.iter().filter_map(|queue| queue.get(at)) {
                state.other(transfer, &mut others);
            }
        }
        let (mut at, mut beside) = (0, 0);
        while at < own.len() || beside < others.len() {
            // Whichever is behind in its part goes on.
            let is_own = (at + 1) * others.len() <= (beside + 1) * own.len();
            let event = if beside == others.len() || (is_own && at < own.len()) {
                at += 1;
                own[at - 1]
            } else {
                beside += 1;
                others[beside - 1]
            };
            all.push(state.refer(event));
        }
    }
    all
}

/// An area of a rank's memory that a transfer pins: address and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The offset in the rank's memory.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The areas that a rank's transfers of more than `over` bytes pin at its side: those that it sends
/// from and, as soon as the other rank begins, those that it receives into.
pub fn areas(logs: &[Log], rank: usize, over: u32) -> Vec<Area> {
    let mut all = Vec::new();
    let area = |at: u32, bytes: u32| Area { at: at.into(), bytes: bytes.into() };
    for phase in 0..logs.first().map_or(0, Vec::len) {
        let long = |it: &&Transfer| it.kind != Kind::Store && it.bytes > over;
        let own: Vec<&Transfer> = logs[rank][phase].iter().filter(long).collect();
        let to_me = |log: &Log| -> Vec<Transfer> {
            log[phase].iter().filter(long).filter(|it| it.peer as usize == rank).copied().collect()
        };
        let ranks = logs.len();
        // A rank sends to the next rank first, and so receives from the one before it first.
        let order = (1..ranks).map(|step| (rank + ranks - step) % ranks);
        let others: Vec<Transfer> = order.flat_map(|other| to_me(&logs[other])).collect();
        for at in 0..own.len().max(others.len()) {
            all.extend(own.get(at).map(|it| area(it.own, it.bytes)));
            all.extend(others.get(at).map(|it| area(it.theirs, it.bytes)));
        }
    }
    all
}
