//! Credit of peers on other hosts: it grows for a sender that streams to receives that are there,
//! and while unexpected messages have to be stored.

use std::{thread, time::Duration};

use pinfold::{Endpoint, Progress};
use pinfold_tests::{stamp, status_of};

use super::{builder, pair};

const MESSAGE: usize = 300_000;
const FIRST: u64 = 2 << 20;
const WIDE: u64 = 16 << 20;

/// The credit that the only peer of an endpoint was given, and the one it gave.
fn credit(label: &str) -> (u64, u64) {
    let seen = status_of(label);
    let [peer] = &seen.peers[..] else { panic!("{seen:?}") };
    (peer.granted, peer.credit_max)
}

/// Two endpoints that send each other messages, with so much memory for unexpected ones.
struct Stream {
    labels: [&'static str; 2],
    one: (Endpoint, pinfold::PeerId),
    two: (Endpoint, pinfold::PeerId),
    sent: u64,
}

impl Stream {
    fn new(labels: [&'static str; 2], budget: usize) -> Stream {
        let sized = |progress, label| builder(progress).label(label).unexpected_bytes_max(budget);
        // The receiver looks at the messages that have come when it is asked to.
        let [source, sink] = labels;
        let source = sized(Progress::Dedicated, source);
        let (one, two) = pair(source, sized(Progress::Inline, sink));
        Stream { labels, one, two, sent: 0 }
    }

    /// Sends messages all at once, of which `announced` are announced before the other side looks.
    /// Their receives are there by then, or are not until all messages have been stored.
    fn send(&mut self, messages: u64, announced: u64, in_time: bool) {
        let ((one, to_two), (two, to_one)) = (&self.one, &self.two);
        let numbers = self.sent..self.sent + messages;
        self.sent += messages;
        let receive = |number| two.recv_owned(*to_one, number, vec![0; MESSAGE]);
        let send = |number| one.send_owned(*to_two, number, stamp::bytes(MESSAGE, number));
        let receives = in_time.then(|| numbers.clone().map(receive).collect::<Vec<_>>());
        let before = self.announced();
        let sends: Vec<_> = numbers.clone().map(send).collect();
        while self.announced() < before + announced {
            thread::sleep(Duration::from_millis(1));
        }
        let receives = receives.unwrap_or_else(|| {
            while status_of(self.labels[1]).stored < messages {
                two.progress().unwrap();
            }
            numbers.clone().map(receive).collect()
        });
        for (receive, number) in receives.into_iter().zip(numbers) {
            let (result, bytes) = receive.wait();
            result.unwrap();
            stamp::check(&bytes, number);
        }
        sends.into_iter().for_each(|send| {
            send.wait().0.unwrap();
        });
    }

    fn announced(&self) -> u64 {
        self.one.0.counters().credit_stalls
    }
}

#[test]
fn who_streams_to_receives_that_are_there_is_given_more() {
    let mut stream = Stream::new(["early source", "early sink"], 128 << 20);
    assert_eq!(credit("early sink").0, FIRST);
    stream.send(100, 50, true);
    let (given, _) = credit("early sink");
    assert_eq!((given, credit("early source").1), (WIDE, WIDE));
    // The other direction has the same credit as before.
    assert_eq!(credit("early source").0, FIRST);
    // Messages that are under way now need not be announced.
    let before = stream.announced();
    stream.send(40, 0, true);
    assert_eq!(stream.announced(), before);
    // All credit is back for others.
    let granted = || status_of("early sink").granted_bytes;
    assert!(granted() >= WIDE);
    stream.one.0.disconnect(stream.one.1);
    while granted() > 0 {
        stream.two.0.progress().unwrap();
    }
}

#[test]
fn messages_of_who_is_not_received_in_time_are_stored() {
    let mut stream = Stream::new(["late source", "late sink"], 128 << 20);
    stream.send(40, 30, false);
    let (given, _) = credit("late sink");
    assert!(given > 40 * MESSAGE as u64 && given <= 96 << 20, "{given}");
    assert_eq!(given, credit("late source").1);
    // Enough credit is not added to.
    stream.send(30, 0, false);
    assert_eq!(credit("late sink").0, given);
}

#[test]
fn a_quarter_of_the_budget_stays_for_others() {
    const BUDGET: usize = 20 << 20;
    let mut stream = Stream::new(["narrow source", "narrow sink"], BUDGET);
    let (first, _) = credit("narrow sink");
    stream.send(100, 50, true);
    let (given, _) = credit("narrow sink");
    assert!(given > first && given == credit("narrow source").1, "{first} {given}");
    let seen = status_of("narrow sink");
    assert!(seen.granted_bytes <= BUDGET as u64 / 4 * 3, "{seen:?}");
}

/// A peer that joins when nothing is left may announce one message; when the others have gone there
/// is more for it, too, and all of it comes back.
#[test]
fn who_came_too_late_is_given_something_later() {
    const BUDGET: usize = 256 << 10;
    let sink = builder(Progress::Inline).label("crowded sink").unexpected_bytes_max(BUDGET);
    let sink = sink.listen("tcp:127.0.0.1:0").build().unwrap();
    let address = sink.listens_at().unwrap();
    let join = |progress| {
        let source = builder(progress).label("crowd").build().unwrap();
        let (to_sink, from_source) = thread::scope(|scope| {
            let to_sink = scope.spawn(|| source.connect(&address).unwrap());
            let from_source = sink.accept().unwrap();
            (to_sink.join().unwrap(), from_source)
        });
        (source, to_sink, from_source)
    };
    let granted = || status_of("crowded sink").peers.iter().map(|peer| peer.granted).min();
    let mut crowd = Vec::new();
    while granted() != Some(0) {
        crowd.push(join(Progress::Inline));
    }
    let (source, to_sink, from_source) = join(Progress::Dedicated);
    drop(crowd);
    while status_of("crowded sink").peers.len() > 1 || status_of("crowded sink").granted_bytes > 0 {
        sink.progress().unwrap();
    }
    assert_eq!(granted(), Some(0));
    let (one, two) = ((source, to_sink), (sink, from_source));
    let mut stream = Stream { labels: ["crowd", "crowded sink"], one, two, sent: 0 };
    stream.send(3, 1, true);
    assert!(credit("crowded sink").0 > 0);
    stream.one.0.disconnect(stream.one.1);
    while status_of("crowded sink").granted_bytes > 0 {
        stream.two.0.progress().unwrap();
    }
}
