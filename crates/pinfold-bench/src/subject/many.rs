//! Many ends of one kind that take turns, message by message, as in a program with many peers.

use super::{Subject, Waiting};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
};

/// The number of ends.
pub(crate) const ENDS: usize = 16;

/// The ends; both sides have them in the same order.
pub(crate) struct Many<S> {
    ends: Vec<S>,
    /// Messages sent, and received.
    sent: usize,
    received: usize,
}

impl<S: Subject> Many<S> {
    /// [`ENDS`] ends, made by `make`.
    ///
    /// # Errors
    /// The first error of `make`.
    pub(crate) fn of(make: impl FnMut(usize) -> Result<S>) -> Result<Many<S>> {
        Ok(Many { ends: (0..ENDS).map(make).collect::<Result<_>>()?, sent: 0, received: 0 })
    }
}

impl<S: Subject> Subject for Many<S> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let turn = self.sent % self.ends.len();
        self.sent += 1;
        self.ends[turn].send(message)
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        let turn = self.received % self.ends.len();
        self.received += 1;
        self.ends[turn].recv(into)
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("many peers take turns one way at a time".into()))
    }

    fn set_waiting(&mut self, waiting: Waiting) -> Result<()> {
        self.ends.iter_mut().try_for_each(|end| end.set_waiting(waiting))
    }

    fn path_taken(&self) -> Option<&'static str> {
        self.ends.first()?.path_taken()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, rc::Rc};

    use super::*;

    /// Messages to itself.
    #[derive(Clone, Default)]
    struct Own(Rc<RefCell<VecDeque<Vec<u8>>>>);

    impl Subject for Own {
        fn send(&mut self, message: &[u8]) -> Result<()> {
            self.0.borrow_mut().push_back(message.to_vec());
            Ok(())
        }

        fn recv(&mut self, into: &mut [u8]) -> Result<()> {
            let message = self.0.borrow_mut().pop_front().ok_or(Fail::Gone)?;
            into.copy_from_slice(&message);
            Ok(())
        }

        fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_has_its_turn() {
        let mut seen = Vec::new();
        let mut many = Many::of(|_| {
            seen.push(Own::default());
            Ok(seen[seen.len() - 1].clone())
        })
        .unwrap();
        for number in 0..ENDS as u8 + 1 {
            many.send(&[number]).unwrap();
        }
        assert!(seen.iter().skip(1).all(|end| end.0.borrow().len() == 1));
        assert_eq!(seen[0].0.borrow().len(), 2);
        for number in 0..ENDS as u8 + 1 {
            let mut into = [0];
            many.recv(&mut into).unwrap();
            assert_eq!(into, [number]);
        }
        assert!(many.recv(&mut [0]).is_err());
    }
}
