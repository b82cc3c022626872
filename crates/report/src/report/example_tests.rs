//! The examples of CONTRIBUTING.md of a column and of a section, in every form of the report.

use crate::report::columns::{COLUMNS, EffectColumn, EffectLine, EffectRows};
use crate::report::{Content, EVERYWHERE, Form, ReportSection};
use crate::tests::Experiment;
use crate::view::{EffectRow, View};

/// `crates/report/src/report/` with both examples.
#[path = "../../../../tests/contributing"]
mod example {
    pub(super) use super::{Content, EVERYWHERE, EffectColumn, ReportSection};
    pub(super) use crate::document::{Node, name, section, table};

    mod half_width;
    mod progress;

    pub(super) const COLUMN: EffectColumn = half_width::HALF_WIDTH;
    pub(super) const SECTION: ReportSection = progress::PROGRESS;
}

/// Returns a document as a terminal, a Markdown page and a browser show it.
fn written(nodes: Vec<crate::document::Node>) -> [String; 3] {
    let document = crate::Document(nodes);
    [
        document.terminal(120, false),
        document.markdown(),
        document.html().unwrap(),
    ]
}

#[test]
fn a_column_is_declared_once_for_all_forms() {
    let attribution = Experiment::new(&[(0.012, 0.01)]).attribution();
    let view = View::new(&attribution);
    let mut columns = COLUMNS.iter().collect::<Vec<_>>();
    columns.push(&example::COLUMN);
    let effect = view.rows[0].effects[0].unwrap();
    let half = (effect.high.unwrap() - effect.low.unwrap()) / 2.0;
    let line = EffectLine {
        experiment: "",
        release: "",
        patch: Some(1),
        name: "",
        workload: "",
        from: "",
        effect,
    };
    assert_eq!((example::COLUMN.value)(&line), serde_json::json!(half));
    let rows: Vec<&EffectRow<'_>> = view.rows.iter().collect();
    let rows = EffectRows {
        noun: "patch",
        heads: &view.heads(),
        rows: &rows,
    };
    let shown = format!("{:.2} %", 100.0 * half);
    for form in EVERYWHERE {
        let table = || rows.with_columns("Effects", *form, columns.iter().copied());
        for text in written(vec![table()]) {
            let text = text.replace('\u{a0}', " ");
            assert!(
                text.contains("half-width") && text.contains(&shown),
                "{text}"
            );
        }
    }
    let table = rows.table("Effects", Form::Terminal);
    let without = written(vec![table]);
    assert!(without.iter().all(|text| !text.contains("half-width")));
}

#[test]
fn a_section_is_declared_once_for_all_forms() {
    let attribution = Experiment::new(&[(0.012, 0.01)]).attribution();
    let view = View::new(&attribution);
    for form in EVERYWHERE {
        let content = Content::new(&view, *form);
        let sections = content.those_of(&[example::SECTION]);
        let [(13, nodes)] = &sections[..] else {
            panic!("{} sections", sections.len());
        };
        for text in written(nodes.clone()) {
            assert!(
                text.contains("Progress") && text.contains("oltp_read_only"),
                "{text}"
            );
        }
        // No section of the product is like it.
        let others = content.sections();
        assert!(others.iter().all(|(rank, _)| *rank != 13));
    }
}
