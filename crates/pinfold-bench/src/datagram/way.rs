//! The kernel's access to the bytes.

/// The kernel's access to the bytes of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// `sendmsg(2)`, no ring: copied into a socket buffer before the call returns.
    Call,
    /// `IORING_OP_SEND`, for several pieces `IORING_OP_SENDMSG`: copied as well.
    Copied,
    /// `IORING_OP_SEND_ZC`, for several pieces `IORING_OP_SENDMSG_ZC`, of memory that the kernel
    /// knows nothing of: each send takes hold of its pages, and lets go of them. Until the
    /// notice they count against `RLIMIT_MEMLOCK`. Linux 6.2, for it is also to say whether it
    /// copied.
    Pinned,
    /// The same of memory that was registered with the ring (`IORING_RECVSEND_FIXED_BUF`): its
    /// pages are held all the time. Linux 6.2, pieces 6.15.
    Registered,
}

impl Way {
    /// The call or the operation, of a send in so many pieces.
    pub fn call(self, pieces: usize) -> &'static str {
        match (self, pieces) {
            (Way::Call, _) => "sendmsg(2)",
            (Way::Copied, 0..=1) => "IORING_OP_SEND",
            (Way::Copied, _) => "IORING_OP_SENDMSG",
            (Way::Pinned, 0..=1) => "IORING_OP_SEND_ZC",
            (Way::Pinned, _) => "IORING_OP_SENDMSG_ZC",
            (Way::Registered, 0..=1) => "IORING_OP_SEND_ZC (IORING_RECVSEND_FIXED_BUF)",
            (Way::Registered, _) => "IORING_OP_SENDMSG_ZC (IORING_RECVSEND_FIXED_BUF)",
        }
    }

    /// True if the kernel sends from where the bytes lie, and says later that it is done with them.
    pub fn is_notified(self) -> bool {
        matches!(self, Way::Pinned | Way::Registered)
    }
}
