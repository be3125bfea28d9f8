//! The settings of an endpoint, for C.

use std::{
    ffi::{CStr, c_char},
    slice,
    time::Duration,
};

use pinfold::{Access, Builder, Endpoint, Path, PathSet, Progress, Who};

use crate::{
    receipt::PINFOLD_PATHS,
    sized::Plain,
    status::{Failure, Outcome, pinfold_status, run},
};

/// The settings of an endpoint. Begin with pinfold_config_init(); a field that is 0, false or NULL
/// leaves its setting as it is by itself. Strings are looked at during the call alone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinfold_config {
    /// The size of this structure; pinfold_config_init() sets it.
    pub size: usize,
    /// The name of this endpoint in peers' errors and reports; at most 32 bytes.
    pub label: *const c_char,
    /// Listens at "local:NAME", for peers on this host, or at "tcp:HOST:PORT", for others; one of
    /// each at most, with a comma between them. NULL: nobody can connect.
    pub listen: *const c_char,
    /// The file with the key that this endpoint shares with those on other hosts.
    pub key_file: *const c_char,
    /// The key itself, in place of a file: 32 to 4,096 bytes.
    pub key: *const u8,
    /// Its length, bytes.
    pub key_len: usize,
    /// Users that may connect beside this one: names or numbers, commas between them.
    pub users: *const c_char,
    /// Groups whose members may connect: names or numbers, commas between them.
    pub groups: *const c_char,
    /// The paths that messages may take: bit N for the pinfold_path N. 0: all.
    pub paths: u32,
    /// A path that cannot be taken is an error, PINFOLD_PATH_REFUSED, in place of a slower way.
    pub strict: bool,
    /// Connections with other hosts are encrypted (TLS 1.3); both sides have to set the same.
    pub encrypt: bool,
    /// Peers that are called by host and port are reached so on this host, too.
    pub no_local_shortcut: bool,
    /// A thread of the endpoint makes progress. Otherwise the threads that call it do.
    pub dedicated_progress: bool,
    /// No io_uring is used.
    pub no_io_uring: bool,
    /// Pages are not moved to make messages contiguous; they are copied.
    pub no_page_moves: bool,
    /// Memory of posted receives is not put there in advance.
    pub no_prepared_receives: bool,
    /// 0.
    pub reserved: u8,
    /// The longest wait for an answer when connecting, nanoseconds.
    pub connect_timeout: i64,
    /// The longest wait for a connection with another host that broke, nanoseconds.
    pub reconnect_timeout: i64,
    /// The most bytes of shared memory of one peer's ring.
    pub lane_bytes_max: usize,
    /// The most bytes of peers' memory that are mapped at a time.
    pub mapped_bytes_max: usize,
    /// The most bytes of messages that came before their receive.
    pub unexpected_bytes_max: usize,
    /// The most bytes of memory that one peer has been given and not returned.
    pub given_bytes_max: usize,
    /// The longest active message, bytes.
    pub active_bytes_max: usize,
    /// The most peers at a time.
    pub peers_max: usize,
}

// SAFETY: integers, pointers that may be NULL, and booleans, which C's are.
unsafe impl Plain for pinfold_config {}

/// Sets all fields to 0 and `size` to `size`, which is sizeof(pinfold_config).
///
/// # Safety
/// `config` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_config_init(
    config: *mut pinfold_config,
    size: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: all bits 0 are a value.
        let mut fresh: pinfold_config = unsafe { std::mem::zeroed() };
        fresh.size = size;
        // SAFETY: the caller's.
        unsafe { fresh.write(config, size, "config") }
    })
}

/// Text of the program's. `None`: NULL.
///
/// # Safety
/// NULL, or a string that ends with a 0.
pub(crate) unsafe fn text<'a>(at: *const c_char, name: &str) -> Outcome<Option<&'a str>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// As [`text`], of text that must be there.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn needed<'a>(at: *const c_char, name: &str) -> Outcome<&'a str> {
    // SAFETY: the caller's.
    unsafe { text(at, name) }?.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// The names or numbers of a list.
fn listed(list: &str) -> impl Iterator<Item = Who> + '_ {
    let who = |it: &str| it.parse::<u32>().map_or_else(|_| Who::from(it), Who::from);
    list.split(',').map(str::trim).filter(|it| !it.is_empty()).map(who)
}

/// The builder of an endpoint with these settings.
///
/// # Safety
/// NULL, or as the header says.
pub(crate) unsafe fn builder(config: *const pinfold_config) -> Outcome<Builder> {
    let builder = Endpoint::builder();
    if config.is_null() {
        return Ok(builder);
    }
    // SAFETY: a config begins with its size, and has as many bytes.
    let config = unsafe {
        let size = (&raw const (*config).size).read();
        pinfold_config::read(config, size, "config")
    }?;
    // SAFETY: the caller's.
    let builder = unsafe { names(builder, &config) }?;
    numbers(flags(builder, &config), &config)
}

/// # Safety
/// As of [`builder`].
unsafe fn names(mut builder: Builder, config: &pinfold_config) -> Outcome<Builder> {
    // SAFETY: the caller's.
    let said = |at, name| unsafe { text(at, name) };
    if let Some(label) = said(config.label, "label")? {
        builder = builder.label(label);
    }
    for address in said(config.listen, "listen")?.unwrap_or_default().split(',') {
        if !address.trim().is_empty() {
            builder = builder.listen(address.trim());
        }
    }
    if let Some(file) = said(config.key_file, "key_file")? {
        builder = builder.key_file(file);
    }
    if !config.key.is_null() {
        // SAFETY: the caller's.
        builder = builder.key(unsafe { slice::from_raw_parts(config.key, config.key_len) });
    }
    let (users, groups) = (said(config.users, "users")?, said(config.groups, "groups")?);
    if users.is_some() || groups.is_some() {
        let access = listed(users.unwrap_or_default()).fold(Access::same_user(), Access::user);
        builder = builder.access(listed(groups.unwrap_or_default()).fold(access, Access::group));
    }
    Ok(builder)
}

fn flags(mut builder: Builder, config: &pinfold_config) -> Builder {
    if config.dedicated_progress {
        builder = builder.progress(Progress::Dedicated);
    }
    if config.no_io_uring {
        builder = builder.io_uring(false);
    }
    if config.no_page_moves {
        builder = builder.move_pages(false);
    }
    if config.no_prepared_receives {
        builder = builder.prepare_receives(false);
    }
    if config.encrypt {
        builder = builder.encrypt(true);
    }
    builder.strict(config.strict).local_shortcut(!config.no_local_shortcut)
}

fn numbers(mut builder: Builder, config: &pinfold_config) -> Outcome<Builder> {
    if config.paths != 0 {
        if config.paths >> PINFOLD_PATHS != 0 {
            let why = format!("paths has bits beyond the {PINFOLD_PATHS} paths there are");
            return Err(Failure::invalid(why));
        }
        let named = Path::ALL.into_iter().filter(|path| config.paths >> *path as u32 & 1 != 0);
        builder = builder.paths(named.fold(PathSet::none(), PathSet::with));
    }
    type Time = fn(Builder, Duration) -> Builder;
    let times: [(i64, &str, Time); 2] = [
        (config.connect_timeout, "connect_timeout", Builder::connect_timeout),
        (config.reconnect_timeout, "reconnect_timeout", Builder::reconnect_timeout),
    ];
    for (time, name, set) in times {
        let time = u64::try_from(time)
            .map_err(|_| Failure::invalid(format!("{name} is {time} ns, before now")))?;
        if time != 0 {
            builder = set(builder, Duration::from_nanos(time));
        }
    }
    type Limit = fn(Builder, usize) -> Builder;
    let limits: [(usize, Limit); 6] = [
        (config.lane_bytes_max, Builder::lane_bytes_max),
        (config.mapped_bytes_max, Builder::mapped_bytes_max),
        (config.unexpected_bytes_max, Builder::unexpected_bytes_max),
        (config.given_bytes_max, Builder::given_bytes_max),
        (config.active_bytes_max, Builder::active_bytes_max),
        (config.peers_max, Builder::peers_max),
    ];
    let named = limits.into_iter().filter(|(limit, _)| *limit != 0);
    Ok(named.fold(builder, |builder, (limit, set)| set(builder, limit)))
}
