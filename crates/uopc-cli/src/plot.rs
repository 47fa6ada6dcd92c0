//! Draws the course of a training run: the loss and the test accuracy of every epoch, side by side.
//!
//! The picture comes as SVG (text stays text) and as PNG at twice its size. The font is embedded,
//! so a machine without fonts draws the same pixels as any other.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontTransform, TextStyle, register_font};

/// What one epoch left behind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The epoch's number, from 1.
    pub epoch: usize,
    /// The mean training loss of the epoch, in nats per sample.
    pub loss: f64,
    /// The share of the test set classified correctly after the epoch, from 0 to 1.
    pub test_accuracy: f64,
}

/// The family under which the embedded font is registered. A viewer of the SVG that lacks Roboto
/// takes the next name.
const FAMILY: &str = "Roboto, Helvetica, Arial, sans-serif";

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 500;
/// Pixels of the PNG for one unit of the SVG.
const PNG_SCALE: u32 = 2;

const INK: RGBColor = RGBColor(0x22, 0x2b, 0x38);
const GREY: RGBColor = RGBColor(0x66, 0x70, 0x80);
const AXIS: RGBColor = RGBColor(0xb4, 0xbb, 0xc6);
const GRID: RGBColor = RGBColor(0xe9, 0xec, 0xf0);
const LOSS: RGBColor = RGBColor(0xc4, 0x4e, 0x2f);
const ACCURACY: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);

/// Writes `training.svg` and `training.png` into `dir` and returns their paths.
///
/// Epochs whose loss or accuracy is not finite leave a gap.
///
/// # Errors
/// A file that can't be written, with its path in the text.
pub fn save(points: &[Point], title: &str, subtitle: &str, dir: &Path) -> io::Result<[PathBuf; 2]> {
    let files = [dir.join("training.svg"), dir.join("training.png")];
    let contents = [
        svg(points, title, subtitle)?.into_bytes(),
        png(points, title, subtitle)?,
    ];
    for (file, bytes) in files.iter().zip(&contents) {
        fs::write(file, bytes)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", file.display())))?;
    }
    Ok(files)
}

/// The picture as SVG text.
pub fn svg(points: &[Point], title: &str, subtitle: &str) -> io::Result<String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
    draw(&area, Canvas::Svg, points, title, subtitle).map_err(io::Error::other)?;
    drop(area);
    Ok(text)
}

/// The picture as a PNG file.
pub fn png(points: &[Point], title: &str, subtitle: &str) -> io::Result<Vec<u8>> {
    let (width, height) = (WIDTH * PNG_SCALE, HEIGHT * PNG_SCALE);
    let mut pixels = vec![0; (width * height * 3) as usize];
    let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
    draw(&area, Canvas::Png, points, title, subtitle).map_err(io::Error::other)?;
    drop(area);

    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}

/// What is drawn on, where the two backends differ.
#[derive(Clone, Copy, PartialEq)]
enum Canvas {
    Svg,
    Png,
}

impl Canvas {
    /// Pixels for one unit of the picture.
    fn scale(self) -> i32 {
        match self {
            Canvas::Svg => 1,
            Canvas::Png => PNG_SCALE as i32,
        }
    }

    /// How far below its place a text must be put, in units of its size: the bitmap backend sets
    /// text by its line box, the SVG backend by its letters. The numbers belong to Roboto.
    fn sink(self, v: VPos) -> f64 {
        match (self, v) {
            (Canvas::Svg, _) => 0.0,
            (Canvas::Png, VPos::Top) => 0.11,
            (Canvas::Png, VPos::Center) => 0.2,
            (Canvas::Png, VPos::Bottom) => 0.3,
        }
    }
}

/// One of the two curves.
struct Panel<'a> {
    name: &'a str,
    unit: &'a str,
    color: RGBColor,
    curve: Vec<(f64, f64)>,
    y: Axis,
    format: fn(f64, usize) -> String,
    /// The best value is the smallest one.
    lower_is_better: bool,
}

fn draw<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    canvas: Canvas,
    points: &[Point],
    title: &str,
    subtitle: &str,
) -> Result<(), String> {
    register_fonts()?;
    let s = canvas.scale();
    let draw = || -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        area.fill(&WHITE)?;
        let (head, body) = area.split_vertically(84 * s);
        write(&head, canvas, title, (40 * s, 22 * s), Font::TITLE)?;
        write(&head, canvas, subtitle, (40 * s, 56 * s), Font::LABEL)?;
        let panels = panels(points);
        for (panel, area) in panels.iter().zip(body.split_evenly((1, 2))) {
            draw_panel(&area, canvas, panel, x_axis(points))?;
        }
        area.present()
    };
    draw().map_err(|e| format!("drawing the training curve: {e}"))
}

fn panels(points: &[Point]) -> [Panel<'static>; 2] {
    let curve = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|p| (p.epoch as f64, value(p))).collect()
    };
    let loss = curve(|p| p.loss);
    let accuracy = curve(|p| p.test_accuracy * 100.0);
    let most = finite(&loss).map(|p| p.1).fold(0.0, f64::max);
    let least = finite(&accuracy).map(|p| p.1).fold(100.0, f64::min);
    [
        Panel {
            name: "Training loss",
            unit: "cross-entropy (nats per sample)",
            color: LOSS,
            y: Axis::nice(0.0, if most > 0.0 { most } else { 1.0 }, 6),
            curve: loss,
            format: |v, decimals| format!("{v:.decimals$}"),
            lower_is_better: true,
        },
        Panel {
            name: "Test accuracy",
            unit: "correctly classified (%)",
            color: ACCURACY,
            // A run that ends at 97% is not seen on an axis from 0 to 100, unless it began there.
            y: Axis::nice(least.clamp(0.0, 95.0), 100.0, 6),
            curve: accuracy,
            format: |v, decimals| format!("{v:.decimals$}%"),
            lower_is_better: false,
        },
    ]
}

fn draw_panel<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    canvas: Canvas,
    panel: &Panel,
    x: Axis,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let (width, height) = area.dim_in_pixel();
    let s = canvas.scale();
    let (left, top) = (92 * s, 34 * s);
    let (right, bottom) = (width as i32 - 40 * s, height as i32 - 66 * s);
    let px = |v: f64| left + (x.share(v) * f64::from(right - left)).round() as i32;
    let py = |v: f64| bottom - (panel.y.share(v) * f64::from(bottom - top)).round() as i32;

    // Lines of the grid and the numbers beside them.
    for v in panel.y.ticks() {
        area.draw(&PathElement::new(
            [(left, py(v)), (right, py(v))],
            GRID.stroke_width(s as u32),
        ))?;
        let text = (panel.format)(v, panel.y.decimals());
        write(
            area,
            canvas,
            &text,
            (left - 12 * s, py(v)),
            Font::TICK.anchor(HPos::Right, VPos::Center),
        )?;
    }
    for v in x.ticks() {
        let tick = [(px(v), bottom), (px(v), bottom + 6 * s)];
        area.draw(&PathElement::new(tick, AXIS.stroke_width(s as u32)))?;
        let below = (px(v), bottom + 12 * s);
        write(
            area,
            canvas,
            &format!("{v:.0}"),
            below,
            Font::TICK.anchor(HPos::Center, VPos::Top),
        )?;
    }
    area.draw(&PathElement::new(
        [(left, bottom), (right, bottom)],
        AXIS.stroke_width(s as u32),
    ))?;

    // Names: the panel's with a sample of its line, the axes' with their units.
    let sample = [(left, top - 22 * s), (left + 22 * s, top - 22 * s)];
    area.draw(&PathElement::new(
        sample,
        panel.color.stroke_width(3 * s as u32),
    ))?;
    let beside = (left + 32 * s, top - 22 * s);
    write(
        area,
        canvas,
        panel.name,
        beside,
        Font::NAME.anchor(HPos::Left, VPos::Center),
    )?;
    let middle = ((left + right) / 2, bottom + 38 * s);
    write(
        area,
        canvas,
        "epoch",
        middle,
        Font::LABEL.anchor(HPos::Center, VPos::Top),
    )?;
    let side = (18 * s, (top + bottom) / 2);
    write(
        area,
        canvas,
        panel.unit,
        side,
        Font::LABEL.anchor(HPos::Center, VPos::Top).upwards(),
    )?;

    // The curve, broken where a value is missing.
    for piece in panel
        .curve
        .split(|p| !p.1.is_finite())
        .filter(|p| !p.is_empty())
    {
        let line: Vec<_> = piece.iter().map(|&(a, b)| (px(a), py(b))).collect();
        area.draw(&PathElement::new(
            line.clone(),
            panel.color.stroke_width(2 * s as u32),
        ))?;
        if panel.curve.len() <= 60 {
            for p in line {
                area.draw(&Circle::new(p, 3 * s, panel.color.filled()))?;
            }
        }
    }
    if let Some(&(a, b)) = finite(&panel.curve).last() {
        area.draw(&Circle::new((px(a), py(b)), 5 * s, panel.color.filled()))?;
    }
    draw_summary(area, canvas, panel, (right, top - 22 * s))
}

/// The last and the best value, in words, at the right of the panel's name.
fn draw_summary<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    canvas: Canvas,
    panel: &Panel,
    place: (i32, i32),
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let better = |a: f64, b: f64| if panel.lower_is_better { a < b } else { a > b };
    let best = finite(&panel.curve).reduce(|best, p| if better(p.1, best.1) { p } else { best });
    let text = match (finite(&panel.curve).last(), best) {
        (Some(last), Some(best)) => {
            let decimals = if panel.lower_is_better { 4 } else { 2 };
            let (last_text, best_text) = (
                (panel.format)(last.1, decimals),
                (panel.format)(best.1, decimals),
            );
            format!("last {last_text},  best {best_text} in epoch {:.0}", best.0)
        }
        _ => "no finite value".to_string(),
    };
    write(
        area,
        canvas,
        &text,
        place,
        Font::TICK.anchor(HPos::Right, VPos::Center),
    )
}

fn finite(curve: &[(f64, f64)]) -> impl Iterator<Item = &(f64, f64)> {
    curve.iter().filter(|p| p.1.is_finite())
}

/// A range with round numbers at its ends and between them.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    range: Range<f64>,
    step: f64,
}

impl Axis {
    /// The smallest range of round numbers around `low..high` with about `count` steps of
    /// 1, 2 or 5 times a power of ten.
    fn nice(low: f64, high: f64, count: usize) -> Axis {
        let raw = (high - low).max(f64::MIN_POSITIVE) / count as f64;
        let power = 10f64.powf(raw.log10().floor());
        let factor = [1.0, 2.0, 5.0]
            .into_iter()
            .find(|f| raw <= f * power * 1.001)
            .unwrap_or(10.0);
        let step = factor * power;
        Axis {
            range: (low / step).floor() * step..(high / step).ceil() * step,
            step,
        }
    }

    fn share(&self, v: f64) -> f64 {
        (v - self.range.start) / (self.range.end - self.range.start)
    }

    fn ticks(&self) -> Vec<f64> {
        let first = (self.range.start / self.step).ceil() as i64;
        let last = (self.range.end / self.step + 1e-9).floor() as i64;
        (first..=last).map(|k| k as f64 * self.step).collect()
    }

    /// How many decimals tell neighbouring ticks apart.
    fn decimals(&self) -> usize {
        (-self.step.log10().floor()).max(0.0) as usize
    }
}

/// Epochs from the first to the last, edge to edge, with ticks at whole numbers.
fn x_axis(points: &[Point]) -> Axis {
    let first = points.iter().map(|p| p.epoch).min().unwrap_or(1) as f64;
    let last = points.iter().map(|p| p.epoch).max().unwrap_or(1) as f64;
    let step = Axis::nice(first, last.max(first + 1.0), 8).step.max(1.0);
    // A single epoch stands in the middle.
    let range = if first == last {
        first - 1.0..last + 1.0
    } else {
        first..last
    };
    Axis { range, step }
}

/// A size in units of the picture, a weight, and the point of the text that lies on its place.
#[derive(Clone, Copy)]
struct Font {
    size: f64,
    weight: FontStyle,
    color: RGBColor,
    anchor: (HPos, VPos),
    upwards: bool,
}

impl Font {
    const fn new(size: f64, weight: FontStyle, color: RGBColor) -> Font {
        Font {
            size,
            weight,
            color,
            anchor: (HPos::Left, VPos::Top),
            upwards: false,
        }
    }

    const TITLE: Font = Font::new(22.0, FontStyle::Bold, INK);
    const NAME: Font = Font::new(15.0, FontStyle::Bold, INK);
    const LABEL: Font = Font::new(14.0, FontStyle::Normal, GREY);
    const TICK: Font = Font::new(13.0, FontStyle::Normal, GREY);

    fn anchor(self, h: HPos, v: VPos) -> Font {
        Font {
            anchor: (h, v),
            ..self
        }
    }

    fn upwards(self) -> Font {
        Font {
            upwards: true,
            ..self
        }
    }
}

fn write<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    canvas: Canvas,
    text: &str,
    place: (i32, i32),
    font: Font,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    // The SVG backend divides a size by 1.24, and the bitmap backend takes the line's height,
    // about 1.17 em, for the size: with this factor both show letters of `font.size` to the em.
    let size = font.size * f64::from(canvas.scale()) * 1.2;
    let sink = (canvas.sink(font.anchor.1) * size).round() as i32;
    let transform = if font.upwards {
        FontTransform::Rotate270
    } else {
        FontTransform::None
    };
    let place = match font.upwards {
        true => (place.0 + sink, place.1),
        false => (place.0, place.1 + sink),
    };
    let style = TextStyle {
        color: font.color.to_backend_color(),
        pos: Pos::new(font.anchor.0, font.anchor.1),
        ..TextStyle::from((FAMILY, size, font.weight)).transform(transform)
    };
    area.draw(&Text::new(text, place, style))
}

fn register_fonts() -> Result<(), String> {
    static DONE: OnceLock<Result<(), &'static str>> = OnceLock::new();
    let register = || {
        let regular = include_bytes!("../assets/Roboto-Regular.ttf");
        let medium = include_bytes!("../assets/Roboto-Medium.ttf");
        register_font(FAMILY, FontStyle::Normal, regular)
            .and_then(|()| register_font(FAMILY, FontStyle::Bold, medium))
            .map_err(|_| "the embedded font is damaged")
    };
    DONE.get_or_init(register).map_err(str::to_string)
}
