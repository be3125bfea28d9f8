//! `ChannelMessage`: messages over a pair's socket once the greeting is over, which are doorbells,
//! and memory and pipes by descriptor.
//!
//! A doorbell is one byte. Every other message is three words. A descriptor of the ring may name
//! memory as soon as the channel message with it is in flight: the consumer of the descriptor then
//! finds the channel message.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use pinfold_sys::{io::pipe_bell::is_pipe, socket::seqpacket};
use rustix::io::Errno;

/// Words of a channel message.
const WORDS: usize = 3;
const BYTES: usize = WORDS * size_of::<u64>();

const EXTENT: u64 = 1;
const GONE: u64 = 2;
const PIPE: u64 = 3;
const HEARD: u64 = 4;

/// Flag beside [`EXTENT`]: the peer may write there, too.
const WRITABLE: u64 = 1 << 32;

/// Memory of a peer that can be mapped here.
#[derive(Debug)]
pub(crate) struct Extent {
    /// An id that the process never uses again.
    pub id: u64,
    pub bytes: u64,
    pub writable: bool,
    pub fd: OwnedFd,
}

/// A message that has come.
#[derive(Debug)]
pub(crate) enum ChannelMessage {
    /// There is a descriptor in the ring, or room.
    Bell,
    Extent(Extent),
    /// The extent `id` is no longer in use: its mapping only keeps memory from its owner.
    Gone {
        id: u64,
    },
    /// A pipe, by which the peer would rather ring.
    Pipe(OwnedFd),
    /// The peer hears the pipe that it was sent last.
    Heard,
    /// An extent came whose descriptor found no place in this process: its limit is reached.
    Lost,
    /// A message came that no honest peer sends.
    Senseless,
    /// The peer has closed the connection.
    Closed,
}

/// Sends an extent.
///
/// # Errors
/// `EAGAIN` if the peer has not taken the messages sent before, and others of `sendmsg(2)`.
pub(crate) fn send_extent(
    socket: impl AsFd,
    id: u64,
    bytes: u64,
    writable: bool,
    fd: BorrowedFd<'_>,
) -> io::Result<()> {
    let kind = EXTENT | if writable { WRITABLE } else { 0 };
    send(socket, [kind, id, bytes], &[fd])
}

/// Says that an extent is no longer in use.
///
/// # Errors
/// As for [`send_extent`].
pub(crate) fn send_gone(socket: impl AsFd, id: u64) -> io::Result<()> {
    send(socket, [GONE, id, 0], &[])
}

/// Offers the end of a pipe, to be rung by once the peer has said that it hears it.
///
/// # Errors
/// As for [`send_extent`].
pub(crate) fn send_pipe(socket: impl AsFd, heard: BorrowedFd<'_>) -> io::Result<()> {
    send(socket, [PIPE, 0, 0], &[heard])
}

/// Says that the pipe is heard that the peer sent last.
///
/// # Errors
/// As for [`send_extent`].
pub(crate) fn send_heard(socket: impl AsFd) -> io::Result<()> {
    send(socket, [HEARD, 0, 0], &[])
}

fn send(socket: impl AsFd, words: [u64; WORDS], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    for (out, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
        out.copy_from_slice(&word.to_ne_bytes());
    }
    seqpacket::send(socket, &bytes, fds)
}

/// Takes the next message; `None` if nothing is waiting. A message without sense is discarded, and
/// its descriptors are closed.
///
/// # Errors
/// Those of `recvmsg(2)`.
pub(crate) fn take(socket: impl AsFd) -> io::Result<Option<ChannelMessage>> {
    let mut bytes = [0; BYTES];
    let got = match seqpacket::recv(socket, &mut bytes, 1) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) if is(&error, Errno::CONNRESET) || is(&error, Errno::PIPE) => {
            return Ok(Some(ChannelMessage::Closed));
        }
        got => got?,
    };
    let word = |at: usize| {
        let word: [u8; 8] = std::array::from_fn(|b| bytes[8 * at + b]);
        u64::from_ne_bytes(word)
    };
    let mut fds = got.fds.into_iter();
    Ok(Some(match (got.len, got.truncated, fds.next(), word(0)) {
        _ if got.foreign => ChannelMessage::Senseless,
        (0, ..) => ChannelMessage::Closed,
        (1, ..) => ChannelMessage::Bell,
        (BYTES, false, Some(fd), kind) if kind & !WRITABLE == EXTENT => {
            ChannelMessage::Extent(Extent {
                id: word(1),
                bytes: word(2),
                writable: kind & WRITABLE != 0,
                fd,
            })
        }
        (BYTES, false, None, GONE) => ChannelMessage::Gone { id: word(1) },
        (BYTES, false, Some(fd), PIPE) if is_pipe(&fd) => ChannelMessage::Pipe(fd),
        // No descriptor is left for it: it is not heard.
        (BYTES, true, None, PIPE) => ChannelMessage::Bell,
        (BYTES, false, None, HEARD) => ChannelMessage::Heard,
        // The kernel then delivers the bytes alone, and reports that control data was cut off.
        (BYTES, true, None, kind) if kind & !WRITABLE == EXTENT => ChannelMessage::Lost,
        _ => ChannelMessage::Senseless,
    }))
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use pinfold_sys::mem::memfd;

    use super::*;

    #[test]
    fn messages_arrive_in_order() {
        let (a, b) = seqpacket::pair().unwrap();
        let file = memfd::create_sealed("pinfold-test", 4096).unwrap();
        seqpacket::ring(&a).unwrap();
        send_extent(&a, 7, 4096, true, file.as_fd()).unwrap();
        send_gone(&a, 7).unwrap();
        assert!(matches!(take(&b).unwrap(), Some(ChannelMessage::Bell)));
        match take(&b).unwrap() {
            Some(ChannelMessage::Extent(Extent { id: 7, bytes: 4096, writable: true, fd })) => {
                memfd::check_sealed(fd.as_fd(), 4096).unwrap();
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(take(&b).unwrap(), Some(ChannelMessage::Gone { id: 7 })));
        assert!(take(&b).unwrap().is_none());
        drop(a);
        assert!(matches!(take(&b).unwrap(), Some(ChannelMessage::Closed)));
    }

    #[test]
    fn what_makes_no_sense_is_named_and_closed() {
        let (a, b) = seqpacket::pair().unwrap();
        let file = memfd::create_sealed("pinfold-test", 4096).unwrap();
        let (one, two) = ([file.as_fd()], [file.as_fd(), file.as_fd()]);
        let words = |words: [u64; 3]| words.map(u64::to_ne_bytes).concat();
        let cases: [(Vec<u8>, &[BorrowedFd<'_>]); 10] = [
            (words([EXTENT, 1, 1]), &[]),
            (words([EXTENT, 1, 1]), &two),
            (words([GONE, 1, 1]), &one),
            (words([9, 1, 1]), &one),
            (words([EXTENT | 1 << 40, 1, 1]), &one),
            (words([PIPE, 1, 1]), &one),
            (words([PIPE, 1, 1]), &[]),
            (words([HEARD, 1, 1]), &one),
            (vec![0; 23], &one),
            (vec![1; 4000], &[]),
        ];
        for (bytes, fds) in cases {
            seqpacket::send(&a, &bytes, fds).unwrap();
            assert!(matches!(take(&b).unwrap(), Some(ChannelMessage::Senseless)), "{bytes:?}");
        }
    }
}
