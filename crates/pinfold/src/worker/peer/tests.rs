//! Sending a short message touches two cache lines of the peer and nothing else of it.
#![allow(unsafe_code)]

use std::{process, ptr, thread};

use pinfold_sys::mem::reserved::Reserved;
use rustix::param::page_size;

use super::{HOT, Peer};
use crate::{
    Endpoint, TagMatch,
    memory::scatter::Part,
    worker::{engine::Engine, fast_path},
};

/// The other test ends its process where it fails.
#[test]
fn a_short_message_touches_two_lines_of_its_peer() {
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::short_messages_go_while_all_else_is_closed");
    let mut command = crate::again::again();
    let status = command.args(["--exact", &test, "--ignored"]).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "run by another test"]
fn short_messages_go_while_all_else_is_closed() {
    let name = format!("local:hot-{}", process::id());
    let one = Endpoint::builder().listen(&name).build().unwrap();
    let two = Endpoint::builder().build().unwrap();
    let (to_two, to_one) = thread::scope(|scope| {
        let to_two = scope.spawn(|| one.accept().unwrap());
        let to_one = two.connect(&name).unwrap();
        (to_two.join().unwrap(), to_one)
    });
    let mut bytes = [0; 8];
    let mut receive = |number: u64| {
        one.recv_into(to_two, TagMatch::any(), &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), number);
    };
    // The first message may ring.
    two.send(to_one, 0, &0_u64.to_ne_bytes()).unwrap();
    receive(0);

    let page = page_size();
    let memory = Reserved::new(page + size_of::<Peer>().next_multiple_of(page), page).unwrap();
    let rest = page..memory.len();
    memory.open(0..memory.len()).unwrap();
    let place = memory.as_ptr().wrapping_add(page - HOT).cast::<Peer>();
    let mut sent = 0;
    {
        let mut engine = two.shared().enter().unwrap();
        let Engine { peers, core, .. } = &mut *engine;
        let peer = peers.get_mut(to_one).unwrap();
        // SAFETY: there is room for a peer, aligned to a cache line; the peer lives there until it
        // is moved back, while the engine is held.
        unsafe { ptr::copy_nonoverlapping(peer, place, 1) };
        // SAFETY: sending does not touch these pages, or this process ends.
        unsafe { memory.close(rest.clone()) }.unwrap();
        // To the end of the lap, and one in vain.
        loop {
            let bytes = (sent + 1_u64).to_ne_bytes();
            // SAFETY: `bytes` outlives the part.
            let message = unsafe { Part::new(bytes.as_ptr().cast_mut(), bytes.len()) };
            // SAFETY: the peer was moved there, and no other reference leads there.
            if !fast_path::send_to(core, unsafe { &mut *place }, 7, message) {
                break;
            }
            sent += 1;
        }
        memory.open(rest).unwrap();
        // SAFETY: the peer is moved back over its former bytes, which nobody has used meanwhile.
        unsafe { ptr::copy_nonoverlapping(place, peer, 1) };
    }
    assert!(sent >= 48, "{sent}");
    (1..=sent).for_each(&mut receive);
}
