//! Close: what was sent before comes, and everything else ends with the documented error, on both
//! sides.

use pinfold::{CompletionQueue, Error, Gone};
use pinfold_tests::{role::PATIENCE, stamp, until};

use crate::pair::{End, LENGTHS, Pair, Transport};

const SENT: u64 = 1;
/// No message has it.
const NEVER: u64 = 100;
/// No receive asks for it.
const UNWANTED: u64 = 101;
const LONG: usize = 5 << 20;
/// Short messages that are sent before the end; a lane has room for them.
const SHORT: u64 = 20;

/// How an end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Disconnecting,
    Closing,
    Dropping,
}

pub fn holds(on: Transport) {
    for by in [By::Disconnecting, By::Closing, By::Dropping] {
        // Where both ends are of one endpoint, it goes only with both.
        if by == By::Disconnecting || on.has_two_endpoints() {
            let Pair { one, two, relay, .. } = calm_pair(on);
            goes(one, &two, by);
            drop(relay);
            let Pair { one, two, relay, .. } = calm_pair(on);
            goes(two, &one, by);
            drop(relay);
        }
    }
    closes_with_both(on);
}

/// A pair that has been through all that its transport has in store for it.
fn calm_pair(on: Transport) -> Pair {
    let pair = Pair::new(on);
    pair.both(|end| {
        for (number, len) in (0..).zip(LENGTHS) {
            let request = end.endpoint.send_owned(end.peer, end.out(number), stamp::bytes(len, 1));
            let message = end.endpoint.recv(end.peer, end.into(number)).unwrap();
            assert_eq!(message.len(), len);
            stamp::check(&message, 1);
            request.wait().0.unwrap();
        }
    });
    pair.calm();
    pair
}

fn len(number: u64) -> usize {
    [0, 56, 1, 33][number as usize % 4]
}

/// Operations with the other end that only its end can end.
struct Hopeless {
    queue: CompletionQueue,
    long: pinfold::SendRequest<Vec<u8>>,
    receive: pinfold::RecvRequest<Vec<u8>>,
    message: pinfold::MessageRequest,
}

impl Hopeless {
    fn post(end: &End) -> Hopeless {
        let queue = CompletionQueue::new().unwrap();
        let (endpoint, peer) = (&end.endpoint, end.peer);
        queue.add(1, endpoint.recv_owned(peer, end.into(NEVER), vec![7; 100]));
        queue.add(2, endpoint.send_owned(peer, end.out(UNWANTED), stamp::bytes(LONG, 2)));
        Hopeless {
            queue,
            long: endpoint.send_owned(peer, end.out(UNWANTED), stamp::bytes(LONG, 3)),
            receive: endpoint.recv_owned(peer, end.into(NEVER), vec![7; 100]),
            message: endpoint.recv_request(peer, end.into(NEVER)),
        }
    }

    /// All of them end with an error like that, and their buffers are back as they were.
    fn end(mut self, is_right: impl Fn(&Error) -> bool) {
        let right = |error: Error| assert!(is_right(&error), "{error:?}");
        let (sent, bytes) = self.long.wait_timeout(PATIENCE).expect("it ends");
        right(sent.unwrap_err());
        stamp::check(&bytes, 3);
        let (received, bytes) = self.receive.wait_timeout(PATIENCE).expect("it ends");
        right(received.unwrap_err());
        assert_eq!(bytes, [7; 100]);
        right(self.message.wait_timeout(PATIENCE).expect("it ends").unwrap_err());
        let mut ended = Vec::new();
        while self.queue.outstanding() > 0 {
            assert!(self.queue.wait(&mut ended, 2, Some(PATIENCE)).unwrap() > 0);
        }
        ended.sort_unstable_by_key(|completion| completion.context);
        let buffers: Vec<Vec<u8>> =
            ended.iter_mut().map(|completion| completion.take_buffer().unwrap()).collect();
        assert_eq!(buffers[0], [7; 100]);
        stamp::check(&buffers[1], 2);
        ended.into_iter().for_each(|completion| right(completion.result.unwrap_err()));
    }
}

/// Each operation that is begun from here on ends with an error like that.
fn ends_at_once(end: &End, is_right: impl Fn(&Error) -> bool) {
    let (endpoint, peer) = (&end.endpoint, end.peer);
    let errors = [
        endpoint.send(peer, end.out(UNWANTED), b"late").map(drop),
        endpoint.send_timeout(peer, end.out(UNWANTED), &[1; 1000], PATIENCE).map(drop),
        endpoint.send_owned(peer, end.out(UNWANTED), vec![1; LONG]).wait().0.map(drop),
        endpoint.recv(peer, end.into(NEVER)).map(drop),
        endpoint.recv_into(peer, end.into(NEVER), &mut [0; 8]).map(drop),
        endpoint.recv_owned(peer, end.into(NEVER), vec![0; 8]).wait().0.map(drop),
        endpoint.try_probe(peer, end.into(NEVER)).map(drop),
        endpoint.recv_view(peer, end.into(NEVER)).map(drop),
    ];
    for (call, result) in errors.into_iter().enumerate() {
        let error = result.expect_err("it cannot go well");
        assert!(is_right(&error), "call {call}: {error:?}");
    }
}

fn is_gone(how: Gone) -> impl Fn(&Error) -> bool {
    move |error| matches!(error, Error::PeerGone { how: said, .. } if *said == how)
}

fn goes(goer: End, stayer: &End, by: By) {
    for number in 0..SHORT {
        let bytes = stamp::bytes(len(number), number);
        goer.endpoint.send(goer.peer, goer.out(SENT), &bytes).unwrap();
    }
    let (of_goer, of_stayer) = (Hopeless::post(&goer), Hopeless::post(stayer));
    match by {
        By::Disconnecting => {
            goer.endpoint.disconnect(goer.peer);
            of_goer.end(is_gone(Gone::Disconnected));
            ends_at_once(&goer, is_gone(Gone::Disconnected));
            assert!(goer.endpoint.peer(goer.peer).is_none());
        }
        By::Closing => {
            goer.endpoint.close();
            of_goer.end(|error| matches!(error, Error::Closed));
            ends_at_once(&goer, |error| matches!(error, Error::Closed));
        }
        By::Dropping => {
            drop(goer);
            of_goer.end(|error| matches!(error, Error::Closed));
        }
    }
    // The other side hears of it, and still has what was sent.
    of_stayer.end(is_gone(Gone::Closed));
    for number in 0..SHORT {
        let message = stayer.endpoint.recv(stayer.peer, stayer.into(SENT)).unwrap();
        assert_eq!(message.len(), len(number));
        stamp::check(&message, number);
    }
    ends_at_once(stayer, is_gone(Gone::Closed));
    assert!(stayer.endpoint.peer(stayer.peer).is_none());
    until(|| stayer.endpoint.counters().peers_gone >= 1);
}

/// Both ends close, and nothing hangs.
fn closes_with_both(on: Transport) {
    let pair = calm_pair(on);
    let ends = [&pair.one, &pair.two];
    let hopeless = ends.map(Hopeless::post);
    ends.into_iter().for_each(|end| end.endpoint.close());
    for (hopeless, end) in hopeless.into_iter().zip(ends) {
        // The second one may have heard of the first.
        hopeless.end(|error| matches!(error, Error::Closed) || error.is_peer_gone());
        ends_at_once(end, |error| matches!(error, Error::Closed));
    }
}
