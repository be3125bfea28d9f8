//! The plots: SVG elements whose text takes the page's colour.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{escaped, scale::Scale};
use crate::{
    record::Record,
    table,
    terms::{Id, Kind, Memory, Route, What},
    units,
};

/// Axes and grid: readable on white and on black.
const AXIS: RGBColor = RGBColor(128, 136, 144);
/// Width and height of a plot, pixels.
const SIZE: (u32, u32) = (920, 420);

/// Labels on an axis, at most.
const TICKS_MAX: usize = 12;

/// The colour of a subject.
pub(super) fn colour(id: Id) -> RGBColor {
    match (id.kind, id.route) {
        (Kind::Line, _) => RGBColor(120, 130, 140),
        (Kind::Ring, _) => RGBColor(150, 120, 90),
        (Kind::Mapping, _) => RGBColor(110, 140, 60),
        (Kind::Memcpy, _) => RGBColor(100, 160, 160),
        (Kind::Cma, _) => RGBColor(214, 120, 24),
        (Kind::CmaWrite, _) => RGBColor(160, 90, 20),
        (Kind::Pipe, _) => RGBColor(150, 100, 200),
        (Kind::Unix, _) => RGBColor(60, 150, 80),
        (Kind::Tcp, _) => RGBColor(190, 150, 20),
        (Kind::Pinfold, Some(Route::Inline)) => RGBColor(230, 130, 160),
        (Kind::Pinfold, Some(Route::Eager)) => RGBColor(90, 160, 240),
        (Kind::Pinfold, Some(Route::Cma)) => RGBColor(230, 90, 110),
        (Kind::Pinfold, Some(Route::Put)) => RGBColor(180, 80, 60),
        (Kind::Pinfold, Some(Route::Get)) => RGBColor(220, 140, 80),
        (Kind::Pinfold, Some(Route::Contended)) => RGBColor(170, 160, 110),
        (Kind::Pinfold, Some(Route::Write)) => RGBColor(60, 140, 90),
        (Kind::Pinfold, Some(Route::Read)) => RGBColor(110, 190, 130),
        (Kind::Pinfold, Some(Route::WriteAgent)) => RGBColor(90, 110, 90),
        (Kind::Pinfold, Some(Route::ReadAgent)) => RGBColor(150, 170, 150),
        (Kind::Pinfold, Some(Route::Active)) => RGBColor(0, 120, 110),
        (Kind::Pinfold, Some(Route::FetchAdd)) => RGBColor(120, 100, 60),
        (Kind::Pinfold, Some(Route::Handoff)) => RGBColor(200, 60, 200),
        (Kind::Pinfold, Some(Route::Mapped)) => RGBColor(140, 90, 230),
        (Kind::Pinfold, _) if id.memory == Memory::Arena => RGBColor(0, 150, 190),
        (Kind::Pinfold, _) => RGBColor(40, 110, 230),
    }
}

/// Returns whether a subject is a floor, drawn dashed.
pub(super) fn is_floor(id: Id) -> bool {
    matches!(id.kind, Kind::Line | Kind::Ring | Kind::Mapping | Kind::Memcpy)
}

/// A line for each subject over the message size, both axes logarithmic. `None` if there are not
/// two sizes to draw a line between.
pub(super) fn over_size(here: &[&Record], what: What) -> Option<String> {
    let curve = |id: Id| {
        let own = here.iter().filter(|r| r.id() == id);
        Curve {
            name: id.to_string(),
            colour: colour(id),
            dashed: is_floor(id),
            strong: id.route == Some(Route::Auto),
            points: own.map(|r| (r.size as f64, r.mean)).collect(),
        }
    };
    let all: Vec<Curve> = subjects(here).into_iter().map(curve).collect();
    curves(&all, &|value| table::with_unit(what, 1, value))
}

/// Values over sizes.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
    pub(crate) dashed: bool,
    /// True if the plot is about this line.
    pub(crate) strong: bool,
    /// Sizes, bytes, and values, in any order.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A line for each curve, both axes logarithmic, with `label`s on the values. `None` if there are
/// not two sizes to draw a line between.
pub(crate) fn curves(all: &[Curve], label: &dyn Fn(f64) -> String) -> Option<String> {
    let points = || all.iter().flat_map(|curve| curve.points.iter());
    let (least, most) = bounds(points().map(|at| at.0))?;
    if least >= most {
        return None;
    }
    let at = |size: f64| size.log2();
    let (low, high) = bounds(points().map(|at| at.1))?;
    let (low, high) = (low / 1.3, high * 1.3);
    let value = |v: &f64| label(10f64.powf(*v));
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(34)
            .y_label_area_size(78)
            .build_cartesian_2d(
                Scale {
                    range: at(least) - 0.2..at(most) + 0.2,
                    ticks: powers(at(least), at(most)),
                },
                Scale { range: low.log10()..high.log10(), ticks: decimals(low, high) },
            )?;
        chart
            .configure_mesh()
            .axis_style(AXIS)
            .bold_line_style(AXIS.mix(0.35))
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|at| units::bytes(at.exp2().round() as usize))
            .y_label_formatter(&value)
            .draw()?;
        for curve in all {
            let mut points: Vec<(f64, f64)> =
                curve.points.iter().map(|point| (at(point.0), point.1.log10())).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let style = curve.colour.stroke_width(if curve.strong { 4 } else { 2 });
            if curve.dashed {
                chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style))?;
            } else {
                chart.draw_series(LineSeries::new(points.clone(), style))?;
            }
            let radius = if curve.strong { 4 } else { 3 };
            chart.draw_series(
                points.into_iter().map(|at| Circle::new(at, radius, curve.colour.filled())),
            )?;
        }
        Ok(())
    })
}

/// The powers of two to label between two exponents: every one, or every so many.
fn powers(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.ceil() as i32, most.floor() as i32);
    let step = ((last - first) as usize / TICKS_MAX + 1).next_power_of_two();
    (first..=last).step_by(step).map(f64::from).collect()
}

/// The decimal logarithms of the round numbers to label between two positive numbers: 1, 2 and 5
/// times powers of ten, or those powers alone where that would be many.
fn decimals(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let within = |factors: &[f64]| -> Vec<f64> {
        let all = decades.clone().flat_map(|decade| {
            factors.iter().map(move |factor| factor * 10f64.powi(decade)).collect::<Vec<_>>()
        });
        all.filter(|value| (low..=high).contains(value)).collect()
    };
    let some = within(&[1.0, 2.0, 5.0]);
    let wanted = if some.len() <= TICKS_MAX { some } else { within(&[1.0]) };
    wanted.into_iter().map(f64::log10).collect()
}

/// A bar for each subject, the best on top.
pub(super) fn bars(here: &[&Record]) -> Option<String> {
    let mut here = here.to_vec();
    let best = here.iter().map(|r| r.mean).fold(0.0, f64::max);
    if best <= 0.0 {
        return None;
    }
    here.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    let (row, left, right) = (30, 130, 110);
    let height = row * here.len() as u32 + 10;
    draw_sized((SIZE.0, height), |area| {
        for (at, record) in here.iter().enumerate() {
            let top = 5 + (row * at as u32) as i32;
            let middle = top + row as i32 / 2;
            let room = f64::from(SIZE.0 - left - right);
            let long = (record.mean / best * room).max(1.0) as i32;
            let start = left as i32;
            let bar = [(start, top + 4), (start + long, top + row as i32 - 4)];
            area.draw(&Rectangle::new(bar, colour(record.id()).filled()))?;
            let style = |h| ("sans-serif", 14).into_text_style(area).pos(Pos::new(h, VPos::Center));
            area.draw(&Text::new(
                record.id().to_string(),
                (start - 8, middle),
                style(HPos::Right),
            ))?;
            let value = table::value(record);
            area.draw(&Text::new(value, (start + long + 8, middle), style(HPos::Left)))?;
        }
        Ok(())
    })
}

/// The legend of every subject among the records.
pub(super) fn legend(records: &[&Record]) -> String {
    items(subjects(records).into_iter().map(|id| (id.to_string(), colour(id), is_floor(id))))
}

/// The legend of these curves.
pub(crate) fn legend_of(curves: &[Curve]) -> String {
    items(curves.iter().map(|curve| (curve.name.clone(), curve.colour, curve.dashed)))
}

fn items(all: impl Iterator<Item = (String, RGBColor, bool)>) -> String {
    let item = |(name, RGBColor(r, g, b), dashed): (String, RGBColor, bool)| {
        let class = if dashed { " class=\"floor\"" } else { "" };
        let name = escaped(&name);
        format!("<li><b{class} style=\"border-color: rgb({r}, {g}, {b})\"></b>{name}</li>")
    };
    let items: String = all.map(item).collect();
    format!("<ul class=\"legend\">{items}</ul>\n")
}

fn subjects(records: &[&Record]) -> Vec<Id> {
    let mut ids: Vec<Id> = records.iter().map(|r| r.id()).collect();
    ids.sort();
    ids.dedup();
    ids
}

/// The least and the most of some positive numbers.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| *v > 0.0 && v.is_finite()).fold(None, |so_far, v| match so_far {
        None => Some((v, v)),
        Some((low, high)) => Some((low.min(v), high.max(v))),
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(onto: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    draw_sized(SIZE, onto)
}

/// An SVG element. Nothing that can be drawn here fails; if it did the plot would be missing, and
/// the tables still there.
fn draw_sized(size: (u32, u32), onto: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        onto(&area).ok()?;
        area.present().ok()?;
    }
    // Within a page the element needs no name space, and takes the page's width.
    let svg = svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    let plain = format!("<svg width=\"{}\" height=\"{}\"", size.0, size.1);
    Some(svg.replacen(&plain, "<svg role=\"img\" aria-label=\"plot\"", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_labelled_with_whole_powers() {
        assert_eq!(powers(16.0, 20.0), [16.0, 17.0, 18.0, 19.0, 20.0]);
        assert_eq!(powers(3.2, 5.9), [4.0, 5.0]);
        assert_eq!(powers(0.0, 30.0).len(), 8);
        assert!(powers(3.1, 3.9).is_empty());
    }

    #[test]
    fn values_are_labelled_with_round_numbers() {
        let values = |low, high| -> Vec<i64> {
            decimals(low, high).into_iter().map(|at| 10f64.powf(at).round() as i64).collect()
        };
        assert_eq!(values(900.0, 6000.0), [1000, 2000, 5000]);
        assert_eq!(values(3.0, 4e5), [10, 100, 1_000, 10_000, 100_000]);
        assert_eq!(values(2.5, 4.0), [0; 0]);
    }
}
