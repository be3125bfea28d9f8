//! The message sizes that are measured unless others are asked for, bytes.

use crate::terms::{Group, Setting, What};

const KI: usize = 1 << 10;
const MI: usize = 1 << 20;

/// The sizes that `what` is measured with in rows of a group.
pub(super) fn usual(what: What, group: Group, quick: bool) -> &'static [usize] {
    match (group, what) {
        (Group::Heap, _) => heap(what, quick),
        (Group::Arena, _) => arena(what, quick),
        (Group::Given, What::Latency) if quick => &[8, 4 * KI, MI, 64 * MI],
        (Group::Given, What::Latency) => &[8, 4 * KI, MI, 64 * MI, 1024 * MI],
        (Group::Region | Group::Read, What::Latency) => &[8, 4 * KI, MI],
        (Group::Active, What::Latency) => &[8],
        (Group::Region | Group::Contended | Group::Active, What::Rate) => &[8],
        (group, What::Latency) if group.is_by_address() => &[8, 4 * KI, MI],
        (group, What::Rate) if group.is_by_address() => &[8],
        _ => &[],
    }
}

fn heap(what: What, quick: bool) -> &'static [usize] {
    match (what, quick) {
        (What::Latency, true) => &[8, KI, 4 * KI, 64 * KI, MI],
        (What::Latency, false) => &[8, 64, 256, KI, 4 * KI, 16 * KI, 64 * KI, 256 * KI, MI, 4 * MI],
        (What::Rate, _) => &[8],
        (What::Bandwidth, true) => &[4 * KI, 16 * KI, 64 * KI, MI, 4 * MI],
        (What::Bandwidth, false) => &[KI, 4 * KI, 16 * KI, 64 * KI, 256 * KI, MI, 4 * MI],
        (What::Bidirectional, true) => &[64 * KI, MI],
        (What::Bidirectional, false) => &[4 * KI, 64 * KI, MI],
        (What::Cpu, _) => &[8, 4 * KI, MI],
    }
}

fn arena(what: What, quick: bool) -> &'static [usize] {
    match (what, quick) {
        (What::Latency, true) => &[4 * KI, 64 * KI, MI],
        (What::Bandwidth, true) => &[64 * KI, MI, 4 * MI, 64 * MI],
        (What::Bidirectional, true) => &[MI],
        (What::Latency | What::Bandwidth, false) => {
            &[4 * KI, 16 * KI, 64 * KI, 256 * KI, MI, 4 * MI, 16 * MI, 64 * MI]
        }
        (What::Bidirectional, false) => &[4 * KI, 64 * KI, MI, 4 * MI, 64 * MI],
        (What::Rate | What::Cpu, _) => &[],
    }
}

/// The sizes for which every message is also written before and read after it goes: this makes the
/// greatest difference with one copy at user level.
pub(super) fn touched_too(what: What, group: Group, quick: bool) -> &'static [usize] {
    match (what, group, quick) {
        (What::Latency, Group::Arena, true) => &[MI],
        (What::Bandwidth, Group::Arena, true) => &[MI, 4 * MI],
        (What::Latency | What::Bandwidth, Group::Arena, false) => {
            &[4 * KI, 64 * KI, MI, 4 * MI, 64 * MI]
        }
        (What::Bidirectional, Group::Arena, false) => &[64 * KI, MI, 4 * MI],
        _ => &[],
    }
}

/// The sizes that `what` is measured with under settings other than [`Setting::Alone`].
pub(super) fn in_setting(what: What, setting: Setting, quick: bool) -> &'static [usize] {
    match (setting, what, quick) {
        (Setting::Neighbour | Setting::Paced, What::Latency, true) => &[8, 4 * KI],
        (Setting::Neighbour | Setting::Paced, What::Latency, false) => &[8, 4 * KI, 64 * KI],
        (Setting::Dedicated | Setting::Pairs, What::Latency, _) => &[8, 4 * KI],
        (_, What::Latency | What::Rate | What::Cpu, _) => &[8],
        _ => &[],
    }
}
