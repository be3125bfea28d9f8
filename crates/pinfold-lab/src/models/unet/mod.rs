//! U-Net and U-Net/MM (Welsh, Basu, von Eicken, sections 4 and 5): the library's own TLB on an
//! interface, over the costs of Table 1.

pub mod systems;
#[cfg(test)]
mod tests;

use pinfold::translate::{
    Rights, SpaceId,
    tlb::{Geometry, GeometryError, Lookup, Tlb, TlbCounters},
};

use self::systems::{System, Translation};

/// Receive buffers of a process (section 6.2).
pub const BUFFERS: u64 = 64;
/// Bytes of a page and of a receive buffer (section 6.2).
pub const PAGE_BYTES: u64 = 4096;

/// The state of a page that is to be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// In memory, and the process's own.
    Present,
    /// In memory, and shared until it is written.
    Shared,
    /// Not in memory; its old contents do not matter.
    Absent,
    /// On disk.
    OnDisk,
}

/// The time of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Until it is done, µs.
    pub latency_us: f64,
    /// The host's processor's part of that, µs.
    pub host_us: f64,
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, more: Cost) -> Cost {
        Cost { latency_us: self.latency_us + more.latency_us, host_us: self.host_us + more.host_us }
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Send,
    Receive,
}

/// An interface, with its TLB if it translates.
#[derive(Debug)]
pub struct Interface {
    system: System,
    tlb: Option<Tlb<u64>>,
}

impl Interface {
    /// An interface with the paper's TLB: 1,024 entries, direct-mapped, and a victim list of 16.
    ///
    /// # Errors
    /// The TLB's shape is refused.
    pub fn new(system: System) -> Result<Interface, GeometryError> {
        Interface::shaped(system, Geometry::default())
    }

    /// An interface with a TLB of another shape.
    ///
    /// # Errors
    /// The TLB's shape is refused.
    pub fn shaped(system: System, geometry: Geometry) -> Result<Interface, GeometryError> {
        let tlb = system.translation.map(|_| Tlb::new(geometry)).transpose()?;
        Ok(Interface { system, tlb })
    }

    /// Pages that are pinned because the TLB has them.
    pub fn pinned(&self) -> usize {
        self.tlb.as_ref().map_or(0, Tlb::entries)
    }

    /// The TLB's counters.
    pub fn counters(&self) -> TlbCounters {
        self.tlb.as_ref().map_or_else(TlbCounters::default, |tlb| *tlb.counters())
    }

    /// Sends a message of one page.
    pub fn send(&mut self, space: SpaceId, address: u64, state: PageState) -> Cost {
        let own = self.work(self.system.trap_us.unwrap_or(0.0) + self.system.send_queue_us);
        own + self.translate(space, address, state, Way::Send)
    }

    /// Translates a receive buffer that a process offers, ahead of the message. The row of hits
    /// for this is a send's.
    pub fn offer(&mut self, space: SpaceId, address: u64, state: PageState) -> Cost {
        self.translate(space, address, state, Way::Receive)
    }

    /// Receives a message of so many bytes into a buffer that was offered.
    pub fn receive(&mut self, bytes: u64) -> Cost {
        let hit_us = self.system.translation.map_or(0.0, |rows| rows.receive_hit_us);
        let entry_us = self.system.interrupt_us.unwrap_or(0.0);
        self.work(entry_us + self.system.receive_queue_us + hit_us + self.system.copy(bytes))
    }

    /// Work of the interface's processor, or of the host's if it has none.
    fn work(&self, us: f64) -> Cost {
        Cost { latency_us: us, host_us: if self.system.has_processor { 0.0 } else { us } }
    }

    fn translate(&mut self, space: SpaceId, address: u64, state: PageState, way: Way) -> Cost {
        let (Some(rows), Some(tlb)) = (self.system.translation, &mut self.tlb) else {
            return Cost::default();
        };
        let needed = if way == Way::Send { Rights::Read } else { Rights::ReadWrite };
        if let Lookup::Hit(_) = tlb.look_up(space, address, needed) {
            return self.work(rows.send_hit_us);
        }
        let gone = tlb.insert(space, address, needed, address);
        let unpin_us = if gone.is_some() { rows.unpin_us } else { 0.0 };
        let host_us = rows.service_us + rows.pin(state, way) + unpin_us;
        // The processor of the interface waits for the host's.
        Cost { latency_us: rows.handshake_us + host_us, host_us }
    }
}

impl Translation {
    /// Pinning a page, µs. Where a row is missing in Table 1 the page is treated as the nearest
    /// one that has a row: a shared page as a present one, an absent page as one on disk.
    fn pin(&self, state: PageState, way: Way) -> f64 {
        let present = if way == Way::Send { self.pin_send_us } else { self.pin_receive_us };
        match (state, way) {
            (PageState::Present, _) | (PageState::Shared, Way::Send) => present,
            (PageState::Shared, Way::Receive) => self.pin_shared_us.unwrap_or(present),
            (PageState::Absent, Way::Receive) => self.pin_zeros_us.unwrap_or(self.page_in_us),
            (PageState::Absent, Way::Send) | (PageState::OnDisk, _) => self.page_in_us,
        }
    }
}
