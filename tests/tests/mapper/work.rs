//! Threads that change memory and send it.

use std::{
    os::fd::AsFd,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use pinfold::translate::{
    own::{OwnMemory, Validation, Why},
    pincache::{NoPin, Refused},
};
use pinfold_sys::mem::{memfd, pin};
use pinfold_tests::{
    figures,
    ground::{Place, places},
    stamp::Random,
};

use super::{PAGE, passes};

/// Outcomes of the transfers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Transfers out of pinned pages.
    pub pinned: u64,
    /// Pinned transfers whose memory was not kept.
    pub unkept: u64,
    /// Pinned transfers whose memory might have been discarded still.
    pub discarding: u64,
    /// Transfers that were copied for want of room.
    pub copied: u64,
    /// Transfers with wrong bytes.
    pub wrong: u64,
}

impl Found {
    fn and(self, other: Found) -> Found {
        Found {
            pinned: self.pinned + other.pinned,
            unkept: self.unkept + other.unkept,
            discarding: self.discarding + other.discarding,
            copied: self.copied + other.copied,
            wrong: self.wrong + other.wrong,
        }
    }
}

/// Makes `transfers` by so many threads, over the same places.
pub fn work<V: Validation>(own: &OwnMemory<V>, threads: u64, transfers: u64) -> Found {
    let places = places(32);
    let stamps = AtomicU64::new(1);
    thread::scope(|scope| {
        let each = |seed| {
            let (places, stamps) = (&places, &stamps);
            scope.spawn(move || one(own, places, stamps, seed, transfers.div_ceil(threads)))
        };
        let all: Vec<_> = (0..threads).map(each).collect();
        all.into_iter().fold(Found::default(), |sum, one| sum.and(one.join().expect("a thread")))
    })
}

fn one<V: Validation>(
    own: &OwnMemory<V>,
    places: &[Mutex<Place>],
    stamps: &AtomicU64,
    seed: u64,
    transfers: u64,
) -> Found {
    let mut random = Random::new(figures::seed(seed));
    let mut found = Found::default();
    let file = memfd::create_sealed("mapper", 16 * PAGE).expect("a memfd");
    let mut back = vec![0; 16 * PAGE];
    for _ in 0..transfers {
        let place = &places[random.below(places.len() as u64) as usize];
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        place.change(&mut random);
        place.stamp(stamps.fetch_add(1, Ordering::Relaxed));
        let part = place.any(&mut random);
        let (start, len) = (part.start as u64, part.len() as u64);
        let hold = match random.below(4) {
            0 => own.begin_exact(start, len),
            _ => own.begin(start, len),
        };
        let sent = match hold {
            Ok(hold) => {
                found.pinned += 1;
                if let Err(why) = hold.kept() {
                    found.unkept += 1;
                    found.discarding += u64::from(why == Why::Discarding);
                    assert!(own.standing().not_kept == Some(why) || passes(why), "{why}");
                }
                let sent = own.write_out(&hold, file.as_fd(), 0);
                own.end(hold);
                sent
            }
            Err(NoPin::Busy | NoPin::Refused(Refused::NoMemory)) => {
                found.copied += 1;
                pin::write_mapped(part.clone(), file.as_fd(), 0)
            }
            Err(NoPin::Refused(Refused::Absent)) => {
                found.copied += 1;
                pin::write_mapped(part.clone(), file.as_fd(), 0)
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(sent.expect("the file takes it"), part.len());
        let back = &mut back[..part.len()];
        assert_eq!(rustix::io::pread(&file, &mut *back, 0), Ok(part.len()));
        found.wrong += u64::from(!place.is_right(&part, back));
    }
    found
}
