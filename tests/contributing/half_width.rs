//! The half-width of an effect's interval: a column of CSV, and of the report's tables where there is room.

use serde_json::json;

use super::{EVERYWHERE, EffectColumn};
use perfquilt_judge::attribution::Effect;

pub(super) const HALF_WIDTH: EffectColumn =
    EffectColumn::new("half_width", |of| json!(half_width(of.effect))).shown(
        EVERYWHERE,
        |table, _| {
            let half_widths = table.figures("half-width", |row| {
                let effect = row.effects.first().copied().flatten();
                let width = effect.and_then(half_width);
                width.map_or("–".to_owned(), |width| format!("{:.2} %", 100.0 * width))
            });
            half_widths.optional(true)
        },
    );

/// Returns half the width of the interval, as a fraction; `None` without an interval.
fn half_width(effect: &Effect) -> Option<f64> {
    Some((effect.high? - effect.low?) / 2.0)
}
