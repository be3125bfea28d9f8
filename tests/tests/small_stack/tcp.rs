//! Peers on other hosts, in the clear and encrypted.

use pinfold::{Builder, Endpoint, SendMode, TranslationLevel};
use pinfold_tests::stamp;

use super::{both, one_sided};

const KEY: [u8; 32] = [9; 32];

fn tcp(builder: impl Fn() -> Builder) {
    let builders = [builder(), builder()];
    both(
        "tcp:127.0.0.1:0",
        builders,
        |one, peer| {
            for len in [0, 56, 57, 5000, 100_000, 3 << 20] {
                let sent = one.send(peer, 1, &stamp::bytes(len, 1)).unwrap();
                let _ = sent.translated().map(TranslationLevel::name);
                stamp::check(&one.recv(peer, 1).unwrap(), 2);
            }
            let mut echo = one.recv_request(peer, 3);
            one.handle(1, |active| active.reply(active.payload()).unwrap()).unwrap();
            one.send(peer, 1, b"ready").unwrap();
            while echo.try_wait().is_none() {
                one.progress().unwrap();
            }
            one_sided::have_region(one, peer);
        },
        |two, peer| {
            for len in [0, 56, 57, 5000, 100_000, 3 << 20] {
                stamp::check(&two.recv(peer, 1).unwrap(), 1);
                two.send_owned(peer, 1, stamp::bytes(len, 2)).wait().0.unwrap();
            }
            two.recv(peer, 1).unwrap();
            assert_eq!(&*two.request(peer, 1, b"afar").wait().unwrap(), b"afar");
            two.send(peer, 3, b"over").unwrap();
            one_sided::use_region(two, peer);
        },
    );
}

#[test]
fn in_the_clear() {
    tcp(|| Endpoint::builder().local_shortcut(false));
    tcp(|| Endpoint::builder().local_shortcut(false).key(&KEY));
}

#[test]
fn by_every_mode() {
    for mode in [SendMode::TwoCopy, SendMode::PerSend, SendMode::Cached, SendMode::Aligned] {
        tcp(|| Endpoint::builder().local_shortcut(false).send_mode(mode));
    }
}

#[test]
fn encrypted() {
    tcp(|| Endpoint::builder().local_shortcut(false).key(&KEY).encrypt(true));
}

/// The other side turns out to be on this host.
#[test]
fn by_the_shortcut() {
    tcp(Endpoint::builder);
}
