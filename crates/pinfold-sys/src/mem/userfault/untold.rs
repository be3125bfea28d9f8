//! Pages that were moved, though the kernel said that none were.
//!
//! Linux 6.18 moves pages many at a time. When several threads move some at once it happens, once
//! in some thousand calls, that such a run has been moved and the kernel, not knowing, begins with
//! it again: it finds pages at the destination, its own, and says `EEXIST` and that nothing was
//! moved. A caller that then copied from the source would write the zeros of holes over the
//! message.

use rustix::param::page_size;

use crate::mem::{
    pagemap::{PAGES, Pagemap, State},
    resident,
};

/// Pages, of the first `pages` from `from` on, that are not there any more while there are some
/// from `to` on: they went there. Some µs; called when the kernel says that there is something at
/// `to` already.
pub(super) fn moved(to: usize, from: usize, pages: usize) -> usize {
    let by_map = Pagemap::open().and_then(|map| by_map(&map, to, from, pages));
    // Without `proc(5)`, swapped-out pages count as gone, and there is no better question.
    by_map.unwrap_or_else(|_| (0..pages).take_while(|page| by_residence(to, from, *page)).count())
}

fn by_map(map: &Pagemap, to: usize, from: usize, pages: usize) -> std::io::Result<usize> {
    let mut done = 0;
    while done < pages {
        let count = (pages - done).min(PAGES);
        let [mut there, mut here] = [[State::default(); PAGES]; 2];
        for (addr, states) in [(to, &mut there), (from, &mut here)] {
            map.read((addr / page_size() + done) as u64, &mut states[..count])?;
        }
        let went = there.iter().zip(&here).take(count);
        let went = went.take_while(|(there, here)| !there.is_hole() && here.is_hole()).count();
        done += went;
        if went < count {
            break;
        }
    }
    Ok(done)
}

fn by_residence(to: usize, from: usize, page: usize) -> bool {
    let (at, len) = (page * page_size(), page_size());
    resident::all(to + at, len) == Ok(true) && resident::all(from + at, len) == Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::userfault::Pages;

    #[test]
    fn what_went_is_counted_up_to_what_did_not() {
        let page = page_size();
        let [mut to, mut from] = [0; 2].map(|_| Pages::new(200 * page, false).unwrap());
        let count = |to: &Pages, from: &Pages, first: usize, pages: usize| {
            let at = first * page;
            let both = [
                moved(to.addr() + at, from.addr() + at, pages),
                (0..pages)
                    .take_while(|n| by_residence(to.addr() + at, from.addr() + at, *n))
                    .count(),
            ];
            assert_eq!(both[0], both[1]);
            both[0]
        };
        assert_eq!(count(&to, &from, 0, 200), 0);
        to.as_mut_slice()[..150 * page].fill(1);
        assert_eq!([200, 149, 64, 1].map(|pages| count(&to, &from, 0, pages)), [150, 149, 64, 1]);
        from.as_mut_slice()[70 * page] = 1;
        assert_eq!(count(&to, &from, 0, 200), 70);
        assert_eq!(count(&to, &from, 70, 130), 0);
        assert_eq!(count(&to, &from, 71, 129), 79);
    }
}
