//! Pages that the kernel refuses to move or map are copied, and in a child nothing is done.

use pinfold_sys::{
    child,
    mem::{
        pin::{Pin, Registered},
        userfault::Stop,
    },
};

use super::*;

fn status_of(pid: rustix::process::Pid) -> Option<i32> {
    let options = rustix::process::WaitOptions::empty();
    let (_, ended) = rustix::process::waitpid(Some(pid), options).unwrap().unwrap();
    ended.exit_status()
}

/// Pins a page of a message while `what` is done. `None` where nothing can be pinned.
fn pinned<R>(at: usize, what: impl FnOnce() -> R) -> Option<R> {
    all_pinned(at, PAGE, what)
}

/// The same of more bytes.
fn all_pinned<R>(at: usize, len: usize, what: impl FnOnce() -> R) -> Option<R> {
    let pins = Registered::new(8).map_err(|error| eprintln!("SKIPPED: {error}")).ok()?;
    let slot = pins.pin(at..at + len).map_err(|error| eprintln!("SKIPPED: {error}")).ok()?;
    let done = what();
    pins.unpin(slot).unwrap();
    Some(done)
}

#[test]
fn pinned_pages_are_copied() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 64);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
    let mut pieces = Vec::new();
    message.gather(&mut pieces);
    let at = pieces[0].at as usize + PAGE;
    let Some(folded) = pinned(at, || folder.fold(message).unwrap()) else { return };
    assert!(*folded == bytes[..]);
    let receipt = *folded.receipt();
    assert_eq!((receipt.copied, receipt.moved), (PAGE as u64, 6 * PAGE as u64), "{receipt}");
    assert_eq!((receipt.stops, receipt.stop), (1, Some(Stop::Busy)));
    assert!(gathered(&folded.unfold()) == bytes);
}

/// Of the last page of a message only its own bytes are copied.
#[test]
fn a_pinned_last_page_is_copied_to_its_end() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 64);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE - 100]);
    let mut pieces = Vec::new();
    message.gather(&mut pieces);
    let at = pieces[1].at as usize + 2 * PAGE;
    let Some(folded) = pinned(at, || folder.fold(message).unwrap()) else { return };
    let receipt = *folded.receipt();
    assert_eq!((receipt.copied, receipt.moved), (PAGE as u64 - 100, 6 * PAGE as u64), "{receipt}");
    assert!(*folded == bytes[..]);
    assert!(gathered(&folded.unfold()) == bytes);
}

/// After so many refusals the kernel is asked no more.
#[test]
fn the_kernel_is_not_asked_for_ever() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 64);
    let (message, bytes) = parts(&pool, &[40 * PAGE, 3 * PAGE]);
    let mut pieces = Vec::new();
    message.gather(&mut pieces);
    let at = pieces[0].at as usize;
    let fold = || folder.fold(message).unwrap();
    let Some(folded) = all_pinned(at, 30 * PAGE, fold) else { return };
    let receipt = *folded.receipt();
    // The rest of that piece goes along, and the other one is moved yet.
    assert_eq!((receipt.copied, receipt.moved), (40 * PAGE as u64, 3 * PAGE as u64), "{receipt}");
    assert_eq!((receipt.stops, receipt.stop), (16, Some(Stop::Busy)));
    assert!(*folded == bytes[..]);
    assert!(gathered(&folded.unfold()) == bytes);
}

/// A pinned huge page is not taken apart: the whole of it is copied.
#[test]
fn a_pinned_huge_page_is_copied_as_one() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 4 * HUGE_PAGES);
    let (message, bytes) = parts(&pool, &[HUGE_BYTES, HUGE_BYTES]);
    if pool.count().huge < 2 {
        return eprintln!("SKIPPED: {} of 2 blocks are huge pages", pool.count().huge);
    }
    let mut pieces = Vec::new();
    message.gather(&mut pieces);
    let at = pieces[0].at as usize + 5 * PAGE;
    let Some(folded) = pinned(at, || folder.fold(message).unwrap()) else { return };
    let (receipt, huge) = (*folded.receipt(), HUGE_BYTES as u64);
    assert_eq!((receipt.copied, receipt.moved, receipt.stops), (huge, huge, 1), "{receipt}");
    assert!(*folded == bytes[..]);
    assert!(gathered(&folded.unfold()) == bytes);
}

/// Says that its second part is in a file that cannot be mapped.
struct Unmappable(Vec<Filled<SealedPages>>, std::fs::File);

// SAFETY: as the parts; no file but theirs can be mapped.
unsafe impl Scattered for Unmappable {
    fn gather(&self, to: &mut Vec<super::super::super::gather::Piece>) {
        self.0.gather(to);
    }

    fn file(&self, at: usize) -> Option<std::os::fd::BorrowedFd<'_>> {
        if at == 1 { Some(std::os::fd::AsFd::as_fd(&self.1)) } else { self.0.file(at) }
    }

    fn left(&mut self, _: std::ops::Range<u64>) {}

    fn torn(&mut self, _: std::ops::Range<u64>) {}

    fn expose(&mut self) {}
}

/// Mappings made before the kernel refused are taken away again.
#[test]
fn a_message_that_cannot_be_mapped_leaves_nothing_in_the_window() {
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let pool = Pool::new(SealedPages::new(64).unwrap());
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
    let file = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    let folded = folder.fold(Unmappable(message, file)).unwrap();
    let place = folded.receipt().place;
    assert_eq!(place, Place::Memory(Why::Os(rustix::io::Errno::ACCESS)));
    assert!(copied_out(&folded) == bytes && folded.receipt().copied == bytes.len() as u64);
    nothing_left(&folder, maps);
    // Not even where no code can see it.
    let all = std::fs::read_to_string("/proc/self/maps").unwrap();
    let start = |line: &str| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let mut files = all.lines().filter(|line| line.contains("/memfd:"));
    assert_eq!(files.find(|line| folder.has(start(line))), None);
}

/// Pages that are pinned in the window cannot be moved back.
#[test]
fn pages_pinned_in_the_window_do_not_come_back() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let maps = folder.count().maps_left;
    let pool = anonymous(&folder, 64);
    for keep in [true, false] {
        let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
        let before = pool.count().committed;
        let folded = folder.fold(message).unwrap();
        let at = folded.as_ptr().addr();
        let done = pinned(at + 2 * PAGE, || if keep { Some(folded.unfold()) } else { None });
        let Some(message) = done else { return };
        assert_eq!(reads(at), None);
        match message {
            Some(message) => assert!(gathered(&message) == bytes),
            None => assert_eq!(pool.count().committed, before - 1),
        }
        nothing_left(&folder, maps);
        // The page that is short is asked for again, and is zero.
        let all = pool.take(Owner(1), 64 * PAGE as u64).unwrap().finish();
        assert_eq!(pool.count().committed, 64);
        drop(all);
    }
}

/// A stray write goes to pages of a pool that are not there: the pages that appear are not shown to
/// the next message.
#[test]
fn places_that_were_taken_meanwhile_are_cleared() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 8);
    for keep in [true, false] {
        let (message, bytes) = parts(&pool, &[4 * PAGE, 2 * PAGE + 100]);
        let mut pieces = Vec::new();
        message.gather(&mut pieces);
        let folded = folder.fold(message).unwrap();
        // A whole page, and one that the message does not fill.
        for stray in [pieces[0].at as usize + PAGE, pieces[1].at as usize + 2 * PAGE] {
            let stray: *mut u8 = std::ptr::with_exposed_provenance_mut(stray);
            // SAFETY: memory of the pool, which is mapped; its contents do not matter.
            unsafe { stray.write_bytes(77, PAGE) };
        }
        let before = pool.count().committed;
        if keep {
            assert!(gathered(&folded.unfold()) == bytes);
        } else {
            drop(folded);
        }
        // Pages that a stray write made are memory as well.
        assert_eq!(pool.count().committed, before);
        let all = pool.take(Owner(1), 8 * PAGE as u64).unwrap().finish();
        for piece in all.pieces() {
            let at = pool.memory().base().as_ptr().wrapping_add(piece.first as usize * PAGE);
            // SAFETY: pages of the message.
            let bytes = unsafe { std::slice::from_raw_parts(at, piece.pages as usize * PAGE) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }
}

/// The kernel takes pages away from anywhere, but puts them only where its mover is known.
#[test]
fn pools_of_other_folders_get_their_bytes_back() {
    let [one, two] = [(); 2].map(|()| folder(FREE));
    if !moves(&one) {
        return;
    }
    let maps = two.count().maps_left;
    let pool = anonymous(&one, 64);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
    let message = two.fold(message).unwrap().unfold();
    assert!(gathered(&message) == bytes);
    drop(two.fold(message).unwrap());
    assert_eq!((pool.count().taken, pool.count().committed), (0, 0));
    nothing_left(&two, maps);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
    assert!(*one.fold(message).unwrap() == bytes[..]);
    assert_eq!(pool.count().committed, 7);
}

#[test]
fn a_child_does_nothing() {
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let heap = Pool::new(HeapPages::new(64).unwrap());
    let pool = anonymous(&folder, 64);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
    let (other, _) = parts(&heap, &[PAGE, 5]);
    let mut folded = Some(folder.fold(message).unwrap());
    let mut other = Some(other);
    let mut into = [0; 2 * PAGE];
    // SAFETY: the child calls nothing but the tested code, and makes no threads.
    let pid = unsafe {
        child::spawn(|| {
            let child = folder.fold_into(other.as_ref().unwrap(), &mut into);
            let refused = folder.fold(other.take().unwrap());
            let right = folded.as_deref() == Some(&bytes[..]);
            if let Some(bytes) = folded.as_mut().and_then(Folded::as_mut) {
                bytes.fill(1);
            }
            drop(folded.take());
            // Nothing was given back that the parent has.
            let right = right && folder.count().messages == 1;
            let refused = refused.err().map(|unfolded| unfolded.error);
            let all = [child.err(), refused] == [Some(FoldError::Child); 2];
            i32::from(!(all && right))
        })
    };
    assert_eq!(status_of(pid.unwrap()), Some(0));
    // The parent has its pages still.
    let folded = folded.unwrap();
    assert!(*folded == bytes[..]);
    drop(folded);
    nothing_left(&folder, maps);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
    assert!(*folder.fold(message).unwrap() == bytes[..]);
    drop(other);
}

/// A child that lives shares the pages in the window, so they cannot be moved back.
#[test]
fn pages_shared_with_a_child_do_not_come_back() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let maps = folder.count().maps_left;
    let pool = anonymous(&folder, 64);
    let (message, bytes) = parts(&pool, &[4 * PAGE, 3 * PAGE]);
    let folded = folder.fold(message).unwrap();
    let (read, write) = rustix::pipe::pipe().unwrap();
    // SAFETY: the child waits for the pipe, looks at memory, and ends.
    let pid = unsafe {
        child::spawn(|| {
            // Should its parent's test fail.
            let kill = Some(rustix::process::Signal::KILL);
            let _ = rustix::process::set_parent_process_death_signal(kill);
            let mut byte = [0];
            let _ = rustix::io::read(&read, &mut byte);
            i32::from(*folded != bytes[..])
        })
    };
    let message = folded.unfold();
    assert!(gathered(&message) == bytes);
    nothing_left(&folder, maps);
    rustix::io::write(&write, b"x").unwrap();
    assert_eq!(status_of(pid.unwrap()), Some(0));
}
