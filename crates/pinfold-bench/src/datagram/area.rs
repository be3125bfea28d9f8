//! The memory that is sent from, and the holder of each part of it.
//!
//! **Invariant.** An [`Area`] exists at most once, and only while its part of the memory is not in
//! flight: [`Areas::take`] makes it, [`Areas::begin`] uses it up, and only [`Areas::end`] lets it
//! be made again. So its holder may change its bytes.

use std::{collections::VecDeque, io, ops::Range};

use rustix::param::page_size;

use pinfold_sys::mem::userfault::Pages;

/// A part of a [`Sender`](super::Sender)'s memory, to fill and to send. An area that is not sent is
/// given back with [`Sender::put_back`](super::Sender::put_back), or is lost to the sender.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "only with this the memory can be sent"]
pub struct Area {
    pub(super) owner: u32,
    pub(super) index: u32,
}

/// The completions that the kernel still owes for an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flight {
    /// True until the send's completion: it was made or failed.
    send: bool,
    /// True until the notice: the kernel no longer looks at the bytes.
    notice: bool,
    /// Bytes of the send.
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Areas {
    pages: Pages,
    /// Bytes of an area, a multiple of the page size.
    stride: usize,
    /// Areas that are free for longest are lent first, so that all go round.
    free: VecDeque<u32>,
    flights: Vec<Flight>,
    in_flight: usize,
    /// Flights, of these, whose sends are not made.
    unsent: usize,
    owner: u32,
}

impl Areas {
    /// `count` areas of at least `bytes` bytes, pages in place, all free.
    pub(super) fn new(count: usize, bytes: usize, owner: u32) -> io::Result<Areas> {
        let stride = bytes.next_multiple_of(page_size());
        let pages = Pages::new(count * stride, false)?;
        pages.populate(0..pages.len())?;
        let flights = vec![Flight::default(); count];
        Ok(Areas {
            pages,
            stride,
            free: (0..count as u32).collect(),
            flights,
            in_flight: 0,
            unsent: 0,
            owner,
        })
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The addresses of all of it.
    pub(super) fn addresses(&self) -> Range<usize> {
        self.pages.addr()..self.pages.addr() + self.pages.len()
    }

    /// The address of the area's byte 0.
    pub(super) fn address(&self, index: u32) -> usize {
        self.pages.addr() + index as usize * self.stride
    }

    pub(super) fn bytes(&self, area: &Area) -> &[u8] {
        let from = area.index as usize * self.stride;
        &self.pages.as_slice()[from..from + self.stride]
    }

    pub(super) fn bytes_mut(&mut self, area: &mut Area) -> &mut [u8] {
        let from = area.index as usize * self.stride;
        &mut self.pages.as_mut_slice()[from..from + self.stride]
    }

    pub(super) fn take(&mut self) -> Option<Area> {
        self.free.pop_front().map(|index| Area { owner: self.owner, index })
    }

    /// Takes back an area of this owner's that is not to be sent.
    pub(super) fn put_back(&mut self, area: Area) {
        self.free.push_back(area.index);
    }

    /// The area is the kernel's now, for a send of so many bytes. With `notice` it will say when it
    /// no longer looks.
    pub(super) fn begin(&mut self, area: Area, bytes: usize, notice: bool) {
        self.flights[area.index as usize] = Flight { send: true, notice, bytes };
        self.in_flight += 1;
        self.unsent += 1;
    }

    /// The kernel has made a send, or refused it, and says whether a notice is to come. Returns the
    /// bytes it was to send; `None` if there was no such send.
    pub(super) fn end_send(&mut self, index: u32, notice: bool) -> Option<usize> {
        let flight = self.flights.get_mut(index as usize).filter(|flight| flight.send)?;
        (flight.send, flight.notice) = (false, flight.notice && notice);
        let (bytes, over) = (flight.bytes, !flight.notice);
        self.unsent -= 1;
        if over {
            self.end(index);
        }
        Some(bytes)
    }

    /// The kernel no longer looks. `None` if it was not to say so.
    pub(super) fn end_notice(&mut self, index: u32) -> Option<()> {
        let flight = self.flights.get_mut(index as usize).filter(|flight| flight.notice)?;
        flight.notice = false;
        if !flight.send {
            self.end(index);
        }
        Some(())
    }

    fn end(&mut self, index: u32) {
        self.in_flight -= 1;
        self.free.push_back(index);
    }

    /// Sends that the kernel still has to read for.
    pub(super) fn unsent(&self) -> usize {
        self.unsent
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn areas(count: usize) -> Areas {
        Areas::new(count, 1, 7).unwrap()
    }

    #[test]
    fn an_area_ends_once_and_after_both_words() {
        let mut all = areas(2);
        let area = all.take().unwrap();
        let index = area.index;
        all.begin(area, 5, true);
        assert_eq!((all.end_send(index, true), all.in_flight(), all.unsent()), (Some(5), 1, 0));
        // A completion that comes twice, or is of others, ends nothing.
        assert_eq!((all.end_send(index, false), all.end_send(9, false)), (None, None));
        assert_eq!(
            (all.end_notice(1 - index), all.end_notice(9), all.in_flight()),
            (None, None, 1)
        );
        assert_eq!((all.end_notice(index), all.in_flight()), (Some(()), 0));
        assert_eq!((all.end_notice(index), all.in_flight()), (None, 0));
        // The notice comes first, as for a send that waits for a retry.
        let area = all.take().unwrap();
        let index = area.index;
        all.begin(area, 6, true);
        assert_eq!((all.end_notice(index), all.in_flight()), (Some(()), 1));
        assert_eq!((all.end_send(index, true), all.in_flight()), (Some(6), 0));
    }

    proptest! {
        /// An area is with one at most, for any answers of the kernel: free, a caller, or the
        /// kernel.
        #[test]
        fn nobody_has_what_another_has(steps in vec((0u8..5, 0u32..5, any::<bool>()), 0..80)) {
            let mut all = areas(4);
            let mut held: Vec<Area> = Vec::new();
            // Completions still due for each: the send's, the notice.
            let mut kernel = [(false, false); 4];
            for (step, index, notice) in steps {
                match step {
                    0 => held.extend(all.take()),
                    1 if !held.is_empty() => {
                        let area = held.remove(index as usize % held.len());
                        kernel[area.index as usize] = (true, notice);
                        all.begin(area, 1, notice);
                    }
                    2 if !held.is_empty() => all.put_back(held.remove(0)),
                    3 => {
                        let known = all.end_send(index, notice).is_some();
                        let has = kernel.get_mut(index as usize);
                        prop_assert_eq!(known, has.as_ref().is_some_and(|has| has.0));
                        if let Some(has) = has.filter(|_| known) {
                            *has = (false, has.1 && notice);
                        }
                    }
                    4 => {
                        let known = all.end_notice(index).is_some();
                        let has = kernel.get_mut(index as usize);
                        prop_assert_eq!(known, has.as_ref().is_some_and(|has| has.1));
                        has.into_iter().for_each(|has| has.1 = false);
                    }
                    _ => {}
                }
                let flying = kernel.iter().filter(|has| has.0 || has.1).count();
                prop_assert_eq!(all.in_flight(), flying);
                prop_assert_eq!(all.unsent(), kernel.iter().filter(|has| has.0).count());
                prop_assert_eq!(all.free.len() + held.len() + flying, 4);
                let mut each: Vec<u32> = all.free.iter().copied().chain(held.iter().map(|a| a.index)).collect();
                each.extend((0..4u32).filter(|&i| kernel[i as usize].0 || kernel[i as usize].1));
                each.sort_unstable();
                prop_assert_eq!(each, [0, 1, 2, 3]);
            }
        }
    }
}
