//! Status pages: readers get whole pages as they were written, and only the endpoint writes.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::mem::memfd;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::{
    decode,
    layout::{FILE_BYTES, FIRST, Header, MAGIC, NAME, Record, VERSION, record_at, records_in},
    page::{Foreign, Page},
    *,
};
use crate::{Path, PathSet, PeerId, Refusal, sync::seqlock};

/// An endpoint that is nothing but its page.
fn status(id: u8, label: &str) -> Status {
    Status::new(&identity(id, label)).unwrap()
}

fn identity(id: u8, label: &str) -> Identity<'_> {
    Identity {
        id: [id; 16],
        label,
        address: Some(format!("local:{}/{}", "u".repeat(64), "n".repeat(64))),
        lane_bytes_max: 1 << 20,
        unexpected_bytes_max: 2 << 20,
        mapped_bytes_max: 3 << 20,
    }
}

fn peer(index: u32, generation: u32) -> PeerId {
    PeerId::new(index, generation)
}

fn join(status: &mut Status, id: PeerId, label: &str) -> PeerRecord {
    let record = status.enlist(id);
    introduce(status, &record, id, label);
    record
}

fn introduce(status: &Status, record: &PeerRecord, id: PeerId, label: &str) {
    let refusal = |path| (path == Path::Cma).then_some(Refusal::Denied(1));
    status.introduce(
        record,
        &Introduction {
            id,
            endpoint: [7; 16],
            label,
            pid: 4_000_000_001,
            uid: 4_000_000_002,
            address: None,
            paths: PathSet::all().without(Path::Cma),
            refusal: &refusal,
            credit_max: 1000,
            waiting_max: 30,
            granted: 2000,
            announced_max: u32::MAX,
        },
    );
}

/// Returns whether the endpoint is no longer seen. Another test that is just looking at this
/// process has a copy of its descriptor for a moment.
fn is_gone(id: u8) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while seen(id).is_some() {
        if Instant::now() > end {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// The status of the endpoint with this number.
fn seen(id: u8) -> Option<EndpointStatus> {
    let view = endpoints_of(std::process::id()).unwrap();
    view.endpoints.into_iter().find(|endpoint| endpoint.id == [id; 16])
}

#[test]
fn what_is_put_down_is_seen() {
    let mut status = status(1, "a label of thirty-two bytes: äöü");
    let record = join(&mut status, peer(3, 9), "\u{1b}[2J evil \u{202e}");
    record.count_sent(Path::Inline, 8);
    record.count_received(Path::Cma, 1 << 40);
    record.note_credit(136);
    record.count_sent(Path::Eager, 100);
    record.queued.set(5);
    record.flags.set(flags::BLOCKED);
    status.posted.set(6);
    status.state.set(state::ASLEEP);
    let all = seen(1).unwrap();
    assert_eq!(all.pid, std::process::id());
    assert_eq!(all.uid, pinfold_sys::user::uid());
    assert_eq!(all.label, "a label of thirty-two bytes: ä");
    assert_eq!(all.address.unwrap().len(), 135);
    assert!(all.age < Duration::from_secs(600) && all.looked_ago < Duration::from_secs(600));
    assert_eq!((all.state, all.posted), (State::Asleep, 6));
    assert_eq!((all.lane_bytes_max, all.unexpected_bytes_max), (1 << 20, 2 << 20));
    assert_eq!(all.mapped_bytes_max, 3 << 20);
    assert_eq!(all.counters, status.counters());
    assert_eq!(all.counters.sent[Path::Inline as usize], PathCount { messages: 1, bytes: 8 });
    assert_eq!(all.counters.copied_user, 8);
    let [peer] = &all.peers[..] else { panic!("{:?}", all.peers) };
    assert_eq!(peer.label, "\u{fffd}[2J evil \u{fffd}");
    assert_eq!((peer.pid, peer.uid, peer.id), (4_000_000_001, 4_000_000_002, 9 << 32 | 3));
    assert_eq!(peer.paths, PathSet::all().without(Path::Cma));
    assert_eq!(peer.refusals, [(Path::Cma, Refusal::Denied(1))]);
    assert_eq!(peer.counters.received[Path::Cma as usize].bytes, 1 << 40);
    // The noted credit, and the messages sent since.
    assert_eq!((peer.credit_used, peer.credit_max), (136 + 228, 1000));
    assert_eq!((peer.waiting_max, peer.announced_max), (30, u64::from(u32::MAX)));
    assert_eq!((peer.queued, peer.blocked, peer.leaving), (5, true, false));
    status.withdraw();
    assert!(is_gone(1));
}

#[test]
fn it_is_gone_with_the_endpoint() {
    let status = status(2, "");
    assert!(seen(2).is_some());
    drop(status);
    assert!(is_gone(2));
}

#[test]
fn nobody_else_can_write_it() {
    let status = status(3, "");
    let name = format!("/memfd:{NAME} (deleted)");
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if !std::fs::read_link(entry.path()).is_ok_and(|link| link.to_str() == Some(&name)) {
            continue;
        }
        // Another test may have closed it, or be about to seal it.
        let Ok(file) = std::fs::File::options().read(true).write(true).open(entry.path()) else {
            continue;
        };
        if memfd::refuses_writers(file.as_fd()) {
            found += 1;
            assert!(
                pinfold_sys::mem::mapping::SharedMapping::map(file.as_fd(), FILE_BYTES).is_err()
            );
        }
    }
    assert!(found > 0 || !has_the_seal());
    drop(status);
}

/// Returns whether the kernel has the seal (5.1).
fn has_the_seal() -> bool {
    let file = memfd::create_fixed("pinfold-test", 4096).unwrap();
    memfd::seal(file.as_fd(), true).unwrap();
    memfd::refuses_writers(file.as_fd())
}

/// Peers come and go; those that find no record count, too; no count is lost.
#[test]
fn more_peers_than_records() {
    let room = records_in(FILE_BYTES) - FIRST;
    let mut status = status(4, "");
    let records: Vec<PeerRecord> = (0..room as u32 + 3)
        .map(|index| {
            let record = join(&mut status, peer(index, 0), "");
            record.count_sent(Path::Eager, 10);
            record.room_stalls.add(1);
            record
        })
        .collect();
    let listed = records.iter().filter(|record| record.is_listed()).count();
    assert_eq!(listed, room);
    let all = seen(4).unwrap();
    assert_eq!((all.peers.len(), all.peers_unlisted), (room, 3));
    assert_eq!(all.counters.room_stalls, room as u64 + 3);
    // One of each kind goes, one comes.
    status.strike(peer(5, 0));
    status.strike(peer(room as u32 + 1, 0));
    // Not again, and not by an old name.
    status.strike(peer(5, 0));
    status.strike(peer(6, 1));
    let late = join(&mut status, peer(5, 1), "late");
    assert!(late.is_listed());
    assert_eq!(late.room_stalls.get(), 0);
    status.record_of(peer(5, 1)).room_stalls.add(1);
    assert_eq!(late.room_stalls.get(), 1);
    // A message of one that is gone counts with those that are gone.
    status.record_of(peer(5, 0)).count_received(Path::Inline, 1);
    let all = seen(4).unwrap();
    assert_eq!((all.peers.len(), all.peers_unlisted), (room, 2));
    assert_eq!(all.counters.room_stalls, room as u64 + 4);
    assert_eq!(all.counters.received[Path::Inline as usize].messages, 1);
    assert_eq!(all.counters, status.counters());
    assert!(all.peers.iter().any(|peer| peer.label == "late" && peer.id == 1 << 32 | 5));
}

/// Operations without the lock, by any thread, count once and with the right peer, though that may
/// be gone by then.
#[test]
fn operations_of_many_threads() {
    let mut status = status(7, "");
    let record = join(&mut status, peer(0, 0), "");
    record.count_sent(Path::Inline, 8);
    let tallies = status.tallies(peer(0, 0)).unwrap();
    assert!(status.tallies(peer(0, 1)).is_none() && status.tallies(peer(1, 0)).is_none());
    let work = |tallies: &Tallies| {
        for _ in 0..10_000 {
            tallies.wrote(3);
            tallies.read(5);
            tallies.changed();
            for path in [Path::Mapped, Path::Cma, Path::Cma, Path::Eager] {
                tallies.went_by(path);
            }
        }
    };
    let done = |times: u64| {
        let (writes, written_bytes, reads, read_bytes) =
            (times * 10_000, times * 30_000, times * 10_000, times * 50_000);
        let (by_kernel, by_agent) = (times * 20_000, times * 10_000);
        let atomics = writes;
        OneSidedCount { writes, written_bytes, reads, read_bytes, atomics, by_kernel, by_agent }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| work(&tallies));
        }
        work(&tallies);
    });
    let all = seen(7).unwrap();
    assert_eq!((all.counters.one_sided, all.peers[0].counters.one_sided), (done(4), done(4)));
    // The peer goes, and operations are still under way.
    status.strike(peer(0, 0));
    work(&tallies);
    let other = join(&mut status, peer(0, 1), "another");
    other.count_sent(Path::Inline, 8);
    thread::scope(|scope| drop(scope.spawn(|| work(&tallies))));
    let all = seen(7).unwrap();
    assert_eq!((all.counters.one_sided, all.peers.len()), (done(6), 1));
    assert_eq!((all.peers[0].counters.one_sided, &*all.peers[0].label), (done(0), "another"));
    assert_eq!(all.counters, status.counters());
    // Then its record is another's.
    let end = status.end;
    drop(tallies);
    status.strike(peer(0, 1));
    for index in 0..2 {
        assert!(join(&mut status, peer(index, 2), "").is_listed());
    }
    assert_eq!(status.end, end);
    let all = seen(7).unwrap();
    assert_eq!(all.counters.one_sided, done(6));
    assert!(all.peers.iter().all(|peer| peer.counters.one_sided == done(0)));
    assert_eq!(all.counters.sent[0], PathCount { messages: 2, bytes: 16 });
}

/// An endpoint that gets no such file counts all the same.
#[test]
fn without_a_file() {
    let mut status = Status::on(Page::unseen(), None, &identity(5, "hidden"));
    let records = [0, 1].map(|index| join(&mut status, peer(index, 0), ""));
    for record in &records {
        assert!(!record.is_listed());
        record.count_sent(Path::Inline, 4);
    }
    status.strike(peer(0, 0));
    assert_eq!(status.counters().sent[0], PathCount { messages: 2, bytes: 8 });
    assert!(seen(5).is_none());
}

/// For a reader at any moment, the sum over peers there and those gone is whole, and no record is
/// half one peer's and half another's.
#[test]
fn no_copy_is_torn() {
    let mut status = status(6, "");
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&stop);
    let reader = thread::spawn(move || {
        let mut last = 0;
        for _ in 0..500 {
            let Some(all) = seen(6) else { continue };
            let count = all.counters.sent[0];
            assert!(count.messages >= last, "from {last} to {}", count.messages);
            assert_eq!(count.bytes, 5 * count.messages);
            last = count.messages;
            for peer in &all.peers {
                assert_eq!(peer.label, format!("peer {}", peer.id >> 32));
            }
        }
        theirs.store(true, Ordering::Relaxed);
    });
    let mut generation = 0;
    while !stop.load(Ordering::Relaxed) && !reader.is_finished() {
        // Counted under the sequence lock, or messages and bytes would be of two moments.
        let record = status.enlist(peer(0, generation));
        seqlock::write(&status.seq, || record.count_sent(Path::Inline, 5));
        introduce(&status, &record, peer(0, generation), &format!("peer {generation}"));
        status.strike(peer(0, generation));
        generation += 1;
    }
    reader.join().unwrap();
    assert_eq!(seen(6).unwrap().counters.sent[0].messages, u64::from(generation));
}

/// A file with these words at these places.
fn page(words: &[(usize, u64)]) -> (Foreign, OwnedFd) {
    let file = memfd::create_sealed("pinfold-test", FILE_BYTES).unwrap();
    for (index, word) in words {
        rustix::io::pwrite(&file, word.as_bytes(), 8 * *index as u64).unwrap();
    }
    (Foreign::map(file.as_fd(), FILE_BYTES).unwrap(), file)
}

const SEQ: usize = std::mem::offset_of!(Header<u64>, seq) / 8;
const RECORDS: usize = std::mem::offset_of!(Header<u64>, records) / 8;

#[test]
fn what_is_no_page_is_called_so() {
    let check = |words: &[(usize, u64)], len| decode::check(&page(words).0, len as u64);
    assert!(matches!(check(&[], FILE_BYTES), Err(Problem::Nonsense(_))));
    assert!(matches!(check(&[(1, VERSION)], FILE_BYTES), Err(Problem::Nonsense(_))));
    let other = VERSION + 256;
    assert_eq!(check(&[(0, MAGIC), (1, other)], FILE_BYTES), Err(Problem::OtherVersion(other)));
    assert!(matches!(check(&[(0, MAGIC), (1, VERSION)], 4096), Err(Problem::Nonsense(_))));
    assert_eq!(check(&[(0, MAGIC), (1, VERSION)], FILE_BYTES), Ok(()));

    let copy = |words: &[(usize, u64)]| decode::copy(&page(words).0).err();
    assert_eq!(copy(&[(SEQ, 7), (RECORDS, 2)]), Some(Problem::Unsteady));
    for records in [0, 1, records_in(FILE_BYTES) as u64 + 1, 1 << 32, u64::MAX] {
        assert!(matches!(copy(&[(RECORDS, records)]), Some(Problem::Nonsense(_))), "{records}");
    }
    assert_eq!(copy(&[(RECORDS, records_in(FILE_BYTES) as u64)]), None);
}

/// The noted credit and the messages sent since may not go together: no more is used than there is,
/// and not less than nothing.
#[test]
fn credit_that_is_used_is_some_of_what_there_is() {
    let used = |offset: u64, max: u64| {
        let word = |at: usize| record_at(2) / 8 + at / 8;
        let (page, _file) = page(&[
            (RECORDS, 3),
            (word(std::mem::offset_of!(Record<u64>, used)), 1),
            (word(std::mem::offset_of!(Record<u64>, credit_offset)), offset),
            (word(std::mem::offset_of!(Record<u64>, credit_max)), max),
        ]);
        decode::copy(&page).unwrap().decode(0, 0).peers[0].credit_used
    };
    assert_eq!((used(7, 1000), used(5000, 1000)), (7, 1000));
    assert_eq!(used(-5i64 as u64, 1000), 0);
    assert_eq!(used(i64::MIN as u64, u64::MAX), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Arbitrary words are some endpoint or none, and never anything worse.
    #[test]
    fn any_words_will_do(
        words in prop::collection::vec(any::<u64>(), record_at(6) / 8),
        bits in prop::collection::vec(any::<u8>(), size_of::<Record<u64>>() / 8),
        records in 2u64..8,
        clock: (u64, u64),
    ) {
        let mut words: Vec<(usize, u64)> = words.into_iter().enumerate().collect();
        words[SEQ].1 &= !1;
        words[RECORDS].1 = records;
        // Some words that are nearly right.
        for (at, bits) in bits.iter().enumerate() {
            words[record_at(3) / 8 + at].1 = u64::from(*bits);
        }
        let used = std::mem::offset_of!(Record<u64>, used) / 8;
        words[record_at(2) / 8 + used].1 = 1;
        let (page, _file) = page(&words);
        let copy = decode::copy(&page).unwrap();
        let endpoint = copy.decode(clock.0, clock.1);
        prop_assert!(endpoint.peers.len() <= records as usize - 2);
        let text = format!("{endpoint:?}");
        prop_assert!(!text.is_empty());
        prop_assert!(!endpoint.label.contains(char::is_control));
        prop_assert!(endpoint.label.chars().count() <= 32);
        for peer in endpoint.peers {
            for (_, why) in peer.refusals {
                prop_assert!(!why.to_string().is_empty());
            }
        }
    }
}
