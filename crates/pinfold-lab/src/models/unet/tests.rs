//! Costs against hand-made sums.

use super::{systems::*, *};

const SPACE: SpaceId = SpaceId(1);

/// An interface whose TLB is full, so that each miss unpins a page.
fn full(system: System) -> Interface {
    let mut interface = Interface::new(system).unwrap();
    for page in 0..1 << 14 {
        interface.send(SPACE, page * PAGE_BYTES, PageState::Present);
    }
    interface
}

#[test]
fn a_miss_costs_the_sum_of_its_rows() {
    let mut atm = full(ATM_MM);
    let fresh = |at: u64| (1 << 40) + at * PAGE_BYTES;
    // 24 + 10 + 11 + 4, and 10 for the queue.
    let sent = atm.send(SPACE, fresh(0), PageState::Present);
    assert_eq!(sent, Cost { latency_us: 59.0, host_us: 25.0 });
    assert_eq!(atm.offer(SPACE, fresh(1), PageState::Absent).latency_us, 74.0);
    assert_eq!(atm.offer(SPACE, fresh(2), PageState::Shared).latency_us, 82.0);
    assert_eq!(atm.offer(SPACE, fresh(3), PageState::OnDisk).latency_us, 22_038.0);
    // A translation for reading is not enough to receive; its pin goes.
    assert_eq!(atm.offer(SPACE, fresh(0), PageState::Present).latency_us, 49.0);
    let mut nt = full(ETHERNET_NT_MM);
    let sent = nt.send(SPACE, fresh(0), PageState::Present);
    assert!((sent.latency_us - 25.8).abs() < 1e-9 && sent.host_us == sent.latency_us, "{sent:?}");
    assert_eq!(nt.offer(SPACE, fresh(1), PageState::Present).latency_us, 41.0);
}

#[test]
fn a_hit_costs_its_row_and_leaves_the_host_alone() {
    let mut atm = Interface::new(ATM_MM).unwrap();
    atm.send(SPACE, 0, PageState::Present);
    let again = atm.send(SPACE, 8, PageState::Present);
    assert_eq!(again, Cost { latency_us: 11.0, host_us: 0.0 });
    assert_eq!(atm.counters().hits_first, 1);
    assert_eq!(atm.receive(40), Cost { latency_us: 15.0, host_us: 0.0 });
    let pinned = Interface::new(ATM).unwrap().send(SPACE, 0, PageState::OnDisk);
    assert_eq!(pinned.latency_us, 10.0, "a buffer pinned for good is never translated");
}

#[test]
fn copies_are_a_line_through_two_sizes() {
    assert_eq!(ETHERNET_NT.copy(SHORT_BYTES), 1.2);
    assert!((ETHERNET_NT.copy(LONG_BYTES) - 42.0).abs() < 1e-9);
    assert!((ETHERNET_NT.copy(769) - 21.6).abs() < 1e-9);
    assert_eq!(ATM.copy(LONG_BYTES), 0.0);
}

#[test]
fn pins_are_bounded_by_the_tlb() {
    let interface = full(ATM_MM);
    assert_eq!(interface.pinned(), 1024 + 16);
}
