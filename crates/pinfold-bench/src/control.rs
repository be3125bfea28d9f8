//! The control channel of the two processes between batches: small JSON messages, and descriptors,
//! over a Unix socket that keeps message boundaries.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::fail::{Fail, Result};

/// The longest message, bytes.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// The most descriptors in one message.
const FDS_MAX: usize = 4;
/// Time that a process has for an answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(60);

/// One end of the socket.
pub(crate) struct Control {
    fd: Rc<OwnedFd>,
}

impl Control {
    /// Over this socket.
    pub(crate) fn new(fd: OwnedFd) -> Control {
        Control { fd: Rc::new(fd) }
    }

    /// Two ends.
    pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(Fail::os("socketpair"))
    }

    /// The socket, to be watched.
    pub(crate) fn fd(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.fd)
    }

    /// Sends `message`.
    pub(crate) fn send(&self, message: &impl Serialize) -> Result<()> {
        self.send_with(message, &[])
    }

    /// Sends `message` and descriptors, at most [`FDS_MAX`].
    pub(crate) fn send_with(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = serde_json::to_vec(message).map_err(|why| Fail::Said(why.to_string()))?;
        assert!(bytes.len() <= MESSAGE_BYTES_MAX && fds.len() <= FDS_MAX);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        loop {
            let parts = [IoSlice::new(&bytes)];
            match sendmsg(&*self.fd, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                done => return done.map(drop).map_err(Fail::os("sendmsg")),
            }
        }
    }

    /// Receives a message; waits for it at most `patience`, or for ever.
    pub(crate) fn recv<T: DeserializeOwned>(&self, patience: Option<Duration>) -> Result<T> {
        self.recv_with(patience).map(|(message, _)| message)
    }

    /// Receives a message and the descriptors that came with it.
    pub(crate) fn recv_with<T: DeserializeOwned>(
        &self,
        patience: Option<Duration>,
    ) -> Result<(T, Vec<OwnedFd>)> {
        self.wait(patience)?;
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&*self.fd, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                done => break done.map_err(Fail::os("recvmsg"))?,
            }
        };
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fds = fds.flatten().collect();
        if got.bytes == 0 {
            return Err(Fail::Gone);
        }
        let text = &bytes[..got.bytes];
        let message = serde_json::from_slice(text)
            .map_err(|_| Fail::Protocol(String::from_utf8_lossy(text).into_owned()))?;
        Ok((message, fds))
    }

    fn wait(&self, patience: Option<Duration>) -> Result<()> {
        let limit = patience.and_then(|patience| Timespec::try_from(patience).ok());
        loop {
            match poll(&mut [PollFd::new(&*self.fd, PollFlags::IN)], limit.as_ref()) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(Fail::Stuck(patience.unwrap_or_default())),
                done => return done.map(drop).map_err(Fail::os("poll")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::fd::AsFd};

    use super::*;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (one, two) = Control::pair().unwrap();
        let (one, two) = (Control::new(one), Control::new(two));
        let (read, write) = rustix::pipe::pipe().unwrap();
        one.send_with(&("hello", 7), &[read.as_fd()]).unwrap();
        drop(read);
        rustix::io::write(&write, b"x").unwrap();
        drop(write);
        let ((text, number), fds): ((String, u32), _) = two.recv_with(Some(ANSWER)).unwrap();
        assert_eq!((text.as_str(), number, fds.len()), ("hello", 7, 1));
        let mut out = Vec::new();
        std::fs::File::from(fds.into_iter().next().unwrap()).read_to_end(&mut out).unwrap();
        assert_eq!(out, b"x");
    }

    #[test]
    fn silence_and_ends_are_told_apart() {
        let (one, two) = Control::pair().unwrap();
        let (one, two) = (Control::new(one), Control::new(two));
        let brief = Some(Duration::from_millis(1));
        assert!(matches!(one.recv::<u32>(brief), Err(Fail::Stuck(_))));
        two.send(&"not a number").unwrap();
        assert!(matches!(one.recv::<u32>(brief), Err(Fail::Protocol(_))));
        drop(two);
        assert!(matches!(one.recv::<u32>(None), Err(Fail::Gone)));
        assert!(matches!(one.send(&1), Err(Fail::Gone)));
    }
}
