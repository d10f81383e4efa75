//! Finds libfabric at run time, so that a program that does not use it does not need it.

#![allow(unsafe_code, reason = "functions of a library that is loaded")]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call through a table is one operation, whatever it takes to reach it"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::Error;
use super::bindings::{API_VERSION, FabricAttr, FidFabric, Info};

/// The names under which it is looked for.
const NAMES: [&CStr; 2] = [c"libfabric.so.1", c"libfabric.so"];

/// The functions that it exports. Everything else is called through the tables of what these return.
pub(super) struct Library {
    getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const Info,
        *mut *mut Info,
    ) -> c_int,
    freeinfo: unsafe extern "C" fn(*mut Info),
    dupinfo: unsafe extern "C" fn(*const Info) -> *mut Info,
    fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Library {
    /// libfabric, loaded once for the whole process.
    pub(super) fn get() -> Result<&'static Library, Error> {
        static LIBRARY: OnceLock<Result<Library, Error>> = OnceLock::new();
        LIBRARY
            .get_or_init(Library::load)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Loads the library and has it begin. Some of its providers then handle signals, even to end the process, and even if
    /// nobody uses them: what the program does with signals stays as it is.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn load() -> Result<Library, Error> {
        let before = signals::all();
        let library = Library::open_library();
        if let Ok(library) = &library {
            library.begin();
        }
        signals::restore(&before);
        library
    }

    /// Its first look for devices starts all providers. To ask all of them for devices would take much longer.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn begin(&self) {
        let mut found = std::ptr::null_mut();
        let nothing = std::ptr::null();
        // SAFETY: for nothing, it allocates an empty one with all of its parts.
        let hints = unsafe { (self.dupinfo)(std::ptr::null()) };
        let Some(at) = NonNull::new(hints) else {
            return;
        };
        // SAFETY: hints have all of their parts, and `freeinfo` frees the name. What is found is freed at once.
        unsafe {
            (*(*at.as_ptr()).fabric_attr).prov_name = libc::strdup(c"tcp".as_ptr());
            (self.getinfo)(API_VERSION, nothing, nothing, 0, hints, &raw mut found);
            (self.freeinfo)(hints);
        }
        if !found.is_null() {
            // SAFETY: the library has made it.
            unsafe { (self.freeinfo)(found) }
        }
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(
        clippy::missing_transmute_annotations,
        reason = "the fields name the types"
    )]
    fn open_library() -> Result<Library, Error> {
        // SAFETY: the names end in a zero. What the library does when it is loaded is its own business: who installs it
        // trusts it.
        let open = |name: &CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        let handle = NAMES
            .iter()
            .find_map(|name| NonNull::new(open(name)))
            .ok_or(Error::NoLibrary)?;
        let symbol = |name: &CStr, version: &CStr| {
            // SAFETY: the handle is open, and stays so; name and version end in a zero.
            let at = unsafe { libc::dlvsym(handle.as_ptr(), name.as_ptr(), version.as_ptr()) };
            NonNull::new(at)
                .ok_or(Error::OldLibrary)
                .map(NonNull::as_ptr)
        };
        let version = symbol(c"fi_version", c"FABRIC_1.0")?;
        let library = Library {
            // SAFETY: a function of this name and version has this signature.
            getinfo: unsafe {
                std::mem::transmute::<*mut c_void, _>(symbol(c"fi_getinfo", c"FABRIC_1.3")?)
            },
            // SAFETY: as above.
            freeinfo: unsafe {
                std::mem::transmute::<*mut c_void, _>(symbol(c"fi_freeinfo", c"FABRIC_1.3")?)
            },
            // SAFETY: as above.
            dupinfo: unsafe {
                std::mem::transmute::<*mut c_void, _>(symbol(c"fi_dupinfo", c"FABRIC_1.3")?)
            },
            // SAFETY: as above.
            fabric: unsafe {
                std::mem::transmute::<*mut c_void, _>(symbol(c"fi_fabric", c"FABRIC_1.1")?)
            },
            // SAFETY: as above.
            strerror: unsafe {
                std::mem::transmute::<*mut c_void, _>(symbol(c"fi_strerror", c"FABRIC_1.0")?)
            },
        };
        // SAFETY: as above.
        let version: unsafe extern "C" fn() -> u32 = unsafe { std::mem::transmute(version) };
        // SAFETY: it takes nothing and only returns a number.
        match unsafe { version() } {
            API_VERSION.. => Ok(library),
            _ => Err(Error::OldLibrary),
        }
    }

    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    fn load() -> Result<Library, Error> {
        Err(Error::NoLibrary)
    }

    /// An error for what a function has returned, which is negative.
    pub(super) fn error(&self, doing: &'static str, returned: isize) -> Error {
        let number = c_int::try_from(-returned).unwrap_or(c_int::MAX);
        // SAFETY: it returns a text that lasts, for any number.
        let text = unsafe { (self.strerror)(number) };
        let text = NonNull::new(text.cast_mut()).map(|text| {
            // SAFETY: the text ends in a zero and lasts.
            unsafe { CStr::from_ptr(text.as_ptr()) }
                .to_string_lossy()
                .into_owned()
        });
        Error::Failed {
            doing,
            why: text.unwrap_or_else(|| number.to_string()),
        }
    }

    /// The first way to reach or to be `node`, of those that `hints` allow.
    pub(super) fn info(
        &'static self,
        node: Option<(&CStr, &CStr)>,
        flags: u64,
        hints: &OwnedInfo,
    ) -> Result<OwnedInfo, Error> {
        let mut found = std::ptr::null_mut();
        let (node, service) = node
            .map_or((std::ptr::null(), std::ptr::null()), |(node, service)| {
                (node.as_ptr(), service.as_ptr())
            });
        // SAFETY: the texts end in a zero, the hints were made by `dupinfo`.
        let returned = unsafe {
            (self.getinfo)(
                API_VERSION,
                node,
                service,
                flags,
                hints.info.as_ptr(),
                &raw mut found,
            )
        };
        match NonNull::new(found) {
            Some(info) if returned == 0 => Ok(OwnedInfo {
                info,
                library: self,
            }),
            _ => Err(self.error("look for a device", returned as isize)),
        }
    }

    /// Hints that allow everything.
    pub(super) fn hints(&'static self) -> Result<OwnedInfo, Error> {
        // SAFETY: for nothing, it allocates an empty one with all of its parts.
        let info = unsafe { (self.dupinfo)(std::ptr::null()) };
        let info = NonNull::new(info).ok_or_else(|| self.error("allocate hints", -12))?;
        Ok(OwnedInfo {
            info,
            library: self,
        })
    }

    /// Opens the fabric of `info`.
    pub(super) fn open(&self, info: &OwnedInfo) -> Result<NonNull<FidFabric>, Error> {
        let mut fabric = std::ptr::null_mut();
        // SAFETY: the attributes are of an info that the library has made.
        let returned = unsafe {
            (self.fabric)(
                (*info.info.as_ptr()).fabric_attr,
                &raw mut fabric,
                std::ptr::null_mut(),
            )
        };
        NonNull::new(fabric)
            .filter(|_| returned == 0)
            .ok_or_else(|| self.error("open the fabric", returned as isize))
    }
}

/// A description of a way to communicate, with all that follow it in its list.
pub(super) struct OwnedInfo {
    pub(super) info: NonNull<Info>,
    library: &'static Library,
}

impl OwnedInfo {
    /// One that the library has handed over with an event.
    ///
    /// # Safety
    /// It is the library's, and nobody else's.
    pub(super) unsafe fn of_event(info: NonNull<Info>, library: &'static Library) -> OwnedInfo {
        OwnedInfo { info, library }
    }
}

impl Drop for OwnedInfo {
    fn drop(&mut self) {
        // SAFETY: it was made by the library, and is freed once.
        unsafe { (self.library.freeinfo)(self.info.as_ptr()) }
    }
}

/// What a process does with signals.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod signals {
    use std::mem::MaybeUninit;

    /// Signals that may be handled, those of real time included.
    const LAST: i32 = 64;

    /// What is done with each signal, where it can be told.
    pub(super) fn all() -> Vec<(i32, libc::sigaction)> {
        let of = |signal| {
            let mut action = MaybeUninit::uninit();
            // SAFETY: it only writes what is done with a signal.
            let returned =
                unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: it has been written.
            (returned == 0).then(|| (signal, unsafe { action.assume_init() }))
        };
        (1..=LAST).filter_map(of).collect()
    }

    /// Has that done again.
    pub(super) fn restore(actions: &[(i32, libc::sigaction)]) {
        for (signal, action) in actions {
            // SAFETY: it was done with this signal before. Two signals cannot be changed, which does no harm.
            unsafe {
                libc::sigaction(*signal, action, std::ptr::null_mut());
            }
        }
    }
}
