//! libfabric itself: found once, kept for as long as the process lives.
#![allow(unsafe_code)]
// Invariant: the functions have the types that libfabric's header gives the symbols of these
// versions.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::{MaybeUninit, transmute},
    net::Ipv4Addr,
    ptr,
    sync::OnceLock,
};

use super::{
    Error,
    abi::{
        FI_EP_RDM, FI_ORDER_SAS, FI_PROGRESS_MANUAL, FI_SOCKADDR_IN, FI_SOURCE, FI_TAGGED,
        FI_THREAD_DOMAIN, Fabric, FabricAttr, Info, VERSION,
    },
};

/// The name that the loader looks for; the number is that of the interface, which has not changed
/// since 1.0.
const NAME: &CStr = c"libfabric.so.1";

/// Providers over TCP, the best first. Up to 1.17 `net` sends tagged messages by itself where `tcp`
/// needs another layer, which costs half a microsecond a message and a third of the bandwidth of 64
/// KiB; from 1.18 on that provider is called `tcp`.
pub(super) const PROVIDERS: [&CStr; 2] = [c"net", c"tcp"];

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut Fabric, *mut c_void) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// Its functions.
pub(super) struct Library {
    getinfo: GetInfo,
    freeinfo: FreeInfo,
    dupinfo: DupInfo,
    fabric: OpenFabric,
    strerror: StrError,
}

/// A provider's abilities, by the library's own account.
pub(super) struct Offer {
    library: &'static Library,
    pub(super) info: *mut Info,
}

impl Library {
    /// The library, which is loaded if it has not been.
    pub(super) fn get() -> Result<&'static Library, Error> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        let library = Library::load(NAME)?;
        Ok(LIBRARY.get_or_init(|| library))
    }

    pub(super) fn load(name: &CStr) -> Result<Library, Error> {
        let missing =
            || Error::Missing { name: name.to_string_lossy().into_owned(), why: loader_says() };
        let _kept = Handlers::keep();
        // SAFETY: the name ends with a zero. The library runs code of its own when it is loaded, as
        // any library that a program is linked with; changes it makes to signals are undone. It is
        // never unloaded.
        let loaded = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if loaded.is_null() {
            return Err(missing());
        }
        let symbol = |name: &CStr, version: &CStr| {
            // SAFETY: the library is loaded and stays so; both names end with a zero.
            let at = unsafe { libc::dlvsym(loaded, name.as_ptr(), version.as_ptr()) };
            if at.is_null() { Err(missing()) } else { Ok(at) }
        };
        let at = symbol(c"fi_version", c"FABRIC_1.0")?;
        // SAFETY: `uint32_t fi_version(void)`, says the header.
        let version: unsafe extern "C" fn() -> u32 = unsafe { transmute(at) };
        // SAFETY: takes nothing and changes nothing.
        let version = unsafe { version() };
        if version < VERSION {
            return Err(Error::Old { version: (version >> 16, version & 0xffff) });
        }
        let getinfo = symbol(c"fi_getinfo", c"FABRIC_1.3")?;
        let freeinfo = symbol(c"fi_freeinfo", c"FABRIC_1.3")?;
        let dupinfo = symbol(c"fi_dupinfo", c"FABRIC_1.3")?;
        let fabric = symbol(c"fi_fabric", c"FABRIC_1.1")?;
        let strerror = symbol(c"fi_strerror", c"FABRIC_1.0")?;
        // SAFETY: these are the functions' types in those versions, which libfabric promises to
        // keep.
        unsafe {
            Ok(Library {
                getinfo: transmute::<*mut c_void, GetInfo>(getinfo),
                freeinfo: transmute::<*mut c_void, FreeInfo>(freeinfo),
                dupinfo: transmute::<*mut c_void, DupInfo>(dupinfo),
                fabric: transmute::<*mut c_void, OpenFabric>(fabric),
                strerror: transmute::<*mut c_void, StrError>(strerror),
            })
        }
    }

    /// The offer of the first provider that has tagged messages over TCP from `at`.
    pub(super) fn offer(&'static self, at: Ipv4Addr, of: &[&CStr]) -> Result<Offer, Error> {
        let _kept = Handlers::keep();
        let node = CString::new(at.to_string()).map_err(|_| Error::NoProvider { at })?;
        for provider in of {
            let hints = self.hints(provider)?;
            let mut info = ptr::null_mut();
            // SAFETY: the name ends with a zero, the hints are the library's own, and it may write
            // where its answer goes.
            let done = unsafe {
                let node = node.as_ptr();
                (self.getinfo)(VERSION, node, ptr::null(), FI_SOURCE, hints.info, &mut info)
            };
            if done == -libc::ENODATA {
                continue;
            }
            self.check("fi_getinfo", done)?;
            return Ok(Offer { library: self, info });
        }
        Err(Error::NoProvider { at })
    }

    /// The description that is asked for.
    fn hints(&'static self, provider: &CStr) -> Result<Offer, Error> {
        // SAFETY: of no description it makes an empty one, all parts of which are there.
        let info = unsafe { (self.dupinfo)(ptr::null()) };
        if info.is_null() {
            return Err(self.refused("fi_allocinfo", libc::ENOMEM));
        }
        let hints = Offer { library: self, info };
        // SAFETY: all of it was made a moment ago for nobody else. The name is a copy that
        // `malloc(3)` made, as the library, which frees it, expects.
        unsafe {
            (*info).caps = FI_TAGGED;
            (*info).mode = 0;
            (*info).addr_format = FI_SOCKADDR_IN;
            (*(*info).ep_attr).kind = FI_EP_RDM;
            (*(*info).tx_attr).msg_order = FI_ORDER_SAS;
            (*(*info).rx_attr).msg_order = FI_ORDER_SAS;
            let domain = (*info).domain_attr;
            // One thread does everything: no lock, and no thread of the library's own on this core.
            (*domain).threading = FI_THREAD_DOMAIN;
            (*domain).control_progress = FI_PROGRESS_MANUAL;
            (*domain).data_progress = FI_PROGRESS_MANUAL;
            (*(*info).fabric_attr).prov_name = libc::strdup(provider.as_ptr());
        }
        Ok(hints)
    }

    /// An error if a call returned one.
    pub(super) fn check(&self, call: &'static str, returned: c_int) -> Result<(), Error> {
        if returned < 0 { Err(self.refused(call, returned.wrapping_neg())) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn refused(&self, call: &'static str, number: c_int) -> Error {
        // SAFETY: takes any number; the text that it returns is constant, or this thread's until
        // its next call.
        let why = unsafe {
            let why = (self.strerror)(number);
            if why.is_null() { c"" } else { CStr::from_ptr(why) }
        };
        Error::Refused { call, number, why: why.to_string_lossy().into_owned() }
    }
}

impl Offer {
    /// Opens the fabric.
    pub(super) fn open(&self) -> Result<*mut Fabric, Error> {
        let mut fabric = ptr::null_mut();
        // SAFETY: the description is the library's own, unchanged; it may write where its answer
        // goes.
        let done = unsafe {
            (self.library.fabric)((*self.info).fabric_attr, &mut fabric, ptr::null_mut())
        };
        self.library.check("fi_fabric", done)?;
        Ok(fabric)
    }

    /// The provider's name.
    pub(super) fn provider(&self) -> String {
        // SAFETY: the library fills that in, ending with a zero.
        let name = unsafe { CStr::from_ptr((*(*self.info).fabric_attr).prov_name) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once.
        unsafe { (self.library.freeinfo)(self.info) };
    }
}

/// The loader's last message.
fn loader_says() -> String {
    // SAFETY: the text that it returns, if any, is this thread's until its next call.
    let said = unsafe {
        let said = libc::dlerror();
        if said.is_null() { c"no reason given" } else { CStr::from_ptr(said) }
    };
    said.to_string_lossy().into_owned()
}

/// The handlers of signals, which are as before once this is dropped: some libraries that libfabric
/// brings along put handlers of their own for faults and interruptions, for all of the process.
struct Handlers(Vec<(c_int, libc::sigaction)>);

impl Handlers {
    fn keep() -> Handlers {
        let kept = (1..=64).filter_map(|signal| Some((signal, handler(signal)?)));
        Handlers(kept.collect())
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            if handler(*signal).is_some_and(|now| now.sa_sigaction != before.sa_sigaction) {
                // SAFETY: the handler that was in force before is so again.
                unsafe { libc::sigaction(*signal, before, ptr::null_mut()) };
            }
        }
    }
}

/// The handling of a signal, if there is such a signal.
fn handler(signal: c_int) -> Option<libc::sigaction> {
    let mut now = MaybeUninit::uninit();
    // SAFETY: changes nothing, and writes where it may; if it says so, it has.
    unsafe {
        (libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) == 0).then(|| now.assume_init())
    }
}
