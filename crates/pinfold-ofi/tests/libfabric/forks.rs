//! A process that forks while it uses the provider: the parent goes on, and the child does no harm.

use pinfold_fi::ffi::flags::*;
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{Side, Terms, close, context},
};

/// Runs `work` in a child made by `fork(2)`, and returns whether it ended well.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls what may be called after a fork in a threaded process, as far as
    // this provider and libfabric do, and leaves by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: the end of the child.
            unsafe { libc::_exit(if matches!(end, Ok(true)) { 0 } else { 1 }) }
        }
        child => {
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: a child of this process.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn a_child_neither_takes_nor_closes_what_is_its_parents() {
    let Some(host) = host() else { return };
    for progress in [FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO] {
        let couple = Couple::new(host, Terms { progress, ..Terms::default() });
        for round in 0..4u64 {
            let (mut from, mut to) = (stamp::bytes(100_000, round), vec![0; 100_000]);
            let mut incoming = Incoming::tagged(&mut to, round);
            couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
            if progress == FI_PROGRESS_MANUAL {
                let did_well = in_child(|| {
                    // Operations of the parent's endpoint fail here, and nothing hangs.
                    let mut outgoing = Outgoing {
                        memory: &mut [1; 8],
                        to: couple.to_two,
                        tag: Some(round),
                        data: 0,
                        flags: 0,
                        context: context(9),
                    };
                    let code = send(&couple.one, Send::Inject, &mut outgoing);
                    couple.one.progress();
                    couple.two.progress();
                    code < 0 && (round % 2 == 0 || close(couple.one.ep) == 0)
                });
                assert!(did_well);
            } else {
                assert!(in_child(|| true));
            }
            let mut outgoing = Outgoing::tagged(&mut from, couple.to_two, round);
            couple.post("fi_tsend", || send(&couple.one, Send::Plain, &mut outgoing));
            couple.at_two(couple.two.rx).expect("no error");
            couple.at_one(couple.one.tx).expect("no error");
            stamp::check(&to, round);
        }
    }
}

/// Objects made in the child work there.
#[test]
fn a_child_makes_objects_of_its_own() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let did_well = in_child(|| {
        let child = Couple::new(host, Terms::default());
        let (mut from, mut to) = ([7; 8], [0; 8]);
        let mut incoming = Incoming {
            memory: &mut to,
            from: FI_ADDR_UNSPEC,
            tag: None,
            flags: 0,
            context: context(1),
        };
        child.post("fi_recv", || recv(&child.two, Recv::Plain, &mut incoming));
        let mut outgoing = Outgoing {
            memory: &mut from,
            to: child.to_two,
            tag: None,
            data: 0,
            flags: 0,
            context: context(2),
        };
        child.post("fi_send", || send(&child.one, Send::Plain, &mut outgoing));
        child.at_two(child.two.rx).is_ok() && to == [7; 8]
    });
    assert!(did_well);
    drop::<Couple>(couple);
    let _: Side = Side::new(host, Terms::default());
}
