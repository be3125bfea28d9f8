//! Folding where the kernel allows little: without `userfaultfd`, without addresses, near the limit
//! on mappings, and as the user `nobody`.

use pinfold::reassembly::{
    HUGE_BYTES, HUGE_PAGES, PAGE_BYTES,
    fold::{Folded, Folder, PeerMemory, PeerPart, Place, Quiet, Settings, Why},
    gather::Costs,
    pool::{AnonPages, Filled, HeapPages, Owner, Pages, Pool, SealedPages},
};
use pinfold_sys::mem::{
    memfd::{self, SealError},
    reserved::Reserved,
};
use pinfold_tests::{
    Args, Stage,
    filter::{deny, deny_if},
    role::{hear, say},
    skip::is_root_or_skip,
};
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    process::{Resource, Rlimit},
};

pinfold_tests::roles!(folds, gives);

const PAGE: usize = PAGE_BYTES;
const NOBODY: u32 = 65_534;

/// Plays the role with these calls denied. Returns whether pages were moved.
fn play(denied: &str) -> bool {
    let stage = Stage::new(120);
    let role = stage.role("folds").with("denied", denied);
    let mut folds = if denied == "rights" { role.user(NOBODY).spawn() } else { role.spawn() };
    let moved = folds.expect("moved");
    folds.end_well();
    moved == "yes"
}

#[test]
fn with_all_that_there_is() {
    if !play("nothing") {
        pinfold_tests::skip("pages are moved nowhere here");
    }
}

#[test]
fn without_userfaultfd() {
    assert!(!play("userfaultfd"));
}

/// Plays where the kernel has a userfaultfd, but one that does not move pages.
#[test]
fn without_moving() {
    assert!(!play("moving"));
}

#[test]
fn without_memory_files() {
    play("memfd");
}

#[test]
fn without_huge_pages() {
    play("huge");
}

#[test]
fn with_few_addresses() {
    play("addresses");
}

/// A program that uses the mappings up first leaves folding with copies.
#[test]
fn with_no_mapping_left() {
    play("mappings");
}

#[test]
fn as_nobody() {
    if is_root_or_skip("to become nobody") {
        play("rights");
    }
}

/// Pages of another process are seen in a row, no matter what that does with them, and when it is
/// gone.
#[test]
fn memory_of_another_process() {
    let stage = Stage::new(60);
    let mut peer = stage.role("gives").spawn();
    let [fixed, loose] = [(); 2].map(|()| peer.expect("file").parse::<u32>().expect("a number"));
    let refused = memfd::open_sealed_of(peer.pid(), loose);
    assert!(matches!(refused, Err(SealError::Unsealed)), "{refused:?}");
    let (file, bytes) = memfd::open_sealed_of(peer.pid(), fixed).expect("its file");
    if !memfd::refuses_writers(std::os::fd::AsFd::as_fd(&file)) {
        return pinfold_tests::skip("files cannot be sealed against writers here");
    }
    let memory = PeerMemory::map(file, bytes).expect("a mapping");
    let costs = Costs { map_call_ns: 1.0, map_page_ns: 0.1, copy_byte_ns: 10.0, ..Costs::DEFAULT };
    let settings = Settings { costs: Some(costs), ..Settings::default() };
    let folder = Folder::new(settings).expect("a folder");
    let order = [3u64, 0, 63, 7];
    let part =
        |page: &u64| memory.part(page * PAGE as u64..(page + 1) * PAGE as u64).expect("there");
    let folded = folder.fold(order.iter().map(part).collect::<Vec<_>>()).expect("to fold");
    assert_eq!(folded.receipt().mapped, 4 * PAGE as u64, "{}", folded.receipt());
    let right = |folded: &Folded<Vec<PeerPart>>| {
        let mut seen = vec![0; 4 * PAGE];
        assert_eq!(folded.read(0, &mut seen), seen.len());
        let pages = seen.chunks(PAGE).zip(order);
        pages.into_iter().all(|(page, number)| page.iter().all(|byte| *byte == number as u8 + 1))
    };
    assert!(right(&folded));
    peer.say("take it away");
    assert_eq!(peer.expect("away"), "false false false");
    assert!(right(&folded));
    peer.kill();
    assert!(peer.was_killed());
    assert!(right(&folded));
    drop(folded);
    assert_eq!((folder.count().messages, folder.count().pages), (0, 0));
}

/// Shares a file, and then wants to have its pages back; and shares another that could be cut at
/// any time.
fn gives(_: &Args) {
    let file = memfd::create_fixed("fold-gives", 64 * PAGE).expect("a file");
    let bytes: Vec<u8> = (0..64 * PAGE).map(|at| (at / PAGE) as u8 + 1).collect();
    rustix::io::pwrite(&file, &bytes, 0).expect("room");
    memfd::seal(std::os::fd::AsFd::as_fd(&file), true).expect("a seal");
    let loose = rustix::fs::memfd_create("fold-loose", MemfdFlags::ALLOW_SEALING).expect("a file");
    rustix::fs::ftruncate(&loose, 64 * PAGE as u64).expect("room");
    rustix::fs::fcntl_add_seals(&loose, SealFlags::GROW | SealFlags::SEAL).expect("seals");
    for file in [&file, &loose] {
        say(format_args!("file {}", std::os::fd::AsRawFd::as_raw_fd(file)));
    }
    hear();
    let cut = rustix::fs::ftruncate(&file, 0).is_ok();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = rustix::fs::fallocate(&file, hole, 0, 64 * PAGE as u64).is_ok();
    let written = rustix::io::pwrite(&file, &[0; PAGE], 0).is_ok();
    say(format_args!("away {cut} {punched} {written}"));
    // Until it is killed, or the test has failed.
    hear();
}

fn obey(denied: &str) {
    const EPERM: i32 = libc::EPERM;
    match denied {
        "userfaultfd" => {
            deny(&[libc::SYS_userfaultfd], EPERM);
            // Root could go by the device.
            deny_if(libc::SYS_ioctl, 1, u64::from(u32::MAX), 0xaa00, EPERM);
        }
        "moving" => deny_if(libc::SYS_ioctl, 1, u64::from(u32::MAX), 0xc028_aa05, libc::EINVAL),
        "memfd" => deny(&[libc::SYS_memfd_create], EPERM),
        "huge" => {
            let collapse = libc::MADV_COLLAPSE as u64;
            deny_if(libc::SYS_madvise, 2, u64::MAX, collapse, libc::EINVAL);
        }
        "addresses" => {
            let limit = Some(1 << 30);
            let limit = Rlimit { current: limit, maximum: limit };
            rustix::process::setrlimit(Resource::As, limit).expect("a limit");
        }
        _ => {}
    }
}

fn folds(args: &Args) {
    let denied = args.text("denied");
    obey(denied);
    let folder = Folder::new(Settings::default()).expect("a folder");
    let anon = Pool::new(folder.pages(16 * HUGE_PAGES).expect("memory"));
    let heap = Pool::new(HeapPages::new(2048).expect("memory"));
    let sealed = SealedPages::new(16 * HUGE_PAGES).map(Pool::new);
    assert_eq!(sealed.is_err(), denied == "memfd", "{sealed:?}");
    let mut moved = 0;
    let mut run = |folder: &Folder| {
        for round in 0..3u64 {
            for len in [100, PAGE, 3 * PAGE, 16 * PAGE, HUGE_BYTES, HUGE_BYTES + 5 * PAGE] {
                moved += fold(folder, &anon, None::<&Pool<AnonPages>>, len, round);
                fold(folder, &anon, Some(&heap), len.min(16 * PAGE), round);
                if let Ok(sealed) = &sealed {
                    fold(folder, sealed, Some(&anon), len, round);
                    fold(folder, sealed, None::<&Pool<AnonPages>>, len, round);
                }
            }
        }
        assert_eq!((folder.count().messages, folder.count().lost_pages), (0, 0));
    };
    run(&folder);
    // Measured costs may differ; with these, all pages that can be moved are moved.
    let costs = Costs { copy_byte_ns: 10.0, ..Costs::DEFAULT };
    let eager = Settings { costs: Some(costs), ..Settings::default() };
    let eager = Folder::new(eager).expect("a folder");
    run(&eager);
    if denied == "mappings" {
        let held = exhaust();
        run(&eager);
        // Each part that is mapped takes a mapping, where ranges that are open next to each other
        // are one.
        refused(&eager, sealed.as_ref().expect("memory files"));
        drop(held);
        run(&eager);
    }
    for pool in [anon.count(), heap.count()] {
        assert_eq!((pool.taken, pool.owners), (0, 0));
    }
    if denied == "userfaultfd" {
        assert!(eager.why_not_moving().is_some_and(|why| why.to_string().contains("userfaultfd")));
    }
    say(format_args!("moved {}", if moved > 0 { "yes" } else { "no" }));
}

/// Folds and holds messages until one could not go into the window.
fn refused(folder: &Folder, pool: &Pool<SealedPages>) {
    let mut held = Vec::new();
    let place = loop {
        let bytes = vec![held.len() as u8; 8 * PAGE];
        let folded = folder.fold({
            let mut parts = vec![filled(pool, &bytes), filled(pool, &bytes)];
            parts.reverse();
            parts
        });
        let folded = folded.expect("to fold");
        assert!(folded.iter().all(|byte| *byte == held.len() as u8));
        match folded.receipt().place {
            Place::Window if held.len() < 100 => held.push(folded),
            other => break other,
        }
    };
    let refused = matches!(place, Place::Memory(Why::Os(_)));
    assert!(refused, "{} messages in the window, then {place:?}", held.len());
}

/// Reserves as many mappings as there may be, but for a few: every other page of a range is open.
fn exhaust() -> Reserved {
    let held = Reserved::new(1 << 31, PAGE).expect("addresses");
    let open = |at: usize| held.open(at * 2 * PAGE..(at * 2 + 1) * PAGE);
    let count = (0..held.len() / 2 / PAGE).take_while(|at| open(*at).is_ok()).count();
    assert!(count < held.len() / 2 / PAGE, "no limit on mappings was met");
    for at in 1..4 {
        // SAFETY: no thread uses the memory at that address.
        #[allow(unsafe_code)]
        unsafe { held.close(at * 2 * PAGE..(at * 2 + 1) * PAGE) }.expect("mappings that merge");
    }
    held
}

/// Folds a message of parts of both pools, with and without unfolding. Returns how many bytes were
/// moved.
fn fold<P: Pages + 'static, Q: Pages + 'static>(
    folder: &Folder,
    one: &Pool<P>,
    two: Option<&Pool<Q>>,
    len: usize,
    round: u64,
) -> u64
where
    Filled<P>: Quiet,
    Filled<Q>: Quiet,
{
    let bytes = |part: u64| -> Vec<u8> {
        (0..len as u64).map(|at| (at * 7 + at / 251 + part * 31 + round) as u8).collect()
    };
    let part = |number: u64| -> Box<dyn Quiet> {
        match two {
            Some(two) if number.is_multiple_of(2) => Box::new(filled(two, &bytes(number))),
            _ => Box::new(filled(one, &bytes(number))),
        }
    };
    let mut parts: Vec<_> = (0..3).rev().map(part).collect();
    parts.reverse();
    let whole: Vec<u8> = (0..3).flat_map(bytes).collect();
    let folded = folder.fold(parts).expect("to fold");
    let moved = folded.receipt().moved;
    check(&folded, &whole);
    let folded = folder.fold(folded.unfold()).expect("to fold again");
    check(&folded, &whole);
    moved
}

fn filled<P: Pages>(pool: &Pool<P>, bytes: &[u8]) -> Filled<P> {
    let mut filling = pool.take(Owner(1), bytes.len() as u64).expect("free pages");
    filling.write(bytes).expect("as long");
    filling.finish()
}

fn check(folded: &Folded<Vec<Box<dyn Quiet>>>, whole: &[u8]) {
    let receipt = folded.receipt();
    assert!(**folded == *whole, "{receipt}");
    let sum = receipt.moved + receipt.mapped + receipt.copied;
    assert_eq!(sum, if receipt.place == Place::InPlace { 0 } else { whole.len() as u64 });
}
