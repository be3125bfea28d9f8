//! Messages, reads, writes and atomic operations between processes of which each lacks system
//! calls, as in containers; and as `nobody`.

use pinfold_fi::ffi::flags::*;
use pinfold_tests::{
    Args, Stage,
    filter::{CMA, deny},
    network::where_allowed,
    role::{hear, say},
    skip::is_root_or_skip,
    stamp,
};

use crate::{
    couple::{Incoming, Outgoing, Recv, Send, posted, recv, send},
    host::host,
    hosts::Hosts,
    side::{Side, Terms, context, hex, unhex},
};

const SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, (1 << 20) + 1];

fn lose(args: &Args) {
    let calls: Vec<libc::c_long> = match args.text("denied") {
        "nothing" => return,
        "process_vm" => CMA.to_vec(),
        "userfaultfd" => vec![libc::SYS_userfaultfd],
        "io_uring" => vec![libc::SYS_io_uring_setup],
        "all" => [&CMA[..], &[libc::SYS_userfaultfd, libc::SYS_io_uring_setup]].concat(),
        other => panic!("{other}?"),
    };
    deny(&calls, libc::EPERM);
}

/// Answers messages with themselves, and has memory.
pub fn server(args: &Args) {
    lose(args);
    let host = host().expect("the director has one");
    let side = Side::new(host, Terms::default());
    let mut memory = stamp::bytes(2 << 20, 1);
    let rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let (mr, key) = side.register(&mut memory, rights, 1);
    let name = hex(&side.name());
    say(format_args!("is {name} {} {key}", side.place(&memory)));
    let peer = side.insert(&unhex(&hear()));
    for size in SIZES {
        let mut room = vec![0; size];
        let mut incoming = Incoming::tagged(&mut room, 1);
        posted("fi_trecv", &[&side], || recv(&side, Recv::Plain, &mut incoming));
        side.take(side.rx, &[]).expect("no error");
        let mut outgoing = Outgoing::tagged(&mut room, peer, 2);
        posted("fi_tsend", &[&side], || send(&side, Send::Plain, &mut outgoing));
        side.take(side.tx, &[]).expect("no error");
    }
    // The last word says that all is done.
    let mut room = [0; 8];
    let mut incoming = Incoming::tagged(&mut room, 3);
    posted("fi_trecv", &[&side], || recv(&side, Recv::Plain, &mut incoming));
    side.take(side.rx, &[]).expect("no error");
    assert!(memory[..SIZES[3]] == stamp::bytes(SIZES[3], 7));
    let word = &memory[(2 << 20) - 8..];
    assert_eq!(word, 50u64.to_ne_bytes());
    assert_eq!(crate::side::close(mr), 0);
}

/// Sends, receives, reads, writes and adds.
pub fn asker(args: &Args) {
    lose(args);
    let host = host().expect("the director has one");
    let side = Side::new(host, Terms::default());
    let name = hex(&side.name());
    say(format_args!("is {name}"));
    let line = hear();
    let words: Vec<&str> = line.split(' ').collect();
    let to = side.insert(&unhex(words[0]));
    let (at, key): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    for size in SIZES {
        let (mut from, mut back) = (stamp::bytes(size, 4), vec![0; size]);
        let mut incoming = Incoming {
            memory: &mut back,
            from: to,
            tag: Some((2, 0)),
            flags: 0,
            context: context(1),
        };
        posted("fi_trecv", &[&side], || recv(&side, Recv::Plain, &mut incoming));
        let mut outgoing = Outgoing::tagged(&mut from, to, 1);
        posted("fi_tsend", &[&side], || send(&side, Send::Plain, &mut outgoing));
        side.take(side.tx, &[]).expect("no error");
        side.take(side.rx, &[]).expect("no error");
        stamp::check(&back, 4);
    }
    let (ep, none) = (side.ep, std::ptr::null_mut());
    for size in SIZES {
        let mut bytes = vec![0; size];
        let buf = bytes.as_mut_ptr().cast();
        posted("fi_read", &[&side], || {
            // SAFETY: the memory is there until the completion, below.
            unsafe { ((*(*ep).rma).read)(ep, buf, size, none, to, at, key, context(1)) }
        });
        side.take(side.tx, &[]).expect("no error");
        if size == SIZES[0] {
            stamp::check(&bytes, 1);
        }
        stamp::fill(&mut bytes, 7);
        posted("fi_write", &[&side], || {
            // SAFETY: as above.
            unsafe {
                let write = (*(*ep).rma).write;
                write(ep, bytes.as_ptr().cast(), size, none, to, at, key, context(1))
            }
        });
        side.take(side.tx, &[]).expect("no error");
    }
    let last = at + (2 << 20) - 8;
    let add = |op, with: u64| {
        posted("fi_atomic", &[&side], || {
            let with = (&raw const with).cast();
            // SAFETY: the operand is there for the call.
            unsafe {
                let write = (*(*ep).atomic).write;
                write(ep, with, 1, none, to, last, key, 7, op, context(1))
            }
        });
        side.take(side.tx, &[]).expect("no error");
    };
    add(11, 0);
    (0..50).for_each(|_| add(2, 1));
    let mut outgoing = Outgoing {
        memory: &mut [1; 8],
        to,
        tag: Some(3),
        data: 0,
        flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
        context: context(2),
    };
    posted("fi_tsend", &[&side], || send(&side, Send::Message, &mut outgoing));
    side.take(side.tx, &[]).expect("no error");
}

fn both(stage: &Stage, denied: [&str; 2], user: Option<u32>, hosts: &Hosts) {
    let cast = |role, host| {
        let role = hosts.on(host, stage, stage.role(role)).with("denied", denied[host]);
        match user {
            Some(uid) => role.user(uid).spawn(),
            None => role.spawn(),
        }
    };
    let (mut server, mut asker) = (cast("server", 0), cast("asker", 1));
    let (place, name) = (server.expect("is"), asker.expect("is"));
    server.say(name);
    asker.say(place);
    asker.end_well();
    server.end_well();
}

#[test]
fn all_goes_on_without_the_calls_that_containers_deny() {
    if host().is_none() {
        return;
    }
    for denied in ["nothing", "process_vm", "userfaultfd", "io_uring", "all"] {
        for sides in [[denied; 2], [denied, "nothing"], ["nothing", denied]] {
            both(&Stage::new(60), sides, None, &Hosts::one());
        }
    }
}

#[test]
fn all_goes_on_as_nobody() {
    if host().is_none() || !is_root_or_skip("to become nobody") {
        return;
    }
    for denied in ["nothing", "process_vm", "userfaultfd", "io_uring", "all"] {
        both(&Stage::new(60), [denied; 2], Some(65534), &Hosts::one());
    }
}

/// The same between hosts, where neither memory nor names are shared.
#[test]
fn all_goes_on_between_hosts_without_those_calls() {
    if host().is_none() {
        return;
    }
    where_allowed("denied::all_goes_on_between_hosts_without_those_calls", || {
        let hosts = Hosts::two();
        for denied in ["nothing", "process_vm", "userfaultfd", "io_uring", "all"] {
            for sides in [[denied; 2], [denied, "nothing"], ["nothing", denied]] {
                both(&Stage::new(60), sides, None, &hosts);
            }
        }
    });
}
