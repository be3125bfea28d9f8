//! The settings of an endpoint, out of keyword arguments.

use std::time::Duration;

use pinfold::{Access, Builder, Path, PathSet, Progress, Who};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyDict,
};

/// The names of settings that are numbers of bytes or of things.
type Limit = fn(Builder, usize) -> Builder;
const LIMITS: [(&str, Limit); 6] = [
    ("lane_bytes_max", Builder::lane_bytes_max),
    ("mapped_bytes_max", Builder::mapped_bytes_max),
    ("unexpected_bytes_max", Builder::unexpected_bytes_max),
    ("given_bytes_max", Builder::given_bytes_max),
    ("active_bytes_max", Builder::active_bytes_max),
    ("peers_max", Builder::peers_max),
];

/// The names of settings that are true or false.
type Flag = fn(Builder, bool) -> Builder;
const FLAGS: [(&str, Flag); 7] = [
    ("strict", Builder::strict),
    ("encrypt", Builder::encrypt),
    ("local_shortcut", Builder::local_shortcut),
    ("io_uring", Builder::io_uring),
    ("move_pages", Builder::move_pages),
    ("prepare_receives", Builder::prepare_receives),
    ("dedicated_progress", dedicated),
];

/// The names of settings that are seconds.
type Time = fn(Builder, Duration) -> Builder;
const TIMES: [(&str, Time); 2] = [
    ("connect_timeout", Builder::connect_timeout),
    ("reconnect_timeout", Builder::reconnect_timeout),
];

fn dedicated(builder: Builder, wanted: bool) -> Builder {
    builder.progress(if wanted { Progress::Dedicated } else { Progress::Inline })
}

/// An address as the library has it: a name alone is one on this host.
pub(crate) fn address(given: &str) -> String {
    let has_kind = given.starts_with("local:") || given.starts_with("tcp:");
    if has_kind { given.to_owned() } else { format!("local:{given}") }
}

/// The builder with all settings that were given.
///
/// # Errors
/// `TypeError`: a name or a type that no setting has. `ValueError`: a value that makes no sense.
pub(crate) fn builder(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Builder> {
    let mut builder = Builder::default();
    let Some(settings) = settings else { return Ok(builder) };
    for (name, value) in settings {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        builder = one(builder, &name, &value)?;
    }
    Ok(builder)
}

fn one(builder: Builder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Builder> {
    if let Some((_, set)) = LIMITS.iter().find(|(it, _)| *it == name) {
        return Ok(set(builder, value.extract()?));
    }
    if let Some((_, set)) = FLAGS.iter().find(|(it, _)| *it == name) {
        return Ok(set(builder, value.extract()?));
    }
    if let Some((_, set)) = TIMES.iter().find(|(it, _)| *it == name) {
        let seconds: f64 = value.extract()?;
        let time = Duration::try_from_secs_f64(seconds);
        let why = |_| PyValueError::new_err(format!("{name} is {seconds} seconds"));
        return Ok(set(builder, time.map_err(why)?));
    }
    Ok(match name {
        "label" => builder.label(&value.extract::<String>()?),
        "key_file" => builder.key_file(value.extract::<std::path::PathBuf>()?),
        "key" => builder.key(&value.extract::<Vec<u8>>()?),
        "paths" => builder.paths(paths(value)?),
        "users" => builder.access(users(value)?),
        _ => return Err(PyTypeError::new_err(format!("an endpoint has no setting {name:?}"))),
    })
}

fn paths(names: &Bound<'_, PyAny>) -> PyResult<PathSet> {
    let mut set = PathSet::none();
    for name in names.extract::<Vec<String>>()? {
        let why = || PyValueError::new_err(format!("there is no path {name:?}"));
        set = set.with(Path::from_name(&name).ok_or_else(why)?);
    }
    Ok(set)
}

fn users(names: &Bound<'_, PyAny>) -> PyResult<Access> {
    let mut access = Access::same_user();
    for name in names.extract::<Vec<String>>()? {
        let who = name.parse::<u32>().map_or_else(|_| Who::from(name.as_str()), Who::from);
        access = access.user(who);
    }
    Ok(access)
}
