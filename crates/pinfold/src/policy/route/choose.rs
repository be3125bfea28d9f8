//! The path of one message.

use super::{Learner, Path, PathSet, Receipt, Refusal, Why};

/// The longest message that fits into a descriptor, bytes.
pub const INLINE_MAX: u64 = 56;

const _: () = assert!(INLINE_MAX == crate::wire::descriptor::INLINE_MAX as u64);

/// The paths that a pair of peers may take, and why not the others.
#[derive(Clone, Debug)]
pub(crate) struct Permissions {
    refusals: [Option<Refusal>; Path::ALL.len()],
    /// The beginnings of the receipts of the two cheap answers.
    inline: Receipt,
    eager: Receipt,
}

impl Permissions {
    /// `allowed` tells for each path if the pair may take it.
    pub(crate) fn new(allowed: impl Fn(Path) -> Result<(), Refusal>) -> Permissions {
        let refusals = Path::ALL.map(|path| allowed(path).err());
        Permissions {
            refusals,
            inline: receipt(Path::Inline, true, &refusals, None),
            eager: receipt(Path::Eager, true, &refusals, None),
        }
    }

    /// The pair may not take `path` any more.
    pub(crate) fn withdraw(&mut self, path: Path, why: Refusal) {
        let mut refusals = self.refusals;
        refusals[path as usize].get_or_insert(why);
        *self = Permissions::new(|path| refusals[path as usize].map_or(Ok(()), Err));
    }

    /// Why the pair may not take `path`; `None` if it may.
    #[inline]
    pub(crate) fn refusal(&self, path: Path) -> Option<Refusal> {
        self.refusals[path as usize]
    }

    /// Returns whether the pair may take `path`.
    #[inline]
    pub(crate) fn may(&self, path: Path) -> bool {
        self.refusal(path).is_none()
    }

    /// The reasons against all other paths of a message for which the ring [is
    /// settled](ring_is_settled).
    #[inline(always)]
    pub(crate) fn ring_why(&self) -> Why {
        self.eager.why()
    }
}

/// How a message goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// The path, the length, and why not each other path; nothing copied yet.
    pub(crate) receipt: Receipt,
    /// True if the path is taken only to see how it does. The one expected to be faster then has
    /// no refusal in the receipt.
    #[cfg_attr(not(test), expect(dead_code, reason = "the engine treats both alike"))]
    pub(crate) exploring: bool,
}

impl Choice {
    #[inline]
    fn settled(mut receipt: Receipt, len: u64) -> Choice {
        receipt.bytes = len;
        Choice { receipt, exploring: false }
    }
}

/// Chooses the path of a message of `len` bytes: inline if it fits, else the one that is expected
/// to be fastest, else the one that is left. `shareable`: the peer can map the message's memory.
///
/// A few nanoseconds up to [`Learner::from`], some tens beyond.
///
/// # Errors
/// No path is left: the one that says most about why.
#[inline]
pub(crate) fn choose(
    len: u64,
    shareable: bool,
    may: &Permissions,
    learner: &mut Learner,
) -> Result<Choice, (Path, Refusal)> {
    if len <= INLINE_MAX && may.may(Path::Inline) {
        return Ok(Choice::settled(may.inline, len));
    }
    let pays = len >= learner.from(Path::Cma) || shareable && len >= learner.from(Path::Mapped);
    if !pays && may.may(Path::Eager) {
        return Ok(Choice::settled(may.eager, len));
    }
    choose_long(len, shareable, may, learner)
}

/// Returns whether [`choose`] takes the ring for a message that is too long for a descriptor,
/// wherever its memory lies, because no other path could pay. Two comparisons.
#[inline(always)]
pub(crate) fn ring_is_settled(len: u64, may: &Permissions, learner: &Learner) -> bool {
    let from = learner.from(Path::Cma).min(learner.from(Path::Mapped));
    len > INLINE_MAX && len < from && may.may(Path::Eager)
}

/// The choice of the ring, if the pair may take it, where the time of the message is not what
/// counts.
pub(crate) fn choose_ring(len: u64, may: &Permissions) -> Option<Choice> {
    may.may(Path::Eager).then(|| Choice::settled(may.eager, len))
}

/// As [`choose`], but fails where the machine denies the path that would be fastest.
///
/// Paths that were switched off do not count: their switch asked for the others.
///
/// # Errors
/// The path and why it was denied; or no path is left.
pub(crate) fn choose_strict(
    len: u64,
    shareable: bool,
    may: &Permissions,
    learner: &mut Learner,
) -> Result<Choice, (Path, Refusal)> {
    let fits = |path| match path {
        Path::Inline => len <= INLINE_MAX,
        Path::Mapped => shareable,
        Path::Handoff => false,
        Path::Eager | Path::Cma => true,
    };
    let wanted = |path| may.refusal(path).is_none_or(Refusal::is_denial);
    let fastest = Path::ALL
        .into_iter()
        .filter(|&path| fits(path) && wanted(path))
        .min_by(|&a, &b| learner.predict(a, len).total_cmp(&learner.predict(b, len)));
    match fastest.and_then(|path| Some((path, may.refusal(path)?))) {
        Some(denied) => Err(denied),
        None => choose(len, shareable, may, learner),
    }
}

fn choose_long(
    len: u64,
    shareable: bool,
    may: &Permissions,
    learner: &mut Learner,
) -> Result<Choice, (Path, Refusal)> {
    let mapped = shareable && may.may(Path::Mapped);
    let mut open = PathSet::only(&[Path::Eager, Path::Cma]);
    if mapped {
        open = open.with(Path::Mapped);
    }
    let (path, instead_of) = match (may.refusal(Path::Eager), may.refusal(Path::Cma)) {
        (None, cma) => {
            let open = if cma.is_some() { open.without(Path::Cma) } else { open };
            let pick = learner.pick(len, open);
            (pick.path, pick.instead_of)
        }
        (Some(_), cma) if mapped => {
            let slower = |path| learner.predict(path, len) > learner.predict(Path::Mapped, len);
            let path = if cma.is_some() || slower(Path::Cma) { Path::Mapped } else { Path::Cma };
            (path, None)
        }
        (Some(_), None) => (Path::Cma, None),
        (Some(_), Some(cma)) if cma.is_denial() => return Err((Path::Cma, cma)),
        (Some(eager), Some(_)) => {
            let only_inline = may.may(Path::Inline);
            let why = (Path::Inline, Refusal::TooLong);
            return Err(if only_inline { why } else { (Path::Eager, eager) });
        }
    };
    let receipt = receipt(path, shareable, &may.refusals, instead_of);
    Ok(Choice { exploring: instead_of.is_some(), ..Choice::settled(receipt, len) })
}

/// The receipt of a message over `path`, with the reason for each other path but `skipped`.
/// Wherever inline is allowed and not taken, the message is too long for it.
fn receipt(
    path: Path,
    shareable: bool,
    refusals: &[Option<Refusal>],
    skipped: Option<Path>,
) -> Receipt {
    let mut receipt = Receipt::new(path, 0);
    for (other, &refusal) in Path::ALL.into_iter().zip(refusals) {
        let why = match other {
            Path::Inline => Refusal::TooLong,
            Path::Mapped if !shareable => Refusal::NotShareable,
            Path::Eager | Path::Cma | Path::Mapped => Refusal::Slower,
            Path::Handoff => Refusal::Kept,
        };
        if other != path && Some(other) != skipped {
            receipt.refuse(other, refusal.unwrap_or(why));
        }
    }
    receipt
}

#[cfg(test)]
mod tests;
