//! The program to run, and the MPI that it is linked with.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::args::Kind;

/// The longest program whose libraries are looked for, bytes; a longer one is taken to be of any
/// MPI.
const LOOKED_AT_MAX: u64 = 256 << 20;

/// The file of a program, by the rules of a shell.
///
/// # Errors
/// A text if there is none, or none that can be run.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, String> {
    let shown = Path::new(name).display();
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Ok(found) if found.is_dir() => Err(format!("{shown} is a directory, not a program")),
            Ok(_) if !is_program(&path) => {
                Err(format!("{shown} may not be run; if it is a program: chmod +x {shown}"))
            }
            Ok(_) => Ok(path),
            Err(error) => Err(format!("cannot run {shown}: {error}")),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join(name)).find(|path| is_program(path));
    found.ok_or_else(|| {
        let here = if Path::new(name).exists() {
            format!("; the file here is run as ./{shown}")
        } else {
            String::new()
        };
        format!("there is no program {shown} on PATH{here}")
    })
}

/// Returns whether a file can be run by somebody.
pub(super) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The MPI that a program is linked with, if it is linked with one: libraries have different names.
pub(super) fn linked_with(program: &Path) -> Option<(Kind, &'static str)> {
    let len = fs::metadata(program).ok()?.len();
    let contents = (len <= LOOKED_AT_MAX).then(|| fs::read(program).ok()).flatten()?;
    contents.starts_with(b"\x7fELF").then(|| named_in(&contents)).flatten()
}

/// The library of an MPI that a program's text table names.
fn named_in(contents: &[u8]) -> Option<(Kind, &'static str)> {
    const NAMES: [(Kind, &str); 3] = [
        (Kind::Openmpi, "libmpi.so.40"),
        (Kind::Mpich, "libmpi.so.12"),
        (Kind::Mpich, "libmpich.so.12"),
    ];
    let is_named = |name: &str| {
        let whole = [b"\0", name.as_bytes(), b"\0"].concat();
        contents.windows(whole.len()).any(|part| part == whole)
    };
    NAMES.into_iter().find(|(_, name)| is_named(name))
}

/// The MPI to use, from the wish and the program.
///
/// # Errors
/// A text if the two contradict each other: each rank would be alone in its world.
pub(super) fn agree(
    wished: Option<Kind>,
    linked: Option<(Kind, &str)>,
    program: &Path,
) -> Result<Option<Kind>, String> {
    match (wished, linked) {
        (Some(wished), Some((kind, library))) if wished != kind => Err(format!(
            "{} is linked with {library}, which is {}'s, and --mpi asks for {}; leave it out, or \
             build the program with the mpicc of {}",
            program.display(),
            kind.name(),
            wished.name(),
            wished.name()
        )),
        (wished, linked) => Ok(wished.or(linked.map(|(kind, _)| kind))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_tell_the_mpi() {
        let of = |text: &str| named_in(text.as_bytes()).map(|(kind, _)| kind);
        assert_eq!(of("..\0libmpi.so.40\0libc.so.6\0"), Some(Kind::Openmpi));
        assert_eq!(of("..\0libmpi.so.12\0"), Some(Kind::Mpich));
        assert_eq!(of("..\0libmpich.so.12\0"), Some(Kind::Mpich));
        assert_eq!(of("libmpi.so.40 is a word here"), None);
        assert_eq!(of("\0libmpi.so.400\0"), None);
    }

    #[test]
    fn a_wish_against_the_program_is_an_error() {
        let program = Path::new("prog");
        let linked = Some((Kind::Openmpi, "libmpi.so.40"));
        let error = agree(Some(Kind::Mpich), linked, program).unwrap_err();
        assert!(error.contains("linked with libmpi.so.40") && error.contains("MPICH"), "{error}");
        assert_eq!(agree(None, linked, program), Ok(Some(Kind::Openmpi)));
        assert_eq!(agree(Some(Kind::Mpich), None, program), Ok(Some(Kind::Mpich)));
        assert_eq!(agree(None, None, program), Ok(None));
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert!(find(OsStr::new("/tmp")).unwrap_err().contains("is a directory"));
        assert!(find(OsStr::new("/proc/self/status")).unwrap_err().contains("may not be run"));
        assert!(find(OsStr::new("./nowhere")).unwrap_err().contains("cannot run"));
        assert!(find(OsStr::new("no-such-program")).unwrap_err().contains("on PATH"));
    }
}
