//! Messages of one descriptor and of two: every length and tag, by every kind of receive.

use pinfold::{Endpoint, Path, PeerId, Source, TagMatch};
use pinfold_tests::{pair, stamp};

/// Lengths about the bounds of one descriptor and of two, with tags that share their high half and
/// such that do not; into receives that wait, that were posted, and that come later.
#[test]
fn short_messages_come_whole_whatever_their_length_and_tag() {
    let (a, to_b, b, to_a) = pair("short", Endpoint::builder(), Endpoint::builder());
    let of = |number: u64| {
        let len = 40 + number as usize % 90;
        // The high half changes often, now and then for long.
        let high = if (number / 200).is_multiple_of(2) { number % 3 } else { number / 200 };
        (high << 32 | number, stamp::bytes(len, number))
    };
    const EACH: u64 = 2000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..EACH {
                let (tag, bytes) = of(number);
                let receipt = a.send(to_b, tag, &bytes).unwrap();
                let path = if bytes.len() > 56 { Path::Eager } else { Path::Inline };
                assert_eq!(receipt.path, path, "{} bytes", bytes.len());
                // The other side waits, or has posted its receive, or comes late.
                if number.is_multiple_of(64) {
                    b_has_answered(&a, to_b);
                }
            }
        });
        for number in 0..EACH {
            let (tag, bytes) = of(number);
            if number.is_multiple_of(5) {
                let posted = b.recv_owned(to_a, tag, vec![0; 200]);
                let (received, buffer) = posted.wait();
                let received = received.unwrap();
                assert_eq!((received.tag, &buffer[..received.len as usize]), (tag, &bytes[..]));
            } else if number.is_multiple_of(7) {
                let mut short = [0; 60];
                let received = b.recv_into(to_a, TagMatch::any(), &mut short);
                let fits = bytes.len().min(60);
                assert_eq!(received.is_err(), fits < bytes.len());
                assert_eq!(short[..fits], bytes[..fits]);
            } else {
                let mut buffer = [0; 200];
                let received = b.recv_into(Source::Any, TagMatch::any(), &mut buffer).unwrap();
                assert_eq!((received.tag, &buffer[..received.len as usize]), (tag, &bytes[..]));
                let path = if bytes.len() > 56 { Path::Eager } else { Path::Inline };
                assert_eq!((received.receipt.path, received.receipt.bytes), (path, received.len));
            }
            if number.is_multiple_of(64) {
                b.send(to_a, number, b"had").unwrap();
            }
        }
    });
}

fn b_has_answered(a: &Endpoint, b: PeerId) {
    a.recv(b, TagMatch::any()).unwrap();
}
