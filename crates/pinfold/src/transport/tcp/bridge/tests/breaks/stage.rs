//! Two sides that send each other a plan's messages, and connections between them that break.

use std::os::unix::net::UnixStream;

use super::super::*;

/// A message of `len` bytes that follow from its number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Inline(u8),
    /// In pieces of up to so many bytes.
    Pieces(usize, usize),
    /// Past the lane.
    Direct(usize),
}

impl Message {
    pub(super) fn len(self) -> usize {
        match self {
            Message::Inline(len) => len.into(),
            Message::Pieces(len, _) | Message::Direct(len) => len,
        }
    }

    pub(super) fn bytes(self, number: usize) -> Vec<u8> {
        (0..self.len()).map(|at| (number * 31 + at + at / 251) as u8).collect()
    }
}

/// One side: the messages it sends, and those that have come.
pub(super) struct End {
    pub(super) side: Side,
    pub(super) plan: Vec<Message>,
    /// The memory of each message. It is another's once the message is named as sent.
    pub(super) memory: Vec<Box<[u8]>>,
    /// The message that goes next, and how many bytes of it are in the lane.
    pub(super) next: (usize, usize),
    pub(super) named: Vec<u64>,
    pub(super) came: Vec<Vec<u8>>,
    /// The message that is coming, and its length.
    pub(super) coming: Option<(Vec<u8>, usize)>,
}

impl End {
    pub(super) fn new(socket: UnixStream, plan: &[Message], budget: usize) -> End {
        let memory = plan.iter().enumerate().map(|(number, message)| message.bytes(number).into());
        End {
            side: Side::over(socket.into(), budget, true),
            plan: plan.to_vec(),
            memory: memory.collect(),
            next: (0, 0),
            named: Vec::new(),
            came: Vec::new(),
            coming: None,
        }
    }

    /// Puts in as much as there is room for.
    pub(super) fn feed(&mut self) {
        let side = &mut self.side;
        while let Some(&message) = self.plan.get(self.next.0)
            && side.tx.has_room(&mut side.budget).unwrap()
        {
            let (number, at) = self.next;
            let memory = &mut self.memory[number];
            match message {
                Message::Inline(len) => {
                    let mut words = [0u8; 56];
                    words[..memory.len()].copy_from_slice(memory);
                    let words =
                        words.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
                    let words: Vec<u64> = words.take(usize::from(len).div_ceil(8)).collect();
                    side.tx.push(Header::new(Kind::Inline, len, number as u32), &words);
                }
                Message::Pieces(len, most) => {
                    let want = most.min(len - at) as u32;
                    let Some(mut piece) = side.tx.lend(want, 1, &mut side.budget).unwrap() else {
                        return;
                    };
                    // SAFETY: there are so many bytes from there on.
                    piece.sample = unsafe { side.tx.fill(piece, memory[at..].as_ptr()) }.unwrap();
                    if at == 0 {
                        let body = Eager { tag: 1, len: len as u64, piece }.body();
                        side.tx.push(Header::new(Kind::Eager, 0, number as u32), &body);
                    } else {
                        side.tx.push(Header::new(Kind::Data, 0, number as u32), &piece.body());
                    }
                    let at = at + piece.len as usize;
                    if at < len {
                        self.next.1 = at;
                        continue;
                    }
                }
                Message::Direct(len) => {
                    if side.bridge.direct_ones() >= 3 {
                        return;
                    }
                    let (first, second) = memory.split_at_mut(len / 3);
                    let parts = [first, second]
                        .map(|part| Part { ptr: part.as_mut_ptr(), len: part.len() });
                    let header = Header::new(Kind::Eager, 0, number as u32);
                    let words = crate::wire::tcp::frame::long_eager(1, len as u64);
                    // SAFETY: the memory stays where it is, and is written once the message is
                    // named.
                    let handed = unsafe {
                        side.bridge.send_directly(
                            number as u64,
                            header,
                            &words,
                            &mut parts.into_iter(),
                        )
                    };
                    handed.unwrap();
                }
            }
            self.next = (number + 1, 0);
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (coming, len) = self.coming.as_mut().expect("a message");
        coming.extend_from_slice(bytes);
        assert!(coming.len() <= *len);
        if coming.len() == *len {
            self.came.extend(self.coming.take().map(|(message, _)| message));
        }
    }

    /// Takes the messages that have come.
    pub(super) fn take(&mut self) {
        while let Some(header) = self.side.rx.head() {
            let body = self.side.rx.body();
            let piece = match header.kind().unwrap() {
                Kind::Inline => {
                    let len = header.inline_len(56).unwrap();
                    let bytes: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
                    assert!(self.coming.is_none());
                    self.came.push(bytes[..len].to_vec());
                    None
                }
                Kind::Eager => {
                    let Eager { len, piece, .. } = Eager::read(&body);
                    assert!(self.coming.is_none(), "one message within another");
                    self.coming = Some((Vec::new(), len as usize));
                    Some(piece)
                }
                Kind::Data => Some(Piece::read(&body)),
                other => panic!("{other:?}"),
            };
            if let Some(piece) = piece {
                let mut bytes = vec![0; piece.len as usize];
                // SAFETY: it has room for so many bytes.
                unsafe { self.side.rx.drain(piece, bytes.as_mut_ptr()) }.unwrap();
                self.add(&bytes);
            }
            self.side.rx.advance(header).unwrap();
            self.side.tx.passed(header, self.side.rx.consumed());
        }
        let _ = self.side.rx.publish();
    }

    /// Takes the names of messages that are read no more.
    pub(super) fn hear(&mut self) {
        while let Some(Transmitted { name, .. }) = self.side.bridge.take_sent() {
            self.named.push(name);
            self.memory[name as usize].fill(0xee);
        }
    }

    /// One turn, as the engine does it.
    pub(super) fn turn(&mut self) -> Result<(), Ended> {
        loop {
            let turned = self.side.bridge.turn(true, &mut self.side.budget);
            self.hear();
            self.take();
            turned?;
            let Some((_, left)) = self.side.bridge.direct() else { return Ok(()) };
            let mut bytes = vec![0; left.min(77) as usize];
            let part = Part { ptr: bytes.as_mut_ptr(), len: bytes.len() };
            // SAFETY: it has room for so many bytes.
            let took = unsafe { self.side.bridge.take_directly(part, &mut put_to(part)) }?;
            if took == 0 {
                return Ok(());
            }
            self.add(&bytes[..took]);
        }
    }
}

/// A connection that passes so many bytes on, each way.
pub(super) struct Wire {
    middles: [UnixStream; 2],
    left: [usize; 2],
}

impl Wire {
    pub(super) fn new(left: [usize; 2]) -> (Wire, [UnixStream; 2]) {
        let (one, middle_one) = UnixStream::pair().unwrap();
        let (two, middle_two) = UnixStream::pair().unwrap();
        let middles = [middle_one, middle_two];
        middles.iter().for_each(|middle| middle.set_nonblocking(true).unwrap());
        (Wire { middles, left }, [one, two])
    }

    /// Passes on the bytes between the two. Returns whether the connection holds.
    pub(super) fn pass(&mut self) -> bool {
        for way in [0, 1] {
            let mut bytes = [0; 4096];
            let most = self.left[way].min(bytes.len());
            if let Ok(len) = (&self.middles[way]).read(&mut bytes[..most]) {
                (&self.middles[1 - way]).write_all(&bytes[..len]).unwrap();
                self.left[way] -= len;
            }
        }
        self.left.iter().all(|left| *left > 0)
    }
}

/// Puts bytes that have come already to a part.
pub(super) fn put_to(part: Part) -> impl FnMut(&[u8]) {
    // SAFETY: it has room for all that is put there.
    move |bytes| unsafe { part.ptr.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}
