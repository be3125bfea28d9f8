//! Services of iceoryx2, which has no call that waits: whoever wants a sample looks until it is
//! there.

use std::{thread, time::{Duration, Instant}};

use iceoryx2::{
    port::{publisher::Publisher, subscriber::Subscriber},
    prelude::*,
    service::port_factory::{PortFactory as _, publish_subscribe::PortFactory},
};

use crate::turn::{Pair, Result};

type Service = ipc::Service;

/// A publisher and a subscriber, and their services.
pub struct Iceoryx {
    publisher: Publisher<Service, [u8], ()>,
    subscriber: Subscriber<Service, [u8], ()>,
    size: usize,
    _services: [PortFactory<Service, [u8], ()>; 2],
    _node: Node<Service>,
}

impl Pair for Iceoryx {
    fn open(name: &str, size: usize, asks: bool) -> Result<Iceoryx> {
        let node = NodeBuilder::new().create::<Service>()?;
        let service = |way: &str| -> Result<PortFactory<Service, [u8], ()>> {
            let name = format!("{name}-{way}");
            let builder = node.service_builder(&name.as_str().try_into()?);
            Ok(builder.publish_subscribe::<[u8]>().open_or_create()?)
        };
        let (out, back) = if asks { ("there", "back") } else { ("back", "there") };
        let (out, back) = (service(out)?, service(back)?);
        let subscriber = back.subscriber_builder().create()?;
        let publisher = out.publisher_builder().initial_max_slice_len(size).create()?;
        let begun = Instant::now();
        while out.dynamic_config().number_of_subscribers() == 0
            || back.dynamic_config().number_of_publishers() == 0
        {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err("the other process does not come".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(Iceoryx { publisher, subscriber, size, _services: [out, back], _node: node })
    }

    fn send(&self, word: u64) -> Result<()> {
        let mut sample = self.publisher.loan_slice_uninit(self.size)?;
        for (to, from) in sample.payload_mut().iter_mut().zip(word.to_ne_bytes()) {
            to.write(from);
        }
        // SAFETY: memory of a file, which the kernel cleared; the rest is not looked at.
        unsafe { sample.assume_init() }.send()?;
        Ok(())
    }

    fn recv(&self) -> Result<u64> {
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                let word = sample.payload()[..8].try_into()?;
                return Ok(u64::from_ne_bytes(word));
            }
            std::hint::spin_loop();
        }
    }
}
