//! Times as a bar chart: a bar to the median, a line to the 95th percentile, on a logarithmic scale.

use std::time::Duration;

use super::race::Row;
use super::stats::milliseconds;

const LABELS: f64 = 300.0;
const PLOT: f64 = 520.0;
const RIGHT: f64 = 80.0;
const TOP: f64 = 34.0;
const STEP: f64 = 26.0;
const BAR: f64 = 15.0;

const OURS: &str = "#0b7285";
const THEIRS: &str = "#adb5bd";

/// The plotted range, in powers of ten of a millisecond.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let logs = |time: fn(&Row) -> Duration| rows.iter().map(move |row| milliseconds(time(row)).log10());
        let low = logs(|row| row.times.median()).fold(f64::INFINITY, f64::min).floor();
        let high = logs(|row| row.times.quantile(95)).fold(f64::NEG_INFINITY, f64::max).ceil();
        Self { low, high: high.max(low + 1.0) }
    }

    fn x(self, time: Duration) -> f64 {
        self.place(milliseconds(time).log10())
    }

    fn place(self, log: f64) -> f64 {
        LABELS + PLOT * ((log - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Every power of ten in the range.
    fn ticks(self) -> impl Iterator<Item = f64> {
        std::iter::successors(Some(self.low), |log| Some(log + 1.0)).take_while(move |log| *log <= self.high)
    }
}

pub(super) fn svg(title: &str, rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let scale = Scale::of(rows);
    let (width, bottom) = (LABELS + PLOT + RIGHT, rows.iter().fold(TOP, |y, _| y + STEP));
    let height = bottom + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{title}: median, and 95th percentile as a line</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for tick in scale.ticks() {
        let x = scale.place(tick);
        svg.push_str(&format!(
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#dee2e6\"/>\n\
             <text x=\"{x:.1}\" y=\"20\" text-anchor=\"middle\" fill=\"#495057\">{} ms</text>\n",
            10f64.powf(tick)
        ));
    }
    let mut y = TOP;
    for row in rows {
        svg.push_str(&bar(row, scale, y));
        y += STEP;
    }
    svg + "</svg>\n"
}

fn bar(row: &Row, scale: Scale, y: f64) -> String {
    let (median, late) = (scale.x(row.times.median()), scale.x(row.times.quantile(95)));
    let (top, middle, base) = (y + (STEP - BAR) / 2.0, y + STEP / 2.0, y + STEP / 2.0 + 4.5);
    let colour = if row.name.starts_with("pond") { OURS } else { THEIRS };
    format!(
        "<text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"end\" fill=\"#212529\">{}</text>\n\
         <rect x=\"{LABELS}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n\
         <line x1=\"{median:.1}\" y1=\"{middle:.1}\" x2=\"{late:.1}\" y2=\"{middle:.1}\" stroke=\"#495057\"/>\n\
         <text x=\"{:.1}\" y=\"{base:.1}\" fill=\"#212529\">{:.2}</text>\n",
        LABELS - 8.0,
        row.name,
        median - LABELS,
        late + 6.0,
        milliseconds(row.times.median())
    )
}

#[cfg(test)]
mod tests {
    use super::super::stats::Sample;
    use super::*;

    fn row(name: &'static str, milliseconds: u64) -> Row {
        Row { name, times: Sample::of(vec![Duration::from_millis(milliseconds)]).unwrap() }
    }

    #[test]
    fn bars_grow_with_the_logarithm_and_the_scale_covers_all() {
        let rows = [row("pond run", 1), row("docker run", 100)];
        let scale = Scale::of(&rows);
        assert_eq!(scale, Scale { low: 0.0, high: 2.0 });
        let at = |time| scale.x(Duration::from_millis(time));
        assert_eq!([at(1), at(10), at(100)], [LABELS, LABELS + PLOT / 2.0, LABELS + PLOT]);
    }

    #[test]
    fn every_contender_has_a_bar_and_ours_have_another_colour() {
        let svg = svg("Times", &[row("pond run", 3), row("bubblewrap", 4), row("runc", 30)]);
        assert_eq!((svg.matches(OURS).count(), svg.matches(THEIRS).count()), (1, 2));
        for name in ["pond run", "bubblewrap", "runc"] {
            assert!(svg.contains(&format!(">{name}<")), "{svg}");
        }
    }
}
