//! 24 MiB that one endpoint gives another in parts, in turns, the order by chance: brought into a
//! row as the costs say, by mapping alone, and by copying alone; and the same between two
//! endpoints, beside a receive that copies, and beside a send of the same parts.
//!
//! The output: the median of the time until all of it was read and given back, and over the turns
//! the time of the better one of mapping and copying beside that of the choice. All is read each
//! time, and now and then compared.

use std::{
    hint::black_box,
    io::IoSlice,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use pinfold::{
    Arena, DonatedBuf, Endpoint, PeerId,
    reassembly::{
        HUGE_BYTES, PAGE_BYTES,
        fold::{Folder, PeerMemory, PeerPart, Settings},
        gather::Costs,
    },
};
use pinfold_sys::mem::{mapping::SharedMapping, memfd};

use super::{BYTES, bytes, check, median, us};

const TURNS: usize = 41;

const SIZES: [(&str, usize); 3] =
    [("2 MiB", HUGE_BYTES), ("64 KiB", 1 << 16), ("4 KiB", PAGE_BYTES)];

/// The sum of all words.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    black_box(words.fold(0, u64::wrapping_add))
}

/// The parts' numbers, in a random order: each is filled with its number.
fn shuffled(count: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count as u64).collect();
    let mut state = 17u64;
    for at in (1..numbers.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        numbers.swap(at, (state >> 33) as usize % (at + 1));
    }
    numbers
}

/// `count` ways in a random order.
fn order(count: usize, random: &mut u64) -> Vec<usize> {
    let mut ways: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ways.swap(at, (*random >> 33) as usize % (at + 1));
    }
    ways
}

/// A peer's file with a message in it, in huge pages if possible and if parts are long enough, as
/// an arena has it; the numbers in its parts; and true if it is in huge pages.
fn memory(len: usize) -> (Arc<PeerMemory>, Vec<u64>, bool) {
    let file: OwnedFd = memfd::create_fixed("pinfold-bench", BYTES).expect("a file");
    for number in 0..(BYTES / len) as u64 {
        let bytes = bytes(number, len);
        rustix::io::pwrite(&file, &bytes, number * len as u64).expect("as long");
    }
    let collapse =
        || SharedMapping::map_aligned(file.as_fd(), BYTES, HUGE_BYTES)?.collapse(0..BYTES);
    let huge = len >= HUGE_BYTES && collapse().is_ok();
    memfd::seal(file.as_fd(), true).expect("seals");
    (PeerMemory::map(file, BYTES as u64).expect("a mapping"), shuffled(BYTES / len), huge)
}

/// Brought into a row by each of three: as the costs say, mapping, and copying.
fn rows(name: &str, folders: &[Folder; 3], len: usize) {
    let (memory, numbers, huge) = memory(len);
    let parts = || -> Vec<PeerPart> {
        let part = |number: &u64| {
            let start = number * len as u64;
            let part = memory.part(start..start + len as u64).expect("a part");
            part.assume_huge(huge)
        };
        numbers.iter().map(part).collect()
    };
    let mut whole = vec![0; BYTES];
    let (mut times, mut best) = ([(); 3].map(|()| Vec::new()), Vec::new());
    let (mut said, mut random) = (String::new(), 3);
    let expected: u64 =
        (0..numbers.len() as u64).fold(0, |all, number| all.wrapping_add(sum(&bytes(number, len))));
    for turn in 0..TURNS {
        let mut took = [0.0; 3];
        for which in order(3, &mut random) {
            let start = Instant::now();
            let folded = folders[which].fold(parts()).expect("to fold");
            // SAFETY: the file is written no more.
            #[allow(unsafe_code)]
            let bytes = unsafe { std::slice::from_raw_parts(folded.as_ptr(), folded.len()) };
            assert_eq!(sum(bytes), expected, "another message");
            if which == 0 {
                said = folded.receipt().to_string();
            }
            if turn % 10 == 0 {
                folded.read(0, &mut whole);
                check(&whole, &numbers, len);
            }
            drop(folded);
            took[which] = us(start);
        }
        if turn > 2 && turn % 10 != 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
            best.push(took[1].min(took[2]) / took[0]);
        }
    }
    let [chosen, mapped, copied] = times.map(|mut times| median(&mut times));
    println!(
        "{name:7} chosen {chosen:7.1} us  mapped {mapped:7.1}  copied {copied:7.1}  best/chosen {:5.2}",
        median(&mut best)
    );
    println!("{:7} {said}", "");
}

/// The commands to a sender; 0: nothing.
const GIVE: u64 = 1;
const SEND: u64 = 2;
const END: u64 = 3;

/// The sender's part.
fn sender(
    endpoint: &Endpoint,
    to: PeerId,
    donations: &[DonatedBuf],
    sent: &[&[u8]],
    next: &AtomicU64,
) {
    let slices: Vec<_> = sent.iter().map(|part| IoSlice::new(part)).collect();
    loop {
        match next.swap(0, Ordering::Acquire) {
            GIVE => {
                let handoff = endpoint.handoff_vectored(to, 1, donations.iter().cloned());
                handoff.wait().0.expect("to give");
            }
            SEND => _ = endpoint.send_vectored(to, 1, &slices).expect("to send"),
            END => return,
            _ => std::hint::spin_loop(),
        }
    }
}

/// Between two endpoints: looked at as the costs say, received as a copy, and sent and received
/// plainly.
fn endpoints(name: &str, len: usize) {
    let address = format!("local:given-{}-{len}", std::process::id());
    let a = Endpoint::listen(&address).expect("to listen");
    let (b, from_a, to_b) = thread::scope(|scope| {
        let there = scope.spawn(|| {
            let b = Endpoint::new().expect("an endpoint");
            let from_a = b.connect(&address).expect("to connect");
            (b, from_a)
        });
        let to_b = a.accept().expect("a peer");
        let (b, from_a) = there.join().expect("no panic");
        (b, from_a, to_b)
    });
    let arena = Arena::new().expect("an arena");
    let numbers = shuffled(BYTES / len);
    let mut bufs: Vec<_> = (0..numbers.len() as u64)
        .map(|number| {
            let mut buf = arena.alloc_aligned(len, len).expect("a buffer");
            buf.copy_from_slice(&bytes(number, len));
            Some(buf)
        })
        .collect();
    let bufs: Vec<_> =
        numbers.iter().map(|number| bufs[*number as usize].take().unwrap()).collect();
    let plain: Vec<Vec<u8>> = numbers.iter().map(|number| bytes(*number, len)).collect();
    let sent: Vec<&[u8]> = plain.iter().map(Vec::as_slice).collect();
    let expected = sent.iter().fold(0, |all: u64, part| all.wrapping_add(sum(part)));
    let donations: Vec<DonatedBuf> = bufs.into_iter().map(DonatedBuf::from).collect();
    let next = AtomicU64::new(0);
    let mut times = [(); 3].map(|()| Vec::new());
    let (mut best, mut said) = (Vec::new(), String::new());
    thread::scope(|scope| {
        scope.spawn(|| sender(&a, to_b, &donations, &sent, &next));
        let mut random = 5;
        for turn in 0..TURNS {
            let mut took = [0.0; 3];
            for which in order(3, &mut random) {
                let start = Instant::now();
                next.store(if which == 2 { SEND } else { GIVE }, Ordering::Release);
                if which == 0 {
                    let view = b.recv_view(from_a, 1).expect("a view");
                    // SAFETY: nothing writes it.
                    #[allow(unsafe_code)]
                    let bytes = unsafe { view.as_slice() }.expect("its bytes");
                    assert_eq!(sum(bytes), expected, "another message");
                    if turn % 10 == 0 {
                        check(bytes, &numbers, len);
                    }
                    let how = view.folded().map_or(String::new(), ToString::to_string);
                    said = format!("{}; {how}", view.receipt());
                } else {
                    let message = b.recv(from_a, 1).expect("a message");
                    assert_eq!(sum(&message), expected, "another message");
                    if turn % 10 == 0 {
                        check(&message, &numbers, len);
                    }
                }
                took[which] = us(start);
            }
            if turn > 2 && turn % 10 != 0 {
                times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
                best.push(took[1].min(took[2]) / took[0]);
            }
        }
        next.store(END, Ordering::Release);
    });
    let [given, gathered, plain] = times.map(|mut times| median(&mut times));
    println!(
        "{name:7} given {given:7.1} us  gathered {gathered:7.1}  sent {plain:7.1}  best/given {:5.2}",
        median(&mut best)
    );
    println!("{:7} {said}", "");
}

pub fn main() {
    let settings = Settings { moves: false, ..Settings::default() };
    let chosen = Folder::new(settings.clone()).expect("a folder");
    let measured = chosen.measured();
    println!("given: 24 MiB; {TURNS} turns; {measured:?}");
    let with = |costs| Settings { costs: Some(costs), ..settings.clone() };
    let dear = Costs { copy_byte_ns: 100.0, ..measured.costs };
    let mapped = Folder::new(with(dear)).expect("a folder");
    let copied = Folder::new(with(Costs::COPY_ONLY)).expect("a folder");
    let folders = [chosen, mapped, copied];
    for (name, len) in SIZES {
        rows(name, &folders, len);
    }
    println!("between endpoints:");
    for (name, len) in SIZES {
        endpoints(name, len);
    }
}
