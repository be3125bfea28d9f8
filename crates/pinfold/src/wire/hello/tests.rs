//! Packets of the greeting: round trips, random bytes, bounds.

use proptest::prelude::*;

use super::*;

fn introductions() -> impl Strategy<Value = Introduction> {
    let address = (1..1u64 << 60).prop_map(|addr| addr * 8);
    (
        (any::<[u8; 16]>(), any::<[u8; 16]>(), "\\PC{0,8}", 1..=i32::MAX as u32),
        (0..8u8, any::<bool>(), 0..=i64::MAX as u64, any::<u32>(), address.clone(), address),
    )
        .prop_map(
            |(
                (endpoint_id, mark, label, pid),
                (paths, barrier_global, unexpected_bytes, rendezvous_max, nonce_addr, scratch_addr),
            )| {
                let paths = Path::ALL.into_iter().filter(|&path| paths & 1 << path as u8 != 0);
                Introduction {
                    endpoint_id,
                    label: fit_label(&label),
                    pid,
                    paths: paths.fold(PathSet::none(), PathSet::with),
                    barrier_global,
                    limits: Limits { unexpected_bytes, rendezvous_max },
                    nonce_addr,
                    scratch_addr,
                    mark,
                }
            },
        )
}

fn refusals() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        (1..=ERRNO_MAX).prop_map(Refusal::Denied),
        Just(Refusal::WrongProcess),
        Just(Refusal::SwitchedOff),
        Just(Refusal::Confined),
        Just(Refusal::Fickle),
    ]
}

fn outcomes<T: Strategy>(value: T) -> impl Strategy<Value = Result<T::Value, Refusal>> {
    prop_oneof![value.prop_map(Ok), refusals().prop_map(Err)]
}

prop_compose! {
    fn proofs()(
        read in outcomes(any::<[u8; 16]>()),
        write in outcomes(any::<[u8; 16]>()),
    ) -> Proof {
        Proof { read, write }
    }
}

prop_compose! {
    fn verdicts()(read in outcomes(Just(())), write in outcomes(Just(()))) -> Verdict {
        Verdict { read, write }
    }
}

fn refuses() -> impl Strategy<Value = Refuse> {
    prop_oneof![
        any::<[u32; 4]>().prop_map(|[owner, user, users, groups]| Refuse::NotAdmitted {
            owner,
            user,
            users,
            groups
        }),
        any::<(u32, u32)>().prop_map(|(min, max)| Refuse::Version { min, max }),
        any::<u64>().prop_map(|peers_max| Refuse::Full { peers_max }),
        (0..CALLS.len(), 1..=ERRNO_MAX)
            .prop_map(|(call, errno)| Refuse::Exhausted { call: CALLS[call], errno }),
    ]
}

/// The decoders take any bytes without a panic.
fn decode_all(bytes: &[u8]) {
    let _ = decode_versions(bytes);
    let _ = decode_hello(bytes);
    let _ = decode_answer(bytes);
    let _ = decode_proof(bytes);
    let _ = decode_ready(bytes);
}

proptest! {
    #[test]
    fn messages_come_back_as_they_went(
        us in introductions(), proof in proofs(), verdict in verdicts(), refuse in refuses(),
    ) {
        let hello = encode_hello(&us);
        prop_assert_eq!(decode_versions(&hello), Ok((VERSION, VERSION)));
        prop_assert_eq!(decode_hello(&hello), Ok(us.clone()));
        let welcome = encode_welcome(&us, &proof);
        prop_assert_eq!(decode_answer(&welcome), Ok(Answer::Welcome(us, proof)));
        prop_assert_eq!(decode_proof(&encode_proof(&proof, &verdict)), Ok((proof, verdict)));
        prop_assert_eq!(decode_ready(&encode_ready(&verdict)), Ok(verdict));
        prop_assert_eq!(decode_answer(&encode_refuse(&refuse)), Ok(Answer::Refused(refuse)));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_MAX)) {
        decode_all(&bytes);
    }

    #[test]
    fn random_bodies_never_panic(
        kind in 0..7u32, mut bytes in proptest::collection::vec(any::<u8>(), 16..200),
        len in prop_oneof![Just(120usize), Just(160), Just(64), Just(24), Just(56), 16..200usize],
    ) {
        bytes.resize(len, 0);
        bytes[..16].copy_from_slice(Head::new(kind).as_bytes());
        decode_all(&bytes);
    }

    #[test]
    fn what_decodes_is_in_range(us in introductions(), at in 16..120usize, byte in any::<u8>()) {
        let mut hello = encode_hello(&us);
        hello[at] = byte;
        if let Ok(them) = decode_hello(&hello) {
            prop_assert!(them.label.len() <= LABEL_MAX);
            prop_assert!(!them.label.chars().any(char::is_control));
            prop_assert!(them.pid >= 1 && them.pid <= i32::MAX as u32);
            prop_assert!(them.limits.unexpected_bytes <= i64::MAX as u64);
            prop_assert!(them.nonce_addr % 8 == 0 && them.scratch_addr % 8 == 0);
            // Bytes behind the label's end are not looked at.
            prop_assert_eq!(decode_hello(&encode_hello(&them)), Ok(them));
        }
    }

    #[test]
    fn labels_are_made_to_fit(label in any::<String>()) {
        let fit = fit_label(&label);
        prop_assert!(fit.len() <= LABEL_MAX);
        prop_assert!(!fit.chars().any(char::is_control));
        prop_assert_eq!(fit_label(&fit), fit);
    }
}

#[test]
fn kinds_sizes_and_versions_are_told_apart() {
    let verdict = Verdict { read: Ok(()), write: Err(Refusal::Denied(1)) };
    let ready = encode_ready(&verdict);
    assert_eq!(decode_proof(&ready), Err(Malformed("a greeting came out of turn")));
    assert_eq!(decode_ready(&ready[..23]), Err(Malformed("a greeting has the wrong size")));
    assert_eq!(decode_ready(&ready[..15]), Err(Malformed("a greeting is cut short")));
    let mut other = ready.clone();
    other.push(0);
    assert_eq!(decode_ready(&other), Err(Malformed("a greeting has the wrong size")));
    other = ready.clone();
    other[0] ^= 1;
    assert_eq!(decode_ready(&other), Err(Malformed("its greeting is not Pinfold's")));
    other = ready.clone();
    other[12] = 3;
    assert!(decode_ready(&other).is_err());
    assert!(speaks_ours(1, 7) && !speaks_ours(3, 7));
}

#[test]
fn a_later_hello_still_tells_its_versions() {
    let head = Head { version_min: 3, version_max: 9, ..Head::new(HELLO) };
    let mut bytes = head.as_bytes().to_vec();
    bytes.extend([0xff; 300]);
    assert_eq!(decode_versions(&bytes), Ok((3, 9)));
}

#[test]
fn a_range_of_versions_has_a_beginning_before_its_end() {
    let range = |version_min, version_max| {
        let head = Head { version_min, version_max, ..Head::new(HELLO) };
        decode_versions(head.as_bytes())
    };
    assert_eq!(range(1, 1), Ok((1, 1)));
    for (min, max) in [(0, 1), (0, 0), (2, 1), (u32::MAX, 1)] {
        let empty = Err(Malformed("its range of protocol versions is empty"));
        assert_eq!(range(min, max), empty, "{min} to {max}");
    }
}

#[test]
fn what_cannot_be_is_named() {
    let good = RawIntroduction::from(&Introduction {
        endpoint_id: [1; 16],
        label: "label".into(),
        pid: 2,
        paths: PathSet::all(),
        barrier_global: true,
        limits: Limits { unexpected_bytes: 3, rendezvous_max: 4 },
        nonce_addr: 8,
        scratch_addr: 16,
        mark: [5; 16],
    });
    assert!(good.check().is_ok());
    let why = |change: &dyn Fn(&mut RawIntroduction)| {
        let mut raw = good;
        change(&mut raw);
        raw.check().unwrap_err().0
    };
    let beyond = i64::MAX as u64 + 1;
    assert!(why(&|raw| raw.label_len = 33).contains("label"));
    assert!(why(&|raw| raw.label[2] = 0xff).contains("label"));
    assert!(why(&|raw| raw.label[2] = 7).contains("label"));
    assert!(why(&|raw| raw.paths = 1 << Path::ALL.len()).contains("paths"));
    assert!(why(&|raw| raw.flags |= 1 << 1).contains("flags"));
    assert!(why(&|raw| raw.pid = 0).contains("process id"));
    assert!(why(&|raw| raw.pid = 1 << 31).contains("process id"));
    assert!(why(&|raw| raw.unexpected_bytes = beyond).contains("grants"));
    for addr in [0, 4, 15, beyond, u64::MAX - 7] {
        assert!(why(&|raw| raw.nonce_addr = addr).contains("address"), "{addr:#x}");
        assert!(why(&|raw| raw.scratch_addr = addr).contains("address"), "{addr:#x}");
    }
}

#[test]
fn outcomes_are_a_reason_or_none() {
    for code in [ERRNO_MAX + 1, i32::MAX, -5, i32::MIN] {
        let good = RawProof { nonce: [1; 16], token: [2; 16], read: 0, write: 0 };
        assert!(RawProof { read: code, ..good }.check().is_err(), "{code}");
        assert!(RawProof { write: code, ..good }.check().is_err(), "{code}");
        assert!(RawVerdict { read: code, write: 0 }.check().is_err(), "{code}");
        assert!(RawVerdict { read: 0, write: code }.check().is_err(), "{code}");
    }
}
