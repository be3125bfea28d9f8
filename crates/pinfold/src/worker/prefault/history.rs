//! The history of receives: the lengths of their messages, and memory that was there already. No
//! I/O.

use crate::{PeerId, worker::matching::Source};

/// Messages that are remembered of a peer.
const LENGTHS: usize = 8;
/// Peers, and pieces of memory, of which something is remembered.
const PLACES: usize = 64;
/// Receives in a row into the same memory that are not looked at, at most.
const SKIPS_MAX: u16 = 64;

/// The lengths of the last messages.
#[derive(Clone, Copy, Debug, Default)]
struct Lengths {
    last: [u64; LENGTHS],
    count: usize,
}

impl Lengths {
    fn note(&mut self, len: u64) {
        self.last[self.count % LENGTHS] = len;
        self.count += 1;
    }

    /// The longest of them: too little would cost each message, too much only now and then.
    fn expected(&self) -> Option<u64> {
        self.last.iter().take(self.count).max().copied()
    }
}

/// The lengths of messages that long receives get.
#[derive(Debug, Default)]
pub(super) struct Expected {
    all: Lengths,
    of_peers: Vec<(Option<PeerId>, Lengths)>,
}

impl Expected {
    /// A message came.
    pub(super) fn note(&mut self, from: PeerId, len: u64) {
        self.all.note(len);
        self.of_peers.resize(PLACES, (None, Lengths::default()));
        let (peer, lengths) = &mut self.of_peers[from.index() as usize % PLACES];
        if *peer != Some(from) {
            (*peer, *lengths) = (Some(from), Lengths::default());
        }
        lengths.note(len);
    }

    /// The length expected. `None`: no message came.
    pub(super) fn from(&self, source: Source) -> Option<u64> {
        let Source::Peer(id) = source else { return self.all.expected() };
        let place = self.of_peers.get(id.index() as usize % PLACES)?;
        (place.0 == Some(id)).then(|| place.1.expected())?
    }
}

/// Memory that was there when it was looked at, or must not be touched.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    at: u64,
    len: u64,
    /// Looks in a row that found nothing to do.
    looks: u16,
    /// Receives that are still let pass.
    skips: u16,
}

/// Memory that needs no look, since it is used again and again.
#[derive(Debug, Default)]
pub(super) struct Familiar {
    places: Vec<Place>,
}

impl Familiar {
    fn place(&mut self, at: u64) -> &mut Place {
        self.places.resize(PLACES, Place::default());
        // Neighbours in memory, and memory aligned alike, are spread.
        let hash = (at >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &mut self.places[hash as usize % PLACES]
    }

    /// Returns whether this receive can go without a look.
    pub(super) fn lets_pass(&mut self, at: u64, len: u64) -> bool {
        let place = self.place(at);
        let passes = place.at == at && place.len >= len && place.skips > 0;
        place.skips -= u16::from(passes);
        passes
    }

    /// A look found nothing to do: the next ones come ever more rarely.
    pub(super) fn was_there(&mut self, at: u64, len: u64) {
        let place = self.place(at);
        let looks = if place.at == at { place.looks } else { 0 };
        let skips = (1 << looks.min(6)).min(SKIPS_MAX);
        *place = Place { at, len, looks: looks.saturating_add(1), skips };
    }

    /// The memory was not there, or is not any more.
    pub(super) fn was_not(&mut self, at: u64) {
        let place = self.place(at);
        if place.at == at {
            *place = Place::default();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn peer(index: u32) -> PeerId {
        PeerId::new(index, 1)
    }

    #[test]
    fn the_longest_of_the_last_messages_is_expected() {
        let mut expected = Expected::default();
        let (one, other) = (Source::Peer(peer(1)), Source::Peer(peer(2)));
        assert_eq!((expected.from(one), expected.from(Source::Any)), (None, None));
        expected.note(peer(1), 500);
        assert_eq!((expected.from(one), expected.from(other)), (Some(500), None));
        assert_eq!(expected.from(Source::Any), Some(500));
        (0..LENGTHS as u64 - 1).for_each(|len| expected.note(peer(1), len));
        assert_eq!(expected.from(one), Some(500));
        expected.note(peer(1), 3);
        assert_eq!(expected.from(one), Some(LENGTHS as u64 - 2), "the long one is forgotten");
        // A peer that takes the place of another begins anew.
        expected.note(peer(1 + PLACES as u32), 9);
        let later = Source::Peer(PeerId::new(1, 2));
        assert_eq!((expected.from(one), expected.from(later)), (None, None));
    }

    #[test]
    fn memory_that_is_used_again_is_looked_at_ever_more_rarely() {
        let mut familiar = Familiar::default();
        let (at, len) = (1 << 30, 1 << 20);
        let mut looks = 0;
        for _ in 0..1000 {
            if !familiar.lets_pass(at, len) {
                looks += 1;
                familiar.was_there(at, len);
            }
        }
        assert!((10..30).contains(&looks), "{looks}");
        assert!(familiar.lets_pass(at, len / 2) && !familiar.lets_pass(at, 2 * len));
        assert!(!familiar.lets_pass(at + 4096, len));
        familiar.was_not(at);
        assert!(!familiar.lets_pass(at, len));
        familiar.was_there(at, len);
        assert!(familiar.lets_pass(at, len) && !familiar.lets_pass(at, len), "trust grows anew");
    }
}
