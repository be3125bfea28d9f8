//! The output of UCX's program. No I/O.

/// Nanoseconds of a message, from the output of `ucx_perftest -f -v`: the column `overall_lat`.
pub(super) fn ucx(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains("overall_lat"));
    let at = lines.next()?.split(',').position(|name| name.trim() == "overall_lat")?;
    let row = lines.filter(|line| !line.trim().is_empty()).last()?;
    nanoseconds(row.split(',').nth(at)?)
}

fn nanoseconds(microseconds: &str) -> Option<f64> {
    let us: f64 = microseconds.trim().parse().ok()?;
    (us.is_finite() && us > 0.0).then_some(us * 1e3)
}

/// Returns whether a socket listens at `port`, by the text of `/proc/PID/net/tcp` (or `tcp6`). See
/// `proc(5)`.
pub(super) fn listens(table: &str, port: u16) -> bool {
    let port = format!("{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let here = fields.next().and_then(|local| local.rsplit(':').next());
        // TCP_LISTEN
        here == Some(&port) && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_by_the_names_of_its_columns() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n \
                    500,1.750,1959.006,1958.5,510.46,510.46,510,510\n";
        assert_eq!(ucx(text), Some(1_958_500.0));
    }

    #[test]
    fn what_is_no_table_is_nothing() {
        for text in
            ["", "overall_lat\n", "a,overall_lat\n1\n", "overall_lat\nnan\n", "overall_lat\n-1\n"]
        {
            assert_eq!(ucx(text), None, "{text}");
        }
    }

    #[test]
    fn who_listens_is_told_from_who_is_connected() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
             0: 0100007F:5BA0 00000000:0000 0A 00000000:00000000\n   \
             1: 0100007F:5BA1 0100007F:1234 01 00000000:00000000\n";
        assert!(listens(table, 0x5ba0));
        assert!(!listens(table, 0x5ba1));
        assert!(!listens(table, 0));
    }
}
