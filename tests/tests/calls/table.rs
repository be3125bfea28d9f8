//! The system calls that endpoints make, with the effect on an endpoint that lacks one.

use std::sync::LazyLock;

use pinfold_tests::filter;

/// The need for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Everything works without it.
    Optional,
    /// An operation fails without it, and names it.
    Indispensable,
}

/// A call, or some uses of one, that are taken away.
pub struct Denial {
    /// For messages and as an argument: the call, and the part of it that is denied.
    pub name: &'static str,
    /// The call as errors name it.
    pub call: &'static str,
    number: libc::c_long,
    /// The uses alone in which these arguments, under their masks, have these values.
    uses: Vec<(u8, u64, u64)>,
    pub need: Need,
}

impl Denial {
    /// From now on this process goes without the call.
    pub fn deny(&self, errno: i32) {
        filter::deny_where(self.number, &self.uses, errno);
    }
}

/// The entry with a name.
pub fn find(name: &str) -> &'static Denial {
    DENIALS.iter().find(|denial| denial.name == name).expect("a name of the table")
}

/// Every call that may be made.
pub fn numbers() -> Vec<libc::c_long> {
    DENIALS.iter().map(|denial| denial.number).chain(LEFT_OUT).collect()
}

macro_rules! whole {
    ($need:ident: $($call:ident)*) => {
        [$(Denial {
            name: &stringify!($call)[4..],
            call: &stringify!($call)[4..],
            number: libc::$call,
            uses: Vec::new(),
            need: Need::$need,
        }),*]
    };
}

macro_rules! uses {
    ($call:ident, $need:ident: $($name:literal $($arg:literal & $mask:tt => $value:expr),*;)*) => {
        [$(Denial {
            name: &concat!(stringify!($call), " ", $name)[4..],
            call: &stringify!($call)[4..],
            number: libc::$call,
            uses: vec![$(($arg, $mask as u64, $value as u64)),*],
            need: Need::$need,
        }),*]
    };
}

pub static DENIALS: LazyLock<Vec<Denial>> = LazyLock::new(|| {
    let mut all = Vec::new();
    all.extend(whole!(Indispensable:
        SYS_accept4 SYS_bind SYS_clone3 SYS_connect SYS_epoll_create1 SYS_epoll_ctl SYS_eventfd2
        SYS_fcntl SYS_flock SYS_fstat SYS_ftruncate SYS_getsockname SYS_getsockopt SYS_listen
        SYS_memfd_create SYS_newfstatat SYS_openat SYS_read SYS_recvmsg SYS_sendmsg SYS_socket
    ));
    all.extend(whole!(Optional:
        SYS_clock_gettime SYS_clock_nanosleep SYS_clone SYS_epoll_pwait SYS_epoll_wait SYS_fallocate
        SYS_fchmodat SYS_fstatfs SYS_getdents64 SYS_getgroups SYS_getpeername
        SYS_getppid SYS_getrandom
        SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup SYS_ioctl SYS_lseek SYS_madvise
        SYS_membarrier SYS_mincore SYS_mkdirat SYS_mlock SYS_munlock SYS_open SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2
        SYS_poll SYS_ppoll SYS_prctl SYS_pread64 SYS_prlimit64 SYS_process_vm_readv
        SYS_process_vm_writev SYS_readlink SYS_recvfrom SYS_sched_getaffinity SYS_sched_yield
        SYS_sendto SYS_set_robust_list SYS_setsockopt SYS_shutdown SYS_statx SYS_sysinfo
        SYS_timerfd_create SYS_timerfd_settime SYS_unlinkat SYS_userfaultfd SYS_utimensat
        SYS_wait4 SYS_write
    ));
    // Uses of indispensable calls, each indispensable or not.
    all.extend(uses!(SYS_mmap, Indispensable: "of a file" 3 & 0xf => libc::MAP_SHARED;));
    all.extend(uses!(SYS_fcntl, Indispensable: "F_GET_SEALS" 1 & 0xffff => libc::F_GET_SEALS;));
    all.extend(uses!(SYS_fcntl, Optional: "F_DUPFD" 1 & 0xffff => libc::F_DUPFD_CLOEXEC;));
    all.extend(uses!(SYS_getsockopt, Optional:
        "SO_PEERPIDFD" 2 & 0xffff => 77;
        "SO_PEERGROUPS" 2 & 0xffff => libc::SO_PEERGROUPS;
    ));
    all.extend(uses!(SYS_epoll_ctl, Optional:
        "EPOLL_CTL_DEL" 1 & 0xffff => libc::EPOLL_CTL_DEL;
        "EPOLL_CTL_MOD" 1 & 0xffff => libc::EPOLL_CTL_MOD;
    ));
    all.extend(uses!(SYS_socket, Indispensable:
        "AF_UNIX" 0 & 0xffff => libc::AF_UNIX;
        "AF_INET" 0 & 0xffff => libc::AF_INET;
    ));
    all.extend(uses!(SYS_sendmsg, Optional:
        "MSG_ZEROCOPY" 2 & 0x0400_0000 => libc::MSG_ZEROCOPY;
    ));
    all
});

/// Calls without which no program of the C library's or of Rust's goes on, calls that cannot fail,
/// and calls that the test speaks by.
const LEFT_OUT: [libc::c_long; 22] = [
    libc::SYS_brk,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_seccomp,
];
