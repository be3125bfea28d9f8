//! Pages that change their addresses.
use super::*;

fn mover() -> Option<Mover> {
    Mover::new().map_err(|error| crate::skip::skip(&format!("{error}"))).ok()
}

/// Writes its number into each page.
fn number(pages: &mut Pages) {
    for (n, page) in pages.as_mut_slice().chunks_mut(PAGE).enumerate() {
        page.fill((n + 1) as u8);
    }
}

#[test]
fn pages_go_where_they_should() {
    let Some(mover) = mover() else { return };
    let mut source = Pages::new(32 * PAGE, false).unwrap();
    let mut window = mover.window(32 * PAGE, false).unwrap();
    number(&mut source);
    assert_eq!(
        (source.resident(0..32 * PAGE).unwrap(), window.resident(0..32 * PAGE).unwrap()),
        (32, 0)
    );
    for (n, from) in [9, 3, 30, 0].into_iter().enumerate() {
        let moved = mover.fold(&mut window, n * PAGE, &mut source, from * PAGE..(from + 1) * PAGE);
        assert_eq!(moved.unwrap(), Moved { bytes: PAGE, stop: None });
    }
    assert_eq!(
        (source.resident(0..32 * PAGE).unwrap(), window.resident(0..32 * PAGE).unwrap()),
        (28, 4)
    );
    for (n, byte) in [10, 4, 31, 1].into_iter().enumerate() {
        assert!(window.as_slice()[n * PAGE..(n + 1) * PAGE].iter().all(|&found| found == byte));
    }
    assert_eq!(source.as_slice()[9 * PAGE], 0);
    // The pages go out of the window again, into another one.
    let mut third = mover.window(4 * PAGE, false).unwrap();
    let moved = mover.fold(&mut third, 0, &mut window, 0..4 * PAGE).unwrap();
    assert_eq!(moved, Moved { bytes: 4 * PAGE, stop: None });
    assert_eq!(third.as_slice()[3 * PAGE], 1);
    assert_eq!(window.as_slice()[0], 0);
}

#[test]
fn it_says_how_far_it_came_and_why() {
    let Some(mover) = mover() else { return };
    let whole = 0..8 * PAGE;
    let mut window = mover.window(8 * PAGE, false).unwrap();
    let fresh = || {
        let mut source = Pages::new(8 * PAGE, false).unwrap();
        number(&mut source);
        source
    };
    // A hole.
    let mut source = fresh();
    source.discard(3 * PAGE..4 * PAGE).unwrap();
    let moved = mover.fold(&mut window, 0, &mut source, whole.clone()).unwrap();
    assert_eq!(moved, Moved { bytes: 3 * PAGE, stop: Some(Stop::Hole) });
    assert_eq!(window.as_slice()[2 * PAGE], 3);
    // The destination has something already.
    let mut source = fresh();
    window.discard(whole.clone()).unwrap();
    window.as_mut_slice()[5 * PAGE] = 77;
    let moved = mover.fold(&mut window, 0, &mut source, whole.clone()).unwrap();
    assert_eq!(moved, Moved { bytes: 5 * PAGE, stop: Some(Stop::Taken) });
    assert_eq!((window.as_slice()[5 * PAGE], source.as_slice()[5 * PAGE]), (77, 6));
    // The destination is no window.
    let mut source = fresh();
    let mut other = Pages::new(8 * PAGE, false).unwrap();
    let moved = mover.fold(&mut other, 0, &mut source, whole.clone()).unwrap();
    assert_eq!((moved.bytes, moved.stop.is_some()), (0, true));
    println!("not a window: {:?}", moved.stop);
    // Bad offsets.
    for (at, from) in [
        (1, 0..PAGE),
        (0, 1..PAGE),
        (8 * PAGE, 0..PAGE),
        (0, 8 * PAGE..9 * PAGE),
        (usize::MAX, 0..PAGE),
    ] {
        let error = mover.fold(&mut window, at, &mut source, from).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
    let nothing = mover.fold(&mut window, 0, &mut source, PAGE..PAGE).unwrap();
    assert_eq!(nothing, Moved { bytes: 0, stop: None });
}

/// The state that the kernel leaves when it moves a run of pages and says that it found something
/// there.
#[test]
fn what_has_gone_before_counts_as_moved() {
    let Some(mover) = mover() else { return };
    let mut source = Pages::new(200 * PAGE, false).unwrap();
    number(&mut source);
    let mut window = mover.window(200 * PAGE, false).unwrap();
    for gone in [0..1, 20..170] {
        let (at, from) = (gone.start * PAGE, gone.start * PAGE..gone.end * PAGE);
        mover.fold(&mut window, at, &mut source, from).unwrap();
    }
    let moved = mover.fold(&mut window, 0, &mut source, 0..200 * PAGE).unwrap();
    assert_eq!(moved, Moved { bytes: 200 * PAGE, stop: None });
    assert_eq!(source.resident(0..200 * PAGE).unwrap(), 0);
    for (n, page) in window.as_slice().chunks(PAGE).enumerate() {
        assert!(page.iter().all(|byte| *byte == (n + 1) as u8), "page {n}");
    }
}

#[test]
fn pinned_pages_stay() {
    let Some(mover) = mover() else { return };
    let _alone = crate::mem::pin::tests::ALONE.lock();
    let mut source = Pages::new(8 * PAGE, false).unwrap();
    number(&mut source);
    let mut window = mover.window(8 * PAGE, false).unwrap();
    let pins = match crate::mem::pin::Registered::new(8) {
        Ok(pins) => pins,
        Err(error) => return crate::skip::skip(&format!("{error}")),
    };
    let at = source.addr() + 2 * PAGE;
    use crate::mem::pin::Pin;
    let slot = pins.pin(at..at + PAGE).unwrap();
    let moved = mover.fold(&mut window, 0, &mut source, 0..8 * PAGE).unwrap();
    assert_eq!(moved, Moved { bytes: 2 * PAGE, stop: Some(Stop::Busy) });
    assert_eq!(source.as_slice()[2 * PAGE], 3);
    pins.unpin(slot).unwrap();
    let moved = mover.fold(&mut window, 2 * PAGE, &mut source, 2 * PAGE..8 * PAGE).unwrap();
    assert_eq!(moved, Moved { bytes: 6 * PAGE, stop: None });
}

/// A program that moves pages has to tell the caches itself.
#[test]
fn a_watch_does_not_hear_of_moves() {
    let (Some(mover), Some(watch)) = (mover(), watch()) else { return };
    let mut source = Pages::new(4 * PAGE, false).unwrap();
    number(&mut source);
    let whole = source.addr()..source.addr() + source.len();
    watch.watch(whole.clone()).unwrap();
    let mut window = mover.window(4 * PAGE, false).unwrap();
    let moved = mover.fold(&mut window, 0, &mut source, 0..4 * PAGE).unwrap();
    assert_eq!(moved, Moved { bytes: 4 * PAGE, stop: None });
    assert_eq!(watch.events(|_| {}), Ok(0));
    assert_eq!(watch.validate(whole), Ok(Validity::Valid));
    drop(watch);
}

/// Pages shared with a child, even one that has ended, could not be moved.
#[test]
fn pages_move_after_a_fork() {
    let Some(mover) = mover() else { return };
    let mut source = Pages::new(4 * PAGE, false).unwrap();
    number(&mut source);
    // SAFETY: the child does nothing.
    let pid = unsafe { crate::child::spawn(|| 0) }.unwrap();
    assert_eq!(crate::child::status_of(pid), Some(0));
    let mut window = mover.window(4 * PAGE, false).unwrap();
    let moved = mover.fold(&mut window, 0, &mut source, 0..4 * PAGE).unwrap();
    assert_eq!(moved, Moved { bytes: 4 * PAGE, stop: None });
}

#[test]
fn holes_are_passed_over_where_allowed() {
    let Some(mover) = mover() else { return };
    let mut source = Pages::new(8 * PAGE, false).unwrap();
    number(&mut source);
    source.discard(3 * PAGE..4 * PAGE).unwrap();
    let window = mover.window(8 * PAGE, false).unwrap();
    let from = source.addr()..source.addr() + 8 * PAGE;
    // SAFETY: there is no reference to either.
    let moved = unsafe { mover.move_pages(window.addr(), from, true) }.unwrap();
    assert_eq!(moved, Moved { bytes: 8 * PAGE, stop: None });
    assert_eq!(window.resident(0..8 * PAGE).unwrap(), 7);
    assert_eq!((window.as_slice()[3 * PAGE], window.as_slice()[4 * PAGE]), (0, 5));
}

#[test]
fn huge_pages_move_whole() {
    let Some(mover) = mover() else { return };
    let huge = Pages::HUGE;
    let mut source = Pages::new(2 * huge, true).unwrap();
    number(&mut source);
    let had = huge_bytes(&source);
    let mut window = mover.window(2 * huge, true).unwrap();
    let moved = mover.fold(&mut window, huge, &mut source, 0..huge).unwrap();
    assert_eq!(moved, Moved { bytes: huge, stop: None });
    if had == 2 * huge {
        assert_eq!((huge_bytes(&source), huge_bytes(&window)), (huge, huge));
    } else {
        crate::skip::skip("no huge pages here");
    }
    // A piece of one splits it.
    let moved = mover.fold(&mut window, 0, &mut source, huge + PAGE..huge + 17 * PAGE).unwrap();
    assert_eq!(moved, Moved { bytes: 16 * PAGE, stop: None });
    assert_eq!(huge_bytes(&source), 0);
    assert_eq!(window.as_slice()[..PAGE], [(514 % 256) as u8; PAGE]);
}

fn huge_bytes(pages: &Pages) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = 0;
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((start, end)) = line.split(' ').next().and_then(|at| at.split_once('-')) {
            let at = |hex| usize::from_str_radix(hex, 16).unwrap_or(0);
            inside = at(start) < pages.addr() + pages.len() && pages.addr() < at(end);
        } else if inside && line.starts_with("AnonHugePages") {
            found += line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10;
        }
    }
    found
}

#[test]
fn memory_reserved_is_zero_and_checked() {
    assert!(Pages::new(0, false).is_err());
    assert!(Pages::new(usize::MAX - 5, true).is_err());
    let mut pages = Pages::new(5000, false).unwrap();
    assert_eq!(pages.len(), 2 * PAGE);
    pages.as_mut_slice().fill(3);
    assert!(pages.discard(0..3 * PAGE).is_err() && pages.discard(5..PAGE).is_err());
    pages.discard(PAGE..2 * PAGE).unwrap();
    assert_eq!((pages.as_slice()[PAGE - 1], pages.as_slice()[PAGE]), (3, 0));
    assert!(Pages::new(PAGE, true).unwrap().addr().is_multiple_of(Pages::HUGE));
}
