//! Waiting for signals and for time, as futures.

use std::{
    io,
    pin::{Pin, pin},
    sync::mpsc,
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use futures_lite::{Stream, future};

use super::failure::{THREAD, by};
use crate::signals;

/// Time between looks if there is no thread that tells the time.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The output of `future`, unless it takes longer than `time`.
pub(super) async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (expired_in, expired) = async_channel::bounded::<()>(1);
    let (stop, stopped) = mpsc::channel::<()>();
    let timer = thread::Builder::new().name("timer".into()).spawn(move || {
        let _ = stopped.recv_timeout(time);
        drop(expired_in);
    });
    if timer.is_err() {
        return within_without_thread(time, future).await;
    }
    let result = future::or(async { Some(future.await) }, async {
        let _ = expired.recv().await;
        None
    })
    .await;
    drop(stop);
    result
}

/// The same if no thread is to be had: it looks again and again.
async fn within_without_thread<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let end = Instant::now().checked_add(time);
    let mut future = pin!(future);
    future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Poll::Ready(None);
        }
        pinfold_sys::cpu::clock::pause(LOOK_AGAIN);
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// The signals that ask the process to stop: SIGINT, SIGTERM and SIGHUP.
pub(super) struct Interrupts {
    signals: Option<Pin<Box<async_channel::Receiver<i32>>>>,
}

impl Interrupts {
    /// Takes the signals from here on. The first is handed out; a second ends the process at once.
    pub(super) fn take() -> io::Result<Interrupts> {
        let mut signals = signals::take().map_err(by("socketpair"))?;
        let (first, out) = async_channel::bounded(1);
        let thread = thread::Builder::new().name("signals".into());
        let started = thread.spawn(move || {
            for signal in signals.forever() {
                if first.try_send(signal).is_err() {
                    std::process::exit(128 + signal);
                }
            }
        });
        started.map_err(by(THREAD))?;
        Ok(Interrupts { signals: Some(Box::pin(out)) })
    }

    /// Takes no signals.
    #[cfg(test)]
    pub(super) fn none() -> Interrupts {
        Interrupts { signals: None }
    }

    /// The signal that came.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<i32> {
        let Some(signals) = &mut self.signals else { return Poll::Pending };
        match signals.as_mut().poll_next(context) {
            Poll::Ready(Some(signal)) => Poll::Ready(signal),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_out_or_does_not() {
        future::block_on(async {
            assert_eq!(within(Duration::from_secs(600), async { 7 }).await, Some(7));
            let never = future::pending::<()>();
            assert_eq!(within(Duration::from_millis(1), never).await, None);
        });
    }

    #[test]
    fn time_runs_out_without_a_thread_too() {
        future::block_on(async {
            let soon = async {
                future::yield_now().await;
                7
            };
            assert_eq!(within_without_thread(Duration::from_secs(600), soon).await, Some(7));
            let never = future::pending::<()>();
            assert_eq!(within_without_thread(Duration::from_millis(1), never).await, None);
        });
    }
}
