//! The effects that ends of operations have on active messages.

use std::{any::Any, sync::Arc};

use crate::{PeerId, SharedBuf, worker::op_key::OpKey};

/// Effect of the end of an operation that no caller waits for.
pub(crate) enum Act {
    /// A message for a handler of ours has come, or its receive has failed.
    Landed { peer: PeerId, room: usize },
    /// Bytes that a handler sent have gone; they were charged to this peer.
    Gone { origin: PeerId, bytes: u64, buffer: Box<dyn Any + Send> },
    /// A request has gone, or there will be no answer. If a handler sent it, it was charged, too.
    Asked { answer: OpKey, origin: Option<PeerId>, bytes: u64, buffer: Box<dyn Any + Send> },
    /// Bytes of our region that a peer reads have gone, or will not go.
    Served { peer: PeerId, memory: Arc<SharedBuf> },
}
