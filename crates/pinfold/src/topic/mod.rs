//! Publish and subscribe: typed samples, which all subscribers read from one copy in memory.
//!
//! ```
//! use pinfold::topic::{Publisher, Subscriber};
//!
//! # fn main() -> pinfold::Result<()> {
//! # let topic = &format!("doc-{}", std::process::id());
//! // In one program: samples of any type without pointers and padding (`zerocopy`'s traits).
//! let publisher = Publisher::<[f32; 3]>::open(topic)?;
//! // In others, as many as like, before or after the publisher came:
//! let subscriber = Subscriber::<[f32; 3]>::open(topic)?;
//!
//! let mut sample = publisher.loan()?; // In memory that subscribers map.
//! *sample = [1.0, 2.0, 3.0];
//! publisher.publish(sample)?;
//!
//! let sample = subscriber.recv()?;
//! assert_eq!(sample.read()?, [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//! - A sample is written once, where its publisher was [lent](Publisher::loan) memory, and never
//!   copied to be sent: subscribers map that memory, and cannot write it. It comes back once none
//!   of them looks at it any more, and none is left behind by a process that is killed.
//! - Publishers and subscribers come and go in any order, without a broker, and find each other by
//!   the topic's name, as far as the [rule](PublisherBuilder::access) of each lets the other in.
//!   [`Publisher::open`] and [`Subscriber::open`] return once all are connected that were there.
//! - A slow subscriber holds nobody up, unless it asked for every sample
//!   ([`SubscriberBuilder::every_sample`]) and then for no longer than the publisher has
//!   [patience](PublisherBuilder::patience). Else it gets the newest samples, in order, and is told
//!   how many it [missed](Sample::missed).
//! - One that joins late gets the last samples if it [wants](SubscriberBuilder::history) them and
//!   the publisher [keeps](PublisherBuilder::history) them.
//! - Both sides must mean the same: size and alignment of the type, and its
//!   [schema](PublisherBuilder::schema) if they name one. Whoever comes to others that differ gets
//!   [`Error::OtherType`](crate::Error::OtherType).
//!
//! # Rust's rules, and a publisher's
//! A publisher of this library does not write a sample that it has published. But its process
//! could, so safe code copies out of a [`Sample`]; whoever trusts the publisher looks at it
//! [in place](Sample::get).
//!
//! # Cost
//! Publishing to a subscriber is a [hand-off](crate::Endpoint::give_latest), the same for any
//! length. A publisher or subscriber has an endpoint of its own, with three descriptors for each of
//! the other side, and its thread `pinfold`, which sleeps, or stands by while the program waits for
//! samples. A second thread, `pinfold-topic`, calls once a second where a process is stopped that
//! should join, and for a subscriber of another user's topic.
//!
//! # Modules
//! `publisher` and `subscriber` stand on `door`, an endpoint at an `address`, which answers those
//! who come; `call`, which finds those who are there, and `rounds`, which does it again; `control`,
//! the messages between them. `host` lets the `members`, a publisher's subscribers, join;
//! `payload`, `kind` and `stamp` describe a sample's memory; `loan` and `sample` are that memory while it is
//! written and read.

mod address;
mod call;
mod control;
mod door;
mod host;
mod kind;
mod loan;
mod members;
mod payload;
mod publisher;
mod rounds;
mod sample;
mod stamp;
mod subscriber;

#[cfg(test)]
mod tests;

pub use self::{
    loan::Loan,
    members::Published,
    payload::Payload,
    publisher::{Publisher, PublisherBuilder},
    sample::Sample,
    subscriber::{SampleRequest, Subscriber, SubscriberBuilder},
};
