//! Events of watched memory.

use std::ops::Range;

use super::abi::Message;

/// Something that happened, or is about to, to memory that is watched. Addresses are multiples of
/// the page size, except where noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Was unmapped, or replaced; the range is that of the call and may be more than was watched.
    Unmapped(Range<usize>),
    /// Was moved. The new range is watched if the old one was. Later events may be heard of
    /// earlier: forget both ranges, and do not take over translations of `from` to `to`.
    Remapped {
        /// The old address.
        from: usize,
        /// The new address.
        to: usize,
        /// Bytes, by their new number.
        len: usize,
    },
    /// Is about to lose its contents; may be mapped still, and watched.
    Removed(Range<usize>),
    /// Events came faster than they were taken: anything may have happened to all watched memory.
    Lost,
}

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

impl Event {
    /// A message that nobody asked for, or that makes no sense, counts as lost.
    pub(super) fn decode(message: &Message) -> Event {
        let [one, two, three] = message.arg.map(|arg| usize::try_from(arg).unwrap_or(usize::MAX));
        match message.event {
            EVENT_UNMAP => Event::Unmapped(one..two),
            EVENT_REMOVE => Event::Removed(one..two),
            EVENT_REMAP => Event::Remapped { from: one, to: two, len: three },
            _ => Event::Lost,
        }
    }

    /// Returns whether translations of `range` may be wrong after this event. An unmap of more than
    /// was watched concerns all of it.
    pub fn concerns(&self, range: &Range<usize>) -> bool {
        let meets = |start: usize, end: usize| start < range.end && range.start < end;
        match *self {
            Event::Unmapped(ref gone) | Event::Removed(ref gone) => meets(gone.start, gone.end),
            Event::Remapped { from, to, len } => {
                meets(from, from.saturating_add(len)) || meets(to, to.saturating_add(len))
            }
            Event::Lost => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event: u8, arg: [u64; 3]) -> Message {
        Message { event, reserved: [0; 7], arg }
    }

    #[test]
    fn messages_are_events() {
        assert_eq!(Event::decode(&message(0x16, [1, 5, 0])), Event::Unmapped(1..5));
        assert_eq!(Event::decode(&message(0x15, [1, 5, 0])), Event::Removed(1..5));
        let moved = Event::Remapped { from: 1, to: 5, len: 9 };
        assert_eq!(Event::decode(&message(0x14, [1, 5, 9])), moved);
        for unasked in [0, 0x12, 0x13, 0x17, 255] {
            assert_eq!(Event::decode(&message(unasked, [1, 5, 9])), Event::Lost);
        }
    }

    #[test]
    fn events_concern_what_they_meet() {
        for event in [Event::Unmapped(10..20), Event::Removed(10..20)] {
            assert!(event.concerns(&(19..30)) && event.concerns(&(0..11)));
            assert!(!event.concerns(&(20..30)) && !event.concerns(&(0..10)));
        }
        let moved = Event::Remapped { from: 10, to: 100, len: 10 };
        for (range, meets) in
            [(0..10, false), (0..11, true), (20..100, false), (109..110, true), (110..111, false)]
        {
            assert_eq!(moved.concerns(&range), meets, "{range:?}");
        }
        assert!(Event::Lost.concerns(&(0..1)));
    }
}
