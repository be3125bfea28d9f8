//! The choice of a path, by sizes, refusals and costs.

use proptest::prelude::*;

use super::*;
use crate::policy::route::CostModel;

const EPERM: Refusal = Refusal::Denied(1);

fn may(inline: Option<Refusal>, eager: Option<Refusal>, cma: Option<Refusal>) -> Permissions {
    let refusals = [inline, eager, cma, None, None];
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
        let receipt = choose(len, false, &all, &mut learner).unwrap().receipt;
        assert_eq!((receipt.path, receipt.bytes), (path, len));
        assert_eq!(receipt.refused(path), None);
        assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0));
    }
    let long = choose(1 << 20, false, &all, &mut learner).unwrap().receipt;
    assert_eq!(long.refused(Path::Inline), Some(Refusal::TooLong));
    assert_eq!(long.refused(Path::Eager), Some(Refusal::Slower));
    let short = choose(8, false, &all, &mut learner).unwrap().receipt;
    assert_eq!(short.refused(Path::Eager), Some(Refusal::Slower));
    assert_eq!(short.refused(Path::Cma), Some(Refusal::Slower));
}

#[test]
fn refusals_are_kept() {
    let denied = may(Some(Refusal::SwitchedOff), None, Some(EPERM));
    for len in [8, 100, 1 << 20] {
        let receipt = choose(len, false, &denied, &mut learner()).unwrap().receipt;
        assert_eq!(receipt.path, Path::Eager);
        assert_eq!(receipt.refused(Path::Inline), Some(Refusal::SwitchedOff));
        assert_eq!(receipt.refused(Path::Cma), Some(EPERM));
    }
    let only_cma = may(Some(Refusal::SwitchedOff), Some(Refusal::SwitchedOffByPeer), None);
    for len in [0, 8, 1 << 20] {
        let receipt = choose(len, false, &only_cma, &mut learner()).unwrap().receipt;
        assert_eq!(receipt.path, Path::Cma);
        assert_eq!(receipt.refused(Path::Eager), Some(Refusal::SwitchedOffByPeer));
    }
}

#[test]
fn nothing_left() {
    let off = Some(Refusal::SwitchedOff);
    let error = |may, len| choose(len, false, &may, &mut learner()).unwrap_err();
    assert_eq!(error(may(off, off, Some(EPERM)), 8), (Path::Cma, EPERM));
    assert_eq!(error(may(None, off, off), 57), (Path::Inline, Refusal::TooLong));
    assert_eq!(error(may(off, off, off), 57), (Path::Eager, Refusal::SwitchedOff));
}

#[test]
fn strict_fails_only_where_a_denial_costs() {
    let denied = may(None, None, Some(Refusal::WrongProcess));
    let mut learner = learner();
    for len in [0, 56, 57, 16 << 10] {
        assert!(choose_strict(len, false, &denied, &mut learner).is_ok(), "{len}");
    }
    let error = choose_strict(1 << 20, false, &denied, &mut learner).unwrap_err();
    assert_eq!(error, (Path::Cma, Refusal::WrongProcess));
    for why in [Refusal::SwitchedOff, Refusal::SwitchedOffByPeer] {
        let choice =
            choose_strict(1 << 20, false, &may(None, None, Some(why)), &mut learner).unwrap();
        assert_eq!(choice.receipt.path, Path::Eager);
    }
}

#[test]
fn exploring_is_no_claim() {
    let all = may(None, None, None);
    let mut learner = learner();
    let tries: Vec<Choice> = (0..200)
        .filter_map(|_| choose(64 << 10, false, &all, &mut learner).ok())
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
            let strict = choose_strict(len, false, &may, &mut learner);
            if let Err((path, why)) = strict {
                prop_assert!(!open || why.is_denial());
                prop_assert!(why == Refusal::TooLong || may.refusal(path) == Some(why));
            }
            let choice = choose(len, false, &may, &mut learner);
            prop_assert_eq!(choice.is_ok(), open);
            let Ok(choice) = choice else { continue };
            let receipt = choice.receipt;
            prop_assert!(may.may(receipt.path));
            prop_assert!(receipt.path != Path::Inline || len <= INLINE_MAX);
            prop_assert!(receipt.path == Path::Inline || len > INLINE_MAX || inline.is_some());
            prop_assert_eq!(receipt.bytes, len);
            let explained = receipt.refusals().count();
            let others = Path::ALL.len() - 1;
            prop_assert_eq!(explained, if choice.exploring { others - 1 } else { others });
            for (path, why) in receipt.refusals() {
                prop_assert!(path != receipt.path);
                prop_assert!(may.refusal(path).is_none_or(|refusal| refusal == why));
            }
        }
    }
}
