//! Several threads deliver and fold at once, out of pools that are too small for all of them and
//! hold secrets.

use std::{collections::VecDeque, os::fd::AsFd, sync::Arc, thread};

use pinfold_sys::mem::memfd;

use super::*;

type Message = Vec<Box<dyn Scattered>>;

/// The byte in all pages before.
const SECRET: u8 = 0xEE;

/// Writes the secret to all pages of a pool.
fn plant<P: Pages>(pool: Pool<P>) -> Pool<P> {
    drop(filled(&pool, &vec![SECRET; pool.count().pages as usize * PAGE]));
    assert_eq!(pool.count().taken, 0);
    pool
}

/// The bytes of the window that can be seen behind a message, to the end of its last page.
fn behind<M: Scattered>(folder: &Folder, folded: &Folded<M>) -> Vec<u8> {
    let end = folded.as_ptr().addr() + folded.len();
    if !folder.has(folded.as_ptr().addr()) {
        return Vec::new();
    }
    let at = std::ptr::with_exposed_provenance(end);
    // SAFETY: within the last page of the message, which no thread writes to.
    unsafe { std::slice::from_raw_parts(at, end.next_multiple_of(PAGE) - end) }.to_vec()
}

/// As many zeros as the rest of its last page has, where a message has its pages in a pool.
fn clean(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn part<P: Pages + 'static>(pool: &Pool<P>, tag: u8, len: usize) -> Option<Box<dyn Scattered>> {
    match pool.take(Owner(tag.into()), len as u64) {
        Ok(mut filling) => {
            filling.write(&vec![tag; len]).unwrap();
            Some(Box::new(filling.finish()))
        }
        Err(error) => {
            assert!(error.is_exhausted(), "{error}");
            None
        }
    }
}

struct Crowd {
    folder: Folder,
    anon: Pool<AnonPages>,
    sealed: Pool<SealedPages>,
    heap: Pool<HeapPages>,
    /// The memory that a peer gave to all of them.
    peer: Arc<PeerMemory>,
    wrong: AtomicU64,
    refused: AtomicU64,
    window: AtomicU64,
}

const OF_PEER: u8 = 250;

impl Crowd {
    fn new() -> Crowd {
        let folder = folder(FREE);
        let file = memfd::create_fixed("fold-crowd", 64 * PAGE).unwrap();
        rustix::io::pwrite(&file, &[OF_PEER; 64 * PAGE], 0).unwrap();
        memfd::seal(file.as_fd(), true).unwrap();
        Crowd {
            anon: plant(anonymous(&folder, 20)),
            sealed: plant(Pool::new(SealedPages::new(14).unwrap())),
            heap: plant(Pool::new(HeapPages::new(14).unwrap())),
            peer: PeerMemory::map(file, 64 * PAGE as u64).unwrap(),
            folder,
            wrong: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            window: AtomicU64::new(0),
        }
    }

    /// Three parts or four, which do not lie in order. `None` if a pool is exhausted.
    fn deliver(&self, tag: u8, turn: usize) -> Option<(Message, usize)> {
        let pages = [1 + turn * 7 % 5, 1 + turn % 4, 1 + turn % 3];
        let mut len = 0;
        let mut parts = Vec::new();
        for (at, pages) in pages.into_iter().enumerate() {
            // Every other message has parts that end within their page.
            let bytes = pages * PAGE - turn % 2 * 9;
            len += bytes;
            parts.push(match (at + turn) % 4 {
                0 | 1 => part(&self.anon, tag, bytes)?,
                2 => part(&self.sealed, tag, bytes)?,
                _ => part(&self.heap, tag, bytes)?,
            });
        }
        Some((parts, len))
    }

    fn check(&self, right: bool) {
        // To panic here would leave the others at work.
        self.wrong.fetch_add(u64::from(!right), Ordering::Relaxed);
    }

    fn is_right<M: Scattered>(&self, folded: &Folded<M>, tag: u8, len: usize) -> bool {
        let bytes = copied_out(folded);
        bytes.len() == len
            && bytes.iter().all(|byte| *byte == tag)
            && (tag == OF_PEER || clean(&behind(&self.folder, folded)))
    }

    fn end(&self, folded: Folded<Message>, tag: u8, len: usize) {
        self.check(self.is_right(&folded, tag, len));
        if tag.is_multiple_of(2) {
            self.check(gathered(&folded.unfold()) == vec![tag; len]);
        }
    }

    fn look_at_peer(&self, turn: usize) {
        let page = |at: usize| {
            let start = (at % 64 * PAGE) as u64;
            self.peer.part(start..start + PAGE as u64).unwrap()
        };
        match self.folder.fold(vec![page(turn + 5), page(turn)]) {
            Ok(folded) => self.check(self.is_right(&folded, OF_PEER, 2 * PAGE)),
            Err(_) => self.check(false),
        }
    }

    fn work(&self, thread: u8) {
        let mut held = VecDeque::new();
        for turn in 0..150 {
            let tag = 1 + thread * 50 + (turn % 50) as u8;
            self.look_at_peer(turn);
            let Some((message, len)) = self.deliver(tag, turn) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                held.drain(..).for_each(|(folded, tag, len)| self.end(folded, tag, len));
                continue;
            };
            let Ok(folded) = self.folder.fold(message) else {
                self.check(false);
                continue;
            };
            self.check(self.is_right(&folded, tag, len));
            let there = folded.receipt().place == Place::Window;
            self.window.fetch_add(u64::from(there), Ordering::Relaxed);
            held.push_back((folded, tag, len));
            if held.len() > 4
                && let Some((folded, tag, len)) = held.pop_front()
            {
                self.end(folded, tag, len);
            }
        }
        held.into_iter().for_each(|(folded, tag, len)| self.end(folded, tag, len));
    }
}

#[test]
fn all_deliver_and_fold_at_once() {
    let crowd = Crowd::new();
    let maps = crowd.folder.count().maps_left;
    thread::scope(|scope| {
        let crowd = &crowd;
        (0..4).for_each(|thread| drop(scope.spawn(move || crowd.work(thread))));
    });
    let Crowd { folder, anon, sealed, heap, wrong, refused, window, .. } = crowd;
    assert_eq!(wrong.into_inner(), 0);
    assert!(window.into_inner() > 0 && refused.into_inner() > 0);
    nothing_left(&folder, maps);
    for count in [anon.count(), sealed.count(), heap.count()] {
        assert_eq!((count.taken, count.pieces, count.owners), (0, 0, 0));
    }
    // All pages can be had, in a row, and show none of the old contents.
    let all = anon.take(Owner(1), 20 * PAGE as u64).unwrap().finish();
    assert_eq!(all.pieces().len(), 1);
    let at = anon.memory().base().as_ptr();
    // SAFETY: pages of the message, which no thread writes to.
    assert!(clean(unsafe { std::slice::from_raw_parts(at, 20 * PAGE) }));
}

/// One kind of memory after the other, each folded in each way: the old contents of its pages are
/// nowhere.
#[test]
fn planted_secrets_do_not_come_along() {
    fn try_out<P: Pages + 'static>(folder: &Folder, pool: Pool<P>) {
        let pool = plant(pool);
        for len in [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE - 7, 4 * PAGE] {
            // Of a message that broke off nothing is to be seen either.
            let mut broken = pool.take(Owner(2), 3 * PAGE as u64).unwrap();
            broken.spare(3 * PAGE as u64).for_each(|span| {
                // SAFETY: the message has this span.
                unsafe { span.at.write_bytes(SECRET, span.len) }
            });
            let between = filled(&pool, &[1]);
            drop(broken);
            let parts = vec![filled(&pool, &[3; 2 * PAGE]), filled(&pool, &vec![3; len])];
            let parts: Vec<_> = parts.into_iter().rev().collect();
            let folded = folder.fold(parts).unwrap();
            assert!(copied_out(&folded).iter().all(|byte| *byte == 3), "{}", folded.receipt());
            assert!(clean(&behind(folder, &folded)), "{}", folded.receipt());
            let parts = folded.unfold();
            assert!(gathered(&parts).iter().all(|byte| *byte == 3));
            for part in &parts {
                let mut seen = Vec::new();
                for piece in part.pieces() {
                    let at = pool.memory().base().as_ptr();
                    let at = at.wrapping_add(piece.first as usize * PAGE);
                    let len = piece.pages as usize * PAGE;
                    // SAFETY: pages of the message, which no thread writes to.
                    seen.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
                }
                assert!(clean(&seen[part.bytes() as usize..]), "{len}");
            }
            drop(between);
        }
    }
    for costs in [FREE, Costs { move_call_ns: 1e5, ..FREE }, Costs::COPY_ONLY] {
        let folder = folder(costs);
        try_out(&folder, anonymous(&folder, 16));
        try_out(&folder, Pool::new(SealedPages::new(16).unwrap()));
        try_out(&folder, Pool::new(MemfdPages::new(16).unwrap()));
        try_out(&folder, Pool::new(HeapPages::new(16).unwrap()));
    }
}
