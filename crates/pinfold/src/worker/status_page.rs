//! The status page of a new endpoint.

use super::config::Config;
use crate::{
    Error, Result,
    status::{Identity, Status},
};

/// The page of a new endpoint.
///
/// # Errors
/// As for [`Status::new`].
pub(crate) fn status(config: &Config, id: [u8; 16]) -> Result<Status> {
    let status = Status::new(&Identity {
        id,
        label: &config.label,
        address: match (&config.listen, &config.listen_tcp) {
            (Some(address), _) => Some(address.to_string()),
            (None, tcp) => tcp.as_ref().map(ToString::to_string),
        },
        lane_bytes_max: config.lane_bytes_max,
        unexpected_bytes_max: config.unexpected_bytes_max,
        mapped_bytes_max: config.mapped_bytes_max,
    });
    status.map_err(Error::failed("the endpoint"))
}
