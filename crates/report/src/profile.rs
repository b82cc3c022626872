//! The comparison of two servers function by function.

use super::document::{Document, Node, heading, name, paragraph, table, title};
use super::number;
use perfquilt_judge::profile::{
    CallEdge, CostChange, FunctionDifference, HotLine, ProfileDifference,
};

/// A [`ProfileDifference`] with the options of its report.
#[derive(Debug, Clone, Copy)]
pub struct ProfileReport<'a> {
    /// The difference.
    pub difference: &'a ProfileDifference,
    /// Maximum number of functions.
    pub top: usize,
    /// A function and its callers.
    pub callers: Option<(&'a str, &'a [CallEdge])>,
    /// The lines of a function on both servers.
    pub lines: Option<&'a AnnotatedFunction>,
}

/// A function's lines with their costs, on both servers.
#[derive(Debug, Clone, Default)]
pub struct AnnotatedFunction {
    /// The function.
    pub function: String,
    /// The first server's lines.
    pub before: Vec<SourceLine>,
    /// The second server's lines.
    pub after: Vec<SourceLine>,
}

/// A line of source and its cost.
#[derive(Debug, Clone)]
pub struct SourceLine {
    /// Its position and cost.
    pub hot: HotLine,
    /// Its text, if the source is known.
    pub text: Option<String>,
}

/// Returns the document: the total, the functions that changed, and the callers and lines of single ones.
pub fn document(shown: &ProfileReport<'_>) -> Document {
    let difference = shown.difference;
    let mut nodes = vec![
        title(headline(difference)),
        paragraph(format!(
            "{} → {}, {}: {} a transaction, from {} runs of {} transactions each ({}).",
            name(&difference.before),
            name(&difference.after),
            name(&difference.workload),
            difference.unit,
            difference.runs,
            difference.transactions,
            difference.source
        )),
    ];
    let rows = functions(difference, shown.top);
    if rows.is_empty() {
        nodes.push(paragraph(NOTHING));
    } else {
        nodes.extend([functions_table(&rows), paragraph(rest(difference, &rows))]);
    }
    if let Some((callee, edges)) = shown.callers {
        nodes.push(heading(format!("Callers of {}", name(callee))));
        nodes.push(callers(edges, &difference.unit));
    }
    if let Some(annotated) = shown.lines {
        nodes.extend(lines(annotated, &difference.unit));
    }
    Document(nodes)
}

/// Message if no function is shown.
const NOTHING: &str = "No function's own cost changed by more than runs differ.";
/// The unit of costs that are counted; other costs are sampled.
const COUNTED: &str = "instructions";
/// What samples of time cannot tell.
const WAITED: &str = " A function's own time is where the processor waited, which can be beside the code that costs it: \
                      judge a patch by the total.";
/// Message if no caller is known.
const NO_CALLER: &str = "Nothing calls it, or it was inlined wherever it is used.";
/// Message if no line is known.
const NO_LINE: &str = "No lines are known: build with a recipe that has debug information (-g1).";

/// Returns the table of the functions.
fn functions_table(rows: &[&FunctionDifference]) -> Node {
    table("Functions that changed", rows)
        .names("function", |function| {
            let inlined = if function.inlined { " (inlined)" } else { "" };
            format!("{}{inlined}", name(&function.name))
        })
        .figures("before", |function| count(function.own.before))
        .figures("after", |function| count(function.own.after))
        .figures("difference", |function| signed(&function.own))
        .figures("inclusive", |function| {
            count_signed(function.inclusive.difference())
        })
        .optional(true)
        .figures("calls", |function| calls(&function.calls))
        .optional(true)
        .only_if(counted(rows.iter().map(|function| &function.calls)))
        .node()
}

/// Returns the table of the callers of a function.
fn callers(edges: &[CallEdge], unit: &str) -> Node {
    if edges.is_empty() {
        return paragraph(NO_CALLER);
    }
    table("Callers", edges)
        .names("caller", |edge| name(&edge.caller))
        .figures("calls", |edge| calls(&edge.calls))
        .only_if(counted(edges.iter().map(|edge| &edge.calls)))
        .figures(format!("{unit} before"), |edge| {
            count(edge.inclusive.before)
        })
        .figures(format!("{unit} after"), |edge| count(edge.inclusive.after))
        .node()
}

/// Returns the lines of a function on both servers.
fn lines(annotated: &AnnotatedFunction, unit: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (side, lines) in [("before", &annotated.before), ("after", &annotated.after)] {
        let function = name(&annotated.function);
        nodes.push(heading(format!(
            "{function} {side}: own {unit} a transaction by line"
        )));
        if lines.is_empty() {
            nodes.push(paragraph(NO_LINE));
            continue;
        }
        let mut file = "";
        let mut shown = Vec::new();
        for line in lines {
            if line.hot.file != file {
                file = &line.hot.file;
                shown.push(file.to_owned());
            }
            shown.push(format_source_line(line));
        }
        nodes.push(Node::Code("text", shown));
    }
    nodes
}

/// Formats a line with cost and number: `     1,234      12  source`.
fn format_source_line(line: &SourceLine) -> String {
    let source = line.text.as_deref().unwrap_or_default();
    let source = source.replace('\t', "    ");
    format!(
        "{:>10}  {:>6}  {}",
        count(line.hot.own),
        line.hot.line,
        source.trim_end()
    )
}

/// Returns whether calls were counted; samples have none.
fn counted<'a>(mut calls: impl Iterator<Item = &'a CostChange>) -> bool {
    calls.any(|calls| calls.before != 0.0 || calls.after != 0.0)
}

/// Formats the total: `−1.24 % ± 0.02 instructions a transaction: 92,345 → 91,200`.
fn headline(difference: &ProfileDifference) -> String {
    let all = &difference.total;
    let share = |cost: f64| cost / all.before.max(f64::MIN_POSITIVE);
    let change = all.difference();
    let figure = match all.half_width {
        Some(width) => {
            let ends = (share(change - width), share(change + width));
            number::interval(share(change), Some(ends), 3)
        }
        None => format!("{} %", number::signed(share(change), 3)),
    };
    format!(
        "{figure} {} a transaction: {} → {}",
        difference.unit,
        count(all.before),
        count(all.after)
    )
}

/// Returns the functions whose own cost changed, largest change first; with a single run, which gives no intervals, all
/// functions with a difference.
fn functions(difference: &ProfileDifference, top: usize) -> Vec<&FunctionDifference> {
    let shown = |function: &&FunctionDifference| match function.own.half_width {
        Some(_) => function.changed,
        None => function.own.difference() != 0.0,
    };
    let mut functions: Vec<&FunctionDifference> =
        difference.functions.iter().filter(shown).collect();
    functions.truncate(top);
    functions
}

/// Summarises the functions that are not shown.
fn rest(difference: &ProfileDifference, rows: &[&FunctionDifference]) -> String {
    let shown: f64 = rows.iter().map(|f| f.own.difference()).sum();
    let left = difference.total.difference() - shown;
    // A single run gives no intervals, so no function was tested.
    let intervals = match difference.total.half_width {
        Some(_) => {
            "; ± is the 95 % interval over runs, and at most one in twenty of these functions has not changed, on \
             average"
        }
        None => "",
    };
    let sampled = if difference.unit == COUNTED {
        ""
    } else {
        WAITED
    };
    format!(
        "Own {} a transaction, largest difference first{intervals}. {} functions ran; those not shown changed \
         by {} together.{sampled}",
        difference.unit,
        difference.functions.len(),
        count_signed(left)
    )
}

/// Formats a count in groups of three, `12,345`; below 100 with a decimal.
fn count(number: f64) -> String {
    if number.abs() >= 100.0 || number == number.round() {
        return number::grouped(number);
    }
    let text = format!("{:.1}", number.abs());
    if number < 0.0 && !number::is_zero(&text) {
        format!("−{text}")
    } else {
        text
    }
}

fn count_signed(number: f64) -> String {
    match count(number) {
        text if number > 0.0 && !number::is_zero(&text) => format!("+{text}"),
        text => text,
    }
}

/// Formats a difference with its interval: `−414 ± 3`.
fn signed(change: &CostChange) -> String {
    let half = change.half_width.map_or(String::new(), |width| {
        // A small width must not be rounded to zero.
        if width < 0.05 {
            " ± <0.1".to_owned()
        } else {
            format!(" ± {}", count(width))
        }
    });
    format!("{}{half}", count_signed(change.difference()))
}

/// Formats the calls on both servers: `2.00`, or `2.00 → 3.00`.
fn calls(change: &CostChange) -> String {
    if change.difference().abs() < 0.005 {
        format!("{:.2}", change.after)
    } else {
        format!("{:.2} → {:.2}", change.before, change.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::profile::{CostTable, FunctionCosts};

    #[test]
    fn counts_are_readable() {
        for (number, text) in [
            (0.0, "0"),
            (7.25, "7.2"),
            (99.0, "99"),
            (1234.4, "1,234"),
            (-1_234_567.0, "−1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
        assert_eq!(count_signed(12.0), "+12");
        assert_eq!(count_signed(-0.2), "−0.2");
        // Rounding errors of sums of equal figures.
        assert_eq!(count_signed(1e-9), "0.0");
        assert_eq!(count_signed(-1e-9), "0.0");
    }

    /// Returns a difference with one function that is called `calls` times, over `runs` runs.
    fn difference(calls: f64, runs: u32) -> ProfileDifference {
        let tables = |own: f64, step: f64| -> Vec<CostTable> {
            let table = |run: u32| {
                let own = own + step * f64::from(run);
                let costs = FunctionCosts {
                    own,
                    inclusive: own + 50.0,
                    calls,
                };
                CostTable {
                    total: own + 50.0,
                    functions: [("scan(int)".to_owned(), costs)].into(),
                    ..CostTable::default()
                }
            };
            (0..runs).map(table).collect()
        };
        let (before, after) = (tables(150.0, 1.0), tables(50.0, 2.0));
        ProfileDifference {
            schema: 1,
            before: "0".into(),
            after: "1".into(),
            workload: "load".into(),
            source: "perf".into(),
            runs: before.len(),
            transactions: 100,
            unit: "cycles".into(),
            total: ProfileDifference::total_of(&before, &after),
            functions: ProfileDifference::functions_of(&before, &after),
        }
    }

    #[test]
    fn only_known_figures_are_shown() {
        let of = |difference: &ProfileDifference| {
            let shown = ProfileReport {
                difference,
                top: 10,
                callers: None,
                lines: None,
            };
            document(&shown).terminal(120, false) + &document(&shown).markdown()
        };
        let several = of(&difference(2.0, 3));
        assert_eq!(several.matches("95 % interval").count(), 2, "{several}");
        assert_eq!(several.matches("calls").count(), 2, "{several}");
        let single = of(&difference(0.0, 1));
        assert!(!single.contains("interval"), "{single}");
        assert!(!single.contains("calls"), "{single}");
        assert!(!single.contains("one in twenty"), "{single}");
        let mut nothing = difference(2.0, 3);
        nothing.functions.clear();
        let nothing = of(&nothing);
        assert_eq!(nothing.matches(NOTHING).count(), 2, "{nothing}");
        assert!(!nothing.contains("| function |"), "{nothing}");
    }

    #[test]
    fn every_form() {
        let mut difference = difference(2.0, 3);
        let mut long = difference.functions[0].clone();
        long.name =
            "std::vector<Item*>::emplace_back(<b>Item`*`&&) [with a long list of parameters]"
                .into();
        long.inlined = true;
        difference.functions.push(long);
        let annotated = annotated();
        let edges = [CallEdge {
            caller: "main::loop(|)".into(),
            callee: "scan(int)".into(),
            calls: difference.functions[0].calls,
            inclusive: difference.functions[0].inclusive,
        }];
        let shown = ProfileReport {
            difference: &difference,
            top: 10,
            callers: Some(("scan(int)", &edges)),
            lines: Some(&annotated),
        };
        insta::assert_snapshot!(crate::tests::forms(&[
            ("80 columns", document(&shown).terminal(80, false)),
            ("120 columns", document(&shown).terminal(120, true)),
            ("Markdown", document(&shown).markdown()),
        ]));
    }

    fn annotated() -> AnnotatedFunction {
        AnnotatedFunction {
            function: "scan(int)".into(),
            before: vec![SourceLine {
                hot: HotLine {
                    file: "sql/scan.cc".into(),
                    line: 12,
                    own: 1234.0,
                },
                text: Some("\tscan_row();".into()),
            }],
            after: Vec::new(),
        }
    }

    #[test]
    fn sampled_time_is_not_taken_for_the_cost_of_a_change() {
        let of = |unit: &str| {
            let difference = ProfileDifference {
                unit: unit.into(),
                ..difference(2.0, 3)
            };
            let shown = ProfileReport {
                difference: &difference,
                top: 10,
                callers: None,
                lines: None,
            };
            document(&shown).markdown()
        };
        assert!(of("nanoseconds").contains("judge a patch by the total"));
        assert!(of("cycles").contains("judge a patch by the total"));
        assert!(!of("instructions").contains("judge a patch"));
    }

    #[test]
    fn lines_are_shown_in_markdown_too() {
        let difference = difference(2.0, 1);
        let annotated = annotated();
        let shown = ProfileReport {
            difference: &difference,
            top: 10,
            callers: Some(("scan(int)", &[][..])),
            lines: Some(&annotated),
        };
        let text = document(&shown).markdown();
        for words in [
            "```text\nsql/scan.cc\n     1,234      12      scan_row();\n```",
            NO_LINE,
            NO_CALLER,
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
