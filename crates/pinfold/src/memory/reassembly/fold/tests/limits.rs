//! Messages are copied where a resource runs out.

use super::*;

#[test]
fn a_full_window_makes_copies() {
    let settings = Settings { window_bytes: 4 << 20, ..settings(FREE) };
    let folder = Folder::new(settings).unwrap();
    assert_eq!(folder.window_bytes(), 4 << 20);
    let maps = folder.count().maps_left;
    let pool = Pool::new(SealedPages::new(2048).unwrap());
    let mut held = Vec::new();
    let mut copied = 0;
    for _ in 0..6 {
        let (message, bytes) = parts(&pool, &[100 * PAGE, 50 * PAGE]);
        let folded = folder.fold(message).unwrap();
        match folded.receipt().place {
            Place::Window => {}
            Place::Memory(Why::Full(error)) => {
                assert_eq!(folded.receipt().copied, bytes.len() as u64);
                assert!(folded.receipt().to_string().contains("window is full"), "{error}");
                copied += 1;
            }
            other => panic!("{other:?}"),
        }
        held.push((folded, bytes));
    }
    // Half of the window is for huge pages; the other has room for two.
    assert_eq!((copied, folder.count().messages), (4, 2));
    held.iter().for_each(|(folded, bytes)| assert!(**folded == bytes[..]));
    held.clear();
    nothing_left(&folder, maps);
    let (message, _) = parts(&pool, &[100 * PAGE, 50 * PAGE]);
    assert_eq!(folder.fold(message).unwrap().receipt().place, Place::Window);
}

#[test]
fn no_more_mappings_are_made_than_allowed() {
    let folder = Folder::new(Settings { maps_max: Some(10), ..settings(FREE) }).unwrap();
    let pool = Pool::new(SealedPages::new(256).unwrap());
    let lens = [2 * PAGE, 3 * PAGE, 4 * PAGE, 5 * PAGE, 6 * PAGE, 7 * PAGE];
    let (message, bytes) = parts(&pool, &lens);
    let one = folder.fold(message).unwrap();
    // Four parts, where that saves most.
    assert_eq!(one.receipt().mapped, 22 * PAGE as u64, "{}", one.receipt());
    assert_eq!((one.receipt().mapping.cheapest, one.receipt().mapping.no_maps), (4, 2));
    assert!(*one == bytes[..]);
    let (message, bytes) = parts(&pool, &lens);
    let two = folder.fold(message).unwrap();
    let why = Why::NoMaps { wanted: 4, left: 0 };
    assert_eq!((two.receipt().place, folder.count().maps_left), (Place::Memory(why), 0));
    assert!(*two == bytes[..]);
    drop(one);
    assert_eq!(folder.count().maps_left, 10);
    assert!(Folder::new(Settings::default()).unwrap().count().maps_left >= 1000);
}

#[test]
fn without_a_window_all_is_copied() {
    let folder = Folder::new(Settings { window_bytes: 0, ..settings(FREE) }).unwrap();
    assert_eq!(folder.window_bytes(), 0);
    let pool = anonymous(&folder, 64);
    let (message, bytes) = parts(&pool, &[3 * PAGE, 2 * PAGE, 9]);
    let folded = folder.fold(message).unwrap();
    assert_eq!(folded.receipt().place, Place::Memory(Why::NoWindow));
    assert!(*folded == bytes[..]);
    // A window that is longer than there are addresses is as long as can be.
    let huge = Folder::new(Settings { window_bytes: usize::MAX, ..settings(FREE) }).unwrap();
    assert!(huge.window_bytes() >= 1 << 30);
}

#[test]
fn without_moving_all_is_copied() {
    let folder = Folder::new(Settings { moves: false, ..settings(FREE) }).unwrap();
    assert!(folder.why_not_moving().is_none());
    let pool = anonymous(&folder, 64);
    let (message, bytes) = parts(&pool, &[3 * PAGE, 2 * PAGE, 9]);
    let folded = folder.fold(message).unwrap();
    assert_eq!((folded.receipt().copied, folded.receipt().moved), (bytes.len() as u64, 0));
    assert!(*folded == bytes[..]);
}

#[test]
fn small_messages_are_copied_to_memory_that_was_used_before() {
    let folder = folder(Costs::DEFAULT);
    let pool = anonymous(&folder, 64);
    let mut places = Vec::new();
    for _ in 0..3 {
        let (message, bytes) = parts(&pool, &[PAGE, PAGE, 300]);
        let folded = folder.fold(message).unwrap();
        assert!(*folded == bytes[..]);
        assert_eq!(folded.receipt().place, Place::Memory(Why::Cheapest));
        let moving = folded.receipt().moving;
        assert_eq!(moving.dearer + moving.unmeasured + moving.backing, 3);
        places.push(folded.as_ptr());
    }
    assert!(places[1..].iter().all(|at| *at == places[0]));
    assert!(folder.count().stock_bytes >= 2 * PAGE + 300);
    let none = Folder::new(Settings { stock_bytes_max: 0, ..settings(Costs::COPY_ONLY) }).unwrap();
    let (message, bytes) = parts(&pool, &[PAGE, PAGE]);
    assert!(*none.fold(message).unwrap() == bytes[..]);
    assert_eq!(none.count().stock_bytes, 0);
}

/// While a message is folded its pages are taken; when it ends others can have them.
#[test]
fn an_exhausted_pool_recovers_when_messages_end() {
    let folder = folder(FREE);
    let pool = anonymous(&folder, 8);
    for round in 0..3 {
        let (message, bytes) = parts(&pool, &[5 * PAGE, 3 * PAGE]);
        let folded = folder.fold(message).unwrap();
        let error = pool.take(Owner(2), 1).unwrap_err();
        assert!(error.is_exhausted(), "{round}: {error}");
        assert!(*folded == bytes[..]);
        drop(folded);
        assert_eq!((pool.count().taken, pool.taken_by(Owner(1))), (0, 0));
    }
}

/// Memory that lacks pages that were replaced has to be asked for them again.
#[test]
fn pages_that_are_not_moved_back_are_asked_for_again() {
    let folder = folder(Costs { move_call_ns: 1e5, ..FREE });
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 16);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 2 * PAGE]);
    let folded = folder.fold(message).unwrap();
    assert_eq!((folded.receipt().moved, pool.count().committed), (bytes.len() as u64, 6));
    drop(folded);
    assert_eq!((pool.count().committed, pool.count().taken), (0, 0));
    let (message, bytes) = parts(&pool, &[4 * PAGE, 2 * PAGE]);
    assert_eq!(pool.count().committed, 6);
    // A caller that wants the message back gets it, at any cost.
    assert!(gathered(&folder.fold(message).unwrap().unfold()) == bytes);
    assert_eq!(pool.count().committed, 6);
}

/// Free pages that are all apart are as good as others: there are more pieces, which are folded.
#[test]
fn a_fragmented_pool_delivers_all_that_it_has() {
    const PAGES: usize = 64;
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let pool = anonymous(&folder, PAGES as u32);
    let single = |_| {
        let bytes = fresh(PAGE);
        (filled(&pool, &bytes), bytes)
    };
    let singles = (0..PAGES).map(single);
    let (even, odd): (Vec<_>, Vec<_>) =
        singles.partition(|(single, _)| single.pieces()[0].first.is_multiple_of(2));
    drop(even);
    let bytes = fresh(PAGES / 2 * PAGE - 3);
    let message = filled(&pool, &bytes);
    assert_eq!(message.pieces().len(), PAGES / 2);
    assert!(pool.take(Owner(2), 1).unwrap_err().is_exhausted());
    let folded = folder.fold(message).unwrap();
    assert!(*folded == bytes[..], "{}", folded.receipt());
    assert_eq!(folded.receipt().pieces, PAGES as u32 / 2);
    assert!(odd.iter().all(|(single, bytes)| gathered(single) == *bytes));
    drop(folded);
    assert_eq!((pool.count().taken, pool.count().pieces), (PAGES as u32 / 2, PAGES as u32 / 2));
    drop(odd);
    assert_eq!(filled(&pool, &fresh(PAGES * PAGE)).pieces().len(), 1);
    nothing_left(&folder, maps);
}

/// To open a range of the window costs 4 µs where nothing was measured.
#[test]
fn the_window_is_taken_where_it_saves_more_than_it_costs() {
    let costs = Costs {
        map_call_ns: 100.0,
        map_page_ns: 0.0,
        copy_byte_ns: 1000.0 / PAGE as f64,
        fault_ns: 1000.0,
        ..Costs::COPY_ONLY
    };
    let pool = Pool::new(SealedPages::new(16).unwrap());
    let fold = |stock_bytes_max, pages: usize| {
        let folder = Folder::new(Settings { stock_bytes_max, ..settings(costs) }).unwrap();
        let (message, bytes) = parts(&pool, &[PAGE, (pages - 1) * PAGE]);
        let folded = folder.fold(message).unwrap();
        assert!(*folded == bytes[..]);
        *folded.receipt()
    };
    let window = 2.0 * 100.0 + Measured::DEFAULT.window_ns;
    let few = fold(1 << 20, 4);
    assert_eq!((few.place, few.expected_ns), (Place::Memory(Why::Cheapest), 4000.0), "{few}");
    let more = fold(1 << 20, 5);
    assert_eq!((more.place, more.expected_ns), (Place::Window, window), "{more}");
    // Where no memory is kept, each page of a copy is a fault as well.
    let cold = fold(0, 3);
    assert_eq!((cold.place, cold.expected_ns), (Place::Window, window), "{cold}");
    let cold = fold(0, 2);
    assert_eq!((cold.place, cold.expected_ns), (Place::Memory(Why::Cheapest), 4000.0), "{cold}");
}

/// A piece that pays to be moved once need not pay if it has to go back.
#[test]
fn the_way_back_is_counted_by_those_who_ask_for_it() {
    let page = 1000.0;
    let copy_byte_ns = page / PAGE as f64;
    let move_few_page_ns = 0.6 * page;
    let costs = Costs { move_call_ns: 0.0, move_few_page_ns, copy_byte_ns, ..FREE };
    for (counts_return, moved) in [(false, 40 * PAGE as u64), (true, 0)] {
        let folder = Folder::new(Settings { counts_return, ..settings(costs) }).unwrap();
        if !moves(&folder) {
            return;
        }
        let pool = anonymous(&folder, 64);
        let (message, bytes) = parts(&pool, &[20 * PAGE, 20 * PAGE]);
        let folded = folder.fold(message).unwrap();
        assert_eq!(folded.receipt().moved, moved, "{}", folded.receipt());
        assert_eq!(folder.measured().costs, costs);
        assert!(*folded == bytes[..]);
    }
}
