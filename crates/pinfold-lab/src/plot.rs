//! Plots as SVG elements whose text takes the page's colour: lines for the model, dashed ones for
//! this machine, crosses for the paper's stated points.

use std::ops::Range;

use pinfold_bench::html::Scale;
use plotters::prelude::*;

use crate::outcome::{Axis, Column, Plot, Series};

/// Axes and grid: readable on white and on black.
const AXIS: RGBColor = RGBColor(128, 136, 144);
/// Width and height of a plot, pixels.
const SIZE: (u32, u32) = (760, 400);
/// Labels on an axis, about.
const TICKS: usize = 8;

/// The colours of series, in the order of their names' first appearance.
const COLOURS: [RGBColor; 8] = [
    RGBColor(40, 110, 230),
    RGBColor(214, 120, 24),
    RGBColor(60, 150, 80),
    RGBColor(200, 60, 120),
    RGBColor(140, 90, 230),
    RGBColor(0, 150, 170),
    RGBColor(170, 140, 20),
    RGBColor(120, 130, 140),
];

/// The names of a plot's series, each once, with their colours.
pub fn legend(plot: &Plot) -> Vec<(&str, (u8, u8, u8))> {
    let mut names: Vec<&str> = Vec::new();
    for series in &plot.series {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let coloured = |(at, name)| {
        let RGBColor(r, g, b) = COLOURS[at % COLOURS.len()];
        (name, (r, g, b))
    };
    names.into_iter().enumerate().map(coloured).collect()
}

/// The plot as an SVG element; `None` if it has no point that its axes can show.
pub fn svg(plot: &Plot) -> Option<String> {
    let all = || plot.series.iter().flat_map(|series| shown(plot, series));
    let x = over(&plot.x, all().map(|point| point.0), 0.03)?;
    let y = over(&plot.y, all().map(|point| point.1), 0.06)?;
    let mut svg = String::new();
    draw(plot, x, y, &mut svg).ok()?;
    // Within a page the element needs no name space, and takes the page's width.
    let svg = svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    let plain = format!("<svg width=\"{}\" height=\"{}\"", SIZE.0, SIZE.1);
    Some(svg.replacen(&plain, "<svg role=\"img\" aria-label=\"plot\"", 1))
}

/// The points of a series that the axes can show, each coordinate as the axis has it.
fn shown(plot: &Plot, series: &Series) -> Vec<(f64, f64)> {
    let at = |axis: &Axis, value: f64| if axis.log { value.log10() } else { value };
    let both = |&(x, y): &(f64, f64)| (at(&plot.x, x), at(&plot.y, y));
    let is_finite = |point: &(f64, f64)| point.0.is_finite() && point.1.is_finite();
    series.points.iter().map(both).filter(is_finite).collect()
}

fn draw(
    plot: &Plot,
    x: Scale,
    y: Scale,
    svg: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let (x_log, y_log) = (plot.x.log, plot.y.log);
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .axis_style(AXIS)
        .bold_line_style(AXIS.mix(0.35))
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 13))
        .x_desc(&plot.x.label)
        .y_desc(&plot.y.label)
        .x_label_formatter(&|at| label(*at, x_log))
        .y_label_formatter(&|at| label(*at, y_log))
        .draw()?;
    let colours = legend(plot);
    for series in &plot.series {
        let (r, g, b) = colours.iter().find(|it| it.0 == series.name).map_or((0, 0, 0), |it| it.1);
        let (colour, points) = (RGBColor(r, g, b), shown(plot, series));
        match series.column {
            Column::Paper => {
                let style = colour.stroke_width(2);
                chart.draw_series(points.into_iter().map(|at| Cross::new(at, 4, style)))?;
            }
            Column::Model => {
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                let dots = points.into_iter().map(|at| Circle::new(at, 2, colour.filled()));
                chart.draw_series(dots)?;
            }
            Column::Here => {
                let style = colour.stroke_width(2);
                chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style))?;
                chart
                    .draw_series(points.into_iter().map(|at| TriangleMarker::new(at, 4, style)))?;
            }
        }
    }
    drop(chart);
    area.present()?;
    Ok(())
}

/// The text beside a tick.
fn label(at: f64, log: bool) -> String {
    let value = if log { 10f64.powf(at) } else { at };
    let (value, suffix) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Ticks are round numbers; binary fractions are not.
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{suffix}", if text == "-0" { "0" } else { text })
}

/// An axis that shows all of the values, and a `margin` beside them, a part of their range.
fn over(axis: &Axis, values: impl Iterator<Item = f64>, margin: f64) -> Option<Scale> {
    let (low, high) = values.fold(None, |so_far: Option<(f64, f64)>, v| match so_far {
        None => Some((v, v)),
        Some((low, high)) => Some((low.min(v), high.max(v))),
    })?;
    let beside = match high - low {
        0.0 => high.abs().max(1.0) * 0.1,
        range => range * margin,
    };
    // Values that begin near zero show the zero.
    let from = if !axis.log && low >= 0.0 && low < high / 2.0 { 0.0 } else { low - beside };
    let range = from..high + beside;
    let ticks = if axis.log { decimals(&range) } else { steps(&range) };
    Some(Scale { range, ticks })
}

/// Round numbers at equal steps: 1, 2 or 5 times a power of ten.
fn steps(range: &Range<f64>) -> Vec<f64> {
    let least = (range.end - range.start) / TICKS as f64;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(power * 10.0);
    let (first, last) = ((range.start / step).ceil() as i64, (range.end / step).floor() as i64);
    (first..=last).map(|at| at as f64 * step).collect()
}

/// The decimal logarithms of the round numbers within a range of logarithms: 1, 2 and 5 times
/// powers of ten, or those powers alone where that would be many.
fn decimals(range: &Range<f64>) -> Vec<f64> {
    let within = |factors: &[f64]| -> Vec<f64> {
        let decades = range.start.floor() as i32..=range.end.ceil() as i32;
        let all = decades.flat_map(|decade| {
            factors.iter().map(move |factor| factor.log10() + f64::from(decade)).collect::<Vec<_>>()
        });
        all.filter(|at| range.contains(at)).collect()
    };
    let some = within(&[1.0, 2.0, 5.0]);
    if some.len() <= TICKS + 4 { some } else { within(&[1.0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(
            steps(&(0.0..4000.0)),
            [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0, 3500.0, 4000.0]
        );
        assert_eq!(steps(&(17.5..27.0)), [18.0, 20.0, 22.0, 24.0, 26.0]);
        let shown: Vec<String> =
            decimals(&(0.9..3.1)).into_iter().map(|at| label(at, true)).collect();
        assert_eq!(shown, ["10", "20", "50", "100", "200", "500", "1000"]);
        assert_eq!(
            [0.0, 2.5e6, 12e3, 0.3, -0.0].map(|v| label(v, false)),
            ["0", "2.5M", "12k", "0.3", "0"]
        );
    }

    #[test]
    fn a_plot_has_a_line_and_the_papers_points() {
        let mut plot = Plot::new("Figure 1", Axis::log("bytes"), Axis::linear("s"));
        plot.add("a", Column::Model, vec![(1.0, 2.0), (10.0, 3.0)]);
        plot.add("a", Column::Paper, vec![(1.0, 2.1), (0.0, 1.0)]);
        plot.add("b", Column::Here, vec![(1.0, 2.0), (10.0, 9.0)]);
        plot.add("none", Column::Here, Vec::new());
        assert_eq!(legend(&plot).iter().map(|it| it.0).collect::<Vec<_>>(), ["a", "b"]);
        let svg = svg(&plot).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(
            svg.contains("<polyline") && svg.contains("bytes") && !svg.contains("http"),
            "{svg}"
        );
    }

    #[test]
    fn nothing_to_draw_is_no_plot() {
        let mut plot = Plot::new("Figure 1", Axis::log("bytes"), Axis::log("s"));
        assert_eq!(svg(&plot), None);
        plot.add("a", Column::Model, vec![(0.0, 2.0)]);
        assert_eq!(svg(&plot), None);
        plot.add("b", Column::Model, vec![(5.0, 2.0)]);
        assert!(svg(&plot).is_some());
    }
}
