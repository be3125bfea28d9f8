//! Topics of Pinfold.

use std::{thread, time::{Duration, Instant}};

use pinfold::topic::{Publisher, Subscriber};

use crate::turn::{Pair, Result};

/// A publisher and a subscriber.
pub struct Topics {
    publisher: Publisher<[u8]>,
    subscriber: Subscriber<[u8]>,
    size: usize,
}

impl Pair for Topics {
    fn open(name: &str, size: usize, asks: bool) -> Result<Topics> {
        let (there, back) = (format!("{name}-there"), format!("{name}-back"));
        let (out, back) = if asks { (there, back) } else { (back, there) };
        let subscriber = Subscriber::open(&back)?;
        let publisher = Publisher::open(&out)?;
        let begun = Instant::now();
        while publisher.subscribers() == 0 || subscriber.publishers() == 0 {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err("the other process does not come".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(Topics { publisher, subscriber, size })
    }

    fn send(&self, word: u64) -> Result<()> {
        let mut sample = self.publisher.loan_slice(self.size)?;
        sample[..8].copy_from_slice(&word.to_ne_bytes());
        self.publisher.publish(sample)?;
        Ok(())
    }

    fn recv(&self) -> Result<u64> {
        let mut word = [0; 8];
        self.subscriber.recv()?.read_into(0, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }
}
