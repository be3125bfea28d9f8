//! The provider's attributes, and how a program's wishes change them: policy without I/O.
#![allow(unsafe_code)]
// Invariant: hints are read while they are there, in the layout of 1.17.

use std::{ffi::CStr, ptr};

use pinfold::SendMode;

use crate::{
    address,
    ffi::{
        flags::*,
        info::{FiDomainAttr, FiEpAttr, FiInfo, FiRxAttr, FiTxAttr},
    },
    guard::{Answer, Code},
    prov::NAME,
    rma,
};

/// Bytes of a message that may be injected.
pub const INJECT_BYTES_MAX: usize = 4096;
/// Parts of a message.
pub const PARTS_MAX: usize = 16;
/// Operations under way in each direction, unless the program asks for more.
pub const OPERATIONS: usize = 4096;
/// The most operations that can be asked for.
const OPERATIONS_MAX: usize = 1 << 20;
/// Bytes of the longest message.
pub const MESSAGE_BYTES_MAX: usize = 1 << 46;
/// Bytes of the data that comes with a message.
pub const DATA_BYTES: usize = 4;
/// The bits of a tag that programs may use: all but the highest.
pub const TAG_FORMAT: u64 = 0x5555_5555_5555_5555;

const PRIMARY: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
const SENDS: u64 = FI_SEND | FI_READ | FI_WRITE;
const RECEIVES: u64 = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
const EXTRAS: u64 = FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
const EXTRAS_TX: u64 = FI_FENCE;

const OP_FLAGS_TX: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;
const OP_FLAGS_RX: u64 = FI_COMPLETION | FI_MULTI_RECV;

const ORDER: u64 = FI_ORDER_SAS;

/// The communication that is possible. Other hosts are reached where there is a key for them.
pub fn reach() -> u64 {
    FI_LOCAL_COMM | if key_file().is_some() { FI_REMOTE_COMM } else { 0 }
}

/// The file with the key that endpoints on several hosts share.
pub fn key_file() -> Option<std::path::PathBuf> {
    std::env::var_os("PINFOLD_KEY_FILE").filter(|it| !it.is_empty()).map(Into::into)
}

/// The mode that long messages to other hosts are to be sent in, by its name in
/// `PINFOLD_SEND_MODE`. `None`: the cheapest.
pub fn send_mode() -> Option<SendMode> {
    let name = std::env::var_os("PINFOLD_SEND_MODE").filter(|it| !it.is_empty())?;
    let mode = SendMode::ALL.into_iter().find(|mode| name == mode.name());
    if mode.is_none() {
        let modes = SendMode::ALL.map(SendMode::name);
        tracing::warn!(?name, ?modes, "PINFOLD_SEND_MODE names no mode, and is ignored");
    }
    mode
}

fn caps() -> u64 {
    let messages = FI_MSG | FI_TAGGED | FI_SEND | FI_RECV;
    messages | EXTRAS | EXTRAS_TX | rma::CAPS | reach()
}

/// The wishes of a program.
#[derive(Default)]
pub struct Wish {
    caps: u64,
    addr_format: u32,
    named_otherwise: bool,
    tx: Option<FiTxAttr>,
    rx: Option<FiRxAttr>,
    ep: Option<FiEpAttr>,
    domain: Option<FiDomainAttr>,
}

/// A description.
pub struct Limits {
    pub caps: u64,
    pub tx: FiTxAttr,
    pub rx: FiRxAttr,
    pub ep: FiEpAttr,
    pub domain: FiDomainAttr,
}

impl Wish {
    /// Reads hints.
    ///
    /// # Safety
    /// Null, or hints whose parts are null or there.
    pub unsafe fn read(hints: *const FiInfo) -> Wish {
        // SAFETY: the caller's, here and below.
        let Some(hints) = (unsafe { hints.as_ref() }) else { return Wish::default() };
        let is_other = |name: *const std::ffi::c_char| {
            // SAFETY: null or a text.
            !name.is_null() && unsafe { CStr::from_ptr(name) } != NAME
        };
        // SAFETY: as above.
        let domain = unsafe { hints.domain_attr.as_ref() };
        // SAFETY: as above.
        let fabric = unsafe { hints.fabric_attr.as_ref() };
        let named_otherwise = domain.is_some_and(|it| is_other(it.name))
            || fabric.is_some_and(|it| is_other(it.name));
        // SAFETY: as above.
        let (tx, rx) = unsafe { (hints.tx_attr.as_ref(), hints.rx_attr.as_ref()) };
        Wish {
            caps: hints.caps,
            addr_format: hints.addr_format,
            named_otherwise,
            tx: tx.copied(),
            rx: rx.copied(),
            // SAFETY: as above.
            ep: unsafe { hints.ep_attr.as_ref() }.copied(),
            domain: domain.copied(),
        }
    }

    /// The description that meets the wishes, if there is one.
    pub fn meet(&self, version: u32) -> Answer<Limits> {
        let all = caps();
        let fits = self.caps & !all == 0
            && matches!(self.addr_format, FI_FORMAT_UNSPEC | address::FORMAT)
            && !self.named_otherwise
            && self.tx.is_none_or(|it| fits_tx(&it, all))
            && self.rx.is_none_or(|it| fits_rx(&it, all))
            && self.ep.is_none_or(|it| fits_ep(&it))
            && self.domain.is_none_or(|it| fits_domain(&it));
        if !fits {
            return Err(Code::NO_DATA);
        }
        let caps = granted(self.caps, all);
        Ok(Limits {
            caps,
            tx: tx(self.tx.as_ref(), caps),
            rx: rx(self.rx.as_ref(), caps),
            ep: ep(),
            domain: domain(self.domain.as_ref(), version),
        })
    }
}

/// The capabilities of an endpoint for which these are wanted.
fn granted(wanted: u64, all: u64) -> u64 {
    if wanted == 0 {
        return all;
    }
    let primary = match wanted & PRIMARY {
        0 => all & PRIMARY,
        some => some,
    };
    let mut directions = wanted & (SENDS | RECEIVES);
    if directions == 0 {
        if primary & (FI_MSG | FI_TAGGED) != 0 {
            directions |= FI_SEND | FI_RECV;
        }
        if primary & (FI_RMA | FI_ATOMIC) != 0 {
            directions |= (SENDS | RECEIVES) & !(FI_SEND | FI_RECV);
        }
    }
    let extras = wanted & (all & !PRIMARY & !(SENDS | RECEIVES));
    primary | directions | extras | all & (FI_LOCAL_COMM | FI_REMOTE_COMM)
}

fn fits_tx(wish: &FiTxAttr, all: u64) -> bool {
    wish.caps & !all == 0
        && wish.op_flags & !OP_FLAGS_TX == 0
        && wish.msg_order & !(ORDER | rma::ORDER) == 0
        && wish.comp_order == 0
        && wish.inject_size <= INJECT_BYTES_MAX
        && wish.size <= OPERATIONS_MAX
        && wish.iov_limit <= PARTS_MAX
        && wish.rma_iov_limit <= rma::PARTS_MAX
}

fn fits_rx(wish: &FiRxAttr, all: u64) -> bool {
    wish.caps & !all == 0
        && wish.op_flags & !OP_FLAGS_RX == 0
        && wish.msg_order & !(ORDER | rma::ORDER) == 0
        && wish.comp_order == 0
        && wish.size <= OPERATIONS_MAX
        && wish.iov_limit <= PARTS_MAX
}

fn fits_ep(wish: &FiEpAttr) -> bool {
    matches!(wish.kind, FI_EP_UNSPEC | FI_EP_RDM)
        && matches!(wish.protocol, FI_PROTO_UNSPEC | address::FORMAT)
        && wish.max_msg_size <= MESSAGE_BYTES_MAX
        && wish.tx_ctx_cnt <= 1
        && wish.rx_ctx_cnt <= 1
        && wish.auth_key_size == 0
}

fn fits_domain(wish: &FiDomainAttr) -> bool {
    (FI_THREAD_UNSPEC..=FI_THREAD_ENDPOINT).contains(&wish.threading)
        && matches!(wish.av_type, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE)
        && wish.cq_data_size <= DATA_BYTES
        && wish.mr_key_size <= 8
        && wish.caps & !(FI_LOCAL_COMM | FI_REMOTE_COMM) & !caps() == 0
        && wish.auth_key_size == 0
}

fn tx(wish: Option<&FiTxAttr>, caps: u64) -> FiTxAttr {
    FiTxAttr {
        caps: caps & (PRIMARY | SENDS | EXTRAS_TX | FI_LOCAL_COMM | FI_REMOTE_COMM),
        mode: 0,
        op_flags: wish.map_or(0, |it| it.op_flags),
        msg_order: ORDER | rma::ORDER,
        comp_order: 0,
        inject_size: INJECT_BYTES_MAX,
        size: wish.map(|it| it.size).filter(|&size| size > 0).unwrap_or(OPERATIONS),
        iov_limit: PARTS_MAX,
        rma_iov_limit: rma::PARTS_MAX,
        tclass: 0,
    }
}

fn rx(wish: Option<&FiRxAttr>, caps: u64) -> FiRxAttr {
    FiRxAttr {
        caps: caps & (PRIMARY | RECEIVES | EXTRAS | FI_RMA_EVENT | FI_LOCAL_COMM | FI_REMOTE_COMM),
        mode: 0,
        op_flags: wish.map_or(0, |it| it.op_flags),
        msg_order: ORDER | rma::ORDER,
        comp_order: 0,
        total_buffered_recv: 0,
        size: wish.map(|it| it.size).filter(|&size| size > 0).unwrap_or(OPERATIONS),
        iov_limit: PARTS_MAX,
    }
}

fn ep() -> FiEpAttr {
    FiEpAttr {
        kind: FI_EP_RDM,
        protocol: address::FORMAT,
        protocol_version: 1,
        max_msg_size: MESSAGE_BYTES_MAX,
        msg_prefix_size: 0,
        max_order_raw_size: rma::ORDERED_BYTES_MAX,
        max_order_war_size: rma::ORDERED_BYTES_MAX,
        max_order_waw_size: rma::ORDERED_BYTES_MAX,
        mem_tag_format: TAG_FORMAT,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: ptr::null_mut(),
    }
}

fn domain(wish: Option<&FiDomainAttr>, version: u32) -> FiDomainAttr {
    let or = |value: Option<i32>, none: i32, default: i32| match value {
        Some(value) if value != none => value,
        _ => default,
    };
    let progress = |value| or(value, FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL);
    // Old programs name one of two modes; new ones name what they can do, which is not needed.
    let mr_mode = match wish.map(|it| it.mr_mode) {
        Some(mode @ (FI_MR_BASIC | FI_MR_SCALABLE)) => mode,
        None if version < crate::ffi::flags::version(1, 5) => FI_MR_BASIC,
        _ => 0,
    };
    FiDomainAttr {
        domain: ptr::null_mut(),
        name: ptr::null_mut(),
        threading: or(wish.map(|it| it.threading), FI_THREAD_UNSPEC, FI_THREAD_SAFE),
        control_progress: progress(wish.map(|it| it.control_progress)),
        data_progress: progress(wish.map(|it| it.data_progress)),
        resource_mgmt: FI_RM_ENABLED,
        av_type: or(wish.map(|it| it.av_type), FI_AV_UNSPEC, FI_AV_TABLE),
        mr_mode,
        mr_key_size: 8,
        cq_data_size: DATA_BYTES,
        cq_cnt: 1 << 16,
        ep_cnt: 1 << 12,
        tx_ctx_cnt: 1 << 12,
        rx_ctx_cnt: 1 << 12,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: 1 << 16,
        mr_iov_limit: rma::REGION_PARTS_MAX,
        caps: reach(),
        mode: 0,
        auth_key: ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: 1 << 20,
        tclass: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(caps: u64) -> Wish {
        Wish { caps, ..Wish::default() }
    }

    #[test]
    fn everything_is_offered_to_who_asks_for_nothing() {
        let limits = wish(0).meet(version(1, 17)).unwrap();
        assert_eq!(limits.caps, caps());
        assert_eq!(limits.domain.mr_mode, 0);
        assert_eq!(limits.domain.threading, FI_THREAD_SAFE);
    }

    #[test]
    fn what_is_not_asked_for_is_left_out() {
        let limits = wish(FI_TAGGED).meet(version(1, 17)).unwrap();
        assert_eq!(limits.caps & PRIMARY, FI_TAGGED);
        assert_eq!(limits.caps & (SENDS | RECEIVES), FI_SEND | FI_RECV);
        assert_eq!(limits.caps & EXTRAS, 0);
        let limits = wish(FI_MSG | FI_RECV | FI_SOURCE).meet(version(1, 17)).unwrap();
        assert_eq!(limits.caps & (SENDS | RECEIVES | EXTRAS), FI_RECV | FI_SOURCE);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert_eq!(wish(FI_TAGGED | FI_HMEM).meet(version(1, 17)).err(), Some(Code::NO_DATA));
        let other = Wish { addr_format: 2, ..Wish::default() };
        assert_eq!(other.meet(version(1, 17)).err(), Some(Code::NO_DATA));
        let named = Wish { named_otherwise: true, ..Wish::default() };
        assert_eq!(named.meet(version(1, 17)).err(), Some(Code::NO_DATA));
        let ep = FiEpAttr { kind: 1, ..ep() };
        let stream = Wish { ep: Some(ep), ..Wish::default() };
        assert_eq!(stream.meet(version(1, 17)).err(), Some(Code::NO_DATA));
    }

    #[test]
    fn threading_progress_and_vectors_are_echoed() {
        let mut asked = domain(None, version(2, 5));
        asked.threading = FI_THREAD_DOMAIN;
        asked.data_progress = FI_PROGRESS_AUTO;
        asked.av_type = FI_AV_MAP;
        asked.mr_mode = FI_MR_ENDPOINT;
        let limits = Wish { domain: Some(asked), ..Wish::default() }.meet(version(2, 5)).unwrap();
        assert_eq!(limits.domain.threading, FI_THREAD_DOMAIN);
        assert_eq!(limits.domain.data_progress, FI_PROGRESS_AUTO);
        assert_eq!(limits.domain.av_type, FI_AV_MAP);
        assert_eq!(limits.domain.mr_mode, 0);
    }

    #[test]
    fn bounds_are_kept() {
        let mut asked = tx(None, caps());
        assert!(fits_tx(&asked, caps()));
        asked.inject_size = INJECT_BYTES_MAX + 1;
        assert!(!fits_tx(&asked, caps()));
        let mut asked = rx(None, caps());
        asked.iov_limit = PARTS_MAX + 1;
        assert!(!fits_rx(&asked, caps()));
    }
}
