//! Tests of the programs, run both ways, and of their references by hand.

use super::{
    fourier::Fourier,
    integer_sort::IntegerSort,
    live, lockstep,
    matrix::Matrix,
    radix::Radix,
    references::{Area, BUFFERS, Reference, Way, areas, pages},
    sample::Sample,
    sockets, *,
};
use crate::random::Random;

/// A program of one transfer.
struct One(Transfer);

impl Program for One {
    fn memory_bytes(&self) -> usize {
        16_384
    }

    fn phase(&mut self, _phase: usize, node: &mut Node<'_>) -> Result<bool, String> {
        let Transfer { kind, peer, own, theirs, bytes } = self.0;
        let (peer, own, theirs) = (peer as usize, own as usize, theirs as usize);
        if node.rank() == peer {
            return Ok(false);
        }
        match kind {
            Kind::Store => node.store(peer, 7)?,
            Kind::Put => node.put(peer, own, theirs, bytes as usize)?,
            Kind::Get => node.get(peer, theirs, own, bytes as usize)?,
        }
        Ok(false)
    }

    fn deliver(&mut self, _from: usize, _word: u64) {}

    fn result(&self) -> Vec<u8> {
        Vec::new()
    }
}

fn one(kind: Kind, own: u32, theirs: u32, bytes: u32) -> Vec<Log> {
    let transfer = Transfer { kind, peer: 1, own, theirs, bytes };
    lockstep::run(&mut [One(transfer), One(transfer)]).unwrap()
}

fn of(way: Way, page: u32) -> Reference {
    Reference { way, page }
}

#[test]
fn references_of_a_transfer_are_those_of_its_messages() {
    use Way::{Receive, Transmit};
    // A small message leaves from its own page and comes into the first receive buffer.
    let logs = one(Kind::Store, 0, 0, 8);
    assert_eq!(pages(&logs, 0, 0), [of(Transmit, BUFFERS)]);
    assert_eq!(pages(&logs, 1, 0), [of(Receive, 0)]);
    // 5,000 bytes from 4,000 on are two messages: pages 0 and 1 (to 8,095), then 1 and 2.
    let logs = one(Kind::Put, 4000, 0, 5000);
    let first = BUFFERS + 1;
    let expected = [first, first + 1, first + 1, first + 2].map(|page| of(Transmit, page));
    assert_eq!(pages(&logs, 0, 0), expected);
    assert_eq!(pages(&logs, 1, 0), [of(Receive, 0), of(Receive, 1)]);
    // Staged, a page each.
    let expected = [first, first + 1].map(|page| of(Transmit, page));
    assert_eq!(pages(&logs, 0, 17), expected);
    // A get is asked for; its answer leaves from the other rank's memory.
    let logs = one(Kind::Get, 0, 4096, 4096);
    assert_eq!(pages(&logs, 0, 0), [of(Transmit, BUFFERS), of(Receive, 0)]);
    assert_eq!(pages(&logs, 1, 0), [of(Receive, 0), of(Transmit, first + 1)]);
}

#[test]
fn areas_are_at_both_sides_and_long() {
    let logs = one(Kind::Put, 4000, 96, 5000);
    assert_eq!(areas(&logs, 0, 4999), [Area { at: 4000, bytes: 5000 }]);
    assert_eq!(areas(&logs, 1, 4999), [Area { at: 96, bytes: 5000 }]);
    assert_eq!(areas(&logs, 1, 5000), []);
}

#[test]
fn transfers_beyond_the_memory_fail_and_end_all_ranks() {
    let transfer = Transfer { kind: Kind::Put, peer: 1, own: 0, theirs: 16_000, bytes: 1000 };
    let why = lockstep::run(&mut [One(transfer), One(transfer)]).unwrap_err();
    assert!(why.contains("1000 bytes at 16000 are outside"), "{why}");
    let why = live::run(&mut [One(transfer), One(transfer)]).unwrap_err();
    assert!(!why.contains("another rank"), "{why}");
}

#[test]
fn products_are_right_and_have_the_same_transfers_however_they_run() {
    let mut here = Matrix::all(4, 4, 6, true);
    let logs = lockstep::run(&mut here).unwrap();
    here.iter().try_for_each(Matrix::check).unwrap();
    let mut threads = Matrix::all(4, 4, 6, true);
    assert_eq!(live::run(&mut threads).unwrap(), logs);
    threads.iter().try_for_each(Matrix::check).unwrap();
    let mut moved = Matrix::all(4, 4, 6, false);
    assert_eq!(lockstep::dry(&mut moved).unwrap(), logs);
    assert!(moved[0].check().is_err());
    // Of 4 × 4 blocks each rank needs 4 × 4 pairs. Of the first factor's a quarter is its own, of
    // the second's, which lie in columns, all if the columns are the ranks.
    let gets: usize = logs[0].iter().map(Vec::len).sum();
    assert_eq!(gets, 12);
}

#[test]
fn radix_sort_sorts_the_same_way_however_it_runs() {
    let mut here = Radix::all(4, 3000, 5);
    let logs = lockstep::run(&mut here).unwrap();
    Radix::check(&here).unwrap();
    let mut threads = Radix::all(4, 3000, 5);
    assert_eq!(live::run(&mut threads).unwrap(), logs);
    Radix::check(&threads).unwrap();
    // Two phases a digit, and the end.
    assert_eq!(logs[0].len(), 9);
    let fresh = Radix::all(4, 3000, 5);
    assert!(Radix::check(&fresh).is_err(), "keys that were never sorted");
}

#[test]
fn sample_sort_sorts_the_same_way_however_it_runs() {
    for large in [false, true] {
        let mut here = Sample::all(3, 4000, large, true, 9);
        let logs = lockstep::run(&mut here).unwrap();
        Sample::check(&here).unwrap();
        let mut threads = Sample::all(3, 4000, large, true, 9);
        assert_eq!(live::run(&mut threads).unwrap(), logs, "large: {large}");
        Sample::check(&threads).unwrap();
        let puts = logs.iter().flatten().flatten().filter(|it| it.kind == Kind::Put).count();
        assert_eq!(puts, if large { 6 } else { 0 });
    }
}

#[test]
fn integer_sort_sorts_the_same_way_however_it_runs() {
    let mut here = IntegerSort::all(4, 1 << 12, 1 << 11, 3, 2);
    let logs = lockstep::run(&mut here).unwrap();
    IntegerSort::check(&here).unwrap();
    let mut threads = IntegerSort::all(4, 1 << 12, 1 << 11, 3, 2);
    assert_eq!(live::run(&mut threads).unwrap(), logs);
    IntegerSort::check(&threads).unwrap();
    assert!(IntegerSort::check(&IntegerSort::all(4, 1 << 12, 1 << 11, 3, 2)).is_err());
}

#[test]
fn a_transform_and_its_inverse_are_the_same_values_however_they_run() {
    let mut here = Fourier::all(4, [8, 8, 16], 2, true);
    let logs = lockstep::run(&mut here).unwrap();
    Fourier::check(&here).unwrap();
    let mut threads = Fourier::all(4, [8, 8, 16], 2, true);
    assert_eq!(live::run(&mut threads).unwrap(), logs);
    Fourier::check(&threads).unwrap();
    let mut moved = Fourier::all(4, [8, 8, 16], 2, false);
    assert_eq!(lockstep::dry(&mut moved).unwrap(), logs);
    // Two forward transforms and two inverse ones, each with a put to each of three others of a
    // sixteenth of the values.
    let puts: Vec<Transfer> = logs[1].concat();
    assert_eq!(puts.len(), 4 * 3);
    assert!(puts.iter().all(|put| put.bytes == 8 * 8 * 16 / 16 * 16));
}

#[test]
fn sessions_use_each_buffer_as_often() {
    let all = sockets::sessions(&mut Random::new(1, 0), 4, 2);
    let receives = all.iter().filter(|it| it.1.way == Way::Receive);
    assert_eq!(receives.clone().count() as u32, sockets::PROCESSES * BUFFERS * 2);
    let pages: std::collections::BTreeSet<_> = receives.map(|it| (it.0, it.1.page)).collect();
    assert_eq!(pages.len() as u32, sockets::PROCESSES * BUFFERS);
    // The fifth session begins only after one of four has ended.
    let fifth = all.iter().position(|it| it.0 == 4).unwrap();
    assert!(fifth as u32 >= 2 * BUFFERS * 2, "{fifth}");
}
