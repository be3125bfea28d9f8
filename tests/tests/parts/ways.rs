//! The ways of messages in parts, of every shape.

use std::time::Duration;

use pinfold::{
    Arena, DonatedBuf, Error, Path, PathSet, Refusal, SharedArena,
    reassembly::fold::{Place, Why},
};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::arenas,
    block_on, pair,
    role::{self, PATIENCE},
    stamp,
};

use super::{
    HUGE, MIB, PAGE, builder, check, folded, handed_off, is_given, parts, view, wait_for_empty,
};

/// Lengths of parts that are mapped one behind the other, by costs that are the same everywhere.
fn shapes() -> Vec<Vec<usize>> {
    vec![
        vec![MIB; 2],
        vec![HUGE; 3],
        vec![64 << 10; 40],
        vec![64 << 10, MIB, 16 * PAGE, 25 * PAGE, 64 * PAGE + 1],
        vec![HUGE, 3 * HUGE + 5],
        vec![256 << 10; 33],
    ]
}

const COPY: u64 = 1 << 40;
const MESSAGE: u64 = 2 << 40;
const LATE: u64 = 3 << 40;
const GIVEN: u64 = 4 << 40;
const SCATTERED: u64 = 5 << 40;
const BEHIND: u64 = 6 << 40;
const OVER: u64 = 7 << 40;

#[test]
fn every_shape_in_every_way() {
    let stage = Stage::new(120);
    let roles = ["looks", "gives"].map(|role| stage.role(role).unmeasured());
    stage.play(roles);
}

pub fn gives(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(builder(), "parts");
    let arena = Arena::new().unwrap();
    for (seed, lens) in shapes().iter().enumerate() {
        let (seed, len) = (seed as u64, lens.iter().sum::<usize>());
        let make = || parts(&arena, lens, HUGE, seed);
        let (receipt, donations) = endpoint.handoff_vectored(peer, seed, make()).wait();
        let receipt = receipt.unwrap();
        assert_eq!((receipt.path, receipt.bytes), (Path::Handoff, len as u64), "{receipt}");
        assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0), "{receipt}");
        // Back in their order, with their bytes.
        let bytes =
            donations.into_iter().flat_map(|donation| donation.into_arena_buf().unwrap().to_vec());
        stamp::check(&bytes.collect::<Vec<u8>>(), seed);
        for way in [COPY, MESSAGE, SCATTERED] {
            let (receipt, _) = endpoint.handoff_vectored(peer, way | seed, make()).wait();
            let receipt = receipt.unwrap();
            assert_eq!(receipt.path, Path::Mapped, "{receipt}");
            assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::Declined), "{receipt}");
        }
        endpoint.give_vectored(peer, GIVEN | seed, make()).unwrap();
        drop(endpoint.handoff_vectored(peer, LATE | seed, make()));
        wait_for_empty(&endpoint, &arena);
        let handoff = endpoint.handoff_vectored(peer, seed, make());
        endpoint.send(peer, BEHIND | seed, b"").unwrap();
        let (receipt, _) = block_on(handoff);
        assert_eq!(receipt.unwrap().path, Path::Handoff);
        wait_for_empty(&endpoint, &arena);
    }
    // Taken back before the receiver looked.
    let mut unwanted = endpoint.handoff_vectored(peer, 999, parts(&arena, &[MIB; 2], PAGE, 1));
    assert!(unwanted.wait_timeout(Duration::from_millis(5)).is_none());
    assert!(unwanted.cancel());
    let (result, back) = unwanted.wait();
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!(back.len(), 2);
    drop(back);
    assert_eq!(arena.stats().buffers, 0);
    endpoint.send(peer, OVER, b"").unwrap();
    drop(arena);
    endpoint.recv(peer, OVER).unwrap();
    drop(endpoint);
    before.returns(PATIENCE);
}

pub fn looks(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(builder(), "parts");
    for (seed, lens) in shapes().iter().enumerate() {
        let (seed, len) = (seed as u64, lens.iter().sum::<usize>());
        let mapped = arenas().len();
        let view = endpoint.recv_view(peer, seed).unwrap();
        assert_eq!((view.peer(), view.tag(), view.len()), (peer, seed, len));
        is_given(&view, Place::Window);
        assert_eq!(folded(&view).mapping.cheapest as usize, lens.len(), "{}", folded(&view));
        assert!(arenas().len() > mapped, "one at least is mapped in the window");
        check(&view, seed);
        // SAFETY: the sender is this library's, and waits.
        #[allow(unsafe_code)]
        let bytes = unsafe { view.as_slice() }.unwrap();
        stamp::check(bytes, seed);
        assert!(!view.is_writable() && matches!(view.write(0, b"x"), Err(Error::ReadOnly)));
        assert!(matches!(view.read(len, &mut [0]), Err(Error::OutOfBounds { .. })));
        drop(view);
        let mut buf = vec![0; len];
        let received = endpoint.recv_into(peer, COPY | seed, &mut buf).unwrap();
        assert_eq!(received.receipt.path, Path::Mapped, "{}", received.receipt);
        stamp::check(&buf, seed);
        let message = endpoint.recv(peer, MESSAGE | seed).unwrap();
        assert_eq!(message.receipt().path, Path::Mapped, "{}", message.receipt());
        stamp::check(&message, seed);
        let (mut one, mut two) = (vec![0; 70_000], vec![0; len - 70_000]);
        let mut rooms = [&mut one, &mut two].map(|room| std::io::IoSliceMut::new(room));
        endpoint.recv_vectored(peer, SCATTERED | seed, &mut rooms).unwrap();
        stamp::check(&[one, two].concat(), seed);
        // The messages were here before they were received.
        endpoint.probe(peer, LATE | seed).unwrap();
        let late = endpoint.recv_view(peer, LATE | seed).unwrap().into_owned();
        let view = block_on(endpoint.recv_view_request(peer, GIVEN | seed)).unwrap();
        std::thread::spawn(move || {
            check(&late, seed);
            check(&view, seed);
        })
        .join()
        .unwrap();
        // Posted before it comes, dropped before it is asked for: it is the next one's.
        let request = endpoint.recv_view_request(peer, seed);
        endpoint.recv(peer, BEHIND | seed).unwrap();
        drop(request);
        check(&endpoint.recv_view(peer, seed).unwrap(), seed);
        let messages = endpoint.counters().received[Path::Handoff as usize].messages;
        assert_eq!(messages, 4 * (seed + 1));
    }
    endpoint.recv(peer, OVER).unwrap();
    endpoint.send(peer, OVER, b"").unwrap();
    assert!(endpoint.recv(peer, 1).unwrap_err().is_peer_gone());
    assert!(arenas().is_empty(), "{:?}", arenas());
    drop(endpoint);
    before.returns(PATIENCE);
}

/// Parts that lie in a row already stay where they are, and nothing is done.
#[test]
fn neighbours_stay_where_they_are() {
    Stage::new(60).role("neighbours").spawn().end_well();
}

pub fn neighbours(_: &Args) {
    let (a, to_b, b, from_a) = pair("parts-row", builder(), builder());
    let arena = Arena::new().unwrap();
    let bytes = stamp::bytes(4 * MIB, 3);
    let donations = bytes.chunks(MIB).map(|bytes| {
        let mut buf = arena.alloc_aligned(MIB, PAGE).unwrap();
        buf.copy_from_slice(bytes);
        buf
    });
    a.give_vectored(to_b, 1, donations.collect::<Vec<_>>()).unwrap();
    let mapped = arenas().len();
    let view = b.recv_view(from_a, 1).unwrap();
    is_given(&view, Place::InPlace);
    check(&view, 3);
    assert!(arenas().len() <= mapped + 1, "nothing but the extent itself");
    drop(view);
    wait_for_empty(&a, &arena);
}

/// A role by itself.
fn alone(role: &str) {
    Stage::new(60).role(role).unmeasured().spawn().end_well();
}

/// A part that does not end at a page has the bytes behind it copied, and the receipt says so.
#[test]
fn what_does_not_fit_its_pages_is_copied() {
    alone("odd");
}

pub fn odd(_: &Args) {
    let (a, to_b, b, from_a) = pair("parts-odd", builder(), builder());
    let arena = Arena::new().unwrap();
    // Parts that begin at no page, and parts that end within one.
    for (lens, align) in [([MIB, MIB, MIB], 64), ([MIB + 1, MIB, MIB], PAGE)] {
        let mut donations = Vec::new();
        let whole = parts(&arena, &lens, align, 5);
        if align == 64 {
            let bytes = stamp::bytes(3 * MIB, 5);
            let odd = arena.alloc(64).unwrap();
            for bytes in bytes.chunks(MIB).rev() {
                let mut buf = arena.alloc(MIB).unwrap();
                buf.copy_from_slice(bytes);
                donations.insert(0, DonatedBuf::from(buf));
            }
            drop((odd, whole));
        } else {
            donations = whole;
        }
        let len = lens.iter().sum::<usize>() as u64;
        let (receipt, _, view) = handed_off((&a, to_b), 1, donations, || view(&b, from_a, 1));
        let (how, folded) = (view.receipt(), *folded(&view));
        if matches!(folded.place, Place::Memory(_)) {
            assert_eq!(folded.place, Place::Memory(Why::Cheapest), "{folded}");
            assert_eq!((how.path, how.copied_user), (Path::Mapped, len), "{how}");
            assert_eq!(how.refused(Path::Handoff), Some(Refusal::Slower), "{how}");
            assert_eq!(receipt.path, Path::Mapped, "{receipt}");
            assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::Declined), "{receipt}");
            // The memory was back before the view is dropped, and the copy belongs to the view
            // alone.
            stamp::check(view.bytes().expect("a copy"), 5);
            wait_for_empty(&a, &arena);
        } else {
            panic!("nothing of it pays: {folded}");
        }
        assert!(folded.mapping.misaligned >= 2 && folded.copied == len, "{folded}");
        check(&view, 5);
    }
    // The last part may end anywhere: see `shapes`. One odd part alone costs a copy of the bytes
    // behind it.
    let lens = [HUGE, HUGE, 10_000, 10_000];
    a.give_vectored(to_b, 2, parts(&arena, &lens, PAGE, 6)).unwrap();
    let view = b.recv_view(from_a, 2).unwrap();
    let folded = folded(&view);
    assert_eq!((folded.place, view.receipt().path), (Place::Window, Path::Handoff), "{folded}");
    assert!(folded.mapped >= 2 * HUGE as u64 && folded.copied >= 10_000, "{folded}");
    assert_eq!(view.receipt().copied_user, folded.copied, "{}", view.receipt());
    assert_eq!(folded.mapped + folded.copied, folded.bytes, "{folded}");
    check(&view, 6);
    drop(view);
    wait_for_empty(&a, &arena);
}

/// A message that is not worth a list goes as other messages do.
#[test]
fn short_ones_and_those_in_too_many_parts_are_copied() {
    let (a, to_b, b, from_a) = pair("parts-few", builder(), builder());
    let arena = Arena::new().unwrap();
    let none = Vec::<DonatedBuf>::new();
    for (lens, why) in [
        (vec![10, 20, 0, 7], Some(Refusal::Slower)),
        (vec![100; 5], Some(Refusal::Slower)),
        (vec![PAGE; 1025], Some(Refusal::TooLong)),
        (vec![0, 0], Some(Refusal::NotMapped)),
        // One part is as good as a donated buffer.
        (vec![0, MIB], None),
    ] {
        let donations = parts(&arena, &lens, 64, 7);
        let (receipt, donations, view) = handed_off((&a, to_b), 1, donations, || {
            let view = view(&b, from_a, 1);
            check(&view, 7);
            (view.receipt(), view.folded().map(|folded| folded.place))
        });
        assert_eq!(donations.len(), lens.len());
        assert_eq!(receipt.refused(Path::Handoff), why, "{receipt}");
        assert_eq!(receipt.path == Path::Handoff, why.is_none(), "{receipt}");
        assert_eq!(view.0.path, receipt.path, "{}", view.0);
        assert!(!matches!(view.1, Some(Place::Window)), "{view:?}");
    }
    let (receipt, donations, len) = handed_off((&a, to_b), 1, none, || view(&b, from_a, 1).len());
    assert_eq!((receipt.bytes, donations.len(), len), (0, 0, 0));
    assert_eq!(arena.stats().buffers, 0);
}

/// The same memory several times is as good as any.
#[test]
fn parts_that_are_the_same_memory() {
    alone("same");
}

pub fn same(_: &Args) {
    let (a, to_b, b, from_a) = pair("parts-same", builder(), builder());
    let arena = Arena::new().unwrap();
    let [donation] = &parts(&arena, &[MIB], PAGE, 8)[..] else { panic!("one") };
    let all = vec![donation.clone(); 5];
    let (receipt, back, ()) = handed_off((&a, to_b), 1, all, || {
        let view = view(&b, from_a, 1);
        is_given(&view, Place::Window);
        let bytes = view.to_vec().unwrap();
        bytes.chunks(MIB).for_each(|bytes| stamp::check(bytes, 8));
    });
    assert_eq!((receipt.path, back.len()), (Path::Handoff, 5), "{receipt}");
}

/// No message overtakes another that the same receive would take.
#[test]
fn in_order_with_other_messages() {
    let (a, to_b, b, from_a) = pair("parts-order", builder(), builder());
    let arena = Arena::new().unwrap();
    for round in 0..10 {
        for seed in 0..8 {
            match seed % 4 {
                0 => a.give_vectored(to_b, 1, parts(&arena, &[MIB; 2], PAGE, seed)).unwrap(),
                1 => _ = a.send(to_b, 1, &stamp::bytes(40, seed)).unwrap(),
                2 => a.give_vectored(to_b, 1, parts(&arena, &[9, 30], PAGE, seed)).unwrap(),
                _ => {
                    let mut buf = arena.alloc(100_000).unwrap();
                    stamp::fill(&mut buf, seed);
                    a.give(to_b, 1, buf).unwrap();
                }
            }
        }
        for seed in 0..8 {
            if (seed + round) % 3 == 0 {
                stamp::check(&b.recv(from_a, 1).unwrap(), seed);
            } else {
                stamp::check(&b.recv_view(from_a, 1).unwrap().to_vec().unwrap(), seed);
            }
        }
        wait_for_empty(&a, &arena);
    }
}

#[test]
fn where_it_is_switched_off_a_copy_goes() {
    let without = PathSet::all().without(Path::Handoff);
    for (ours, theirs, why) in [
        (without, PathSet::all(), Refusal::SwitchedOff),
        (PathSet::all(), without, Refusal::SwitchedOffByPeer),
    ] {
        let (a, to_b, b, from_a) =
            pair("parts-off", builder().paths(ours), builder().paths(theirs));
        let arena = Arena::new().unwrap();
        let donations = parts(&arena, &[MIB, PAGE, MIB], PAGE, 9);
        let (receipt, _, path) = handed_off((&a, to_b), 1, donations, || {
            let view = view(&b, from_a, 1);
            stamp::check(view.bytes().expect("a copy"), 9);
            view.receipt().path
        });
        assert_eq!(receipt.refused(Path::Handoff), Some(why), "{receipt}");
        assert!(receipt.path != Path::Handoff && path == receipt.path, "{receipt}");
        assert_eq!(arena.stats().buffers, 0);
    }
}

/// To peers on other hosts the parts are gathered.
#[test]
fn over_tcp_a_copy_goes() {
    let a = builder().local_shortcut(false).listen("tcp:127.0.0.1:0").build().unwrap();
    let b = builder().local_shortcut(false).build().unwrap();
    let address = a.listens_at().unwrap();
    let (to_b, from_a) = std::thread::scope(|scope| {
        let there = scope.spawn(|| b.connect(&address).unwrap());
        (a.accept().unwrap(), there.join().unwrap())
    });
    let arena = Arena::new().unwrap();
    for lens in [vec![50, 60], vec![5000, 6000], vec![HUGE, MIB + 3], vec![PAGE; 1500]] {
        let donations = parts(&arena, &lens, PAGE, 10);
        let (receipt, donations, ()) = handed_off((&a, to_b), 1, donations, || {
            let view = view(&b, from_a, 1);
            stamp::check(&view.to_vec().unwrap(), 10);
        });
        assert_eq!(donations.len(), lens.len());
        assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::OtherHost), "{receipt}");
    }
    assert_eq!(arena.stats().buffers, 0);
}

#[test]
fn memory_that_both_may_write() {
    alone("writes");
}

pub fn writes(_: &Args) {
    let (a, to_b, b, from_a) = pair("parts-both", builder(), builder());
    let (arena, plain) = (SharedArena::builder().build_shared().unwrap(), Arena::new().unwrap());
    let mut bufs: Vec<_> = (0..4).map(|_| arena.alloc_aligned(MIB, PAGE).unwrap()).collect();
    bufs.reverse();
    bufs[1].write(5000, b"from a");
    let mut handoff = a.handoff_vectored(to_b, 3, bufs);
    let view = b.recv_view(from_a, 3).unwrap();
    is_given(&view, Place::Window);
    assert!(view.is_writable());
    let mut six = [0; 6];
    view.read(MIB + 5000, &mut six).unwrap();
    assert_eq!(&six, b"from a");
    // Across the border of two parts, and seen on both sides.
    view.write(2 * MIB - 3, b"from b").unwrap();
    view.read(2 * MIB - 3, &mut six).unwrap();
    assert_eq!(&six, b"from b");
    assert!(matches!(view.write(4 * MIB - 1, b"xx"), Err(Error::OutOfBounds { .. })));
    assert!(handoff.try_wait().is_none());
    drop(view);
    let (receipt, donations) = handoff.wait();
    assert_eq!(receipt.unwrap().path, Path::Handoff);
    let mut bufs: Vec<_> =
        donations.into_iter().map(|donation| donation.into_shared_buf().unwrap()).collect();
    bufs[1].read(MIB - 3, &mut six[..3]);
    bufs[2].read(0, &mut six[3..]);
    assert_eq!(&six, b"from b");
    // A message with a part that only its owner writes cannot be written at all.
    let sealed = parts(&plain, &[MIB], PAGE, 1).remove(0);
    let mixed = [DonatedBuf::from(bufs.remove(3)), sealed, DonatedBuf::from(bufs.remove(0))];
    a.give_vectored(to_b, 4, mixed).unwrap();
    let view = b.recv_view(from_a, 4).unwrap();
    is_given(&view, Place::Window);
    assert!(!view.is_writable() && matches!(view.write(0, b"x"), Err(Error::ReadOnly)));
    stamp::check(&view.to_vec().unwrap()[MIB..2 * MIB], 1);
    drop(view);
    // The message cannot be written either if some of its parts are copies, no matter where those
    // lie.
    let odd = [MIB, MIB, PAGE + 8, 9].map(|len| arena.alloc_aligned(len, PAGE).unwrap());
    let mut odd = Vec::from(odd);
    odd.swap(0, 1);
    odd[3].write(0, b"the end");
    a.give_vectored(to_b, 5, odd).unwrap();
    let view = b.recv_view(from_a, 5).unwrap();
    let how = folded(&view);
    assert!(how.place == Place::Window && how.copied > 0, "{how}");
    assert!(!view.is_writable() && matches!(view.write(0, b"x"), Err(Error::ReadOnly)));
    let mut seven = [0; 7];
    view.read(view.len() - 9, &mut seven).unwrap();
    assert_eq!(&seven, b"the end");
    drop(view);
    wait_for_empty(&a, &plain);
}
