//! Endpoints: posting, matching, completing and waiting.
//!
//! [`Endpoint`] is the handle; [`shared`] is what all handles share; [`engine`] is what its lock
//! guards; [`matching`] and [`spin`] are plain state machines.

mod active;
mod ahead;
mod answer;
mod aside;
mod borrowed;
mod buffers;
mod builder;
mod config;
mod courier;
mod drain;
mod engine;
mod give;
mod handle;
mod handlers;
mod handoff;
mod joined;
pub(crate) mod matching;
mod message;
mod payload;
mod region;
mod remote;
mod reply;
mod request;
mod rest;
mod scatter;
mod scope;
mod segments;
mod shared;
mod space;
mod spin;
mod store;
mod timed;
mod view;
mod wait;

pub use active::Active;
pub use answer::Answer;
pub use buffers::{OwnedBuf, OwnedBufMut};
pub use builder::Builder;
pub use config::Progress;
pub use drain::Outstanding;
pub use engine::peer::PeerInfo;
pub use engine::post::Envelope;
pub use give::NotGiven;
pub use handle::Endpoint;
pub use handoff::{Gift, Handoff, HandoffVectored, ViewRequest};
pub use matching::{Source, TagMatch};
pub use message::{Message, Received};
pub use region::{AtomicWord, Region, RegionKey, RegionRequest, RemoteRegion, Rights};
pub use reply::Reply;
pub use request::{MessageRequest, RecvRequest, SendRequest};
pub use scope::{Scope, ScopedRecv, ScopedSend};
pub use space::{Exposed, RemoteSpace};
pub use view::View;
