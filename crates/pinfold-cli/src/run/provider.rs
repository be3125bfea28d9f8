//! The library that libfabric loads as a provider.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The name that libfabric looks for: it ends in `-fi.so`.
pub(super) const FILE: &str = "libpinfold-fi.so";
/// The name that cargo gives it, which can have no hyphen.
const BUILT: &str = "libpinfold_fi.so";
const NAMES: [&str; 2] = [FILE, BUILT];

/// The provider's file.
#[derive(Debug)]
pub(super) struct Provider {
    pub file: PathBuf,
}

impl Provider {
    /// The directory as a plan that is only shown names it.
    pub(super) fn shown(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}

/// Where the provider is looked for.
pub(super) struct Places {
    /// The file or directory that `PINFOLD_PROVIDER` names.
    pub named: Option<PathBuf>,
    /// This program.
    pub program: PathBuf,
}

impl Places {
    pub(super) fn of_this_process() -> Places {
        let named = env::var_os("PINFOLD_PROVIDER").filter(|path| !path.is_empty());
        Places {
            named: named.map(|path| std::path::absolute(&path).unwrap_or_else(|_| path.into())),
            program: env::current_exe().unwrap_or_default(),
        }
    }

    /// Directories in which it lies after an installation or a build, nearest first.
    fn directories(&self) -> Vec<PathBuf> {
        let Some(beside) = self.program.parent() else { return Vec::new() };
        let mut all = vec![beside.to_owned()];
        if let Some(above) = beside.parent() {
            all.extend(["lib", "lib/pinfold", "release", "debug"].map(|name| above.join(name)));
        }
        all.dedup();
        all
    }
}

/// The provider's file.
///
/// # Errors
/// A text with the places and the way to build it.
pub(super) fn find(places: &Places) -> Result<Provider, String> {
    if let Some(named) = &places.named {
        let inside = NAMES.map(|name| named.join(name));
        let all = [named.clone()].into_iter().chain(inside);
        let file = all.into_iter().find(|file| file.is_file());
        return file.map(|file| Provider { file }).ok_or_else(|| {
            format!(
                "PINFOLD_PROVIDER names {}, and there is no {FILE}; build it: cargo build \
                 --release --package pinfold-ofi",
                named.display()
            )
        });
    }
    let directories = places.directories();
    // The newest of a build tree's, beside this program above all.
    let found = |directory: &PathBuf| {
        NAMES.map(|name| directory.join(name)).into_iter().find(|file| file.is_file())
    };
    if let Some(file) = directories.iter().find_map(found) {
        return Ok(Provider { file });
    }
    let looked: Vec<_> = directories.iter().map(|path| path.display().to_string()).collect();
    Err(format!(
        "the provider {FILE} was not found in {}; build it: cargo build --release --package \
         pinfold-ofi, or name it: PINFOLD_PROVIDER=FILE",
        looked.join(", ")
    ))
}

/// Makes `directory` one that has nothing but the provider, under the name that libfabric wants.
///
/// # Errors
/// Those of making a directory and a link in it.
pub(super) fn link(provider: &Provider, directory: &Path) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    std::os::unix::fs::symlink(fs::canonicalize(&provider.file)?, directory.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_beside_the_program_or_where_it_is_named() {
        let place = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let (bin, lib) = (dir("bin"), dir("lib"));
        let mut places = Places { named: None, program: bin.join("pinfold") };
        let error = find(&places).unwrap_err();
        assert!(error.contains(&bin.display().to_string()), "{error}");
        assert!(error.contains("--package pinfold-ofi"), "{error}");
        fs::write(lib.join(FILE), "").unwrap();
        assert_eq!(find(&places).unwrap().file, lib.join(FILE));
        fs::write(bin.join(BUILT), "").unwrap();
        assert_eq!(find(&places).unwrap().file, bin.join(BUILT));

        places.named = Some(lib.clone());
        assert_eq!(find(&places).unwrap().file, lib.join(FILE));
        places.named = Some(lib.join(FILE));
        assert_eq!(find(&places).unwrap().file, lib.join(FILE));
        places.named = Some(dir("empty"));
        assert!(find(&places).unwrap_err().contains("PINFOLD_PROVIDER names"));

        let alone = place.path().join("alone");
        link(&Provider { file: bin.join(BUILT) }, &alone).unwrap();
        assert_eq!(fs::read_link(alone.join(FILE)).unwrap(), bin.join(BUILT));
        assert_eq!(fs::read_dir(alone).unwrap().count(), 1);
    }
}
