//! The cheapest way for each piece.

use super::{
    super::PAGE_BYTES,
    Backing, Bytes, Costs, How, Piece, Plan, Reasons, Step, Target,
    shape::{Shape, touched},
};

/// The pages of one piece that are moved or mapped, and the cost of that with the copies around
/// them.
struct Choice {
    part: Bytes,
    cost_ns: f64,
}

/// The choices for one piece.
struct Options {
    shape: Shape,
    copy_ns: f64,
    moved: Option<Choice>,
    mapped: Option<Choice>,
}

impl Options {
    /// The nanoseconds that mapping saves over copying. (A piece that can be mapped cannot be
    /// moved.)
    fn saved_by_mapping(&self) -> f64 {
        self.mapped.as_ref().map_or(0.0, |mapped| self.copy_ns - mapped.cost_ns)
    }
}

/// Decides how to treat the pieces of a message, which are given in its order. Nothing of `target`
/// may be in use, nor any address that is [`Backing::Anonymous`] be in two pieces.
///
/// Costs about 30 ns a piece.
pub fn plan(pieces: &[Piece], target: Target, costs: &Costs) -> Plan {
    let (align, mut maps_left) = match target {
        Target::Window { align, maps_max } => (align, maps_max),
        Target::Memory => (1, 0),
    };
    let mut plan = Plan::default();
    let mut options = Vec::with_capacity(pieces.len());
    let last = pieces.iter().rposition(|piece| piece.len > 0);
    let mut to = 0;
    for (at, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.len > 0) {
        let shape = Shape::of(piece, to, align, Some(at) == last);
        to += piece.len;
        let faults = |bytes: &Bytes| if target == Target::Memory { 0 } else { touched(bytes) };
        let copy = |bytes: &Bytes| costs.copy(bytes.end - bytes.start, faults(bytes));
        let copy_ns = copy(&shape.all);
        let around = |part: Bytes, cost_ns: f64| {
            let cost_ns = cost_ns + shape.rest(&part).iter().map(copy).sum::<f64>();
            Choice { part, cost_ns }
        };
        let alike = !shape.pages.is_empty();
        let moved = (allowed(target, alike, costs.knows_moving(), &mut plan.moving)
            && of_kind(piece.backing == Backing::Anonymous, &mut plan.moving))
        .then(|| {
            let all = |part: &Bytes| {
                let (pages, huge) = shape.count(part);
                around(part.clone(), costs.moving(pages, huge))
            };
            let whole = all(&shape.pages);
            let huge = (!shape.huge.is_empty()).then(|| all(&shape.huge));
            match huge {
                Some(huge) if huge.cost_ns < whole.cost_ns => huge,
                _ => whole,
            }
        });
        let in_file = matches!(piece.backing, Backing::File { offset }
            if offset % PAGE_BYTES as u64 == piece.at % PAGE_BYTES as u64);
        let mapped = (allowed(target, alike, costs.knows_mapping(), &mut plan.mapping)
            && of_kind(in_file, &mut plan.mapping))
        .then(|| {
            // A huge page appears at once, and so costs as much as a page.
            let (pages, huge) = shape.count(&shape.pages);
            around(shape.pages.clone(), costs.mapping(pages + huge))
        });
        options.push((*piece, Options { shape, copy_ns, moved, mapped }));
    }
    let threshold = ration(&options, &mut maps_left);
    for (piece, options) in &options {
        plan.take(piece, options, threshold, &mut maps_left);
    }
    plan
}

/// The least that a piece must save to be mapped, so that the mappings left go where they save
/// most; in `maps_left`, the number of pieces that save just as much that may be mapped.
fn ration(options: &[(Piece, Options)], maps_left: &mut u32) -> f64 {
    let saved = options.iter().map(|(_, options)| options.saved_by_mapping());
    let mut saved: Vec<f64> = saved.filter(|saved| *saved > 0.0).collect();
    let maps = *maps_left as usize;
    if saved.len() <= maps {
        return 0.0;
    }
    saved.sort_unstable_by(|a, b| b.total_cmp(a));
    let threshold = saved[maps];
    *maps_left = saved[..maps].iter().filter(|saved| **saved == threshold).count() as u32;
    threshold
}

/// Returns whether pages can be put into the target at all.
fn allowed(target: Target, alike: bool, known: bool, reasons: &mut Reasons) -> bool {
    match () {
        () if target == Target::Memory => reasons.no_window += 1,
        () if !known => reasons.unmeasured += 1,
        () if !alike => reasons.misaligned += 1,
        () => return true,
    }
    false
}

fn of_kind(is: bool, reasons: &mut Reasons) -> bool {
    reasons.backing += u32::from(!is);
    is
}

impl Plan {
    /// Adds the cheapest way for one piece.
    fn take(&mut self, piece: &Piece, options: &Options, threshold: f64, maps_left: &mut u32) {
        let Options { shape, copy_ns, moved, mapped } = options;
        self.copy_ns += copy_ns;
        let saved = options.saved_by_mapping();
        let maps = saved > 0.0 && {
            // The last of those that may be mapped, where some save alike.
            let just = saved == threshold && *maps_left > 0;
            *maps_left -= u32::from(just);
            saved > threshold || just
        };
        match mapped {
            Some(_) if maps => self.mapping.cheapest += 1,
            Some(_) if saved > 0.0 => self.mapping.no_maps += 1,
            Some(_) => self.mapping.dearer += 1,
            None => {}
        }
        let moves = !maps && moved.as_ref().is_some_and(|moved| moved.cost_ns < *copy_ns);
        if moved.is_some() {
            let count = if moves { &mut self.moving.cheapest } else { &mut self.moving.dearer };
            *count += 1;
        }
        let chosen = match (maps, moves) {
            (true, _) => mapped.as_ref().map(|choice| (How::Map, choice)),
            (_, true) => moved.as_ref().map(|choice| (How::Move, choice)),
            _ => None,
        };
        let from = |to: u64| piece.at + (to - shape.all.start);
        let copy = |bytes: Bytes| Step {
            how: How::Copy,
            from: from(bytes.start),
            to: bytes.start,
            len: bytes.end - bytes.start,
        };
        let Some((how, choice)) = chosen else {
            self.cost_ns += copy_ns;
            self.add(copy(shape.all.clone()));
            return;
        };
        self.cost_ns += choice.cost_ns;
        let part = choice.part.clone();
        let from = match (how, piece.backing) {
            (How::Map, Backing::File { offset }) => offset + (part.start - shape.all.start),
            _ => from(part.start),
        };
        let [before, behind] = shape.rest(&part);
        if !before.is_empty() {
            self.add(copy(before));
        }
        self.add(Step { how, from, to: part.start, len: part.end - part.start });
        if !behind.is_empty() {
            self.add(copy(behind));
        }
    }
}
