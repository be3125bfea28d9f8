//! Endpoints: posting, matching, completing and waiting.
//!
//! [`Endpoint`] is the handle; [`shared`](crate::worker::shared) is the state that all handles
//! share; [`worker`](crate::worker) is the state under its lock;
//! [`matching`](crate::worker::matching) and [`spin`](crate::policy::spin) are plain state
//! machines.

pub(crate) mod active;
pub(crate) mod blocking;
pub(crate) mod buffers;
pub(crate) mod builder;
pub(crate) mod claimed;
pub(crate) mod completion;
pub(crate) mod connecting;
pub(crate) mod contiguous;
pub(crate) mod drain;
pub(crate) mod give;
pub(crate) mod handle;
pub(crate) mod handlers;
pub(crate) mod handoff;
pub(crate) mod message;
pub(crate) mod message_request;
pub(crate) mod multi_recv;
pub(crate) mod payload;
pub(crate) mod probing;
pub(crate) mod received;
pub(crate) mod replier;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod rma;
pub(crate) mod scope;
pub(crate) mod send_timeout;
pub(crate) mod spans;
pub(crate) mod try_recv;
pub(crate) mod try_send;
pub(crate) mod view;

pub use crate::memory::donated::DonatedBuf;
pub use crate::worker::{
    config::Progress,
    envelope::Envelope,
    matching::{Source, TagMatch},
    peer::PeerInfo,
};
pub use active::Active;
pub use buffers::{OwnedBuf, OwnedBufMut};
pub use builder::Builder;
pub use claimed::Claimed;
pub use completion::{Completed, Completion, CompletionQueue, Queueable};
pub use connecting::{AcceptRequest, ConnectRequest};
pub use give::NotGiven;
pub use handle::Endpoint;
pub use handoff::{Handoff, HandoffVectored, ViewRequest};
pub use message::Message;
pub use message_request::MessageRequest;
pub use multi_recv::MultiRecv;
pub use probing::ProbeRequest;
pub use received::{MultiReceived, Received};
pub use replier::Replier;
pub use reply::Reply;
pub use request::{RecvRequest, SendRequest};
pub use rma::{
    Addressing, AtomicChange, AtomicRequest, AtomicWord, ByAddress, ByOffset, CopyRequest, Exposed,
    OpenRequest, Region, RegionKey, RegionRequest, Registered, Remote, RemoteRegion, RemoteSpace,
    Rights,
};
pub use scope::{Scope, ScopedRecv, ScopedSend};
pub use view::View;
