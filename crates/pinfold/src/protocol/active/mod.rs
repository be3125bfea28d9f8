//! Active messages: sent, received, queued, and run by their handlers.

pub(crate) mod act;
pub(crate) mod calls;
pub(crate) mod dispatch;
pub(crate) mod handlers;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod settle;
