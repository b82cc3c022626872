//! The columns of an effect. Each is declared once: its name and value in CSV, and how the report's tables show it.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Content, EVERYWHERE, Form};
use crate::document::{
    Cell, Figure, Node, Style, TableBuilder, Text, literal, name, sentence, table,
};
use crate::view::{EffectRow, Label};
use perfquilt_judge::attribution::{Effect, TailFigure};
use perfquilt_model::observation::Statistic::{self, Mean, P99, Slow, Stalled};

/// An effect, and the names of what it belongs to.
pub(crate) struct EffectLine<'a> {
    pub(crate) experiment: &'a str,
    pub(crate) release: &'a str,
    /// The number of its patch.
    pub(crate) patch: Option<usize>,
    /// The name of its patch.
    pub(crate) name: &'a str,
    pub(crate) workload: &'a str,
    /// The experiment that it is reused from.
    pub(crate) from: &'a str,
    pub(crate) effect: &'a Effect,
}

/// The rows of a table of effects, and what its columns depend on.
pub(crate) struct EffectRows<'r, 'a> {
    /// What the rows are.
    pub(crate) noun: &'r str,
    /// The quantities of the effects, with the decimals of each.
    pub(crate) heads: &'r [(&'r str, usize)],
    pub(crate) rows: &'r [&'r EffectRow<'a>],
}

type EffectTable<'r, 'a> = TableBuilder<&'r EffectRow<'a>>;

/// A column of an effect.
pub(crate) struct EffectColumn {
    /// Its name in CSV.
    pub(crate) name: &'static str,
    /// Its value in CSV.
    pub(crate) value: fn(&EffectLine<'_>) -> Value,
    /// The forms of the report whose tables have it.
    forms: &'static [Form],
    /// Adds it to a table of the report.
    add: for<'r, 'a> fn(EffectTable<'r, 'a>, &EffectRows<'r, 'a>) -> EffectTable<'r, 'a>,
}

impl EffectColumn {
    /// Declares a column of CSV.
    pub(crate) const fn new(name: &'static str, value: fn(&EffectLine<'_>) -> Value) -> Self {
        EffectColumn {
            name,
            value,
            forms: &[],
            add: |table, _| table,
        }
    }

    /// Adds the column to the tables of some forms of the report.
    pub(crate) const fn shown(
        self,
        forms: &'static [Form],
        add: for<'r, 'a> fn(EffectTable<'r, 'a>, &EffectRows<'r, 'a>) -> EffectTable<'r, 'a>,
    ) -> Self {
        EffectColumn { forms, add, ..self }
    }
}

/// All columns, in the order of CSV and of the report's tables.
pub(crate) const COLUMNS: &[EffectColumn] = &[
    EffectColumn::new("experiment", |of| json!(of.experiment)),
    EffectColumn::new("release", |of| json!(of.release)),
    EffectColumn::new("kind", |of| json!(of.effect.kind)),
    EffectColumn::new("patch", |of| json!(of.patch)).shown(EVERYWHERE, |table, _| {
        table.figures("#", |row| {
            let patch = row.label.patch();
            patch.map_or_else(String::new, |patch| patch.index.to_string())
        })
    }),
    EffectColumn::new("name", |of| json!(of.name)).shown(EVERYWHERE, |table, of| {
        let names = table.names(of.noun, |row| match row.label {
            Label::Titled(patch) => {
                let title = Some(&patch.title).filter(|title| !title.is_empty());
                Cell::from(name(&patch.name)).below(title.map(|title| literal(title)))
            }
            Label::Patch(patch) | Label::Workload(patch, _) => name(&patch.name).into(),
            Label::Total | Label::Control => row.label.text().into(),
        });
        names.optional(of.are_of_workloads())
    }),
    EffectColumn::new("workload", |of| json!(of.workload)).shown(EVERYWHERE, |table, of| {
        let workloads = table.names("workload", |row| match row.label {
            Label::Workload(_, workload) => name(workload),
            _ => String::new(),
        });
        workloads.only_if(of.are_of_workloads())
    }),
    EffectColumn::new("meter", |of| json!(of.effect.meter.name())),
    EffectColumn::new("point", |of| json!(of.effect.point.to_string())),
    EffectColumn::new("against", |of| json!(of.effect.against.to_string())),
    EffectColumn::new("estimate", |of| json!(of.effect.estimate)).shown(EVERYWHERE, |table, of| {
        let heads = of.heads.iter().zip(0..);
        let heads = heads.map(|((head, places), at)| (*head, (at, *places)));
        table.each(heads, |row, &(at, places): &(usize, usize)| {
            match row.effects.get(at).copied().flatten() {
                Some(effect) if effect.is_stale() => {
                    Cell::from(Figure::of(effect, places)).styled(Style::Quiet)
                }
                Some(effect) => Figure::of(effect, places).into(),
                None => Figure::plain("–").into(),
            }
        })
    }),
    EffectColumn::new("low", |of| json!(of.effect.low)),
    EffectColumn::new("high", |of| json!(of.effect.high)),
    EffectColumn::new("level", |of| json!(of.effect.level)),
    EffectColumn::new("interval", |of| json!(of.effect.interval)),
    EffectColumn::new("verdict", |of| json!(of.effect.verdict)).shown(EVERYWHERE, |table, of| {
        let is_judged = of.rows.iter().any(|row| !row.verdict.is_empty());
        table.words(if is_judged { "verdict" } else { "" }, |row| {
            let notes = Text::joined(row.notes.iter().map(|note| sentence(note)), "; ");
            Cell::from(row.verdict).styled(row.style).remark(notes)
        })
    }),
    EffectColumn::new("standard_error", |of| json!(of.effect.standard_error)),
    EffectColumn::new("minimum_detectable", |of| {
        json!(of.effect.minimum_detectable)
    }),
    EffectColumn::new("p_value", |of| json!(of.effect.p_value)),
    EffectColumn::new("p_adjusted", |of| json!(of.effect.p_adjusted)),
    EffectColumn::new("blocks", |of| json!(of.effect.blocks)),
    EffectColumn::new("units", |of| json!(of.effect.units)),
    EffectColumn::new("from", |of| json!(of.from)),
    EffectColumn::new("stale", |of| json!(of.effect.is_stale())),
    EffectColumn::new("typical", |of| json!(of.effect.typical())),
    EffectColumn::new("mean", |of| tail(of, Mean, |of| of.estimate)),
    EffectColumn::new("mean_low", |of| tail(of, Mean, |of| of.low)),
    EffectColumn::new("mean_high", |of| tail(of, Mean, |of| of.high)),
    EffectColumn::new("mean_verdict", |of| tail(of, Mean, |of| of.verdict)),
    EffectColumn::new("slow", |of| tail(of, Slow, |of| of.estimate)),
    EffectColumn::new("slow_low", |of| tail(of, Slow, |of| of.low)),
    EffectColumn::new("slow_high", |of| tail(of, Slow, |of| of.high)),
    EffectColumn::new("slow_verdict", |of| tail(of, Slow, |of| of.verdict)),
    EffectColumn::new("p99", |of| tail(of, P99, |of| of.estimate)),
    EffectColumn::new("p99_low", |of| tail(of, P99, |of| of.low)),
    EffectColumn::new("p99_high", |of| tail(of, P99, |of| of.high)),
    EffectColumn::new("p99_verdict", |of| tail(of, P99, |of| of.verdict)),
    EffectColumn::new("stalled", |of| tail(of, Stalled, |of| of.estimate)),
    EffectColumn::new("stalled_low", |of| tail(of, Stalled, |of| of.low)),
    EffectColumn::new("stalled_high", |of| tail(of, Stalled, |of| of.high)),
    EffectColumn::new("stalled_verdict", |of| tail(of, Stalled, |of| of.verdict)),
    EffectColumn::new("executed", |of| json!(of.effect.executed)),
    EffectColumn::new("change_of", |of| json!(of.effect.shown().of)),
    EffectColumn::new("change", |of| json!(of.effect.shown().estimate)),
    EffectColumn::new("change_low", |of| json!(of.effect.shown().low)),
    EffectColumn::new("change_high", |of| json!(of.effect.shown().high)),
];

impl EffectRows<'_, '_> {
    /// Whether each row is a patch on a workload.
    fn are_of_workloads(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| matches!(row.label, Label::Workload(..)))
    }

    /// Returns the table; `about` says what it shows.
    pub(crate) fn table(&self, about: &str, form: Form) -> Node {
        self.with_columns(about, form, COLUMNS)
    }

    pub(super) fn with_columns<'c>(
        &self,
        about: &str,
        form: Form,
        columns: impl IntoIterator<Item = &'c EffectColumn>,
    ) -> Node {
        let columns = columns.into_iter();
        let shown = columns.filter(|column| column.forms.contains(&form));
        let rows = table(about, self.rows.iter().copied());
        let table = shown.fold(rows, |table, column| (column.add)(table, self));
        table
            .total_if(|row| row.label == Label::Total)
            .stacking()
            .node()
    }
}

/// Returns the table of the patches, the total and the control.
pub(crate) fn main_table(of: &Content<'_>) -> Node {
    let noun = of.view.nouns().one;
    let rows: Vec<&EffectRow<'_>> = of.view.rows.iter().collect();
    of.table(&format!("Effect of each {noun}"), &rows)
}

impl Content<'_> {
    /// Returns a table of effects with the meters' columns; `about` says what it shows.
    pub(crate) fn table(&self, about: &str, rows: &[&EffectRow<'_>]) -> Node {
        let rows = EffectRows {
            noun: self.view.nouns().one,
            heads: &self.view.heads(),
            rows,
        };
        rows.table(about, self.form)
    }
}

/// Returns a part of the mean or of a tail figure, if it is known.
fn tail<P: Serialize>(
    of: &EffectLine<'_>,
    statistic: Statistic,
    part: fn(&TailFigure) -> P,
) -> Value {
    let tail = of.effect.tail.as_deref();
    json!(tail.and_then(|tail| tail.get(statistic)).map(part))
}
