//! Numbered points of the protocol at which a test can kill the process.
//!
//! With the feature `failpoints`, `PINFOLD_FAILPOINT=NAME:COUNT` in the environment has the
//! process kill itself (`SIGKILL`) the COUNT-th time it comes to the point called NAME. Without
//! the feature this module is empty calls.

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A point of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Point { $($(#[$doc])* $name),* }

        impl Point {
            /// Every point, in the order a message comes past them.
            pub const ALL: &[Point] = &[$(Point::$name),*];

            /// The name that the environment variable uses.
            pub const fn name(self) -> &'static str {
                match self { $(Point::$name => stringify!($name)),* }
            }
        }
    };
}

points! {
    HelloSent, WelcomeSent, ProofSent, ReadySent, Joined,
    TagHighSent, BeforeInline, AfterInline,
    BeforeEager, BeforePiece, AfterPiece,
    BeforeExtent, AfterExtent, BeforeAnnounce, AfterAnnounce, ExtentTaken,
    Matched, BeforeStreamAck, AfterStreamAck, BeforePutAck, AfterPutAck,
    ChunkClaimed, ChunkRead, ChunkWritten, BeforeWrote, AfterWrote, BeforeFin, AfterFin,
    BeforeCall, AfterCall, InHandler, BeforeReply, AfterReply,
    BeforeOpen, AfterOpen, BeforeOpened, AfterOpened, InOperation,
    BeforeFlag, AfterFlag, BeforeMove, AfterMove,
    BeforeTranslate, AfterTranslate, BeforeLend, AfterLend, BeforeTranslated, AfterTranslated, Learned,
    InSpace, BeforeCarried, AfterCarried, BeforeServed, AfterServed, BeforePages, AfterPages,
    AfterEnd,
    BeforeGone, AfterGone, BeforePublish, AfterPublish, BellAsked, BeforeSleep, AfterSleep, BeforeClose,
}

/// Dies here if the environment says so.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn hit(_point: Point) {}

/// Dies here if the environment says so.
#[cfg(feature = "failpoints")]
pub(crate) fn hit(point: Point) {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };

    static CHOSEN: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let value = std::env::var("PINFOLD_FAILPOINT").ok()?;
        let (name, count) = value.split_once(':').unwrap_or((&value, "1"));
        Some((name.to_owned(), AtomicU64::new(count.parse().unwrap_or(1))))
    });
    if let Some((name, left)) = chosen
        && name == point.name()
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal may be taken a moment later; nothing more must happen before.
        loop {
            std::thread::park();
        }
    }
}
