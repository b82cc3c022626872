//! Documents as text for a terminal.

use std::ops::Range;

use super::table::{Cell, ColumnKind, Row};
use super::{Drawing, Folding, Node, Style, Table, Text};
use crate::text::{clean, fit, fit_end, width, wrap};

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";
/// Smallest width that is fitted, in columns.
const NARROWEST: usize = 40;
/// Smallest width of a column of names; with less room, the other cells of a row go below its name.
const MIN_NAME: usize = 12;
/// Smallest width of the names of rows beside other columns that give way.
const MIN_FIRST: usize = 18;
/// Smallest width of a column of prose.
const MIN_PROSE: usize = 20;
/// Columns between two columns.
const GAP: usize = 2;

/// Writes nodes in at most `columns` columns.
pub(super) fn render(nodes: &[Node], columns: usize, color: bool) -> String {
    let mut page = TextPage {
        width: columns.max(NARROWEST),
        color,
        text: String::new(),
    };
    page.nodes(nodes);
    page.text
}

/// Text for a terminal, built line by line.
struct TextPage {
    /// Width in columns.
    width: usize,
    /// Whether ANSI colours are allowed.
    color: bool,
    text: String,
}

/// Returns whether a blank line stands between two blocks.
fn is_apart(before: &Node, after: &Node) -> bool {
    let is_note = |node: &Node| matches!(node, Node::Paragraph(Style::Note | Style::Alert, _));
    match (before, after) {
        (_, Node::Heading(..) | Node::Details(..) | Node::Section(..)) => true,
        (_, Node::Drawings(_) | Node::Next(_) | Node::Footer(_)) => true,
        (Node::Heading(..), _) => false,
        (Node::Table(_) | Node::Drawings(_) | Node::Details(..) | Node::Section(..), _) => true,
        (Node::Paragraph(_, text), Node::Table(_)) => !text.plain().ends_with(':'),
        (_, Node::Table(_)) => true,
        (Node::List(_) | Node::Facts(_), Node::Paragraph(..)) => true,
        (before, after) => is_note(before) || is_note(after),
    }
}

fn sequence(style: Style) -> &'static str {
    match style {
        Style::Plain | Style::Note | Style::Alert => "",
        Style::Soft | Style::Quiet => DIM,
        Style::Good => "\x1b[32m",
        Style::Bad => "\x1b[31m",
        Style::Open => "\x1b[33m",
    }
}

/// Returns the style of a line of a diff.
fn diff(line: &str) -> &'static str {
    match line.as_bytes().first() {
        Some(b'+') => sequence(Style::Good),
        Some(b'-') => sequence(Style::Bad),
        Some(b'@') => DIM,
        _ => "",
    }
}

impl TextPage {
    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn styled(&self, text: &str, style: &str) -> String {
        if self.color && !style.is_empty() && !text.is_empty() {
            format!("{style}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }

    fn line(&mut self, text: &str, style: &str) {
        let text = self.styled(text.trim_end(), style);
        self.text += &format!("{text}\n");
    }

    fn paragraph(&mut self, text: &str, style: &str) {
        self.indented(text, 0, style);
    }

    fn indented(&mut self, text: &str, indent: usize, style: &str) {
        for line in wrap(text, self.width.saturating_sub(indent)) {
            let line = self.styled(line.trim_end(), style);
            self.text += &format!("{:indent$}{line}\n", "");
        }
    }

    fn nodes(&mut self, nodes: &[Node]) {
        let shown = |node: &&Node| match node {
            Node::Details(folding, ..) | Node::Section(_, folding, ..) => {
                *folding != Folding::LeftOut
            }
            Node::Drawings(drawings) => drawings.iter().any(Drawing::has_text),
            Node::Picture(..) => false,
            _ => true,
        };
        let mut before = None;
        for node in nodes.iter().filter(shown) {
            if before.is_some_and(|before| is_apart(before, node)) {
                self.blank();
            }
            self.node(node);
            before = Some(node);
        }
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Heading(_, Style::Plain, text) => self.paragraph(&text.plain(), BOLD),
            Node::Heading(_, style, text) => self.paragraph(&text.plain(), sequence(*style)),
            Node::Paragraph(Style::Note | Style::Alert, text) => {
                self.paragraph(&format!("Note: {}", text.plain()), "")
            }
            Node::Paragraph(style, text) => self.paragraph(&text.plain(), sequence(*style)),
            Node::List(items) => self.items(items),
            Node::Facts(facts) => self.facts(facts),
            Node::Table(table) => self.table(table),
            Node::Code(language, lines) => self.code(language, lines),
            Node::Details(_, title, nodes) | Node::Section(_, _, title, nodes) => {
                self.paragraph(&title.plain(), BOLD);
                self.nodes(nodes);
            }
            Node::Drawings(drawings) => {
                let shown = drawings.iter().filter(|drawing| drawing.has_text());
                for (place, drawing) in shown.enumerate() {
                    if place > 0 {
                        self.blank();
                    }
                    if !drawing.heading.is_empty() {
                        self.paragraph(&drawing.heading.plain(), BOLD);
                    }
                    self.nodes(&drawing.below);
                }
            }
            Node::Picture(..) => {}
            Node::Hint(text) | Node::Footer(text) => self.paragraph(&text.plain(), DIM),
            Node::Next(commands) => self.next(commands),
        }
    }

    fn items(&mut self, items: &[Cell]) {
        for item in items {
            self.indented(&item.text.plain(), 2, "");
            for text in &item.below {
                self.indented(&text.plain(), 4, DIM);
            }
        }
    }

    fn facts(&mut self, facts: &[(Text, Text)]) {
        let names = facts.iter().map(|(name, _)| width(&name.plain()));
        let room = names.max().unwrap_or(0);
        for (name, text) in facts {
            let name = name.plain();
            let pad = room.saturating_sub(width(&name));
            self.paragraph(&format!("{name}{:pad$}  {}", "", text.plain()), "");
        }
    }

    /// Appends lines as they are, cut at the width unless they are commands.
    fn code(&mut self, language: &str, lines: &[String]) {
        const INDENT: usize = 4;
        for line in lines {
            let line = clean(&line.replace('\t', "    "));
            let style = if language == "diff" { diff(&line) } else { "" };
            let line = match language {
                "sh" => line,
                _ => fit_end(&line, self.width - INDENT),
            };
            let line = self.styled(line.trim_end(), style);
            self.text += &format!("{:INDENT$}{line}", "");
            self.blank();
        }
    }

    fn next(&mut self, commands: &[(String, String)]) {
        for (place, (command, purpose)) in commands.iter().enumerate() {
            let word = if place == 0 { "next:" } else { "" };
            self.text += &format!("{word:<6}{}\n", clean(command));
            if !purpose.is_empty() {
                self.indented(&format!("({})", clean(purpose)), 8, "");
            }
        }
    }

    fn table(&mut self, table: &Table) {
        let grid = Grid::new(table, self.width);
        match grid.layout(self.width) {
            Layout::Beside(widths) => self.beside(&grid, &widths),
            Layout::Below(indent, widths) => self.below(&grid, indent, &widths),
            Layout::Stacked => self.cell_by_cell(&grid),
        }
    }

    /// Appends a table with one line per row.
    fn beside(&mut self, grid: &Grid<'_>, widths: &[usize]) {
        let all = 0..widths.len();
        self.heads(grid, 0, all.clone(), widths);
        for (place, row) in grid.rows.iter().enumerate() {
            if row.of.is_total && place > 0 {
                self.line(&"─".repeat(sum(widths)), DIM);
            }
            self.row(grid, row, 0, all.clone(), widths);
        }
    }

    /// Appends a table whose figures stand in columns below each row's name.
    fn below(&mut self, grid: &Grid<'_>, indent: usize, widths: &[usize]) {
        let (lead, rest) = grid.split();
        self.heads(grid, indent, rest.clone(), widths);
        for row in &grid.rows {
            self.cells(grid, row, lead.clone(), widths);
            self.blank();
            self.text += &" ".repeat(indent);
            self.row(grid, row, indent, rest.clone(), widths);
        }
    }

    fn heads(&mut self, grid: &Grid<'_>, indent: usize, columns: Range<usize>, widths: &[usize]) {
        if grid.heads[columns.clone()]
            .iter()
            .any(|head| !head.is_empty())
        {
            let heads = grid.line(&grid.heads, columns, widths);
            self.line(&format!("{:indent$}{heads}", ""), BOLD);
        }
    }

    /// Appends the last columns of a row, which begin behind `indent`, and what stands below the row.
    fn row(
        &mut self,
        grid: &Grid<'_>,
        row: &GridRow<'_>,
        indent: usize,
        columns: Range<usize>,
        widths: &[usize],
    ) {
        self.cells(grid, row, columns.clone(), widths);
        let lines = grid.prose(row, widths);
        let used = indent + sum(&widths[columns]);
        let mut remarks = row.remarks();
        if lines.len() < 2 {
            self.remark(&mut remarks, used);
        }
        self.blank();
        let indent = used - widths.last().copied().unwrap_or(0);
        for line in lines.iter().skip(1) {
            self.line(&format!("{:indent$}{line}", ""), "");
        }
        self.lines_below(row.of, &remarks);
    }

    /// Appends a table with one line per cell.
    fn cell_by_cell(&mut self, grid: &Grid<'_>) {
        let (lead, rest) = grid.split();
        let heads = grid.heads[rest.clone()].iter().map(|head| width(head));
        let heads = heads.max().unwrap_or(0);
        for row in &grid.rows {
            let name = row.texts[lead.clone()].join("  ");
            self.line(&fit(&name, self.width), BOLD);
            for column in rest.clone() {
                let text = &row.texts[column];
                if !text.is_empty() {
                    let head = &grid.heads[column];
                    let pad = if heads > 0 {
                        GAP + heads - width(head)
                    } else {
                        0
                    };
                    let style = grid.style(row, column);
                    self.indented(&format!("{head}{:pad$}{text}", ""), 4, style);
                }
            }
            self.lines_below(row.of, &row.remarks());
        }
    }

    /// Appends cells of a row beside each other, without a line end.
    fn cells(
        &mut self,
        grid: &Grid<'_>,
        row: &GridRow<'_>,
        columns: Range<usize>,
        widths: &[usize],
    ) {
        let mut pad = 0;
        for column in columns.clone() {
            let text = match grid.prose(row, widths).into_iter().next() {
                Some(first) if column + 1 == widths.len() => first,
                _ => fit(&row.texts[column], widths[column]),
            };
            let room = widths[column].saturating_sub(width(&text));
            let (left, right) = match grid.kinds[column] {
                ColumnKind::Figures => (room, 0),
                _ => (0, room),
            };
            if !text.is_empty() {
                let text = self.styled(&text, grid.style(row, column));
                self.text += &format!("{:1$}{text}", "", pad + left);
                pad = right + GAP;
            } else {
                pad += left + right + GAP;
            }
        }
    }

    /// Appends the only remark on a row of `used` columns if it fits there, and takes it out of `remarks`.
    fn remark(&mut self, remarks: &mut Vec<String>, used: usize) {
        if let [remark] = &remarks[..]
            && used + GAP + width(remark) <= self.width
        {
            let line = self.text.rfind('\n').map_or(0, |end| end + 1);
            let written = width(&without_styles(&self.text[line..]));
            let pad = (used + GAP).saturating_sub(written);
            self.text += &format!("{:pad$}{remark}", "");
            remarks.clear();
        }
    }

    fn lines_below(&mut self, row: &Row, remarks: &[String]) {
        for text in row.cells.iter().flat_map(|cell| &cell.below) {
            self.indented(&text.plain(), 4, DIM);
        }
        for remark in remarks {
            self.indented(remark, 4, "");
        }
    }
}

/// Removes ANSI sequences of this program.
fn without_styles(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, text)| text));
    [first].into_iter().chain(rest).collect()
}

/// Returns the columns that cells of these widths take, gaps between them included.
fn sum(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// How a table stands on a terminal.
enum Layout {
    /// Each row in one line, with the columns' widths.
    Beside(Vec<usize>),
    /// Names in lines of their own, the other cells in columns below them, behind an indent.
    Below(usize, Vec<usize>),
    Stacked,
}

/// A table's cells as plain text, without columns that do not fit.
struct Grid<'t> {
    kinds: Vec<ColumnKind>,
    heads: Vec<String>,
    rows: Vec<GridRow<'t>>,
    /// The width that each column needs.
    natural: Vec<usize>,
    /// The columns in the table.
    shown: Vec<usize>,
}

/// A row of a [`Grid`].
struct GridRow<'t> {
    of: &'t Row,
    texts: Vec<String>,
}

impl GridRow<'_> {
    fn remarks(&self) -> Vec<String> {
        let remarks = self.of.cells.iter().map(|cell| cell.remark.plain());
        remarks.filter(|remark| !remark.is_empty()).collect()
    }
}

impl<'t> Grid<'t> {
    fn new(table: &'t Table, width: usize) -> Self {
        let all = 0..table.columns.len();
        let whole = Grid::of(table, all.clone().collect());
        if sum(&whole.natural) <= width {
            return whole;
        }
        Grid::of(
            table,
            all.filter(|&at| !table.columns[at].is_optional).collect(),
        )
    }

    fn of(table: &'t Table, shown: Vec<usize>) -> Self {
        let heads: Vec<String> = shown
            .iter()
            .map(|&at| table.columns[at].head.plain())
            .collect();
        let texts = |row: &Row| -> Vec<String> {
            shown
                .iter()
                .map(|&at| {
                    row.cells
                        .get(at)
                        .map_or(String::new(), |cell| cell.text.plain())
                })
                .collect()
        };
        let kinds: Vec<ColumnKind> = shown.iter().map(|&at| table.columns[at].kind).collect();
        let mut rows: Vec<GridRow<'_>> = table
            .rows
            .iter()
            .map(|of| GridRow {
                of,
                texts: texts(of),
            })
            .collect();
        // A number stands in the first of its rows only.
        if kinds.first() == Some(&ColumnKind::Figures) {
            let mut last = String::new();
            for row in &mut rows {
                if row.texts[0] == last {
                    row.texts[0].clear();
                } else {
                    last.clone_from(&row.texts[0]);
                }
            }
        }
        let natural = (0..shown.len()).map(|at| {
            let cells = rows.iter().map(|row| width(&row.texts[at]));
            cells.fold(width(&heads[at]), usize::max)
        });
        Grid {
            natural: natural.collect(),
            kinds,
            heads,
            rows,
            shown,
        }
    }

    fn style(&self, row: &GridRow<'_>, column: usize) -> &'static str {
        let cell = row.of.cells.get(self.shown[column]);
        cell.map_or("", |cell| sequence(cell.style))
    }

    /// Returns the columns up to the rows' name, and the others.
    fn split(&self) -> (Range<usize>, Range<usize>) {
        let name = self
            .kinds
            .iter()
            .position(|kind| *kind == ColumnKind::Names);
        let end = name.map_or(0, |at| at + 1);
        (0..end, end..self.kinds.len())
    }

    /// Returns texts in columns.
    fn line(&self, texts: &[String], columns: Range<usize>, widths: &[usize]) -> String {
        let one = |at: usize| {
            let text = fit(&texts[at], widths[at]);
            let pad = widths[at].saturating_sub(width(&text));
            match self.kinds[at] {
                ColumnKind::Figures => format!("{:pad$}{text}", ""),
                _ => format!("{text}{:pad$}", ""),
            }
        };
        columns.map(one).collect::<Vec<_>>().join("  ")
    }

    /// Returns the lines of a row's last cell if it is prose.
    fn prose(&self, row: &GridRow<'_>, widths: &[usize]) -> Vec<String> {
        match (self.kinds.last(), row.texts.last(), widths.last()) {
            (Some(ColumnKind::Prose), Some(text), Some(&room)) => {
                let lines = wrap(text, room);
                lines.iter().map(|line| fit(line, room)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn layout(&self, width: usize) -> Layout {
        if sum(&self.natural) <= width {
            return Layout::Beside(self.natural.clone());
        }
        if let Some(widths) = self.fitted(width) {
            return Layout::Beside(widths);
        }
        let (lead, rest) = self.split();
        let Some(name) = lead.end.checked_sub(1) else {
            return Layout::Stacked;
        };
        let indent = sum(&self.natural[..name]) + GAP;
        let mut widths = self.natural.clone();
        widths[name] = width.saturating_sub(if name > 0 { indent } else { 0 });
        if self.kinds.last() == Some(&ColumnKind::Prose) {
            let others = &widths[rest.start..rest.end - 1];
            let room = width
                .saturating_sub(indent + sum(others) + if others.is_empty() { 0 } else { GAP });
            let prose = &mut widths[rest.end - 1];
            *prose = (*prose).min(room.max(MIN_PROSE));
        }
        if indent + sum(&widths[rest]) <= width {
            Layout::Below(indent, widths)
        } else {
            Layout::Stacked
        }
    }

    /// Returns widths with which each row is one line of at most `width` columns, by shortening names and prose.
    fn fitted(&self, width: usize) -> Option<Vec<usize>> {
        let gives_way = |kind| matches!(kind, ColumnKind::Names | ColumnKind::Prose);
        let places: Vec<usize> = (0..self.kinds.len())
            .filter(|&at| gives_way(self.kinds[at]))
            .collect();
        let (&first, others) = places.split_first()?;
        let mut widths = self.natural.clone();
        let needed: usize = places.iter().map(|&at| widths[at]).sum();
        let room = needed.checked_sub(sum(&widths) - width)?;
        // Others, such as reasons, leave the first a third of the room.
        let wanted = self.natural[first].min((room / 3).max(MIN_FIRST));
        let mut left = room;
        for &at in others {
            widths[at] = widths[at].min(room.saturating_sub(wanted) / others.len());
            left = left.saturating_sub(widths[at]);
        }
        widths[first] = widths[first].min(left);
        let least = |at: usize| match self.kinds[at] {
            ColumnKind::Prose => MIN_PROSE,
            _ => MIN_NAME,
        };
        let fits = |&at: &usize| widths[at] >= least(at).min(self.natural[at]);
        places.iter().all(fits).then_some(widths)
    }
}
