//! The five systems of Table 1 (Welsh, Basu, von Eicken, section 6.1): a Pentium of 133 MHz with a
//! PCI bus of 33 MHz, and either a PCA-200 with an i960 of 25 MHz or a DC21140.

/// Bytes of the shorter message whose copy Table 1 has.
pub const SHORT_BYTES: u64 = 40;
/// Bytes of the longer one.
pub const LONG_BYTES: u64 = 1498;

/// A system: the rows of its column, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    /// Interface, operating system and architecture.
    pub name: &'static str,
    /// True if a processor on the interface does the work, false if the host does it.
    pub has_processor: bool,
    /// Entry into the kernel for a send; none with a processor.
    pub trap_us: Option<f64>,
    /// Handling of the send queue.
    pub send_queue_us: f64,
    /// Entry of the receive interrupt; none with a processor.
    pub interrupt_us: Option<f64>,
    /// Handling of free and receive queue.
    pub receive_queue_us: f64,
    /// Copy of [`SHORT_BYTES`] and of [`LONG_BYTES`] into the receive buffer; none where the
    /// interface delivers in place.
    pub copy_us: Option<(f64, f64)>,
    /// Translation; none where all buffers are pinned for good.
    pub translation: Option<Translation>,
}

/// Rows of the translation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Translation {
    /// A hit of a send.
    pub send_hit_us: f64,
    /// A hit of a reception.
    pub receive_hit_us: f64,
    /// Request and reply between interface and kernel.
    pub handshake_us: f64,
    /// The kernel's interrupt for the request.
    pub service_us: f64,
    /// Pinning a page that is there, to send.
    pub pin_send_us: f64,
    /// The same to receive.
    pub pin_receive_us: f64,
    /// Pinning a page that is shared, which is copied; none where Table 1 has no such row.
    pub pin_shared_us: Option<f64>,
    /// Pinning a page that is not there, to receive: a page of zeros.
    pub pin_zeros_us: Option<f64>,
    /// Pinning a page that is on disk.
    pub page_in_us: f64,
    /// Unpinning the page that had to give way.
    pub unpin_us: f64,
}

/// U-Net on the PCA-200 under Linux.
pub const ATM: System = System {
    name: "PCA-200 Linux U-Net",
    has_processor: true,
    trap_us: None,
    send_queue_us: 10.0,
    interrupt_us: None,
    receive_queue_us: 13.0,
    copy_us: None,
    translation: None,
};

/// U-Net/MM on the PCA-200 under Linux.
pub const ATM_MM: System = System {
    name: "PCA-200 Linux U-Net/MM",
    translation: Some(Translation {
        send_hit_us: 1.0,
        receive_hit_us: 2.0,
        handshake_us: 24.0,
        service_us: 10.0,
        pin_send_us: 11.0,
        pin_receive_us: 11.0,
        pin_shared_us: Some(44.0),
        pin_zeros_us: Some(36.0),
        page_in_us: 22_000.0,
        unpin_us: 4.0,
    }),
    ..ATM
};

/// U-Net on the DC21140 under Linux.
pub const ETHERNET_LINUX: System = System {
    name: "DC21140 Linux U-Net",
    has_processor: false,
    trap_us: Some(1.0),
    send_queue_us: 3.2,
    interrupt_us: Some(2.0),
    receive_queue_us: 3.3,
    copy_us: Some((1.3, 21.0)),
    translation: None,
};

/// U-Net on the DC21140 under Windows NT.
pub const ETHERNET_NT: System = System {
    name: "DC21140 NT U-Net",
    has_processor: false,
    trap_us: Some(3.0),
    send_queue_us: 2.8,
    interrupt_us: Some(3.0),
    receive_queue_us: 3.7,
    copy_us: Some((1.2, 42.0)),
    translation: None,
};

/// U-Net/MM on the DC21140 under Windows NT.
pub const ETHERNET_NT_MM: System = System {
    name: "DC21140 NT U-Net/MM",
    translation: Some(Translation {
        send_hit_us: 1.0,
        receive_hit_us: 1.0,
        handshake_us: 0.0,
        service_us: 0.0,
        pin_send_us: 16.0,
        pin_receive_us: 37.0,
        pin_shared_us: None,
        pin_zeros_us: None,
        page_in_us: 22_000.0,
        unpin_us: 4.0,
    }),
    ..ETHERNET_NT
};

/// All five, in the order of Table 1.
pub const SYSTEMS: [System; 5] = [ATM, ATM_MM, ETHERNET_LINUX, ETHERNET_NT, ETHERNET_NT_MM];

impl System {
    /// The copy of a message of so many bytes: a straight line through Table 1's two sizes, µs.
    pub fn copy(&self, bytes: u64) -> f64 {
        let Some((short_us, long_us)) = self.copy_us else { return 0.0 };
        let slope = (long_us - short_us) / (LONG_BYTES - SHORT_BYTES) as f64;
        (short_us + slope * (bytes as f64 - SHORT_BYTES as f64)).max(0.0)
    }
}
