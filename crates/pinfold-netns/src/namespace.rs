//! A network namespace.
#![allow(unsafe_code)]
// Invariant: only threads made here enter a namespace, and children between `fork` and `exec`; a
// caller's thread stays where it is.

use std::{
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    panic,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage},
};
use rustix::{
    fs::{self, Mode, OFlags},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

use super::{Error, Link, route::Route, sysfs};

/// A network of its own: interfaces, addresses, neighbours, ports. See `network_namespaces(7)`.
///
/// Held by a descriptor: it is gone, with all its links, once every clone of it, every link in it,
/// every socket made in it and every process within have gone. Nothing of it is under `/run/netns`.
#[derive(Clone)]
pub struct Namespace {
    held: Arc<Held>,
}

struct Held {
    descriptor: OwnedFd,
    /// The kernel's number of it, which `/proc/PID/ns/net` shows in brackets.
    inode: u64,
    route: Mutex<Route>,
}

impl Namespace {
    /// Makes a namespace with nothing in it but the loopback, which is up. Costs a thread and some
    /// 100 µs of the kernel's.
    ///
    /// # Errors
    /// [`Reason::Denied`](super::Reason::Denied) without `CAP_SYS_ADMIN`,
    /// [`Reason::Exhausted`](super::Reason::Exhausted) at a limit on namespaces.
    pub fn new() -> Result<Namespace, Error> {
        let made = in_thread(|| {
            // SAFETY: a thread's network is of no consequence to memory or descriptors, and this
            // thread ends at once.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(|errno| Error::new("unshare(CLONE_NEWNET)", "", errno))?;
            Namespace::current()
        });
        let made = made??;
        made.link("lo")?.up()?;
        Ok(made)
    }

    /// The namespace that the calling thread is in.
    ///
    /// # Errors
    /// If there is no `/proc`, or at a limit on descriptors.
    pub fn current() -> Result<Namespace, Error> {
        const HERE: &str = "/proc/thread-self/ns/net";
        let descriptor = fs::open(HERE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| Error::new("open", HERE, errno))?;
        let inode =
            fs::fstat(&descriptor).map_err(|errno| Error::new("fstat", HERE, errno))?.st_ino;
        let route =
            Route::open().map_err(|error| Error::io("socket(NETLINK_ROUTE)", HERE, &error))?;
        Ok(Namespace { held: Arc::new(Held { descriptor, inode, route: Mutex::new(route) }) })
    }

    /// Runs `work` in a thread of its own that has entered the namespace, and waits for it: sockets
    /// made in it belong there for good, and so do threads that it starts. Costs a thread.
    ///
    /// # Errors
    /// [`Reason::Denied`](super::Reason::Denied) without `CAP_SYS_ADMIN`; the work was not begun
    /// then.
    ///
    /// # Panics
    /// If the work does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        in_thread(|| {
            enter(self.as_fd())
                .map_err(|errno| Error::new("setns(CLONE_NEWNET)", self.name(), errno))?;
            Ok(work())
        })?
    }

    /// Has `command` start inside.
    ///
    /// # Errors
    /// At a limit on descriptors. Refusals of entering itself come from the start of the command.
    pub fn hold(&self, command: &mut Command) -> Result<(), Error> {
        let descriptor = self
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Error::io("dup", self.name(), &error))?;
        // SAFETY: between `fork` and `exec` it makes one system call and allocates nothing.
        unsafe { command.pre_exec(move || Ok(enter(descriptor.as_fd())?)) };
        Ok(())
    }

    /// Has `command` start inside, with a `/sys` that shows this namespace: for programs that look
    /// for networks there.
    ///
    /// # Errors
    /// At a limit on descriptors. Other refusals [`Namespace::check_sys`] explains better than the
    /// start of the command.
    pub fn hold_with_sys(&self, command: &mut Command) -> Result<(), Error> {
        self.hold(command)?;
        // SAFETY: between `fork` and `exec` it makes system calls only and allocates nothing.
        unsafe { command.pre_exec(|| sysfs::show().map_err(|(_, errno)| errno.into())) };
        Ok(())
    }

    /// Checks that a command can have a `/sys` that shows this namespace. Costs a thread.
    ///
    /// # Errors
    /// [`Reason::Denied`](super::Reason::Denied) without `CAP_SYS_ADMIN`,
    /// [`Reason::Masked`](super::Reason::Masked) in a user namespace where parts of `/sys` are
    /// hidden.
    pub fn check_sys(&self) -> Result<(), Error> {
        self.run(|| sysfs::show().map_err(|(call, errno)| Error::new(call, self.name(), errno)))?
    }

    /// Starts `command` inside.
    ///
    /// # Errors
    /// Those of [`Namespace::hold`], [`Reason::Denied`](super::Reason::Denied) without
    /// `CAP_SYS_ADMIN`, and those of starting a program.
    pub fn spawn(&self, mut command: Command) -> Result<Child, Error> {
        self.hold(&mut command)?;
        command.spawn().map_err(|error| {
            Error::io("setns or exec", format!("{:?}", command.get_program()), &error)
        })
    }

    /// The number that the kernel gives it, which `/proc/PID/ns/net` shows in brackets.
    pub fn inode(&self) -> u64 {
        self.held.inode
    }

    /// The link called `name`.
    ///
    /// # Errors
    /// [`Reason::Gone`](super::Reason::Gone) if there is none.
    pub fn link(&self, name: &str) -> Result<Link, Error> {
        Link::find(self, name)
    }

    /// The names of all links, the loopback among them.
    ///
    /// # Errors
    /// Not expected.
    pub fn links(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        let every = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.route()
            .dump(every, |message| {
                let RouteNetlinkMessage::NewLink(link) = message else { return };
                names.extend(link.attributes.into_iter().find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) => Some(name),
                    _ => None,
                }));
            })
            .map_err(|error| Error::io("RTM_GETLINK", self.name(), &error))?;
        Ok(names)
    }

    pub(super) fn route(&self) -> MutexGuard<'_, Route> {
        // A panic within leaves at worst an answer unread, which its number tells apart.
        self.held.route.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `/proc/PID/ns/net` shows it.
    pub(super) fn name(&self) -> String {
        format!("net:[{}]", self.inode())
    }
}

impl AsFd for Namespace {
    /// For `setns(2)`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.descriptor.as_fd()
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Namespace) -> bool {
        self.inode() == other.inode()
    }
}

impl Eq for Namespace {}

fn enter(namespace: BorrowedFd<'_>) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

/// The result of `work` in a thread of its own; its panic goes on here.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name(thread::current().name().unwrap_or("netns").to_owned())
            .spawn_scoped(scope, work)
            .map_err(|error: io::Error| Error::io("clone", "a thread", &error))?;
        thread.join().map_err(|panic| panic::resume_unwind(panic))
    })
}
