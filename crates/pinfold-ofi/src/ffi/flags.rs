//! The numbers of the interface: capabilities, flags, enumerations and codes of errors, by the
//! names that the headers give them.

macro_rules! numbers {
    ($kind:ty: $($name:ident = $value:expr,)*) => { $(pub const $name: $kind = $value;)* };
}

pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

// Capabilities and flags of operations.
numbers! { u64:
    FI_MSG = 1 << 1,
    FI_RMA = 1 << 2,
    FI_TAGGED = 1 << 3,
    FI_ATOMIC = 1 << 4,
    FI_READ = 1 << 8,
    FI_WRITE = 1 << 9,
    FI_RECV = 1 << 10,
    FI_SEND = 1 << 11,
    FI_REMOTE_READ = 1 << 12,
    FI_REMOTE_WRITE = 1 << 13,
    FI_MULTI_RECV = 1 << 16,
    FI_REMOTE_CQ_DATA = 1 << 17,
    FI_MORE = 1 << 18,
    FI_PEEK = 1 << 19,
    FI_TRIGGER = 1 << 20,
    FI_FENCE = 1 << 21,
    FI_COMPLETION = 1 << 24,
    FI_INJECT = 1 << 25,
    FI_INJECT_COMPLETE = 1 << 26,
    FI_TRANSMIT_COMPLETE = 1 << 27,
    FI_DELIVERY_COMPLETE = 1 << 28,
    FI_COMMIT_COMPLETE = 1 << 30,
    FI_MATCH_COMPLETE = 1 << 31,
    FI_PEER = 1 << 43,
    FI_HMEM = 1 << 47,
    FI_SOURCE_ERR = 1 << 50,
    FI_LOCAL_COMM = 1 << 51,
    FI_REMOTE_COMM = 1 << 52,
    FI_SHARED_AV = 1 << 53,
    FI_PROV_ATTR_ONLY = 1 << 54,
    FI_NUMERICHOST = 1 << 55,
    FI_RMA_EVENT = 1 << 56,
    FI_SOURCE = 1 << 57,
    FI_NAMED_RX_CTX = 1 << 58,
    FI_DIRECTED_RECV = 1 << 59,
    FI_CLAIM = 1 << 59,
    FI_DISCARD = 1 << 58,
    FI_SELECTIVE_COMPLETION = 1 << 59,
    FI_FETCH_ATOMIC = 1 << 58,
    FI_COMPARE_ATOMIC = 1 << 59,
    FI_SYNC_ERR = 1 << 58,
    FI_AV_USER_ID = 1 << 41,
}

// Orders of messages.
numbers! { u64:
    FI_ORDER_RAR = 1 << 0,
    FI_ORDER_RAW = 1 << 1,
    FI_ORDER_RAS = 1 << 2,
    FI_ORDER_WAR = 1 << 3,
    FI_ORDER_WAW = 1 << 4,
    FI_ORDER_WAS = 1 << 5,
    FI_ORDER_SAR = 1 << 6,
    FI_ORDER_SAW = 1 << 7,
    FI_ORDER_SAS = 1 << 8,
    FI_ORDER_RMA_RAR = 1 << 32,
    FI_ORDER_RMA_RAW = 1 << 33,
    FI_ORDER_RMA_WAR = 1 << 34,
    FI_ORDER_RMA_WAW = 1 << 35,
    FI_ORDER_ATOMIC_RAR = 1 << 36,
    FI_ORDER_ATOMIC_RAW = 1 << 37,
    FI_ORDER_ATOMIC_WAR = 1 << 38,
    FI_ORDER_ATOMIC_WAW = 1 << 39,
}

// Modes, which a program offers and a provider may require.
numbers! { u64:
    FI_CONTEXT = 1 << 59,
    FI_ASYNC_IOV = 1 << 57,
    FI_RX_CQ_DATA = 1 << 56,
    FI_CONTEXT2 = 1 << 52,
}

// Modes of registration.
numbers! { i32:
    FI_MR_BASIC = 1 << 0,
    FI_MR_SCALABLE = 1 << 1,
    FI_MR_LOCAL = 1 << 2,
    FI_MR_VIRT_ADDR = 1 << 4,
    FI_MR_ALLOCATED = 1 << 5,
    FI_MR_PROV_KEY = 1 << 6,
    FI_MR_RMA_EVENT = 1 << 8,
    FI_MR_ENDPOINT = 1 << 9,
}

// Enumerations.
numbers! { i32:
    FI_EP_UNSPEC = 0,
    FI_EP_RDM = 3,
    FI_AV_UNSPEC = 0,
    FI_AV_MAP = 1,
    FI_AV_TABLE = 2,
    FI_PROGRESS_UNSPEC = 0,
    FI_PROGRESS_AUTO = 1,
    FI_PROGRESS_MANUAL = 2,
    FI_PROGRESS_CONTROL_UNIFIED = 3,
    FI_THREAD_UNSPEC = 0,
    FI_THREAD_SAFE = 1,
    FI_THREAD_FID = 2,
    FI_THREAD_DOMAIN = 3,
    FI_THREAD_COMPLETION = 4,
    FI_THREAD_ENDPOINT = 5,
    FI_RM_UNSPEC = 0,
    FI_RM_ENABLED = 2,
    FI_WAIT_NONE = 0,
    FI_WAIT_UNSPEC = 1,
    FI_WAIT_SET = 2,
    FI_WAIT_FD = 3,
    FI_WAIT_YIELD = 5,
    FI_CQ_FORMAT_UNSPEC = 0,
    FI_CQ_FORMAT_CONTEXT = 1,
    FI_CQ_FORMAT_MSG = 2,
    FI_CQ_FORMAT_DATA = 3,
    FI_CQ_FORMAT_TAGGED = 4,
    FI_CQ_COND_NONE = 0,
    FI_CQ_COND_THRESHOLD = 1,
    FI_CNTR_EVENTS_COMP = 0,
    FI_GETOPSFLAG = 2,
    FI_SETOPSFLAG = 3,
    FI_ALIAS = 4,
    FI_GETWAIT = 5,
    FI_ENABLE = 6,
    FI_GETWAITOBJ = 16,
    FI_OPT_ENDPOINT = 0,
    FI_OPT_MIN_MULTI_RECV = 0,
    FI_OPT_CM_DATA_SIZE = 1,
    FI_OPT_TX_SIZE = 6,
    FI_OPT_RX_SIZE = 7,
    FI_OPT_FI_HMEM_P2P = 8,
    FI_HMEM_P2P_DISABLED = 3,
}

numbers! { u32:
    FI_NOTIFY = 0,
    FI_AV_COMPLETE = 5,
    FI_FORMAT_UNSPEC = 0,
    FI_PROV_SPECIFIC = 1 << 31,
    FI_TC_UNSPEC = 0,
    FI_PROTO_UNSPEC = 0,
}

// Kinds of objects.
numbers! { usize:
    FI_CLASS_FABRIC = 1,
    FI_CLASS_DOMAIN = 2,
    FI_CLASS_EP = 3,
    FI_CLASS_AV = 11,
    FI_CLASS_MR = 12,
    FI_CLASS_EQ = 13,
    FI_CLASS_CQ = 14,
    FI_CLASS_CNTR = 15,
}

// Codes of errors beside those of the system.
numbers! { i32:
    FI_EOTHER = 256,
    FI_ETOOSMALL = 257,
    FI_EOPBADSTATE = 258,
    FI_EAVAIL = 259,
    FI_EBADFLAGS = 260,
    FI_ENOEQ = 261,
    FI_EDOMAIN = 262,
    FI_ENOCQ = 263,
    FI_ETRUNC = 265,
    FI_ENOKEY = 266,
    FI_ENOAV = 267,
    FI_EOVERRUN = 268,
}

/// An address that is none: from anybody, or of nobody in the address vector.
pub const FI_ADDR_UNSPEC: u64 = u64::MAX;
/// The key of memory that has none.
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;
