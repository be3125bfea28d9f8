//! The books of a pin-down cache: the work of a miss. One thread at a time has them.
//!
//! Accounting: `now` is the sum over all slots that are not free, live and retired alike. It is
//! added to before the back end pins and taken from after it has unpinned, so that at no instant
//! more is pinned than `now` says, and `now` never exceeds the budget.
//!
//! No live area has all bytes of another. So areas in the order of their starts are also in the
//! order of their ends, and the one that has some bytes, if any does, is the last that begins no
//! later.

use std::{collections::BTreeMap, sync::Arc};

use smallvec::SmallVec;

use super::{
    AccountGauges, AccountId, Area, Budget, Candidates, Evict, Hold, Invalidated, NoPin,
    PinCounters, Pinned, Pinner, Refused, accounts::Accounts, board::Board,
};
use crate::memory::translate::SpaceId;

pub(super) struct Books<P, E> {
    pub(super) pinner: P,
    accounts: Accounts<E>,
    budget: Budget,
    /// The live areas, by their starts.
    live: BTreeMap<(SpaceId, u64), u32>,
    free: Vec<u32>,
    now: Pinned,
    counters: PinCounters,
    /// Requests that were in flight from the start, not hits: those that pinned.
    begun_by_pin: u64,
    /// Transfers that ended in slots that were filled anew since.
    ended: u64,
    /// Of all transfers that ended, those after which an area was unpinned at once.
    finished: u64,
}

/// The areas as a policy sees them.
struct OnBoard<'a>(&'a Board);

impl Candidates for OnBoard<'_> {
    fn used(&self, area: u32) -> u64 {
        self.0.used(area)
    }

    fn now(&self) -> u64 {
        self.0.moment()
    }

    fn claim(&mut self, area: u32) -> bool {
        self.0.claim(area)
    }
}

impl<P: Pinner, E: Evict> Books<P, E> {
    pub(super) fn new(pinner: P, evict: E, budget: Budget) -> Books<P, E> {
        Books {
            pinner,
            accounts: Accounts::new(evict),
            budget,
            live: BTreeMap::new(),
            // The low numbers go first.
            free: (0..budget.entries_max).rev().collect(),
            now: Pinned::default(),
            counters: PinCounters::default(),
            begun_by_pin: 0,
            ended: 0,
            finished: 0,
        }
    }

    /// Holds an area that the table did not find: one that is there all the same, or a new one.
    pub(super) fn begin(
        &mut self,
        board: &Board,
        space: SpaceId,
        start: u64,
        last: u64,
    ) -> Result<Hold, NoPin> {
        let Some(asked) = Area::around(space, start, last, self.pinner.page_bytes()) else {
            return Err(NoPin::Invalid);
        };
        board.tick();
        if let Some(at) = self.having(board, space, start, last) {
            if let Some(hold) = board.hold::<false>(at, space, start, last) {
                board.note(space, start, at);
                return Ok(hold);
            }
            // More transfers than can be counted.
            self.counters.misses += 1;
            self.counters.busy += 1;
            return Err(NoPin::Busy);
        }
        self.counters.misses += 1;
        let answer = self.miss(board, asked, start - asked.start);
        *match answer {
            Ok(_) => &mut self.begun_by_pin,
            Err(NoPin::Busy) => &mut self.counters.busy,
            Err(NoPin::TooLarge) => &mut self.counters.too_large,
            Err(NoPin::Refused(_) | NoPin::Invalid) => &mut self.counters.refused,
        } += 1;
        answer.inspect(|hold| board.note(space, start, hold.slot))
    }

    fn miss(&mut self, board: &Board, asked: Area, offset: u64) -> Result<Hold, NoPin> {
        if !self.may_ever(asked) {
            return Err(NoPin::TooLarge);
        }
        if self.is_apart(board, asked) {
            return self.pin(board, asked, Vec::new(), offset, true);
        }
        let union = self.union(board, asked);
        if union != asked {
            // Merging is a favour to later requests: if there is no room for it, or if a
            // neighbour's memory is gone, the area asked for may still be pinned.
            let offset = offset + (asked.start - union.start);
            let old = self.within(board, union);
            if let Ok(hold) = self.pin(board, union, old, offset, false) {
                return Ok(hold);
            }
        }
        let old = self.within(board, asked);
        self.pin(board, asked, old, offset, true)
    }

    /// Returns whether no live area overlaps or touches this one.
    fn is_apart(&self, board: &Board, asked: Area) -> bool {
        let key = |start| (asked.space, start);
        let last = self.live.range(key(0)..=key(asked.end)).next_back();
        last.is_none_or(|(_, at)| board.area(*at).0.end < asked.start)
    }

    /// The live areas that this one has all of.
    fn within(&self, board: &Board, area: Area) -> Vec<u32> {
        let starts = self.live.range((area.space, area.start)..(area.space, area.end));
        let areas = starts.map(|(_, at)| *at);
        areas.filter(|at| board.area(*at).0.end <= area.end).collect()
    }

    /// Returns whether an area is within the budget and its account's limit, if nothing else is
    /// pinned.
    fn may_ever(&self, area: Area) -> bool {
        let needs = self.needs(area);
        let bytes_max = self.accounts.bytes_max(self.pinner.account(area.space));
        needs.fits(&self.budget) && needs.bytes <= bytes_max
    }

    fn needs(&self, area: Area) -> Pinned {
        Pinned { bytes: area.len(), entries: 1, slots: self.pinner.slots(area).max(1) }
    }

    /// The live area that has all bytes from `start` to `last`.
    fn having(&self, board: &Board, space: SpaceId, start: u64, last: u64) -> Option<u32> {
        let (_, at) = self.live.range((space, 0)..=(space, start)).next_back()?;
        (last < board.area(*at).0.end).then_some(*at)
    }

    /// The area asked for, with the areas that it overlaps or touches, as far as they may be
    /// merged.
    fn union(&self, board: &Board, asked: Area) -> Area {
        let longest = asked.len().saturating_mul(u64::from(self.budget.merge_growth_max));
        let mut area = asked;
        let joined = |area: Area, other: Option<(_, &u32)>| {
            let other = board.area(*other?.1).0;
            let start = area.start.min(other.start);
            let union = Area { start, end: area.end.max(other.end), ..area };
            let touches = other.end >= area.start && other.start <= area.end;
            let may = touches && other.len() <= longest && self.may_ever(union);
            (may && union != area).then_some(union)
        };
        loop {
            let key = |start| (area.space, start);
            let left = self.live.range(key(0)..key(area.start)).next_back();
            let right = self.live.range(key(0)..=key(area.end)).next_back();
            match joined(area, left).or_else(|| joined(area, right)) {
                Some(union) => area = union,
                None => return area,
            }
        }
    }

    /// Pins an area, and lets the `old` ones that it has within itself give way to it. Evicts for
    /// room, and, if it may, also if the back end is short of a resource.
    ///
    /// The new pin comes before the old ones go, so that memory that is in use is never unpinned
    /// for it. Only where there is no room for both, the old ones that are idle go first.
    fn pin(
        &mut self,
        board: &Board,
        area: Area,
        mut old: Vec<u32>,
        offset: u64,
        may_retry: bool,
    ) -> Result<Hold, NoPin> {
        let (needs, account) = (self.needs(area), self.pinner.account(area.space));
        if !self.make_room(board, account, needs, &mut old) {
            return Err(NoPin::Busy);
        }
        self.charge(account, needs);
        let handle = loop {
            match self.pinner.pin(area) {
                Ok(handle) => break handle,
                Err(refused) if may_retry && refused.is_shortage() => {
                    // Memory is short for all accounts, slots are each account's own.
                    let only_own = refused == Refused::NoSlots;
                    if !self.evict_one(board, account, only_own, &mut old) {
                        self.discharge(account, needs);
                        let is_empty = self.now == Pinned::default();
                        return Err(if is_empty { NoPin::Refused(refused) } else { NoPin::Busy });
                    }
                }
                Err(refused) => {
                    self.discharge(account, needs);
                    return Err(NoPin::Refused(refused));
                }
            }
        };
        self.counters.pins += 1;
        self.counters.most = self.counters.most.most(self.now);
        self.counters.merges += u64::from(!old.is_empty());
        self.counters.absorbed += old.len() as u64;
        // Room for an entry is a free slot.
        let Some(at) = self.free.pop() else {
            self.pinner.unpin(handle, area);
            self.discharge(account, needs);
            return Err(NoPin::Busy);
        };
        for at in old {
            self.retire(board, at);
        }
        let hold = board.fill(at, area, handle, offset);
        self.live.insert((area.space, area.start), at);
        self.accounts.insert(account, at, board.used(at));
        board.fit_granule(self.now.bytes / u64::from(self.now.entries.max(1)));
        Ok(hold)
    }

    fn charge(&mut self, account: AccountId, needs: Pinned) {
        self.now = self.now.and(needs);
        self.accounts.charge(account, needs);
    }

    fn discharge(&mut self, account: AccountId, needs: Pinned) {
        self.now = self.now.without(needs);
        self.accounts.discharge(account, needs);
    }

    /// Makes room: `old` ones go first, which are to go anyway, then others as the policy says,
    /// those of the account alone where its own limit asks for it. If all that is idle does not
    /// suffice, everything stays, and the answer is `false`.
    fn make_room(
        &mut self,
        board: &Board,
        account: AccountId,
        needs: Pinned,
        old: &mut Vec<u32>,
    ) -> bool {
        let mut left = self.now;
        let mut claimed: SmallVec<[(AccountId, u32); 4]> = SmallVec::new();
        loop {
            let only_own = !self.accounts.has_room(account, needs);
            if !only_own && left.and(needs).fits(&self.budget) {
                break;
            }
            let Some((of, at)) = self.next_out(board, account, only_own, old) else {
                for (of, at) in claimed {
                    board.revive(at);
                    let pinned = self.needs(board.area(at).0);
                    self.accounts.settled(of, pinned, false);
                    self.accounts.insert(of, at, board.used(at));
                }
                return false;
            };
            let pinned = self.needs(board.area(at).0);
            left = left.without(pinned);
            self.accounts.claimed(of, pinned);
            claimed.push((of, at));
        }
        for (of, at) in claimed {
            let pinned = self.needs(board.area(at).0);
            self.accounts.settled(of, pinned, true);
            self.evicted(board, at);
        }
        true
    }

    fn evict_one(
        &mut self,
        board: &Board,
        account: AccountId,
        only_own: bool,
        old: &mut Vec<u32>,
    ) -> bool {
        let out = self.next_out(board, account, only_own, old);
        if let Some((of, at)) = out {
            self.accounts.settled(of, Pinned::default(), true);
            self.evicted(board, at);
        }
        out.is_some()
    }

    /// Evicts the idle area of these spaces that was least recently used. Returns whether there was
    /// one.
    pub(super) fn evict_of(
        &mut self,
        board: &Board,
        spaces: impl IntoIterator<Item = SpaceId>,
    ) -> bool {
        let areas = |space| self.live.range((space, 0)..=(space, u64::MAX));
        let areas = spaces.into_iter().flat_map(areas);
        let mut areas: Vec<_> = areas.map(|(_, at)| (board.used(*at), *at)).collect();
        areas.sort_unstable();
        let Some((_, at)) = areas.into_iter().find(|(_, at)| board.claim(*at)) else {
            return false;
        };
        let account = self.pinner.account(board.area(at).0.space);
        self.accounts.forget(account, at);
        self.accounts.settled(account, Pinned::default(), true);
        self.evicted(board, at);
        true
    }

    /// Claims the area that is to go next, and takes it out of `old` and from the policy.
    fn next_out(
        &mut self,
        board: &Board,
        account: AccountId,
        only_own: bool,
        old: &mut Vec<u32>,
    ) -> Option<(AccountId, u32)> {
        if let Some(place) = old.iter().position(|at| board.claim(*at)) {
            let at = old.remove(place);
            self.accounts.forget(account, at);
            return Some((account, at));
        }
        let areas = &mut OnBoard(board);
        let (of, at) = match only_own {
            true => self.accounts.choose_of(account, areas)?,
            false => self.accounts.choose(account, areas)?,
        };
        // The last transfer of an old one may have ended since it was asked for.
        old.retain(|other| *other != at);
        Some((of, at))
    }

    fn evicted(&mut self, board: &Board, at: u32) {
        let area = board.area(at).0;
        self.live.remove(&(area.space, area.start));
        self.pinner.forget(area);
        self.counters.evictions += 1;
        self.unpin(board, at);
    }

    /// Takes a live area out of reach of new transfers, and unpins it unless some still use it.
    /// Returns whether some do.
    fn retire(&mut self, board: &Board, at: u32) -> bool {
        let area = board.area(at).0;
        self.live.remove(&(area.space, area.start));
        self.accounts.forget(self.pinner.account(area.space), at);
        let in_use = board.retire(at) > 0;
        self.pinner.forget(area);
        if !in_use {
            self.unpin(board, at);
        }
        in_use
    }

    /// Unpins an area that is out of reach and that no transfer uses.
    fn unpin(&mut self, board: &Board, at: u32) {
        let (area, handle) = board.area(at);
        self.pinner.unpin(handle, area);
        self.counters.unpins += 1;
        self.discharge(self.pinner.account(area.space), self.needs(area));
        self.ended += board.free(at).0;
        self.free.push(at);
    }

    /// Gives an account a limit of its own.
    pub(super) fn open(&mut self, account: AccountId, bytes_max: u64) -> Arc<AccountGauges> {
        self.accounts.open(account, bytes_max)
    }

    /// Unpins all areas of an account, those in flight too: the ends of their transfers will not be
    /// told, or are nothing then.
    pub(super) fn close_account(&mut self, board: &Board, account: AccountId) {
        let is_of = |at: &u32| self.pinner.account(board.area(*at).0.space) == account;
        let all: Vec<_> = board.in_use().filter(is_of).collect();
        for at in all {
            let area = board.area(at).0;
            let is_live = self.live.get(&(area.space, area.start)) == Some(&at);
            if !is_live || self.retire(board, at) {
                self.unpin(board, at);
            }
        }
        self.accounts.close(account);
    }

    /// As [`invalidate`](Books::invalidate), in every space.
    pub(super) fn invalidate_everywhere(&mut self, board: &Board, start: u64, last: u64) {
        let mut from = Some(SpaceId(0));
        while let Some(space) = from
            && let Some((&(space, _), _)) = self.live.range((space, 0)..).next()
        {
            self.invalidate(board, space, start, last);
            from = space.0.checked_add(1).map(SpaceId);
        }
    }

    /// The last transfer of a retired area has ended.
    pub(super) fn finish(&mut self, board: &Board, at: u32) {
        self.finished += 1;
        self.unpin(board, at);
    }

    /// Takes all areas out of reach that have any byte from `start` to `last`.
    pub(super) fn invalidate(
        &mut self,
        board: &Board,
        space: SpaceId,
        start: u64,
        last: u64,
    ) -> Invalidated {
        let mut done = Invalidated::default();
        // From the last one back, as long as they end behind the start: so do all before.
        while let Some((_, at)) = self.live.range((space, 0)..=(space, last)).next_back() {
            let at = *at;
            if board.area(at).0.end <= start {
                break;
            }
            self.counters.invalidations += 1;
            let in_use = self.retire(board, at);
            *(if in_use { &mut done.in_use } else { &mut done.unpinned }) += 1;
        }
        done
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn counters(&self, board: &Board) -> PinCounters {
        let (in_flight, ended) = board.transfers();
        let ended = ended + self.ended;
        PinCounters {
            hits: (in_flight + ended).saturating_sub(self.begun_by_pin),
            deferred: ended.saturating_sub(self.finished),
            now: self.now,
            ..self.counters
        }
    }
}
