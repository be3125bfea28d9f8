//! Strangers, and attackers between the two.

use super::*;

/// Bytes that each side sends in a greeting that succeeds.
const CONNECTING_BYTES: usize = KNOCK_BYTES + CLAIM_BYTES + CONFIRM_BYTES;
const ACCEPTING_BYTES: usize = KNOCK_BYTES + REPLY_BYTES;

fn auths() -> [Auth; 2] {
    [key(1), no_key()]
}

#[test]
fn a_flipped_bit_anywhere_ends_it() {
    for auth in auths() {
        for (role, bytes) in
            [(Role::Connecting, CONNECTING_BYTES), (Role::Accepting, ACCEPTING_BYTES)]
        {
            for (at, bit) in (0..bytes).flat_map(|at| [(at, 0), (at, 3), (at, 7)]) {
                let mut scene = Scene::between(auth.clone(), auth.clone());
                scene.tamper = Box::new(move |whose, place, byte| {
                    if (whose, place) == (role, at) {
                        *byte ^= 1 << bit;
                    }
                });
                let outcome = scene.play();
                assert!(outcome.accepting.is_err(), "{role:?} {at}.{bit}");
                // The connecting side is done when it confirms: only the other can see that spoilt.
                let confirmed = role == Role::Connecting && at >= KNOCK_BYTES + CLAIM_BYTES;
                assert_eq!(outcome.connecting.is_ok(), confirmed, "{role:?} {at}.{bit}");
                // Behind the knock it is the proof that does not fit, before anything is looked at.
                let end = match role {
                    Role::Connecting => outcome.accepting,
                    Role::Accepting => outcome.connecting,
                };
                if at >= KNOCK_BYTES && auth.is_key() {
                    let wrong = matches!(end, Err(Failure::WrongKey { .. }));
                    assert!(wrong, "{role:?} {at}.{bit}: {end:?}");
                }
            }
        }
    }
}

#[test]
fn cut_anywhere_it_fails() {
    for auth in auths() {
        for at in 0..CONNECTING_BYTES {
            let mut scene = Scene::between(auth.clone(), auth.clone());
            scene.cut.0 = at;
            let outcome = scene.play();
            assert!(matches!(outcome.accepting, Err(Failure::Closed { .. })), "{at}");
            assert_eq!(outcome.connecting.is_ok(), at >= KNOCK_BYTES + CLAIM_BYTES, "{at}");
        }
        for at in 0..ACCEPTING_BYTES {
            let mut scene = Scene::between(auth.clone(), auth.clone());
            scene.cut.1 = at;
            let (c, a) = scene.play().neither();
            assert!(matches!((c, a), (Failure::Closed { .. }, Failure::Closed { .. })), "{at}");
        }
    }
}

#[test]
fn who_closes_when_is_told() {
    let hint = |scene: Scene, connecting: bool, word: &str| {
        let (c, a) = scene.play().neither();
        says(if connecting { c } else { a }, &[word]);
    };
    let cut = |c, a| {
        let mut scene = Scene::between(key(1), key(1));
        scene.cut = (c, a);
        scene
    };
    hint(cut(usize::MAX, 0), true, "see that a Pinfold endpoint of the same version listens there");
    hint(cut(usize::MAX, KNOCK_BYTES), true, "its key is another");
    hint(cut(KNOCK_BYTES, usize::MAX), false, "most likely it has none");
    hint(cut(0, usize::MAX), false, "its first packet");
}

/// A greeting that succeeded, to be played again.
fn recording() -> (Vec<u8>, Vec<u8>) {
    let outcome = Scene::between(key(1), key(1)).play();
    assert!(outcome.accepting.is_ok());
    outcome.said
}

#[test]
fn a_recorded_claim_is_good_for_one_nonce() {
    let (recorded, _) = recording();
    let play = |nonce| {
        let mut side = Side::new(Greeting::accept(key(1), nonce, "replayer", DEADLINE));
        let mut asked = 0;
        side.hear(&recorded, usize::MAX, &mut |greeting, _| {
            asked += 1;
            greeting.admit(&offer(2), None).unwrap();
        });
        (side.end.unwrap(), asked)
    };
    // With the same nonce the replay would go unnoticed.
    let (end, asked) = play(nonce(2));
    assert_eq!((end.is_ok(), asked), (true, 1));
    let (end, asked) = play(nonce(3));
    assert_eq!((end.unwrap_err(), asked), (Failure::WrongKey { peer: "replayer".into() }, 0));
}

#[test]
fn a_recorded_reply_is_good_for_one_nonce() {
    let (_, recorded) = recording();
    let play = |nonce| {
        let greeting = Greeting::connect(key(1), nonce, "replayer", offer(1), None, DEADLINE);
        let mut side = Side::new(greeting);
        side.hear(&recorded, usize::MAX, &mut |_, _| {});
        side.end.unwrap()
    };
    assert!(play(nonce(1)).is_ok());
    assert_eq!(play(nonce(3)).unwrap_err(), Failure::WrongKey { peer: "replayer".into() });
}

#[test]
fn parts_of_two_greetings_do_not_mix() {
    // The same nonce of the accepting side, by a bad generator, but another of the connecting one.
    let (recorded, _) = recording();
    let greeting = Greeting::connect(key(1), nonce(3), "there", offer(1), None, DEADLINE);
    let other = Scene::new(greeting, Greeting::accept(key(1), nonce(2), "x", DEADLINE)).play();
    let knock = &other.said.0[..KNOCK_BYTES];
    let mixed = [knock, &recorded[KNOCK_BYTES..]].concat();
    let mut side = Side::new(Greeting::accept(key(1), nonce(2), "mixer", DEADLINE));
    side.hear(&mixed, usize::MAX, &mut |_, _| panic!("it was believed"));
    assert!(matches!(side.end, Some(Err(Failure::WrongKey { .. }))));
}

#[test]
fn what_is_reflected_is_not_believed() {
    // All that it says comes back to it: as it is, with the role changed, and with the nonce
    // changed, too.
    for (role, other) in [(false, false), (true, false), (true, true)] {
        for auth in auths() {
            let connecting =
                Greeting::connect(auth.clone(), nonce(1), "mirror", offer(1), None, DEADLINE);
            let mut side = Side::new(connecting);
            let mut bytes = side.speak();
            bytes[15] = if role { Role::Accepting as u8 } else { bytes[15] };
            bytes[20] ^= u8::from(other);
            side.hear(&bytes, usize::MAX, &mut |_, _| {});
            if !other {
                let end = side.end.unwrap().unwrap_err();
                assert_eq!(end, Failure::Reflected { peer: "mirror".into() });
                says(end, &["mirror sends back", "another address"]);
                continue;
            }
            // Its claim, made to look like a reply: the proof is for another purpose.
            let claim = side.speak();
            let reply = [&[0; REPLY_BYTES - CLAIM_BYTES][..], &claim].concat();
            side.hear(&reply, usize::MAX, &mut |_, _| {});
            assert!(side.end.unwrap().is_err());
        }
    }
    // An accepting side hears its own bytes.
    let mut side = Side::new(Greeting::accept(key(1), nonce(2), "mirror", DEADLINE));
    let knock = Knock {
        versions: VERSIONS,
        auth: Some(AuthKind::Key),
        role: Role::Connecting,
        nonce: [2; NONCE_BYTES],
    };
    side.hear(&knock.encode(), usize::MAX, &mut |_, _| {});
    assert!(matches!(side.end, Some(Err(Failure::Reflected { .. }))));
    let mut side = Side::new(Greeting::accept(key(1), nonce(2), "mirror", DEADLINE));
    let knock = Knock { role: Role::Accepting, nonce: [3; NONCE_BYTES], ..knock };
    side.hear(&knock.encode(), usize::MAX, &mut |_, _| {});
    assert!(matches!(side.end, Some(Err(Failure::Reflected { .. }))));
}

#[test]
fn who_relays_an_endpoint_to_itself_is_found_out() {
    // Everything is passed on as it is, but both ends are one endpoint.
    let mut scene = Scene::between(key(1), key(1));
    let mut declined = None;
    let outcome = scene.play_with(&mut |greeting, _| {
        declined = Some(greeting.admit(&offer(1), None).unwrap_err());
    });
    assert!(matches!(declined, Some(Failure::Declined { why: Refusal::Itself, .. })));
    assert!(matches!(outcome.connecting, Err(Failure::Refused { why: Refusal::Itself, .. })));
}

#[test]
fn other_protocols_end_at_their_first_wrong_byte() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01", b"P", b"PINFOLE\x05", b"\0"] {
        let mut side = Side::new(Greeting::accept(key(1), nonce(2), "browser", DEADLINE));
        side.hear(bytes, 1, &mut |_, _| {});
        if bytes == b"P" {
            assert!(side.end.is_none());
            continue;
        }
        says(side.end.unwrap().unwrap_err(), &["browser does not greet", "not Pinfold's"]);
        assert!(side.greeting.output().is_empty());
    }
}

#[test]
fn another_edition_is_named_and_answered() {
    let says_that = ["old runs another version of Pinfold (edition 5", "update the older side"];
    let mut side = Side::new(Greeting::accept(key(1), nonce(2), "old", DEADLINE));
    side.hear(b"PINFOLD\x05, and what came then", 1, &mut |_, _| {});
    says(side.end.unwrap().unwrap_err(), &says_that);
    // It shall see which edition this is. A connecting side has said so already.
    let output = side.greeting.output();
    assert_eq!((output.len(), &output[..8]), (KNOCK_BYTES, &b"PINFOLD\x0a"[..]));
    let calls = Greeting::connect(key(1), nonce(1), "old", offer(1), None, DEADLINE);
    let mut side = Side::new(calls);
    let said = side.greeting.output().len();
    side.hear(b"PINFOLD\x05, and what came then", 1, &mut |_, _| {});
    says(side.end.unwrap().unwrap_err(), &says_that);
    assert_eq!(side.greeting.output().len(), said);
}

#[test]
fn before_its_proof_nobody_gets_further_than_the_bound() {
    let knock = |role| {
        let auth = Some(AuthKind::Key);
        Knock { versions: VERSIONS, auth, role, nonce: [9; NONCE_BYTES] }.encode()
    };
    let connecting = Greeting::connect(key(1), nonce(1), "flood", offer(1), None, DEADLINE);
    let accepting = Greeting::accept(key(1), nonce(2), "flood", DEADLINE);
    for (mut greeting, theirs, bytes) in [
        (connecting, Role::Accepting, KNOCK_BYTES + REPLY_BYTES),
        (accepting, Role::Connecting, KNOCK_BYTES + CLAIM_BYTES),
    ] {
        let flood = knock(theirs).into_iter().chain(std::iter::repeat(0xff));
        let mut taken = 0;
        for byte in flood {
            taken += 1;
            match greeting.feed(&[byte]) {
                Ok((used, step)) => {
                    assert_eq!(used, 1);
                    assert!(matches!(step, Step::More));
                }
                Err(failure) => {
                    assert!(matches!(failure, Failure::WrongKey { .. }));
                    break;
                }
            }
        }
        assert_eq!(taken, bytes);
        assert!(taken <= UNPROVEN_BYTES_MAX);
        // And its answer to that: its knock, and from a connecting side its claim.
        assert!(greeting.output().len() <= KNOCK_BYTES + CLAIM_BYTES);
    }
    // The cost of a connection until then; nothing of it depends on the bytes that come.
    assert!(size_of::<Greeting>() <= 1024, "{}", size_of::<Greeting>());
    // A greeting whose bytes all come at once is no different.
    let mut greeting = Greeting::accept(key(1), nonce(2), "flood", DEADLINE);
    let mut flood = vec![0xff; 1 << 20];
    flood[..KNOCK_BYTES].copy_from_slice(&knock(Role::Connecting));
    assert!(matches!(greeting.feed(&flood), Err(Failure::WrongKey { .. })));
}

#[test]
fn who_is_slow_has_until_the_deadline() {
    let (recorded, _) = recording();
    for at in 0..recorded.len() {
        let mut side = Side::new(Greeting::accept(key(1), nonce(2), "snail", DEADLINE));
        for byte in &recorded[..at] {
            assert!(side.greeting.expired(DEADLINE - 1).is_none());
            side.hear(&[*byte], 1, &mut |greeting, _| greeting.admit(&offer(2), None).unwrap());
        }
        assert!(side.end.is_none());
        assert_eq!(side.greeting.deadline_ns(), DEADLINE);
        let failure = side.greeting.expired(DEADLINE).unwrap();
        says(&failure, &["snail did not greet in time", "did not come"]);
        assert!(matches!(failure, Failure::TooLate { .. }));
        assert!(side.greeting.expired(DEADLINE).is_none());
        assert!(matches!(side.greeting.feed(&recorded[at..]), Err(Failure::Over { .. })));
    }
    let mut side = Side::new(Greeting::accept(key(1), nonce(2), "snail", DEADLINE));
    side.hear(&recorded, 1, &mut |greeting, _| greeting.admit(&offer(2), None).unwrap());
    assert!(side.end.unwrap().is_ok());
}
