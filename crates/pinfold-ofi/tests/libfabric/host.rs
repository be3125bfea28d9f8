//! The system's libfabric, opened at run time, with our provider in its path.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use pinfold_fi::ffi::{
    flags::version,
    info::{FiFabricAttr, FiInfo},
    object::FidFabric,
};

/// The version of the interface that the tests are written against: Debian's.
pub const API: u32 = version(1, 17);

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const FiInfo,
    *mut *mut FiInfo,
) -> c_int;

/// The functions that libfabric exports; all others are in the tables of objects.
pub struct Host {
    pub getinfo: GetInfo,
    pub freeinfo: unsafe extern "C" fn(*mut FiInfo),
    pub dupinfo: unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo,
    pub fabric: unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// The folder that cargo built our provider in.
fn built() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let folders = here.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join("libpinfold_fi.so")).find(|file| file.exists())
}

/// The place for the provider under the name that libfabric looks for, in a folder of its own.
fn placed(built: &Path) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pinfold-fi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let to = folder.join("libpinfold-fi.so");
    let _ = std::fs::remove_file(&to);
    // A file of its own name, which other users reach too.
    if std::fs::hard_link(built, &to).is_err() {
        std::fs::copy(built, &to).expect("a copy");
    }
    folder
}

fn open() -> Result<Host, String> {
    let built = built().ok_or("the provider's library was not built as a cdylib")?;
    let set = |name: &CStr, value: &str| {
        let value = CString::new(value).expect("no zero");
        // SAFETY: strings; no other thread of a test reads the environment before this is done.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
    };
    // Children of a test find the folder of their parent.
    if std::env::var_os("FI_PROVIDER_PATH").is_none() {
        let folder = placed(&built);
        set(c"FI_PROVIDER_PATH", folder.to_str().expect("a name"));
    }
    // SAFETY: a name; the library's constructors are libfabric's.
    let library = unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err("there is no libfabric.so.1 here; apt-get install libfabric-bin".to_owned());
    }
    let find = |name: &CStr| {
        // SAFETY: the library is open, and stays so.
        let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
        if symbol.is_null() { Err(format!("libfabric has no {name:?}")) } else { Ok(symbol) }
    };
    let version = |name: &CStr, of: &CStr| {
        // SAFETY: as above.
        let symbol = unsafe { libc::dlvsym(library, name.as_ptr(), of.as_ptr()) };
        if symbol.is_null() { find(name) } else { Ok(symbol) }
    };
    // SAFETY: the functions have these types in every version since 1.3.
    unsafe {
        Ok(Host {
            getinfo: std::mem::transmute::<*mut c_void, GetInfo>(version(
                c"fi_getinfo",
                c"FABRIC_1.3",
            )?),
            freeinfo: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut FiInfo)>(
                version(c"fi_freeinfo", c"FABRIC_1.3")?,
            ),
            dupinfo: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo,
            >(version(c"fi_dupinfo", c"FABRIC_1.3")?),
            fabric: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
            >(version(c"fi_fabric", c"FABRIC_1.1")?),
            strerror: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(c_int) -> *const c_char,
            >(find(c"fi_strerror")?),
        })
    }
}

/// The system's libfabric. `None`: there is none, and the test says that it is skipped.
pub fn host() -> Option<&'static Host> {
    static HOST: OnceLock<Result<Host, String>> = OnceLock::new();
    match HOST.get_or_init(open) {
        Ok(host) => Some(host),
        Err(why) => {
            pinfold_tests::skip(why);
            None
        }
    }
}

impl Host {
    /// The text of an error, and its number.
    pub fn error(&self, code: isize) -> String {
        let code = code.unsigned_abs() as c_int;
        // SAFETY: it returns static text.
        let text = unsafe { CStr::from_ptr((self.strerror)(code)) };
        format!("{} ({code})", text.to_string_lossy())
    }
}
