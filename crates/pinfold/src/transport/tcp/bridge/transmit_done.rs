//! Long messages whose memory is its owner's again: those that the kernel no longer looks at and,
//! if the pair may go on over another connection, that the peer has. No I/O.

use crate::transport::tcp::transmit::Transmitted;

/// Long messages that were handed over.
pub(super) struct TransmitDone {
    /// True if messages that the peer has not got may have to be sent again.
    resumes: bool,
    /// The kernel looks at them no more, and the peer may not have them.
    gone: Vec<Transmitted>,
    /// The peer has them, and the kernel may look at them.
    had: Vec<u64>,
    /// Neither, until the caller takes them.
    done: Vec<Transmitted>,
}

impl TransmitDone {
    pub(super) fn new(resumes: bool) -> TransmitDone {
        TransmitDone { resumes, gone: Vec::new(), had: Vec::new(), done: Vec::new() }
    }

    /// The kernel no longer looks at a message.
    pub(super) fn transmitted(&mut self, message: Transmitted) {
        if let Some(at) = self.had.iter().position(|name| *name == message.name) {
            self.had.swap_remove(at);
            self.done.push(message);
        } else if self.resumes {
            self.gone.push(message);
        } else {
            self.done.push(message);
        }
    }

    /// The peer has got a message.
    pub(super) fn acknowledged(&mut self, name: u64) {
        if let Some(at) = self.gone.iter().position(|message| message.name == name) {
            self.done.push(self.gone.swap_remove(at));
        } else if self.resumes {
            self.had.push(name);
        }
    }

    /// The kernel looks at nothing any more. It has not said how the messages left that the peer
    /// has: they count as copied.
    pub(super) fn settled(&mut self) {
        self.done.extend(self.had.drain(..).map(Transmitted::copied));
    }

    /// Messages that the peer has not got are handed over anew.
    pub(super) fn again(&mut self) {
        self.gone.clear();
    }

    /// Messages whose memory is not given back although the peer has them.
    pub(super) fn held(&self) -> usize {
        self.had.len() + self.done.len()
    }

    /// A message whose memory is read no more.
    pub(super) fn take(&mut self) -> Option<Transmitted> {
        self.done.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SendDriver, SendMode};

    fn message(name: u64) -> Transmitted {
        let (mode, driver) = (SendMode::PerSend, SendDriver::Calls);
        Transmitted { name, mode, driver, spared: 9, translated: None }
    }

    #[test]
    fn it_takes_both_in_any_order() {
        let mut transmit_done = TransmitDone::new(true);
        transmit_done.transmitted(message(1));
        transmit_done.acknowledged(2);
        assert_eq!((transmit_done.take(), transmit_done.held()), (None, 1));
        transmit_done.acknowledged(1);
        assert_eq!(transmit_done.take(), Some(message(1)));
        transmit_done.transmitted(message(2));
        assert_eq!(transmit_done.take(), Some(message(2)));
        assert_eq!((transmit_done.take(), transmit_done.held()), (None, 0));
    }

    #[test]
    fn what_cannot_go_on_is_the_kernels_alone() {
        let mut transmit_done = TransmitDone::new(false);
        transmit_done.transmitted(message(1));
        assert_eq!(transmit_done.take(), Some(message(1)));
        transmit_done.acknowledged(1);
        assert_eq!((transmit_done.take(), transmit_done.held()), (None, 0));
    }

    #[test]
    fn a_break_leaves_nothing_behind() {
        let mut transmit_done = TransmitDone::new(true);
        transmit_done.transmitted(message(1));
        transmit_done.acknowledged(2);
        transmit_done.settled();
        assert_eq!(
            (transmit_done.take(), transmit_done.take()),
            (Some(Transmitted::copied(2)), None)
        );
        // The first is sent again, and is not done because it had left before.
        transmit_done.again();
        transmit_done.acknowledged(1);
        assert_eq!(transmit_done.take(), None);
        transmit_done.transmitted(message(1));
        assert_eq!(transmit_done.take(), Some(message(1)));
    }
}
