//! Receives of many messages, and many endpoints in a process.

use pinfold_fi::ffi::{flags::*, object::Fid};
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, posted, recv, send},
    host::host,
    side::{Side, Terms, context},
};

/// A buffer takes message after message until it has less room than the option says.
#[test]
fn one_buffer_takes_many_messages() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let (fid, least) = (couple.two.ep.cast::<Fid>(), 1000usize);
    // SAFETY: the endpoint is open; the option is a `size_t`.
    let code = unsafe {
        let value = (&raw const least).cast();
        ((*(*couple.two.ep).ops).setopt)(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, 8)
    };
    assert_eq!(code, 0);
    for sizes in [vec![8; 40], vec![0, 1, 700, 900, 3, 500], vec![1000; 9]] {
        let mut buffer = vec![0u8; 4096];
        let start = buffer.as_ptr().addr();
        let mut incoming = Incoming {
            memory: &mut buffer,
            from: FI_ADDR_UNSPEC,
            tag: None,
            flags: FI_MULTI_RECV | FI_COMPLETION,
            context: context(5),
        };
        couple.post("fi_recvmsg", || recv(&couple.two, Recv::Message, &mut incoming));
        let (mut sent, mut is_over) = (0, false);
        while !is_over {
            let len = sizes[sent % sizes.len()];
            let mut from = stamp::bytes(len, sent as u64);
            let mut outgoing = Outgoing {
                memory: &mut from,
                to: couple.to_two,
                tag: None,
                data: 0,
                flags: 0,
                context: context(0),
            };
            couple.post("fi_send", || send(&couple.one, Send::Inject, &mut outgoing));
            loop {
                let got = couple.at_two(couple.two.rx).expect("no error");
                if got.flags & FI_MULTI_RECV != 0 {
                    is_over = true;
                }
                if got.flags & FI_RECV == 0 {
                    // The buffer alone is given back.
                    assert!(is_over);
                    continue;
                }
                assert_eq!((got.context, got.len), (context(5), len));
                let at = got.buf.addr() - start;
                // SAFETY: inside of the buffer, says the provider; nothing writes there any more.
                let bytes = unsafe { std::slice::from_raw_parts(got.buf.cast::<u8>(), len) };
                assert!(at + len <= 4096);
                stamp::check(bytes, sent as u64);
                break;
            }
            sent += 1;
            assert!(sent < 1000, "the buffer is never used up");
        }
        assert!(sent >= 3);
    }
}

/// Sixty-four endpoints in one process, each of which sends to each.
#[test]
fn sixty_four_endpoints_in_a_process() {
    let Some(host) = host() else { return };
    const COUNT: usize = 64;
    let sides: Vec<Side> = (0..COUNT).map(|_| Side::new(host, Terms::default())).collect();
    let names: Vec<_> = sides.iter().map(Side::name).collect();
    let all: Vec<&Side> = sides.iter().collect();
    let numbers: Vec<Vec<u64>> =
        sides.iter().map(|side| names.iter().map(|name| side.insert(name)).collect()).collect();
    for step in [0, 1, 7, 31] {
        let mut rooms = vec![[0u8; 16]; COUNT];
        for (at, room) in rooms.iter_mut().enumerate() {
            let mut incoming = Incoming {
                memory: &mut room[..],
                from: FI_ADDR_UNSPEC,
                tag: Some((step, 0)),
                flags: 0,
                context: context(at),
            };
            posted("fi_trecv", &all, || recv(&sides[at], Recv::Plain, &mut incoming));
        }
        for at in 0..COUNT {
            let to = (at + step as usize) % COUNT;
            let mut outgoing = Outgoing {
                memory: &mut [at as u8 + 1; 16],
                to: numbers[at][to],
                tag: Some(step),
                data: 0,
                flags: 0,
                context: context(0),
            };
            posted("fi_tinject", &all, || send(&sides[at], Send::Inject, &mut outgoing));
        }
        for (at, side) in sides.iter().enumerate() {
            let others: Vec<&Side> =
                all.iter().copied().filter(|other| !std::ptr::eq(*other, side)).collect();
            assert_eq!(side.take(side.rx, &others).unwrap().context, context(at));
            let from = (at + COUNT - step as usize) % COUNT;
            assert_eq!(rooms[at], [from as u8 + 1; 16]);
        }
    }
}
