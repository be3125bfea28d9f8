//! One-sided operations: the same bytes and the same errors on every transport, of every kind of
//! memory, by either kind of handle; receipts say by which path they went.

use pinfold::{
    Addressing, AtomicChange, Completed, CompletionQueue, Endpoint, Error, Path, Receipt, Refusal,
    Region, RegionKey, Registered, Remote, Rights, SharedArena, SharedBuf,
};
use pinfold_tests::{role::PATIENCE, stamp};

use crate::pair::{End, LENGTHS, Pair, Transport};

/// Bytes of the memory.
const LEN: usize = (6 << 20) + 123;
const KEY: u64 = 1;
/// Additions of each end to a word of the other's memory.
const ADDITIONS: u64 = 40;

/// The kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Region,
    Buffer,
    /// A buffer that lies in an arena.
    Shared,
}

/// Memory that an end lets the other use.
enum Memory {
    Region(Region),
    Buffer(Registered<Vec<u8>>),
    Shared(Registered<SharedBuf>),
}

impl Memory {
    fn new(endpoint: &Endpoint, kind: Kind) -> Memory {
        let rights = Rights::ReadWrite;
        match kind {
            Kind::Region => Memory::Region(endpoint.region(LEN, rights).unwrap()),
            Kind::Buffer => Memory::Buffer(endpoint.register(vec![0; LEN], rights).unwrap()),
            Kind::Shared => {
                let buf = SharedArena::builder().build_shared().unwrap().alloc(LEN).unwrap();
                Memory::Shared(endpoint.register(buf, rights).unwrap())
            }
        }
    }

    fn key(&self) -> RegionKey {
        match self {
            Memory::Region(region) => region.key().unwrap(),
            Memory::Buffer(registered) => registered.key(),
            Memory::Shared(registered) => registered.key(),
        }
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        match self {
            Memory::Region(region) => region.read(0, &mut bytes),
            Memory::Buffer(registered) => registered.read(0, &mut bytes),
            Memory::Shared(registered) => registered.read(0, &mut bytes),
        }
        .unwrap();
        bytes
    }

    /// Ends the use, and looks at the contents whenever they are asked for.
    fn revoke(self) -> Box<dyn Fn() -> Vec<u8>> {
        match self {
            Memory::Region(mut region) => {
                region.revoke().unwrap();
                Box::new(move || region.to_vec().unwrap())
            }
            Memory::Buffer(registered) => {
                let bytes = registered.into_inner().map_err(|kept| kept.0).unwrap();
                Box::new(move || bytes.clone())
            }
            Memory::Shared(registered) => {
                let bytes = registered.into_inner().map_err(|kept| kept.0).unwrap();
                Box::new(move || bytes.to_vec())
            }
        }
    }
}

pub fn holds(on: Transport) {
    let pair = Pair::new(on);
    for kind in [Kind::Region, Kind::Buffer, Kind::Shared] {
        let open = |end: &End, key: &RegionKey| end.endpoint.open_region(end.peer, key).unwrap();
        pair.both(|end| lend_and_borrow(end, kind, on, open, |_| 0));
        let open = |end: &End, key: &RegionKey| end.endpoint.open_space(end.peer, key).unwrap();
        pair.both(|end| lend_and_borrow(end, kind, on, open, |remote| remote.addresses().start));
    }
    assert!(pair.one.endpoint.counters().one_sided.atomics >= 12 * ADDITIONS);
}

/// Both ends lend memory and use the other's, whose first byte is at `first`.
fn lend_and_borrow<N: Addressing>(
    end: &End,
    kind: Kind,
    on: Transport,
    open: impl Fn(&End, &RegionKey) -> Remote<N>,
    first: impl Fn(&Remote<N>) -> u64,
) {
    let (endpoint, peer) = (&end.endpoint, end.peer);
    let memory = Memory::new(endpoint, kind);
    endpoint.send(peer, end.out(KEY), &memory.key().to_bytes()).unwrap();
    let key = endpoint.recv(peer, end.into(KEY)).unwrap();
    let key = RegionKey::from_bytes(&key).unwrap();
    let remote = open(end, &key);
    assert_eq!(
        (remote.len(), remote.rights(), remote.peer()),
        (LEN as u64, Rights::ReadWrite, peer)
    );
    let wrong = RegionKey::from_bytes(&key.to_bytes().map(|byte| byte ^ 0x80)).unwrap();
    assert!(matches!(endpoint.open_region(peer, &wrong), Err(Error::BadKey)));
    assert!(matches!(endpoint.open_space(peer, &wrong), Err(Error::BadKey)));
    let user = User { first: first(&remote), remote, kind, on };
    user.copies();
    user.outside();
    user.atomics();
    // The last write is in the other's memory before the word of it.
    user.remote.write(user.first, &stamp::bytes(LEN, end.out(0))).unwrap();
    end.meet();
    stamp::check(&memory.contents(), end.into(0));
    end.meet();
    let contents = memory.revoke();
    end.meet();
    let (remote, at) = (&user.remote, user.first);
    let errors = [
        remote.write(at, b"late").map(drop),
        remote.read(at, &mut [0]).map(drop),
        remote.fetch_add(at, 0u64).map(drop),
        remote.write_owned(at, vec![1; 100_000]).wait().0.map(drop),
        remote.write_vectored(&[(at, b"late"), (at + 9, b"late")]).map(drop),
        remote.flush(),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::Revoked)), "{kind:?}: {error:?}");
    }
    end.meet();
    stamp::check(&contents(), end.into(0));
    end.meet();
}

/// Memory of the other end, as this one uses it.
struct User<N: Addressing> {
    remote: Remote<N>,
    /// The number of the first byte.
    first: u64,
    kind: Kind,
    on: Transport,
}

impl<N: Addressing> User<N> {
    fn went(&self, receipt: &Receipt, len: usize) {
        assert_eq!(receipt.bytes, len as u64, "{receipt}");
        let paths: &[Path] = match (self.on.shares_memory(), self.kind) {
            (true, Kind::Region) => &[Path::Mapped],
            // The agent copies where the kernel may not.
            (true, Kind::Buffer) => &[Path::Cma, Path::Eager],
            (true, Kind::Shared) => &[Path::Mapped, Path::Cma, Path::Eager],
            (false, _) => &[Path::Eager],
        };
        assert!(paths.contains(&receipt.path), "{:?}: {receipt}", self.kind);
        if !self.on.shares_memory() {
            assert_eq!(receipt.refused(Path::Mapped), Some(Refusal::OtherHost), "{receipt}");
        }
    }

    /// Every length at several places, by every kind of call, against a model.
    fn copies(&self) {
        let (queue, remote) = (CompletionQueue::new().unwrap(), &self.remote);
        let mut model = vec![0; LEN];
        for (seed, len) in (1..).zip(LENGTHS) {
            for (turn, at) in [0, 4097, LEN - len].into_iter().enumerate() {
                let bytes = stamp::bytes(len, seed << 8 | turn as u64);
                model[at..at + len].copy_from_slice(&bytes);
                let (offset, cut) = (self.first + at as u64, len / 3);
                let second = offset + cut as u64;
                match turn {
                    0 => self.went(&remote.write(offset, &bytes).unwrap(), len),
                    1 => {
                        let parts = [(offset, &bytes[..cut]), (second, &bytes[cut..])];
                        self.went(&remote.write_vectored(&parts).unwrap(), len);
                    }
                    _ => {
                        queue.add(seed, remote.write_owned(offset, bytes));
                        self.queued(&queue, len);
                    }
                }
                let mut back = vec![0xee; len];
                match turn {
                    0 => {
                        queue.add(seed, remote.read_owned(offset, back));
                        back = self.queued(&queue, len);
                    }
                    1 => self.went(&remote.read(offset, &mut back).unwrap(), len),
                    _ => {
                        let (head, tail) = back.split_at_mut(cut);
                        let mut parts = [(offset, head), (second, tail)];
                        self.went(&remote.read_vectored(&mut parts).unwrap(), len);
                    }
                }
                stamp::check(&back, seed << 8 | turn as u64);
            }
        }
        let mut all = vec![0; LEN];
        remote.read(self.first, &mut all).unwrap();
        assert!(all == model, "something else was written, too");
    }

    /// The buffer of the only operation.
    fn queued(&self, queue: &CompletionQueue, len: usize) -> Vec<u8> {
        let mut ended = Vec::new();
        assert_eq!(queue.wait(&mut ended, 2, Some(PATIENCE)).unwrap(), 1);
        let Ok(Completed::Copied(receipt)) = &ended[0].result else { panic!("{:?}", ended[0]) };
        self.went(receipt, len);
        ended[0].take_buffer().unwrap()
    }

    /// Operations outside the memory, or on no word of it, are refused, and nothing is changed.
    fn outside(&self) {
        let (remote, first) = (&self.remote, self.first);
        let (mut before, mut after) = (vec![0; 4096], vec![0; 4096]);
        let end = first + LEN as u64 - 4096;
        remote.read(end, &mut before).unwrap();
        let places = [LEN as u64, LEN as u64 - 3, 1, 0u64.wrapping_sub(first + 2), 0];
        for (offset, len) in places.into_iter().zip([1, 4, LEN, 2, LEN + 1]) {
            let at = first.wrapping_add(offset);
            let errors = [
                remote.write(at, &vec![1; len]).map(drop),
                remote.read(at, &mut vec![1; len]).map(drop),
                remote.write_vectored(&[(end, &[1; 8]), (at, &vec![1; len])]).map(drop),
                remote.read_owned(at, vec![1; len]).wait().0.map(drop),
            ];
            for error in errors {
                // The place is named in the caller's words.
                let is_told =
                    matches!(error, Err(Error::OutOfBounds { offset, .. }) if offset == at);
                assert!(is_told, "{at} {len}: {error:?}");
            }
        }
        if first > 0 {
            let before = remote.read(first - 1, &mut [0; 2]);
            assert!(matches!(before, Err(Error::OutOfBounds { .. })), "{before:?}");
        }
        let beyond = remote.fetch_add((first + LEN as u64 + 5).next_multiple_of(8), 1u64);
        assert!(matches!(beyond, Err(Error::OutOfBounds { .. })), "{beyond:?}");
        let misaligned = remote.fetch_add(first + 4096 + 3, 1u64);
        assert!(matches!(misaligned, Err(Error::Misaligned { .. })), "{misaligned:?}");
        remote.read(end, &mut after).unwrap();
        assert!(before == after);
    }

    /// Atomic operations. Those of a region in a queue are done in their order.
    fn atomics(&self) {
        let (queue, remote, first) = (CompletionQueue::new().unwrap(), &self.remote, self.first);
        remote.write(first, &[0; 16]).unwrap();
        for number in 0..ADDITIONS {
            assert_eq!(remote.fetch_add(first, 1u64).unwrap(), number);
            queue.add(number, remote.atomic(first, AtomicChange::Add(0u64)));
        }
        let mut ended = Vec::new();
        while queue.outstanding() > 0 {
            assert!(queue.wait(&mut ended, 5, Some(PATIENCE)).unwrap() > 0);
        }
        for completion in ended {
            let Ok(Completed::Was(was)) = completion.result else { panic!("{completion:?}") };
            let at_once = completion.context + 1;
            let latest = if self.kind == Kind::Region { at_once } else { ADDITIONS };
            assert!((at_once..=latest).contains(&was), "{was}, {completion:?}");
        }
        let word = first + 8;
        assert_eq!(remote.compare_swap(word, 0u32, 7).unwrap(), 0);
        assert_eq!(remote.compare_swap(word, 0u32, 9).unwrap(), 7);
        assert_eq!(remote.swap(word, 5u32).unwrap(), 7);
        let mut words = [0; 16];
        remote.read(first, &mut words).unwrap();
        assert_eq!(words[..8], ADDITIONS.to_ne_bytes());
        assert_eq!(words[8..], [5u32.to_ne_bytes(), [0; 4]].concat());
    }
}
