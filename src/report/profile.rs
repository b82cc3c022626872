//! Two servers compared function by function, as text.

use std::fmt::Write;

use super::number;
use super::page::{BOLD, DIM, Page};
use super::text::{clean, code, fit, width};
use crate::profile::{Change, Difference, Edge, Function, Hot};

/// Columns narrower than this are not worth fitting into.
const NARROWEST: usize = 72;

/// What is shown of a [`Difference`].
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The difference.
    pub difference: &'a Difference,
    /// The most functions.
    pub top: usize,
    /// The callers of this function.
    pub callers: Option<(&'a str, &'a [Edge])>,
    /// The lines of a function on both servers.
    pub lines: Option<&'a Annotated>,
}

/// A function's lines with what they cost, on both servers.
#[derive(Debug, Clone, Default)]
pub struct Annotated {
    /// The function.
    pub function: String,
    /// The first server's lines.
    pub before: Vec<Line>,
    /// The second's.
    pub after: Vec<Line>,
}

/// A line of source and its cost.
#[derive(Debug, Clone)]
pub struct Line {
    /// Where it is and what it costs.
    pub hot: Hot,
    /// Its text, where the source is known.
    pub text: Option<String>,
}

/// The difference on a terminal of `columns` columns; `color` allows ANSI colours.
pub fn profile(shown: &Shown<'_>, columns: usize, color: bool) -> String {
    let mut page = Page::new(columns.max(NARROWEST), color);
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
    page.line("", "");
    let rows = functions(difference, shown.top);
    if rows.is_empty() {
        page.paragraph(
            "No function's own cost changed by more than runs differ.",
            "",
        );
    } else {
        page.table(&rows);
        page.paragraph(&rest(difference, &rows), "");
    }
    if let Some((callee, edges)) = shown.callers {
        page.line("", "");
        page.line(&format!("Callers of {}", clean(callee)), BOLD);
        page.callers(edges);
    }
    if let Some(annotated) = shown.lines {
        page.line("", "");
        page.lines(annotated);
    }
    page.text
}

/// The difference as Markdown.
pub fn profile_markdown(shown: &Shown<'_>) -> String {
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
    text.push_str("| function | before | after | difference | inclusive | calls |\n|:--|--:|--:|--:|--:|--:|\n");
    for function in &rows {
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {} | {} | {} |",
            code(&function.name),
            inlined(function),
            count(function.own.before),
            count(function.own.after),
            signed(&function.own),
            count_signed(function.inclusive.difference()),
            calls(&function.calls),
        );
    }
    let _ = writeln!(text, "\n{}", rest(difference, &rows));
    if let Some((callee, edges)) = shown.callers {
        let _ = writeln!(
            text,
            "\nCallers of {}:\n\n| caller | calls before | after | cost before | after |\n|:--|--:|--:|--:|--:|",
            code(callee)
        );
        for edge in edges {
            let _ = writeln!(
                text,
                "| {} | {:.2} | {:.2} | {} | {} |",
                code(&edge.caller),
                edge.calls.before,
                edge.calls.after,
                count(edge.inclusive.before),
                count(edge.inclusive.after)
            );
        }
    }
    text
}

/// `−1.24 % ± 0.02 instructions a transaction: 92,345 → 91,200`.
fn headline(difference: &Difference) -> String {
    let all = &difference.total;
    let share = |cost: f64| cost / all.before.max(f64::MIN_POSITIVE);
    let half = match all.half_width {
        Some(width) => format!(" ± {}", number::plain(share(width), 3)),
        None => String::new(),
    };
    format!(
        "{} %{half} {} a transaction: {} → {}",
        number::signed(share(all.difference()), 3),
        difference.unit,
        count(all.before),
        count(all.after)
    )
}

/// The functions whose own cost changed, largest first; all with a difference where a single run
/// knows no interval.
fn functions(difference: &Difference, top: usize) -> Vec<&Function> {
    let shown = |function: &&Function| match function.own.half_width {
        Some(_) => function.changed,
        None => function.own.difference() != 0.0,
    };
    let mut functions: Vec<&Function> = difference.functions.iter().filter(shown).collect();
    functions.truncate(top);
    functions
}

/// What the rows above leave.
fn rest(difference: &Difference, rows: &[&Function]) -> String {
    let told: f64 = rows.iter().map(|f| f.own.difference()).sum();
    let left = difference.total.difference() - told;
    format!(
        "Own {} a transaction, largest difference first; ± is the 95 % interval over runs, and one in twenty of \
         these functions has not changed, on average. {} functions ran; those not shown changed by {} together.",
        difference.unit,
        difference.functions.len(),
        count_signed(left)
    )
}

fn inlined(function: &Function) -> &'static str {
    match function.inlined {
        true => " (inlined)",
        false => "",
    }
}

impl Page {
    fn table(&mut self, rows: &[&Function]) {
        let wide = self.width >= 100;
        let figures = if wide {
            10 + 10 + 18 + 12 + 16
        } else {
            10 + 10 + 18
        };
        let room = self.width - figures;
        let mut head = format!(
            "{:room$}{:>10}{:>10}{:>18}",
            "function", "before", "after", "difference"
        );
        if wide {
            let _ = write!(head, "{:>12}{:>16}", "inclusive", "calls");
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
                let _ = write!(
                    line,
                    "{:>12}{:>16}",
                    count_signed(function.inclusive.difference()),
                    calls(&function.calls)
                );
            }
            self.line(&line, "");
        }
    }

    fn callers(&mut self, edges: &[Edge]) {
        if edges.is_empty() {
            self.paragraph(
                "Nothing calls it, or it was inlined wherever it is used.",
                "",
            );
            return;
        }
        let room = self.width - 40;
        self.line(
            &format!("{:room$}{:>20}{:>20}", "caller", "calls", "inclusive"),
            BOLD,
        );
        for edge in edges {
            let name = fit(&clean(&edge.caller), room - 1);
            let pad = room - width(&name);
            let inclusive = format!(
                "{} → {}",
                count(edge.inclusive.before),
                count(edge.inclusive.after)
            );
            let line = format!("{name}{:pad$}{:>20}{inclusive:>20}", "", calls(&edge.calls));
            self.line(&line, "");
        }
    }

    fn lines(&mut self, annotated: &Annotated) {
        for (side, lines) in [("before", &annotated.before), ("after", &annotated.after)] {
            let head = format!(
                "{} {side}: own cost a transaction by line",
                clean(&annotated.function)
            );
            self.line(&fit(&head, self.width), BOLD);
            if lines.is_empty() {
                self.paragraph(
                    "No lines are known: build with a recipe that has debug information (-g1).",
                    "",
                );
            }
            let mut file = "";
            for line in lines {
                if line.hot.file != file {
                    file = &line.hot.file;
                    self.line(&fit(&clean(file), self.width), DIM);
                }
                let text = line
                    .text
                    .as_deref()
                    .unwrap_or_default()
                    .replace('\t', "    ");
                let text = clean(&text);
                let shown = format!("{:>10}  {:>6}  {text}", count(line.hot.own), line.hot.line);
                self.line(&fit_end(&shown, self.width), "");
            }
        }
    }
}

/// `text` cut at its end to at most `room` columns.
fn fit_end(text: &str, room: usize) -> String {
    let mut used = 0;
    let cut: String = text
        .chars()
        .take_while(|c| {
            used += width(c.encode_utf8(&mut [0; 4]));
            used <= room
        })
        .collect();
    cut
}

/// A count with thousands apart: `12,345`, and with a decimal below 100.
fn count(number: f64) -> String {
    let sign = if number < 0.0 { "−" } else { "" };
    if number.abs() < 100.0 && number != number.round() {
        return format!("{sign}{:.1}", number.abs());
    }
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}{text}")
}

fn count_signed(number: f64) -> String {
    match count(number) {
        text if number > 0.0 && text != "0" => format!("+{text}"),
        text => text,
    }
}

/// A difference with its interval: `−414 ± 3`.
fn signed(change: &Change) -> String {
    let half = change.half_width.map_or(String::new(), |width| {
        // A width below what is shown must not look like none.
        match width < 0.05 {
            true => " ± <0.1".to_owned(),
            false => format!(" ± {}", count(width)),
        }
    });
    format!("{}{half}", count_signed(change.difference()))
}

/// Calls of both servers: `2.00`, or `2.00 → 3.00`.
fn calls(change: &Change) -> String {
    match change.difference().abs() < 0.005 {
        true => format!("{:.2}", change.after),
        false => format!("{:.2} → {:.2}", change.before, change.after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
