//! Messages in pieces that are made contiguous, pools of pages, and windows.
#![allow(unsafe_code)]
// Invariant: memory of a pool is written by address only while its message arrives, and is read by
// its mover alone.

use std::os::fd::AsFd;

use pinfold::reassembly::{
    PAGE_BYTES,
    fold::{Folded, Folder, Measured, PeerMemory, Quiet, Settings},
    gather::{self, Costs, How, Target},
    pool::{AnonPages, Filled, HeapPages, MemfdPages, Owner, Pages, Pool, SealedPages},
    window::{Bitmap, Inner, Organisation, SizeClasses, Tree, Windows},
};
use pinfold_sys::mem::memfd;
use pinfold_tests::stamp;

use super::small;

const OWNER: Owner = Owner(7);
const PAGES: u32 = 2048;
const LEN: usize = 40 * PAGE_BYTES + 100;

/// A message of a pool, written by every call.
fn message<P: Pages>(pool: &Pool<P>, seed: u64) -> Filled<P> {
    let bytes = stamp::bytes(LEN, seed);
    let mut filling = pool.take(OWNER, LEN as u64).unwrap();
    filling.write(&bytes[..5000]).unwrap();
    let mut rest = &bytes[5000..];
    let spans: Vec<_> = filling.spare(rest.len() as u64).collect();
    for span in spans {
        let (now, later) = rest.split_at(span.len);
        // SAFETY: the message's own memory, so long.
        unsafe { span.at.as_ptr().copy_from_nonoverlapping(now.as_ptr(), span.len) };
        rest = later;
    }
    filling.assume_filled(LEN as u64 - 5000).unwrap();
    assert_eq!((filling.filled(), filling.room()), (LEN as u64, 0));
    assert!(filling.write(&[1]).is_err());
    let mut filled = filling.finish();
    assert_eq!((filled.bytes(), filled.owner()), (LEN as u64, OWNER));
    assert!(filled.pieces().iter().all(|piece| !piece.range().is_empty()));
    assert_eq!(filled.spans().map(|span| span.len).sum::<usize>(), LEN);
    assert_eq!(filled.memory().pages(), PAGES);
    let mut pieces = filled.to_gather();
    let plan = gather::plan(&pieces, Target::Memory, &Costs::DEFAULT);
    assert_eq!((plan.bytes(How::Copy), plan.only()), (LEN as u64, Some(How::Copy)));
    let count = pieces.len();
    filled.gather_to(&mut pieces);
    assert_eq!(pieces.len(), 2 * count);
    let mut read = vec![0; LEN];
    assert_eq!(filled.read(0, &mut read), LEN);
    assert_eq!(read, bytes);
    // Nothing was taken out, and nothing torn.
    filled.left(0..0);
    filled.torn(0..0);
    filled
}

fn pools<P: Pages>(memory: P) -> Pool<P> {
    let pool = Pool::new(memory);
    drop(message(&pool, 1));
    let mut held = message(&pool, 2);
    held.expose();
    assert_eq!(pool.taken_by(OWNER), 41);
    assert_eq!((pool.count().taken, pool.memory().pages()), (41, PAGES));
    let full = pool.take(OWNER, 1 << 40).err().unwrap();
    assert!(full.is_exhausted() && !full.to_string().is_empty());
    drop(held);
    pool
}

#[test]
fn pools_of_pages() {
    small(|| {
        drop(pools(HeapPages::new(PAGES).unwrap()));
        drop(pools(MemfdPages::new(PAGES).unwrap()));
        let anonymous = AnonPages::new(PAGES, None).unwrap();
        anonymous.inherit().unwrap();
        drop(pools(anonymous));
        match SealedPages::new(PAGES) {
            Ok(sealed) => drop(pools(sealed)),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
        }
    });
}

fn look<M: Quiet>(mut folded: Folded<M>, len: usize) -> M {
    assert_eq!((folded.len(), folded.is_empty()), (len, false));
    assert!(!folded.as_ptr().is_null() && !folded.receipt().to_string().is_empty());
    let mut read = vec![0; len];
    assert_eq!(folded.read(0, &mut read), len);
    assert_eq!(read, *folded);
    if let Some(bytes) = folded.as_mut() {
        bytes[0] = read[0];
    }
    folded.unfold()
}

#[test]
fn folders() {
    small(|| {
        assert!(Measured::here().costs.copy_byte_ns > 0.0);
        assert!(Measured::unmoved().window_ns > 0.0);
        // With the costs of this machine, with those by which pages are moved or mapped, and with
        // those by which all is copied.
        let moving = Costs { copy_byte_ns: 100.0, ..Costs::DEFAULT };
        let _ = (moving.knows_moving(), moving.knows_mapping());
        for costs in [None, Some(moving), Some(Costs::COPY_ONLY)] {
            let folder = Folder::new(Settings { costs, ..Settings::default() }).unwrap();
            folder.let_pass();
            let _ = (folder.window_bytes(), folder.why_not_moving(), folder.measured());
            let early = AnonPages::new(PAGES, None).unwrap();
            let _ = folder.adopt(&early);
            for memory in [folder.pages(PAGES).unwrap(), early] {
                let pool = pools(memory);
                let messages = || vec![message(&pool, 3), message(&pool, 4)];
                let mut parts = messages();
                for _ in 0..2 {
                    parts = look(folder.fold(parts).unwrap(), 2 * LEN);
                }
                let mut read = vec![0; LEN];
                parts[1].read(0, &mut read);
                stamp::check(&read, 4);
                let mut folded = folder.fold(messages()).unwrap();
                let _ = folded.take_parts();
                drop(folded);
                let mut into = vec![0; 2 * LEN];
                folder.fold_into(&messages(), &mut into).unwrap();
                stamp::check(&into[..LEN], 3);
            }
            let beside = folder.beside(Settings::default()).unwrap();
            assert_eq!(beside.count().messages, 0);
        }
    });
}

#[test]
fn memory_of_peers() {
    small(|| {
        let len = 64 * PAGE_BYTES;
        let file = memfd::create_fixed("small-peer", len).unwrap();
        rustix::io::pwrite(&file, &stamp::bytes(len, 5), 0).unwrap();
        memfd::seal(file.as_fd(), true).unwrap();
        if !memfd::refuses_writers(file.as_fd()) {
            return pinfold_tests::skip("files cannot be sealed against writers here");
        }
        let memory = PeerMemory::map(file, len as u64).unwrap();
        assert!(memory.file().is_some() && memory.len() == len as u64);
        let part = memory.part(0..len as u64).unwrap().assume_huge(false).with(5);
        assert!(part.len() == len as u64 && !part.is_empty() && part.memory().len() > 0);
        assert_eq!(*part.keep(), 5);
        let folded = Folder::new(Settings::default()).unwrap().fold(part).unwrap();
        let mut read = vec![0; len];
        assert_eq!(folded.read(0, &mut read), len);
        stamp::check(&read, 5);
        assert_eq!(folded.unfold().into_keep(), 5);
    });
}

#[test]
fn windows() {
    small(|| {
        for organisation in Organisation::ALL {
            let mut window = organisation.window(1 << 16);
            let run = window.alloc(512, 512).unwrap();
            assert!(window.alloc(1 << 17, 1).is_err());
            assert_eq!(window.free(run).unwrap(), 512);
            assert!(window.count().free() <= 1 << 16 && window.largest(1) >= 512);
            assert!(!organisation.name().is_empty());
        }
        let mut bitmap = Bitmap::searching(1 << 16, Inner::Forward);
        bitmap.search_from(100);
        bitmap.alloc(5, 1).unwrap();
        let _ = (bitmap.rover(), bitmap.work());
        let _ = (SizeClasses::new(100).count(), Tree::new(100).count());
    });
}
