//! Rings and caches that the kernel grants or refuses, for good or for now. No I/O but the clock.

use pinfold_sys::{cpu::clock, mem::pin};

use crate::policy::backoff::Backoff;

/// A facility that may be there.
#[derive(Debug, Default)]
pub(super) enum Facility<T> {
    #[default]
    Unasked,
    There(T),
    Not,
    /// It could not be had, for a reason that may pass.
    NotNow(Backoff),
}

impl<T> Facility<T> {
    pub(super) fn is_to_be_asked(&self) -> bool {
        match self {
            Facility::Unasked => true,
            Facility::NotNow(rest) => rest.is_over(clock::now_ns()),
            Facility::There(_) | Facility::Not => false,
        }
    }

    pub(super) fn is(&mut self, found: Result<T, Missing>) {
        *self = match (found, &*self) {
            (Ok(found), _) => Facility::There(found),
            (Err(Missing::ForGood), _) => Facility::Not,
            (Err(Missing::Now), before) => {
                let mut rest =
                    if let Facility::NotNow(rest) = before { *rest } else { Backoff::new() };
                rest.failed(clock::now_ns());
                Facility::NotNow(rest)
            }
        };
    }
}

/// The time for which something is not there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Missing {
    Now,
    ForGood,
}

impl From<pin::Error> for Missing {
    fn from(error: pin::Error) -> Missing {
        tracing::debug!(%error, "no ring to send by");
        match error.reason() {
            pin::Reason::Exhausted | pin::Reason::Memlock(_) => Missing::Now,
            _ => Missing::ForGood,
        }
    }
}
