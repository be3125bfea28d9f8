//! The way to control congestion that a connection takes: the host's own, or `reno`. No I/O.
//!
//! A way that sends at a pace (`bbr`) finds that pace by how long packets take there and back, and
//! how many arrive meanwhile. It is made for long routes. If the shortest trip takes a microsecond,
//! its measurements show only when processors get to their work. Its timers run on the processors
//! that set them, so packets overtake each other; late packets are sent again in vain, which it
//! takes for a network that is full.
//!
//! So if trips are [short](SHORT), the connection goes by `reno`, which sends as much as the other
//! end has room for until a packet is *lost*, and halves that then. If more are lost than one in
//! [`LOST_ONE_IN`], there is a network between the two that has less room than they, and other
//! hosts may be in it: then the connection goes by the host's way, for good. A packet that the
//! other end reports as a duplicate was not lost.

use std::time::Duration;

use pinfold_sys::socket::stream::congestion::Progress;

/// Trips that are short: there and back within a building. With one packet in 1000 lost, `reno`
/// still brings some 100 MB/s at this length, and more the shorter it is.
const SHORT: Duration = Duration::from_micros(500);
/// The loss that is too much: of a window of so many packets or more, one in so many; but not if
/// there are so few.
const WINDOW: u32 = 1 << 14;
const LOST_ONE_IN: u32 = 1000;

/// A way to be taken from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    ToReno,
    ToOwn,
}

/// The choice for one connection, which begins with `reno`.
#[derive(Debug)]
pub(super) struct Choice {
    is_reno: bool,
    is_lossy: bool,
    /// The progress at the beginning of the window.
    since: Progress,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice { is_reno: true, is_lossy: false, since: Progress::default() }
    }
}

impl Choice {
    /// Returns whether a host's way sends at a pace. Another is taken as it is: one that finds out
    /// by itself that nothing is lost needs no help, and one that was chosen for a network
    /// (`dctcp`) knows more of it than this.
    pub(super) fn is_paced(own: &str) -> bool {
        own.starts_with("bbr")
    }

    /// Returns whether nothing can change it any more.
    pub(super) fn is_final(&self) -> bool {
        self.is_lossy
    }

    /// Takes the progress since the connection began. Returns the change, if another way is to be
    /// taken.
    pub(super) fn look(&mut self, now: Progress) -> Option<Change> {
        let packets = now.packets.wrapping_sub(self.since.packets);
        let again = now.again.wrapping_sub(self.since.again);
        let in_vain = now.in_vain.wrapping_sub(self.since.in_vain);
        // Some packets that were sent in vain are never reported: only a majority tells anything.
        let lost = if in_vain < again / 2 { again - in_vain } else { 0 };
        self.is_lossy |= self.is_reno && lost > packets.max(WINDOW) / LOST_ONE_IN;
        if packets >= WINDOW {
            self.since = now;
        }
        let wants_reno = now.shortest_trip < SHORT && !self.is_lossy;
        if wants_reno == self.is_reno {
            return None;
        }
        (self.is_reno, self.since) = (wants_reno, now);
        Some(if wants_reno { Change::ToReno } else { Change::ToOwn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(trip_us: u64, packets: u32, again: u32, in_vain: u32) -> Progress {
        let shortest_trip = Duration::from_micros(trip_us);
        Progress { shortest_trip, packets, again, in_vain }
    }

    #[test]
    fn the_length_of_the_route_decides() {
        assert_eq!(Choice::default().look(after(499, 10, 0, 0)), None);
        let mut choice = Choice::default();
        assert_eq!(choice.look(after(500, 10, 0, 0)), Some(Change::ToOwn));
        assert_eq!(choice.look(after(50_000, 10_000_000, 0, 0)), None);
        assert!(!choice.is_final());
        // The first packets were held up, or the route has become another.
        assert_eq!(choice.look(after(12, 10_100_000, 0, 0)), Some(Change::ToReno));
        assert_eq!(choice.look(after(12, 20_100_000, 0, 0)), None);
        assert_eq!(choice.look(after(30_000, 20_200_000, 0, 0)), Some(Change::ToOwn));
    }

    #[test]
    fn a_route_that_loses_packets_is_the_hosts_for_good() {
        let mut choice = Choice::default();
        assert_eq!(choice.look(after(50, 3000, 16, 0)), None);
        assert_eq!(choice.look(after(50, 3000, 17, 0)), Some(Change::ToOwn));
        assert!(choice.is_final());
        assert_eq!(choice.look(after(5, 50_000_000, 17, 0)), None);
    }

    #[test]
    fn now_and_then_a_packet_is_lost_everywhere() {
        let mut choice = Choice::default();
        for number in 1..10_000_u32 {
            let now = after(50, number.wrapping_mul(1 << 20), number * 1000, 0);
            assert_eq!(choice.look(now), None, "{number}");
        }
        // Each of these windows by itself.
        let (number, packets) = (10_000_000, 10_000_u32.wrapping_mul(1 << 20));
        assert_eq!(choice.look(after(50, packets, number, 0)), None);
        assert_eq!(choice.look(after(50, packets, number + 1100, 0)), Some(Change::ToOwn));
    }

    #[test]
    fn what_was_sent_in_vain_was_not_lost() {
        let mut choice = Choice::default();
        assert_eq!(choice.look(after(1, 100_000, 2280, 2235)), None);
        assert_eq!(choice.look(after(1, 200_000, 4560, 3375)), None);
        assert_eq!(choice.look(after(1, 300_000, 6840, 4514)), Some(Change::ToOwn));
    }

    #[test]
    fn what_the_host_does_until_then_is_not_held_against_reno() {
        let mut choice = Choice::default();
        assert_eq!(choice.look(after(900, 10, 0, 0)), Some(Change::ToOwn));
        assert_eq!(choice.look(after(900, 100_000, 50_000, 0)), None);
        assert_eq!(choice.look(after(90, 200_000, 100_000, 0)), Some(Change::ToReno));
        assert_eq!(choice.look(after(90, 300_000, 100_000, 0)), None);
        // Nor if it was short.
        let mut choice = Choice::default();
        assert_eq!(choice.look(after(900, 10, 0, 0)), Some(Change::ToOwn));
        assert_eq!(choice.look(after(90, 10_000, 5000, 0)), Some(Change::ToReno));
        assert_eq!(choice.look(after(90, 10_100, 5000, 0)), None);
    }

    #[test]
    fn ways_without_a_pace_are_left_alone() {
        for own in ["bbr", "bbr2", "bbr3"] {
            assert!(Choice::is_paced(own), "{own}");
        }
        for own in ["reno", "cubic", "dctcp", "vegas", ""] {
            assert!(!Choice::is_paced(own), "{own}");
        }
    }
}
