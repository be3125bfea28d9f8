//! A send after each call that changes memory carries the bytes that are there then, by every mode.

use std::{sync::mpsc::channel, thread};

use pinfold::{Progress, SendMode, TagMatch};
use pinfold_tests::changes::{CHANGES, Ground, Kind};

use super::{
    builder,
    modes::{by, drivers},
    pair,
};

#[test]
fn what_is_there_is_sent_by_every_mode() {
    let each = |ring| SendMode::ALL.map(|mode| (mode, ring));
    for (mode, ring) in drivers().into_iter().flat_map(each) {
        let ((one, to_two), (two, to_one)) = pair(by(mode, ring), builder(Progress::Inline));
        let (arrives, arrived) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                while let Ok(message) = two.recv(to_one, TagMatch::any()) {
                    if arrives.send(message.to_vec()).is_err() {
                        return;
                    }
                }
            });
            let mut ground = Ground::new(1);
            let mut byte = 0;
            let mut kept = 0;
            let mut check = |ground: &mut Ground, what: &str| {
                let sent = one.send(to_two, 1, ground.bytes()).unwrap();
                let mode = sent.sent_by();
                kept += u64::from(matches!(mode, Some(SendMode::Cached | SendMode::Aligned)));
                let found = arrived.recv().unwrap();
                assert!(Some(found) == ground.look(), "{what}, {mode:?}, ring {ring}: {sent}");
            };
            for change in CHANGES.iter().filter(|change| change.readable) {
                for _ in 0..2 {
                    ground.renew(change.kind).unwrap();
                    byte = byte % 100 + 1;
                    ground.fill(byte);
                    check(&mut ground, change.name);
                    check(&mut ground, change.name);
                    if change.make(&ground).is_err() {
                        break;
                    }
                    check(&mut ground, change.name);
                    ground.fill(byte + 100);
                    check(&mut ground, change.name);
                }
            }
            ground.renew(Kind::Plain).unwrap();
            println!("{mode:?}, ring {ring}: {kept} by what is registered");
            drop(one);
            drop(arrived);
        });
    }
}
