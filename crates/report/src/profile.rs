//! The comparison of two servers function by function, as text and Markdown.

use std::fmt::Write;

use super::escape::{code, fenced};
use super::number;
use super::page::{BOLD, DIM, TextPage};
use super::text::{clean, fit, fit_end, width};
use perfquilt_judge::profile::{
    CallEdge, CostChange, FunctionDifference, HotLine, ProfileDifference,
};

/// Smallest width that is fitted, in columns.
const NARROWEST: usize = 72;

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

/// Returns the difference as text of at most `columns` columns; `color` allows ANSI colours.
pub fn profile(shown: &ProfileReport<'_>, columns: usize, color: bool) -> String {
    let mut page = TextPage::new(columns.max(NARROWEST), color);
    let difference = shown.difference;
    page.paragraph(
        &format!(
            "{} → {}, {}: {} a transaction, from {} runs of {} transactions each ({})",
            clean(&difference.before),
            clean(&difference.after),
            clean(&difference.workload),
            difference.unit,
            difference.runs,
            difference.transactions,
            difference.source
        ),
        "",
    );
    let headline = headline(difference);
    page.line(&headline, BOLD);
    page.blank();
    let rows = functions(difference, shown.top);
    if rows.is_empty() {
        page.paragraph(NOTHING, "");
    } else {
        page.table(&rows);
        page.paragraph(&rest(difference, &rows), "");
    }
    if let Some((callee, edges)) = shown.callers {
        page.blank();
        page.line(&format!("Callers of {}", clean(callee)), BOLD);
        page.callers(edges, &difference.unit);
    }
    if let Some(annotated) = shown.lines {
        page.blank();
        page.lines(annotated, &difference.unit);
    }
    page.text
}

/// Returns the difference as Markdown.
pub fn profile_markdown(shown: &ProfileReport<'_>) -> String {
    let difference = shown.difference;
    let mut text = format!(
        "**{}**\n\n{} → {}, {}: {} a transaction, {} runs of {} transactions each ({}).\n\n",
        headline(difference),
        code(&difference.before),
        code(&difference.after),
        code(&difference.workload),
        difference.unit,
        difference.runs,
        difference.transactions,
        difference.source
    );
    let rows = functions(difference, shown.top);
    if rows.is_empty() {
        let _ = writeln!(text, "{NOTHING}");
    } else {
        table(&mut text, &rows);
        let _ = writeln!(text, "\n{}", rest(difference, &rows));
    }
    if let Some((callee, edges)) = shown.callers {
        let _ = writeln!(text, "\nCallers of {}:\n", code(callee));
        callers(&mut text, edges, &difference.unit);
    }
    if let Some(annotated) = shown.lines {
        lines(&mut text, annotated, &difference.unit);
    }
    text
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

/// Appends the functions as Markdown.
fn table(text: &mut String, rows: &[&FunctionDifference]) {
    let counted = counted(rows.iter().map(|function| &function.calls));
    let (head, rule) = if counted {
        (" calls |", "--:|")
    } else {
        ("", "")
    };
    let _ = writeln!(
        text,
        "| function | before | after | difference | inclusive |{head}\n|:--|--:|--:|--:|--:|{rule}"
    );
    for function in rows {
        let _ = write!(
            text,
            "| {}{} | {} | {} | {} | {} |",
            code(&function.name),
            inlined(function),
            count(function.own.before),
            count(function.own.after),
            signed(&function.own),
            count_signed(function.inclusive.difference()),
        );
        if counted {
            let _ = write!(text, " {} |", calls(&function.calls));
        }
        text.push('\n');
    }
}

/// Appends the callers of a function as Markdown.
fn callers(text: &mut String, edges: &[CallEdge], unit: &str) {
    if edges.is_empty() {
        let _ = writeln!(text, "{NO_CALLER}");
        return;
    }
    let counted = counted(edges.iter().map(|edge| &edge.calls));
    let (calls, rule) = if counted {
        (" calls before | after |", "--:|--:|")
    } else {
        ("", "")
    };
    let _ = writeln!(
        text,
        "| caller |{calls} {unit} before | after |\n|:--|{rule}--:|--:|"
    );
    for edge in edges {
        let _ = write!(text, "| {} |", code(&edge.caller));
        if counted {
            let _ = write!(
                text,
                " {:.2} | {:.2} |",
                edge.calls.before, edge.calls.after
            );
        }
        let _ = writeln!(
            text,
            " {} | {} |",
            count(edge.inclusive.before),
            count(edge.inclusive.after)
        );
    }
}

/// Appends the lines of a function on both servers as Markdown.
fn lines(text: &mut String, annotated: &AnnotatedFunction, unit: &str) {
    for (side, lines) in [("before", &annotated.before), ("after", &annotated.after)] {
        let _ = writeln!(
            text,
            "\n{} {side}, own {unit} a transaction by line:\n",
            code(&annotated.function)
        );
        if lines.is_empty() {
            let _ = writeln!(text, "{NO_LINE}");
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
        let _ = writeln!(text, "{}", fenced("text", &shown));
    }
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

fn inlined(function: &FunctionDifference) -> &'static str {
    if function.inlined { " (inlined)" } else { "" }
}

impl TextPage {
    fn table(&mut self, rows: &[&FunctionDifference]) {
        let wide = self.width >= 100;
        let counted = wide && counted(rows.iter().map(|function| &function.calls));
        let figures = 10 + 10 + 18 + if wide { 12 } else { 0 } + if counted { 16 } else { 0 };
        let room = self.width - figures;
        let mut head = format!(
            "{:room$}{:>10}{:>10}{:>18}",
            "function", "before", "after", "difference"
        );
        if wide {
            let _ = write!(head, "{:>12}", "inclusive");
        }
        if counted {
            let _ = write!(head, "{:>16}", "calls");
        }
        self.line(&head, BOLD);
        for function in rows {
            let mark = inlined(function);
            let name = fit(&clean(&function.name), room - 1 - mark.len());
            let name = format!("{name}{mark}");
            let pad = room - width(&name);
            let mut line = format!(
                "{name}{:pad$}{:>10}{:>10}{:>18}",
                "",
                count(function.own.before),
                count(function.own.after),
                signed(&function.own)
            );
            if wide {
                let inclusive = count_signed(function.inclusive.difference());
                let _ = write!(line, "{inclusive:>12}");
            }
            if counted {
                let _ = write!(line, "{:>16}", calls(&function.calls));
            }
            self.line(&line, "");
        }
    }

    fn callers(&mut self, edges: &[CallEdge], unit: &str) {
        if edges.is_empty() {
            self.paragraph(NO_CALLER, "");
            return;
        }
        let counted = counted(edges.iter().map(|edge| &edge.calls));
        let room = self.width - if counted { 40 } else { 20 };
        let calls_of = |text: &str| {
            if counted {
                format!("{text:>20}")
            } else {
                String::new()
            }
        };
        let head = calls_of("calls");
        self.line(&format!("{:room$}{head}{unit:>20}", "caller"), BOLD);
        for edge in edges {
            let name = fit(&clean(&edge.caller), room - 1);
            let pad = room - width(&name);
            let inclusive = format!(
                "{} → {}",
                count(edge.inclusive.before),
                count(edge.inclusive.after)
            );
            let calls = calls_of(&calls(&edge.calls));
            let line = format!("{name}{:pad$}{calls}{inclusive:>20}", "");
            self.line(&line, "");
        }
    }

    fn lines(&mut self, annotated: &AnnotatedFunction, unit: &str) {
        for (side, lines) in [("before", &annotated.before), ("after", &annotated.after)] {
            let head = format!(
                "{} {side}: own {unit} a transaction by line",
                clean(&annotated.function)
            );
            self.line(&fit(&head, self.width), BOLD);
            if lines.is_empty() {
                self.paragraph(NO_LINE, "");
            }
            let mut file = "";
            for line in lines {
                if line.hot.file != file {
                    file = &line.hot.file;
                    self.line(&fit(&clean(file), self.width), DIM);
                }
                let shown = clean(&format_source_line(line));
                self.line(&fit_end(&shown, self.width), "");
            }
        }
    }
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
            profile(&shown, 120, false) + &profile_markdown(&shown)
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
            profile_markdown(&shown)
        };
        assert!(of("nanoseconds").contains("judge a patch by the total"));
        assert!(of("cycles").contains("judge a patch by the total"));
        assert!(!of("instructions").contains("judge a patch"));
    }

    #[test]
    fn lines_are_shown_in_markdown_too() {
        let difference = difference(2.0, 1);
        let annotated = AnnotatedFunction {
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
        };
        let shown = ProfileReport {
            difference: &difference,
            top: 10,
            callers: Some(("scan(int)", &[][..])),
            lines: Some(&annotated),
        };
        let text = profile_markdown(&shown);
        for words in [
            "```text\nsql/scan.cc\n     1,234      12      scan_row();\n```",
            NO_LINE,
            NO_CALLER,
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
