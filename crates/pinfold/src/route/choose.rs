//! The path of one message.

use super::{Learner, Path, Receipt, Refusal};

/// The longest message that fits into a descriptor, bytes.
pub const INLINE_MAX: u64 = 56;

const _: () = assert!(INLINE_MAX == crate::wire::descriptor::INLINE_MAX as u64);

/// Which paths a pair of peers may take, and why not the others.
#[derive(Clone, Debug)]
pub(crate) struct Permissions {
    refusals: [Option<Refusal>; Path::ALL.len()],
    /// What the receipts of the two cheap answers begin as.
    inline: Receipt,
    eager: Receipt,
}

impl Permissions {
    /// `allowed` says of each path whether the pair may take it.
    pub(crate) fn new(allowed: impl Fn(Path) -> Result<(), Refusal>) -> Permissions {
        let refusals = Path::ALL.map(|path| allowed(path).err());
        Permissions {
            refusals,
            inline: receipt(Path::Inline, &refusals, None),
            eager: receipt(Path::Eager, &refusals, None),
        }
    }

    /// Why the pair may not take `path`; `None` if it may.
    #[inline]
    pub(crate) fn refusal(&self, path: Path) -> Option<Refusal> {
        self.refusals[path as usize]
    }

    /// Whether the pair may take `path`.
    #[inline]
    pub(crate) fn may(&self, path: Path) -> bool {
        self.refusal(path).is_none()
    }
}

/// How a message goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// The path, the length, and why not each other path; nothing copied yet.
    pub(crate) receipt: Receipt,
    /// Whether the path is taken only to see how it does. The one expected to be faster then has
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
/// to be faster, else the one that is left.
///
/// A few nanoseconds up to [`Learner::cma_from`], some tens beyond.
///
/// # Errors
/// No path is left: the one that says most about why.
#[inline]
pub(crate) fn choose(
    len: u64,
    may: &Permissions,
    learner: &mut Learner,
) -> Result<Choice, (Path, Refusal)> {
    if len <= INLINE_MAX && may.may(Path::Inline) {
        return Ok(Choice::settled(may.inline, len));
    }
    if len < learner.cma_from() && may.may(Path::Eager) {
        return Ok(Choice::settled(may.eager, len));
    }
    choose_long(len, may, learner)
}

/// As [`choose`], but fails where the machine denies the path that would be fastest.
///
/// Paths that were switched off do not count: whoever did that asked for the others.
///
/// # Errors
/// The path and why it was denied; or no path is left.
pub(crate) fn choose_strict(
    len: u64,
    may: &Permissions,
    learner: &mut Learner,
) -> Result<Choice, (Path, Refusal)> {
    let fits = |path| path != Path::Inline || len <= INLINE_MAX;
    let wanted = |path| may.refusal(path).is_none_or(Refusal::is_denial);
    let fastest = Path::ALL
        .into_iter()
        .filter(|&path| fits(path) && wanted(path))
        .min_by(|&a, &b| learner.predict(a, len).total_cmp(&learner.predict(b, len)));
    match fastest.and_then(|path| Some((path, may.refusal(path)?))) {
        Some(denied) => Err(denied),
        None => choose(len, may, learner),
    }
}

fn choose_long(
    len: u64,
    may: &Permissions,
    learner: &mut Learner,
) -> Result<Choice, (Path, Refusal)> {
    let (path, skipped) = match (may.refusal(Path::Eager), may.refusal(Path::Cma)) {
        (None, None) => {
            let pick = learner.pick(len);
            let other = if pick.path == Path::Cma { Path::Eager } else { Path::Cma };
            (pick.path, pick.exploring.then_some(other))
        }
        (None, Some(_)) => (Path::Eager, None),
        (Some(_), None) => (Path::Cma, None),
        (Some(_), Some(cma)) if cma.is_denial() => return Err((Path::Cma, cma)),
        (Some(eager), Some(_)) => {
            let only_inline = may.may(Path::Inline);
            let why = (Path::Inline, Refusal::TooLong);
            return Err(if only_inline { why } else { (Path::Eager, eager) });
        }
    };
    let receipt = receipt(path, &may.refusals, skipped);
    Ok(Choice { exploring: skipped.is_some(), ..Choice::settled(receipt, len) })
}

/// The receipt of a message over `path`, with the reason for each other path but `skipped`.
/// Wherever inline is allowed and not taken, the message is too long for it.
fn receipt(path: Path, refusals: &[Option<Refusal>], skipped: Option<Path>) -> Receipt {
    let mut receipt = Receipt::new(path, 0);
    for (other, &refusal) in Path::ALL.into_iter().zip(refusals) {
        let why = match other {
            Path::Inline => Refusal::TooLong,
            Path::Eager | Path::Cma => Refusal::Slower,
        };
        if other != path && Some(other) != skipped {
            receipt.refuse(other, refusal.unwrap_or(why));
        }
    }
    receipt
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::CostModel;

    const EPERM: Refusal = Refusal::Denied(1);

    fn may(inline: Option<Refusal>, eager: Option<Refusal>, cma: Option<Refusal>) -> Permissions {
        let refusals = [inline, eager, cma];
        Permissions::new(|path| refusals[path as usize].map_or(Ok(()), Err))
    }

    fn learner() -> Learner {
        Learner::new(&CostModel::DEFAULT)
    }

    #[test]
    fn by_size() {
        let all = may(None, None, None);
        let mut learner = learner();
        for (len, path) in [
            (0, Path::Inline),
            (56, Path::Inline),
            (57, Path::Eager),
            (1023, Path::Eager),
            (16 << 10, Path::Eager),
            (64 << 10, Path::Cma),
            (u64::MAX, Path::Cma),
        ] {
            let receipt = choose(len, &all, &mut learner).unwrap().receipt;
            assert_eq!((receipt.path, receipt.bytes), (path, len));
            assert_eq!(receipt.refused(path), None);
            assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0));
        }
        let long = choose(1 << 20, &all, &mut learner).unwrap().receipt;
        assert_eq!(long.refused(Path::Inline), Some(Refusal::TooLong));
        assert_eq!(long.refused(Path::Eager), Some(Refusal::Slower));
        let short = choose(8, &all, &mut learner).unwrap().receipt;
        assert_eq!(short.refused(Path::Eager), Some(Refusal::Slower));
        assert_eq!(short.refused(Path::Cma), Some(Refusal::Slower));
    }

    #[test]
    fn refusals_are_kept() {
        let denied = may(Some(Refusal::SwitchedOff), None, Some(EPERM));
        for len in [8, 100, 1 << 20] {
            let receipt = choose(len, &denied, &mut learner()).unwrap().receipt;
            assert_eq!(receipt.path, Path::Eager);
            assert_eq!(receipt.refused(Path::Inline), Some(Refusal::SwitchedOff));
            assert_eq!(receipt.refused(Path::Cma), Some(EPERM));
        }
        let only_cma = may(Some(Refusal::SwitchedOff), Some(Refusal::SwitchedOffByPeer), None);
        for len in [0, 8, 1 << 20] {
            let receipt = choose(len, &only_cma, &mut learner()).unwrap().receipt;
            assert_eq!(receipt.path, Path::Cma);
            assert_eq!(receipt.refused(Path::Eager), Some(Refusal::SwitchedOffByPeer));
        }
    }

    #[test]
    fn nothing_left() {
        let off = Some(Refusal::SwitchedOff);
        let error = |may, len| choose(len, &may, &mut learner()).unwrap_err();
        assert_eq!(error(may(off, off, Some(EPERM)), 8), (Path::Cma, EPERM));
        assert_eq!(error(may(None, off, off), 57), (Path::Inline, Refusal::TooLong));
        assert_eq!(error(may(off, off, off), 57), (Path::Eager, Refusal::SwitchedOff));
    }

    #[test]
    fn strict_fails_only_where_a_denial_costs() {
        let denied = may(None, None, Some(Refusal::WrongProcess));
        let mut learner = learner();
        for len in [0, 56, 57, 16 << 10] {
            assert!(choose_strict(len, &denied, &mut learner).is_ok(), "{len}");
        }
        let error = choose_strict(1 << 20, &denied, &mut learner).unwrap_err();
        assert_eq!(error, (Path::Cma, Refusal::WrongProcess));
        for why in [Refusal::SwitchedOff, Refusal::SwitchedOffByPeer] {
            let choice = choose_strict(1 << 20, &may(None, None, Some(why)), &mut learner).unwrap();
            assert_eq!(choice.receipt.path, Path::Eager);
        }
    }

    #[test]
    fn exploring_is_no_claim() {
        let all = may(None, None, None);
        let mut learner = learner();
        let tries: Vec<Choice> = (0..200)
            .filter_map(|_| choose(64 << 10, &all, &mut learner).ok())
            .filter(|choice| choice.exploring)
            .collect();
        assert!(!tries.is_empty());
        for choice in tries {
            assert_eq!(choice.receipt.path, Path::Eager);
            assert_eq!(choice.receipt.refused(Path::Cma), None);
            assert_eq!(choice.receipt.refused(Path::Inline), Some(Refusal::TooLong));
        }
    }

    fn any_refusal() -> impl Strategy<Value = Option<Refusal>> {
        prop::option::of(prop::sample::select(vec![
            Refusal::SwitchedOff,
            Refusal::SwitchedOffByPeer,
            Refusal::WrongProcess,
            EPERM,
            Refusal::Denied(38),
        ]))
    }

    proptest! {
        #[test]
        fn every_input_gets_an_answer(
            inline in any_refusal(),
            eager in any_refusal(),
            cma in any_refusal(),
            seen in prop::collection::vec((0..3usize, 0..40u32, any::<u64>()), 0..50),
            lens in prop::collection::vec(
                prop_oneof![0..100u64, 0..100_000u64, any::<u64>()], 1..100),
        ) {
            let may = may(inline, eager, cma);
            let mut learner = learner();
            for (path, log, ns) in seen {
                learner.observe(Path::ALL[path], 1 << log, ns);
            }
            for len in lens {
                let open = (inline.is_none() && len <= INLINE_MAX) || eager.is_none() || cma.is_none();
                let strict = choose_strict(len, &may, &mut learner);
                if let Err((path, why)) = strict {
                    prop_assert!(!open || why.is_denial());
                    prop_assert!(why == Refusal::TooLong || may.refusal(path) == Some(why));
                }
                let choice = choose(len, &may, &mut learner);
                prop_assert_eq!(choice.is_ok(), open);
                let Ok(choice) = choice else { continue };
                let receipt = choice.receipt;
                prop_assert!(may.may(receipt.path));
                prop_assert!(receipt.path != Path::Inline || len <= INLINE_MAX);
                prop_assert!(receipt.path == Path::Inline || len > INLINE_MAX || inline.is_some());
                prop_assert_eq!(receipt.bytes, len);
                let explained = receipt.refusals().count();
                prop_assert_eq!(explained, if choice.exploring { 1 } else { 2 });
                for (path, why) in receipt.refusals() {
                    prop_assert!(path != receipt.path);
                    prop_assert!(may.refusal(path).is_none_or(|refusal| refusal == why));
                }
            }
        }
    }
}
