//! Memory that is given away in several parts, as one message: mapped in a row where that pays,
//! copied where it does not pay or cannot be done, with a receipt that says why, and always back in
//! its arena in the end.

mod bounds;
mod limits;
mod ways;

use std::thread;

use pinfold::{
    Arena, Builder, DonatedBuf, Endpoint, Path, PeerId, Receipt, Source, TagMatch, View,
    reassembly::fold::{self, Place},
};
use pinfold_tests::{stamp, wait_for_empty};

use limits::{breaks_down, dies, filtered, forks, full, goes, holds, keeps, short_of_maps};
use ways::{gives, looks, neighbours, odd, same, writes};

pinfold_tests::roles!(
    gives,
    looks,
    neighbours,
    odd,
    same,
    writes,
    breaks_down,
    dies,
    filtered,
    forks,
    full,
    goes,
    holds,
    keeps,
    short_of_maps
);

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const HUGE: usize = 2 * MIB;

fn builder() -> Builder {
    Endpoint::builder()
}

/// Buffers of such lengths, at multiples of `align`, none of which goes on where the one before
/// ends; together they hold the contents of `seed`.
fn parts(arena: &Arena, lens: &[usize], align: usize, seed: u64) -> Vec<DonatedBuf> {
    let bytes = stamp::bytes(lens.iter().sum(), seed);
    // From the last to the first, as an arena hands them out one behind the other.
    let mut end = bytes.len();
    let mut donations: Vec<DonatedBuf> = lens
        .iter()
        .rev()
        .map(|len| {
            let mut buf = arena.alloc_aligned(*len, align).expect("a buffer");
            buf.copy_from_slice(&bytes[end - len..end]);
            end -= len;
            buf.into()
        })
        .collect();
    donations.reverse();
    donations
}

fn check(view: &View<'_>, seed: u64) {
    let bytes = view.to_vec().expect("its bytes");
    stamp::check(&bytes, seed);
    // Across the borders of parts.
    for at in (0..view.len().saturating_sub(100)).step_by(PAGE * 3 + 50) {
        let mut some = [0; 100];
        view.read(at, &mut some).expect("some bytes");
        assert_eq!(some, bytes[at..][..100]);
    }
}

/// The receipt of folding for a view.
fn folded<'v>(view: &'v View<'_>) -> &'v fold::Receipt {
    view.folded().expect("it came in parts")
}

/// Checks that all of a view is memory of its sender's.
#[track_caller]
fn is_given(view: &View<'_>, place: Place) {
    let (receipt, folded) = (view.receipt(), folded(view));
    assert_eq!((receipt.path, receipt.bytes), (Path::Handoff, view.len() as u64), "{receipt}");
    assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0), "{receipt}; {folded}");
    assert_eq!(folded.place, place, "{folded}");
    let mapped = if place == Place::Window { view.len() as u64 } else { 0 };
    assert_eq!((folded.mapped, folded.copied, folded.moved), (mapped, 0, 0), "{folded}");
    assert_eq!((folded.bytes, folded.unmoved), (view.len() as u64, None), "{folded}");
    assert!(view.bytes().is_none());
}

/// The outcome for a sender of donated buffers that another thread takes by `take`.
fn handed_off<T: Send>(
    (sender, to): (&Endpoint, PeerId),
    tag: u64,
    donations: Vec<DonatedBuf>,
    take: impl FnOnce() -> T + Send,
) -> (Receipt, Vec<DonatedBuf>, T) {
    thread::scope(|scope| {
        let takes = scope.spawn(take);
        let (receipt, donations) = sender.handoff_vectored(to, tag, donations).wait();
        (receipt.expect("to hand off"), donations, takes.join().expect("no panic"))
    })
}

/// A view of the next message with a tag.
fn view(endpoint: &Endpoint, from: impl Into<Source>, tag: impl Into<TagMatch>) -> View<'static> {
    endpoint.recv_view(from, tag).expect("a view").into_owned()
}
