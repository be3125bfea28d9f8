//! Sessions that go on over another connection.

use super::*;
use crate::wire::tcp::offer::{Reached, Resume};

const fn reached(frames: u64) -> Reached {
    Reached { frames, bytes: 7 }
}

/// The tickets of a pair that has been connected.
fn tickets() -> (Ticket, Ticket) {
    let (c, a) = Scene::between(key(1), key(1)).play().both();
    let with = |ticket: &Ticket, received| Ticket { received, ..ticket.clone() };
    (with(&c.ticket, reached(40)), with(&a.ticket, reached(50)))
}

/// Goes on with a session: the connecting side by this ticket, the accepting side by that.
fn resume(ours: Option<Ticket>, theirs: Option<Ticket>, them: Offer) -> (Outcome, Option<Failure>) {
    let greeting = Greeting::connect(key(1), nonce(3), "there", offer(1), ours.clone(), DEADLINE);
    let mut scene = Scene::new(greeting, Greeting::accept(key(1), nonce(4), "here", DEADLINE));
    let mut declined = None;
    let outcome = scene.play_with(&mut |greeting, asked| {
        assert_eq!(asked.resumes, ours.as_ref().map(|ticket| ticket.id));
        declined = greeting.admit(&them, theirs.clone()).err();
    });
    (outcome, declined)
}

#[test]
fn a_session_goes_on() {
    let (ours, theirs) = tickets();
    let (outcome, _) = resume(Some(ours.clone()), Some(theirs.clone()), offer(2));
    let (c, a) = outcome.both();
    assert_eq!((c.peer_received, a.peer_received), (Some(reached(50)), Some(reached(40))));
    // Its name and its secret stay, since the last packet of a greeting may be lost.
    for ticket in [&c.ticket, &a.ticket] {
        assert_eq!(ticket.id, ours.id);
        assert!(ticket.secret == ours.secret);
    }
    let (outcome, _) = resume(Some(c.ticket), Some(a.ticket), offer(2));
    assert!(outcome.accepting.is_ok());
}

#[test]
fn one_that_is_not_known_is_refused() {
    let (ours, theirs) = tickets();
    let unknown = Refusal::UnknownSession { incarnation: 102 };
    let (c, a) = Scene::between(key(1), key(1)).play().both();
    assert_eq!((c.ticket.id, a.ticket.id), (ours.id, theirs.id));
    let other_id = Ticket { id: [9; 16], ..theirs.clone() };
    let other_secret = Ticket { secret: SessionSecret::new([9; 32]), ..theirs.clone() };
    for (ours, theirs) in [
        (Some(ours.clone()), None),
        (None, Some(theirs.clone())),
        (Some(ours.clone()), Some(other_id)),
        (Some(ours), Some(other_secret)),
    ] {
        let (outcome, declined) = resume(ours, theirs, offer(2));
        let said = Failure::Refused { peer: "there".into(), why: unknown };
        assert_eq!(outcome.connecting.unwrap_err(), said);
        assert_eq!(declined, Some(Failure::Declined { peer: "here".into(), why: unknown }));
    }
}

#[test]
fn a_peer_that_was_started_anew_is_another() {
    let (ours, theirs) = tickets();
    // The accepting side is another process, another endpoint; then the connecting side is.
    for them in [Offer { incarnation: 7, ..offer(2) }, Offer { endpoint_id: [7; 16], ..offer(2) }] {
        let (outcome, _) = resume(Some(ours.clone()), Some(theirs.clone()), them);
        let (c, a) = outcome.neither();
        assert_eq!(c, Failure::Declined { peer: "there".into(), why: Refusal::OtherEndpoint });
        assert_eq!(a, Failure::Refused { peer: "here".into(), why: Refusal::OtherEndpoint });
    }
    let others = Ticket { incarnation: 7, ..theirs };
    let (outcome, declined) = resume(Some(ours), Some(others), offer(2));
    assert!(matches!(outcome.connecting, Err(Failure::Refused { .. })));
    assert!(matches!(declined, Some(Failure::Declined { why: Refusal::OtherEndpoint, .. })));
}

#[test]
fn the_accepting_side_shows_the_secret_too() {
    let (ours, theirs) = tickets();
    // It knows the group's key, and takes any claim for right, but does not know the session's
    // secret.
    let ours_wrong = Ticket { secret: SessionSecret::new([9; 32]), ..ours.clone() };
    let knocks = [5; 32];
    let greeting = Greeting::connect(key(1), nonce(3), "there", offer(1), None, DEADLINE);
    let wanted = |role, ticket: &Ticket| {
        let proof = ticket.secret.prove_resuming(role, &knocks, &ticket.id, ticket.received);
        Wanted::Resume(Resume { id: ticket.id, received: ticket.received, proof })
    };
    let fits = |wanted: &Wanted| greeting.fits(&offer(1), &offer(2), Some(&ours), wanted, &knocks);
    assert_eq!(fits(&wanted(Role::Accepting, &theirs)), Ok(Some(reached(50))));
    let unknown = Err(Refusal::UnknownSession { incarnation: 101 });
    // Another secret, the proof of the other role, of another number, of another greeting, none at
    // all.
    assert_eq!(fits(&wanted(Role::Accepting, &ours_wrong)), unknown);
    assert_eq!(fits(&wanted(Role::Connecting, &theirs)), unknown);
    let Wanted::Resume(good) = wanted(Role::Accepting, &theirs) else { panic!() };
    for received in [reached(51), Reached { frames: 50, bytes: 8 }] {
        assert_eq!(fits(&Wanted::Resume(Resume { received, ..good })), unknown);
    }
    let proof = theirs.secret.prove_resuming(Role::Accepting, &[6; 32], &theirs.id, reached(50));
    assert_eq!(fits(&Wanted::Resume(Resume { proof, ..good })), unknown);
    for at in 0..32 {
        let mut proof = good.proof;
        proof[at] ^= 1;
        assert_eq!(fits(&Wanted::Resume(Resume { proof, ..good })), unknown, "byte {at}");
    }
    assert_eq!(fits(&Wanted::New), unknown);
}
