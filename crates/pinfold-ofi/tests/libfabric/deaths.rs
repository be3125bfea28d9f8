//! Peers that are killed in the midst of every operation: what waits for them ends with an error,
//! soon, and a peer that comes back under the address is reached.

use std::time::{Duration, Instant};

use pinfold_fi::ffi::{ep::FiMsgTagged, flags::*, object::Fid};
use pinfold_tests::{
    Args, Stage,
    network::where_allowed,
    role::{hear, say},
    stamp,
};

use crate::{
    couple::{Incoming, Outgoing, Recv, Send, posted, recv, send},
    host::host,
    hosts::Hosts,
    side::{Side, Terms, context, good, hex, unhex},
};

/// The operations in whose midst the peer is killed.
const KINDS: [&str; 11] = [
    "nothing",
    "greeting",
    "send",
    "long",
    "confirmed",
    "receive",
    "flood",
    "read",
    "write",
    "atomic",
    "claim",
];

/// The process that is killed: it has an endpoint, some memory, and does what it is told until
/// then.
pub fn victim(args: &Args) {
    let host = host().expect("the director has one");
    let side = Side::unbound(host, Terms::default());
    if args.has("name") {
        let mut name = unhex(args.text("name"));
        // SAFETY: the endpoint is open and not enabled.
        let code = unsafe {
            let setname = (*(*side.ep).cm).setname;
            setname(side.ep.cast::<Fid>(), name.as_mut_ptr().cast(), name.len())
        };
        good(host, "fi_setname", code);
    }
    side.bind();
    let mut memory = stamp::bytes(8 << 20, 1);
    let rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let (_mr, key) = side.register(&mut memory, rights, 1);
    say(format_args!("is {} {} {key}", hex(&side.name()), side.place(&memory)));
    let kind = args.text("kind").to_owned();
    // Some sit still and hear of nothing; others turn until they are killed.
    if kind == "greeting" {
        std::thread::sleep(Duration::from_secs(60));
    }
    let peer = side.insert(&unhex(&hear()));
    let mut room = vec![0u8; 4 << 20];
    if kind == "long" || kind == "confirmed" || kind == "again" {
        let mut incoming = Incoming::tagged(&mut room, 1);
        posted("fi_trecv", &[&side], || recv(&side, Recv::Plain, &mut incoming));
    }
    if kind == "receive" || kind == "claim" || kind == "again" {
        let mut outgoing = Outgoing::tagged(&mut memory[..4 << 20], peer, 2);
        posted("fi_tsend", &[&side], || send(&side, Send::Plain, &mut outgoing));
    }
    say("goes");
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        side.progress();
        if kind == "again" && side.poll(side.rx).expect("no error").is_some() {
            stamp::check(&room[..8], 3);
            say("has it");
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

/// The process that is left.
pub fn survivor(args: &Args) {
    let host = host().expect("the director has one");
    let side = Side::new(host, Terms::default());
    say(format_args!("is {}", hex(&side.name())));
    let line = hear();
    let mut words = line.split(' ');
    let name = unhex(words.next().expect("a name"));
    let at: u64 = words.next().expect("a place").parse().expect("a number");
    let key: u64 = words.next().expect("a key").parse().expect("a number");
    let to = side.insert(&name);
    let kind = args.text("kind").to_owned();
    let mut memory = stamp::bytes(4 << 20, 3);
    // Entries on either queue end the wait.
    let mut waits = 0;
    let plain = |memory: &mut [u8], flags: u64, waits: &mut usize| {
        let mut outgoing = Outgoing {
            memory,
            to,
            tag: Some(if flags == 0 { 1 } else { 9 }),
            data: 0,
            flags: flags | FI_COMPLETION,
            context: context(3),
        };
        let code = send(&side, Send::Message, &mut outgoing);
        if code == 0 {
            *waits += 1;
        }
        code
    };
    let is_again = |code: isize| code == -(libc::EAGAIN as isize);
    // A greeting is under way, or has been exchanged.
    if kind == "nothing" {
        say("posted");
        assert_eq!(hear(), "killed");
    }
    if kind == "greeting" {
        for _ in 0..1000 {
            let code = plain(&mut memory[..8], 0, &mut waits);
            assert!(code == 0 || is_again(code), "{}", host.error(code));
        }
        say("posted");
        assert_eq!(hear(), "killed");
    } else if kind != "nothing" {
        match kind.as_str() {
            "send" | "long" | "flood" | "confirmed" => {
                let flags = if kind == "confirmed" { FI_DELIVERY_COMPLETE } else { 0 };
                let (len, count) = match kind.as_str() {
                    "send" => (8, 1),
                    "flood" => (2000, 20_000),
                    _ => (4 << 20, 20),
                };
                let (mut sent, mut refused) = (0, 0);
                while sent < count && refused < 3_000_000 {
                    match plain(&mut memory[..len], flags, &mut waits) {
                        0 => sent += 1,
                        code if is_again(code) => {
                            refused += 1;
                            // A first message has to go in any case.
                            if sent > 0 && refused > 1000 {
                                break;
                            }
                        }
                        code => panic!("{}", host.error(code)),
                    }
                    // Completions are left, so that the queue fills up.
                }
            }
            "receive" | "claim" => {}
            "read" | "write" => {
                for _ in 0..30 {
                    let (buf, len) = (memory.as_mut_ptr().cast(), memory.len());
                    let none = std::ptr::null_mut();
                    posted("fi_rma", &[&side], || {
                        // SAFETY: the memory is there until the end of this process.
                        unsafe {
                            let ops = &*(*side.ep).rma;
                            if kind == "read" {
                                (ops.read)(side.ep, buf, len, none, to, at, key, context(3))
                            } else {
                                let buf = buf.cast_const();
                                (ops.write)(side.ep, buf, len, none, to, at, key, context(3))
                            }
                        }
                    });
                    waits += 1;
                }
            }
            "atomic" => {
                for _ in 0..100 {
                    let none = std::ptr::null_mut();
                    let buf = memory.as_ptr().cast();
                    posted("fi_atomic", &[&side], || {
                        // SAFETY: as above.
                        unsafe {
                            let write = (*(*side.ep).atomic).write;
                            write(side.ep, buf, 100, none, to, at, key, 7, 2, context(3))
                        }
                    });
                    waits += 1;
                }
            }
            other => panic!("{other}?"),
        }
        if kind == "claim" || kind == "receive" {
            let claims = if kind == "claim" { FI_CLAIM } else { 0 };
            let msg = FiMsgTagged {
                msg_iov: std::ptr::null(),
                desc: std::ptr::null_mut(),
                iov_count: 0,
                addr: FI_ADDR_UNSPEC,
                tag: 2,
                ignore: 0,
                context: context(5),
                data: 0,
            };
            loop {
                posted("fi_trecvmsg", &[&side], || {
                    // SAFETY: no memory.
                    let recvmsg = unsafe { (*(*side.ep).tagged).recvmsg };
                    // SAFETY: as above.
                    unsafe { recvmsg(side.ep, &msg, FI_PEEK | claims | FI_COMPLETION) }
                });
                if side.take(side.rx, &[]).is_ok() {
                    break;
                }
            }
        }
        say("posted");
        assert_eq!(hear(), "killed");
        if kind == "receive" || kind == "claim" {
            let mut incoming = Incoming {
                memory: &mut memory,
                from: to,
                tag: Some((2, 0)),
                flags: if kind == "claim" { FI_CLAIM } else { 0 },
                context: context(5),
            };
            let how = if kind == "claim" { Recv::Message } else { Recv::Plain };
            let mut code = -(libc::EAGAIN as isize);
            while is_again(code) {
                code = recv(&side, how, &mut incoming);
            }
            // It is told at once that nobody is there, or later.
            if code == 0 {
                waits += 1;
            }
        }
    }
    let begun = Instant::now();
    let (mut good, mut bad) = (0, 0);
    while good + bad < waits {
        for cq in [side.tx, side.rx] {
            match side.poll(cq) {
                Ok(Some(_)) => good += 1,
                Ok(None) => {}
                Err(error) => {
                    assert_ne!(error.err, 0);
                    bad += 1;
                }
            }
        }
        let patience = Duration::from_secs(20);
        assert!(begun.elapsed() < patience, "{kind}: {good} good, {bad} bad of {waits}");
    }
    // Later operations fail, too, and do not wait for ever.
    let mut outgoing = Outgoing {
        memory: &mut memory[..8],
        to,
        tag: Some(1),
        data: 0,
        flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
        context: context(6),
    };
    let begun = Instant::now();
    let mut is_posted = false;
    loop {
        if !is_posted {
            match send(&side, Send::Message, &mut outgoing) {
                0 => is_posted = true,
                code if is_again(code) => {}
                _ => break,
            }
        }
        match side.poll(side.tx) {
            Err(_) => break,
            Ok(Some(_)) => panic!("the dead have confirmed"),
            Ok(None) => {}
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{kind}: it is not told");
    }
    say("told");
    if !args.has("again") {
        std::mem::forget(side);
        return;
    }
    // Another has come under the same address.
    assert_eq!(hear(), "again");
    let begun = Instant::now();
    let mut is_posted = false;
    loop {
        outgoing.flags = FI_COMPLETION;
        if !is_posted {
            is_posted = send(&side, Send::Message, &mut outgoing) == 0;
        }
        match side.poll(side.tx) {
            Err(_) => is_posted = false,
            Ok(Some(_)) => break,
            Ok(None) => {}
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the new one is not reached");
    }
    say("reached");
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end && !args.has("never") {
        side.progress();
    }
}

fn kill_in(kind: &str, again: bool, hosts: &Hosts) {
    let stage = Stage::new(90);
    let role = |name: &str, host| hosts.on(host, &stage, stage.role(name));
    let mut victim = role("victim", 0).with("kind", kind).spawn();
    let place = victim.expect("is");
    let mut survivor = role("survivor", 1).with("kind", kind);
    if again {
        survivor = survivor.with("again", 1);
    }
    let mut survivor = survivor.spawn();
    let name = survivor.expect("is");
    if kind != "greeting" {
        victim.say(&name);
    }
    survivor.say(&place);
    if kind != "greeting" {
        victim.expect("goes");
    }
    survivor.expect("posted");
    victim.kill();
    assert!(victim.was_killed());
    survivor.say("killed");
    survivor.expect("told");
    if again {
        let old = place.split(' ').next().expect("a name");
        let mut next = role("victim", 0).with("kind", "again").with("name", old).spawn();
        next.expect("is");
        next.say(&name);
        survivor.say("again");
        next.expect("goes");
        survivor.expect("reached");
        next.expect("has it");
        next.kill();
        survivor.kill();
        return;
    }
    survivor.end_well();
}

#[test]
fn who_waits_for_the_dead_is_told() {
    if host().is_none() {
        return;
    }
    for kind in KINDS {
        kill_in(kind, false, &Hosts::one());
    }
}

/// A process that is started again under the address of one that was killed is reached there.
#[test]
fn who_comes_back_under_its_address_is_reached() {
    if host().is_none() {
        return;
    }
    for kind in ["nothing", "send", "write"] {
        kill_in(kind, true, &Hosts::one());
    }
}

/// The same of a process on another host.
#[test]
fn the_dead_of_another_host_are_told_of() {
    if host().is_none() {
        return;
    }
    where_allowed("deaths::the_dead_of_another_host_are_told_of", || {
        let hosts = Hosts::two();
        let all = KINDS.map(|kind| (kind, false));
        let all = [&all[..], &[("nothing", true), ("send", true), ("write", true)]].concat();
        // A lost connection is called again for some seconds before its peer is given up.
        for some in all.chunks(4) {
            std::thread::scope(|scope| {
                for &(kind, again) in some {
                    let hosts = &hosts;
                    scope.spawn(move || kill_in(kind, again, hosts));
                }
            });
        }
    });
}
