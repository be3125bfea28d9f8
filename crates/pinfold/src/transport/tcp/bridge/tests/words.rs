//! The words that the peer hears of what came, and their times: each word is a packet.

use super::*;
use crate::wire::tcp::frame;

/// Credit of which the peer hears in a frame of its own.
const WORTH_A_WORD: u64 = 100 << 10;

/// A peer that speaks by hand, and the side that hears it.
struct Talk {
    peer: TcpStream,
    side: Side,
}

impl Talk {
    fn new() -> Talk {
        let (peer, ours) = streams();
        peer.set_nodelay(true).unwrap();
        ours.set_nodelay(true).unwrap();
        Talk { peer, side: Side::over(ours.into(), 1 << 20, true) }
    }

    /// The peer begins a long message.
    fn begin(&mut self, number: u64, len: u64) {
        let header = Header::new(Kind::Eager, 0, number as u32);
        self.peer.write_all(&frame(number, header, frame::long_eager(1, len).as_ref())).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while self.side.bridge.direct() != Some((number as u32, len)) {
            assert!(Instant::now() < end);
            self.side.bridge.turn(false, &mut self.side.budget).unwrap();
            self.pass();
        }
    }

    /// The bytes of one.
    fn end(&mut self, len: usize) {
        self.peer.write_all(&vec![7; len]).unwrap();
        let mut memory = vec![0; len];
        let (mut took, end) = (0, Instant::now() + Duration::from_secs(20));
        while took < len {
            assert!(Instant::now() < end);
            let part = Part { ptr: memory[took..].as_mut_ptr(), len: len - took };
            let mut put = |bytes: &[u8]| {
                // SAFETY: there is room for all that it takes.
                unsafe { part.ptr.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            };
            // SAFETY: memory of the test's own.
            took += unsafe { self.side.bridge.take_directly(part, &mut put) }.unwrap();
        }
        assert!(memory.iter().all(|byte| *byte == 7));
    }

    /// Passes over descriptors that have come.
    fn pass(&mut self) {
        while let Some(header) = self.side.rx.head() {
            self.side.rx.advance(header).unwrap();
        }
        let _ = self.side.rx.publish();
    }

    fn release(&mut self, cost: u64) {
        self.side.rx.release(cost);
        let _ = self.side.rx.publish();
    }

    /// All that the peer has heard by now: how many frames were received, and how much credit was
    /// released.
    fn heard(&mut self) -> Vec<(u64, u64)> {
        self.peer.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        let (mut heard, mut head) = (Vec::new(), [0; HEAD_BYTES]);
        while self.peer.read_exact(&mut head).is_ok() {
            let Head { received, released, brings, .. } = Head::read(&head).unwrap();
            assert_eq!(brings, Brings::Signal(Signal::Word));
            heard.push((received, released));
        }
        heard
    }
}

/// The end of one long message is told of with that of the next, if that is there; but not left
/// out.
#[test]
fn ends_are_told_together_where_the_next_is_taken_at_once() {
    let mut talk = Talk::new();
    talk.begin(1, 5000);
    talk.end(5000);
    talk.begin(2, 5000);
    assert_eq!(talk.heard(), []);
    talk.end(5000);
    talk.side.bridge.turn(false, &mut talk.side.budget).unwrap();
    assert_eq!(talk.heard(), [(2, 0)]);
    // If it is not: the receiver of long messages hands on the word.
    talk.begin(3, 5000);
    talk.end(5000);
    talk.begin(4, 5000);
    talk.side.bridge.hand_on();
    assert_eq!(talk.heard(), [(3, 0)]);
}

/// Nor is credit told of while nothing else can be sent, for as long as that is not long.
#[test]
fn credit_is_told_with_the_end_of_a_message() {
    let mut talk = Talk::new();
    talk.begin(1, 5000);
    talk.release(WORTH_A_WORD);
    talk.side.bridge.hand_on();
    assert_eq!(talk.heard(), []);
    talk.end(5000);
    talk.side.bridge.hand_on();
    assert_eq!(talk.heard(), [(1, WORTH_A_WORD)]);
    talk.begin(2, 10 << 20);
    talk.release(WORTH_A_WORD);
    talk.side.bridge.hand_on();
    assert_eq!(talk.heard(), [(1, 2 * WORTH_A_WORD)]);
}
