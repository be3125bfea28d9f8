//! The limits of memory that stays pinned for sends to other hosts, by the bytes that a process may
//! lock. No I/O.

/// Bytes that an endpoint may have pinned at most; and that part of the bytes that an ordinary user
/// may lock. All endpoints together leave one such part of those bytes to sends that pin for
/// themselves.
const PINNED_MAX: u64 = 1 << 30;
const PINNED_SHARE: u64 = 2;
const UNPINNED_SHARE: u64 = 4;

/// The limits of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinLimits {
    /// Bytes that one endpoint may have pinned: half of those that may be locked, 1 GiB at most.
    pub endpoint_bytes: u64,
    /// Bytes that all endpoints may have pinned together: three quarters.
    pub process_bytes: u64,
}

impl PinLimits {
    /// Bytes of one send whose pages are held for it alone.
    pub const SEND_BYTES_MAX: usize = 512 << 10;

    /// The limits where `locked_bytes` may be locked (`RLIMIT_MEMLOCK` in `getrlimit(2)`);
    /// `u64::MAX`: any number.
    pub fn of(locked_bytes: u64) -> PinLimits {
        PinLimits {
            endpoint_bytes: (locked_bytes / PINNED_SHARE).min(PINNED_MAX),
            process_bytes: locked_bytes - locked_bytes / UNPINNED_SHARE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_half_and_all_have_three_quarters() {
        for (locked, endpoint_bytes, process_bytes) in [
            (0, 0, 0),
            (8 << 20, 4 << 20, 6 << 20),
            (4 << 30, 1 << 30, 3 << 30),
            (u64::MAX, 1 << 30, u64::MAX - u64::MAX / 4),
        ] {
            assert_eq!(PinLimits::of(locked), PinLimits { endpoint_bytes, process_bytes });
        }
    }
}
