//! Active messages: their handlers run on the small threads, too.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pinfold::{Endpoint, Replier};
use pinfold_tests::{block_on, stamp};

use super::here;

const LENGTHS: [usize; 5] = [0, 56, 300, 20_000, 1 << 20];
const PATIENCE: Duration = Duration::from_secs(60);
const ECHO: u32 = 1;
const OWNED: u32 = 2;
const LATER: u32 = 3;
const CALLED: u32 = 4;
const BACK: u32 = 5;

fn listen(endpoint: &Endpoint) -> Arc<Mutex<Vec<Replier>>> {
    let later: Arc<Mutex<Vec<Replier>>> = Arc::default();
    let answers = Arc::clone(&later);
    endpoint
        .handle(ECHO, |active| {
            assert!(active.is_request() && active.id() == ECHO);
            assert!(!active.receipt().to_string().is_empty());
            active.reply(active.payload()).unwrap();
        })
        .unwrap();
    endpoint.handle(OWNED, |it| it.reply_owned(it.payload().to_vec()).unwrap()).unwrap();
    endpoint
        .handle(LATER, move |active| answers.lock().unwrap().extend(active.reply_later()))
        .unwrap();
    endpoint
        .handle(CALLED, |active| {
            let _ = active.endpoint().counters();
            active.call(active.peer(), BACK, active.payload()).unwrap();
        })
        .unwrap();
    later
}

#[test]
fn active_messages() {
    here(
        "active",
        |one, peer| {
            let later = listen(one);
            one.send(peer, 1, b"ready").unwrap();
            // Until the other side has had all its answers.
            let mut over = one.recv_request(peer, 2);
            while over.try_wait().is_none() {
                one.progress().unwrap();
                for (turn, answer) in later.lock().unwrap().drain(..).enumerate() {
                    assert_eq!(answer.peer(), peer);
                    match turn % 2 {
                        0 => answer.reply(b"later").unwrap(),
                        _ => answer.reply_owned(b"later".to_vec()).unwrap(),
                    }
                }
            }
            assert!(one.unhandle(ECHO) && !one.unhandle(77));
        },
        |two, peer| {
            let (tell, told) = std::sync::mpsc::channel();
            two.handle(BACK, move |it| tell.send(it.payload().to_vec()).unwrap()).unwrap();
            two.recv(peer, 1).unwrap();
            for len in LENGTHS {
                let bytes = stamp::bytes(len, 6);
                assert_eq!(&*two.request(peer, ECHO, &bytes).wait().unwrap(), &bytes);
                let echo = two.request_owned(peer, OWNED, bytes.clone());
                assert_eq!(&*block_on(echo).unwrap(), &bytes);
                let mut late = two.request(peer, LATER, &bytes);
                // The answer may be here already.
                let answer = late.try_wait().or_else(|| late.wait_timeout(PATIENCE));
                assert_eq!(&*answer.unwrap().unwrap(), b"later");
                two.call(peer, CALLED, &bytes).unwrap();
                two.call_owned(peer, CALLED, bytes.clone()).wait().0.unwrap();
                for _ in 0..2 {
                    let back = loop {
                        match told.try_recv() {
                            Ok(back) => break back,
                            Err(_) => _ = two.progress().unwrap(),
                        }
                    };
                    assert_eq!(back, bytes);
                }
            }
            two.send(peer, 2, b"over").unwrap();
        },
    );
}
