//! Address vectors, connections and names: inserted, removed, used again, called from both sides.

use pinfold_fi::ffi::{flags::*, object::Fid};
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, posted, recv, send},
    host::host,
    side::{Side, Terms, close, context, good},
};

fn remove(side: &Side, number: u64) {
    let mut number = number;
    // SAFETY: one number.
    let code = unsafe { ((*(*side.av).ops).remove)(side.av, &mut number, 1, 0) };
    good(side.host, "fi_av_remove", code);
}

fn exchange(couple: &Couple, seed: u64) {
    let (mut from, mut to) = (stamp::bytes(100, seed), vec![0; 100]);
    let mut incoming = Incoming::tagged(&mut to, seed);
    couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
    let mut outgoing = Outgoing::tagged(&mut from, couple.to_two, seed);
    couple.post("fi_tsend", || send(&couple.one, Send::Plain, &mut outgoing));
    couple.at_two(couple.two.rx).expect("no error");
    couple.at_one(couple.one.tx).expect("no error");
    stamp::check(&to, seed);
}

/// Nothing goes to an address that was removed; inserted again it works.
#[test]
fn nothing_goes_to_an_address_that_was_removed() {
    let Some(host) = host() else { return };
    for av in [FI_AV_TABLE, FI_AV_MAP] {
        let mut couple = Couple::new(host, Terms { av, ..Terms::default() });
        exchange(&couple, 1);
        let name = couple.two.name();
        remove(&couple.one, couple.to_two);
        for kind in Send::ALL {
            let mut outgoing = Outgoing {
                memory: &mut [1; 8],
                to: couple.to_two,
                tag: Some(9),
                data: 0,
                flags: FI_COMPLETION,
                context: context(3),
            };
            let code = send(&couple.one, kind, &mut outgoing);
            assert!(code < 0 && code != -(libc::EAGAIN as isize), "{kind:?}: {code}");
        }
        assert!(couple.one.poll(couple.one.tx).unwrap().is_none());
        for number in [couple.to_two + 1, 1 << 20, FI_ADDR_UNSPEC] {
            let mut outgoing = Outgoing {
                memory: &mut [1; 8],
                to: number,
                tag: Some(9),
                data: 0,
                flags: 0,
                context: context(3),
            };
            assert!(send(&couple.one, Send::Plain, &mut outgoing) < 0);
        }
        couple.to_two = couple.one.insert(&name);
        exchange(&couple, 2);
    }
}

/// Both call each other with their first message, at the same time: neither waits for ever.
#[test]
fn both_sides_call_at_once() {
    let Some(host) = host() else { return };
    for round in 0..50 {
        let couple = Couple::new(host, Terms::default());
        let (mut to_one, mut to_two) = ([0u8; 8], [0u8; 8]);
        let ends = [
            (&couple.one, couple.to_two, &mut to_one, 1u8),
            (&couple.two, couple.to_one, &mut to_two, 2u8),
        ];
        for (side, _, room, _) in ends {
            let mut incoming = Incoming::tagged(&mut room[..], 1);
            posted("fi_trecv", &[side], || recv(side, Recv::Plain, &mut incoming));
        }
        let (mut one_sent, mut two_sent) = (false, false);
        let try_to = |side: &Side, to: u64, fill: u8, sent: &mut bool| {
            if *sent {
                return;
            }
            let mut bytes = [fill; 8];
            let mut outgoing = Outgoing::tagged(&mut bytes, to, 1);
            match send(side, Send::Inject, &mut outgoing) {
                0 => *sent = true,
                code => assert_eq!(code, -(libc::EAGAIN as isize)),
            }
        };
        couple.until("both have sent", || {
            try_to(&couple.one, couple.to_two, 1, &mut one_sent);
            if round % 2 == 1 {
                couple.one.progress();
            }
            try_to(&couple.two, couple.to_one, 2, &mut two_sent);
            one_sent && two_sent
        });
        assert_eq!(couple.at_one(couple.one.rx).unwrap().len, 8);
        assert_eq!(couple.at_two(couple.two.rx).unwrap().len, 8);
        assert_eq!((to_one, to_two), ([2; 8], [1; 8]));
        // And on, in both directions.
        exchange(&couple, 5);
    }
}

/// An endpoint that is closed and made anew under the same address is reached there.
#[test]
fn an_address_is_used_again_after_a_restart() {
    let Some(host) = host() else { return };
    let mut couple = Couple::new(host, Terms::default());
    for round in 1..6 {
        exchange(&couple, round);
        let name = couple.two.name();
        let fresh = Side::unbound(host, Terms::default());
        drop(std::mem::replace(&mut couple.two, fresh));
        let fid = couple.two.ep.cast::<Fid>();
        let mut name = name;
        // SAFETY: the endpoint is open and not enabled.
        let code = unsafe {
            let setname = (*(*couple.two.ep).cm).setname;
            setname(fid, name.as_mut_ptr().cast(), name.len())
        };
        good(host, "fi_setname", code);
        couple.two.bind();
        assert_eq!(couple.two.name(), name);
        couple.to_one = couple.two.insert(&couple.one.name());
        // A side that has not heard that the old one is gone gets an error, and tries again.
        couple.until("the new one is reached", || is_reached(&couple));
    }
}

/// A message to the second is delivered there; what is left of earlier ones is put away.
fn is_reached(couple: &Couple) -> bool {
    let (mut from, mut to) = (stamp::bytes(64, 8), vec![0; 64]);
    let mut incoming = Incoming::tagged(&mut to, 8);
    couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
    let mut outgoing = Outgoing {
        memory: &mut from,
        to: couple.to_two,
        tag: Some(8),
        data: 0,
        flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
        context: context(2),
    };
    let mut posted = false;
    let end = std::time::Instant::now() + crate::side::PATIENCE;
    loop {
        assert!(std::time::Instant::now() < end, "neither reached nor told");
        posted = posted || send(&couple.one, Send::Message, &mut outgoing) == 0;
        couple.two.progress();
        match couple.one.poll(couple.one.tx) {
            Ok(Some(_)) => break,
            Ok(None) => {}
            Err(error) => {
                assert!(error.err > 0);
                posted = false;
            }
        }
    }
    let got = couple.at_two(couple.two.rx).expect("no error");
    stamp::check(&to, 8);
    got.context == context(1)
}

/// The vector gives back what was put in.
#[test]
fn what_was_inserted_is_looked_up() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let name = couple.two.name();
    let mut room = vec![0u8; name.len()];
    let mut len = room.len();
    // SAFETY: room for the address.
    unsafe {
        let lookup = (*(*couple.one.av).ops).lookup;
        let code = lookup(couple.one.av, couple.to_two, room.as_mut_ptr().cast(), &mut len);
        good(host, "fi_av_lookup", code);
        assert_eq!((&room, len), (&name, name.len()));
        assert!(lookup(couple.one.av, 12345, room.as_mut_ptr().cast(), &mut len) < 0);
    }
    let again = couple.one.insert(&name);
    remove(&couple.one, again);
    let other = couple.one.insert(&couple.one.name());
    assert_ne!(other, couple.to_two);
    // A vector with an endpoint on it is busy.
    assert_eq!(close(couple.one.domain), -libc::EBUSY);
    assert_eq!(close(couple.one.fabric), -libc::EBUSY);
}
