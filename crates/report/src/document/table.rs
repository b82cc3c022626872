//! Tables of a document.

use super::{Node, Style, Text};

/// A table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Its content, for screen readers.
    pub(super) about: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// Whether a narrow page shows each row as a block; such a table begins with a number and a name.
    pub(super) stacks: bool,
}

/// A column: its head, and how its cells stand.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) head: Text,
    pub(super) kind: ColumnKind,
    /// Whether a terminal without room for it leaves it out.
    pub(super) is_optional: bool,
}

/// How the cells of a column stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// At the right, whole.
    Figures,
    /// At the left, whole.
    Words,
    /// At the left; a terminal without room shortens them in their middle. The first such column names the rows.
    Names,
    /// At the left; a terminal without room breaks them into lines. Only the last column.
    Prose,
}

/// A row.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    /// Whether it sums up the rows before it.
    pub(super) is_total: bool,
}

/// A cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub(super) text: Text,
    pub(super) style: Style,
    /// Lines below its text.
    pub(super) below: Vec<Text>,
    /// A remark on its text, behind it where there is room.
    pub(super) remark: Text,
}

/// A table in the making. Each column is declared in one place: its head, how its cells stand, and its cell in a row `R`.
pub(crate) struct TableBuilder<R> {
    rows: Vec<R>,
    table: Table,
}

/// Begins a table with one row for each of `rows`; `about` says what it shows.
pub(crate) fn table<R>(
    about: impl Into<String>,
    rows: impl IntoIterator<Item = R>,
) -> TableBuilder<R> {
    let rows: Vec<R> = rows.into_iter().collect();
    let table = Table {
        about: about.into(),
        rows: rows.iter().map(|_| Row::default()).collect(),
        ..Table::default()
    };
    TableBuilder { rows, table }
}

impl<R> TableBuilder<R> {
    /// Adds a column of figures.
    pub(crate) fn figures<C: Into<Cell>>(
        self,
        head: impl Into<Text>,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        self.column(ColumnKind::Figures, head.into(), cell)
    }

    /// Adds a column of words, which stay whole.
    pub(crate) fn words<C: Into<Cell>>(
        self,
        head: impl Into<Text>,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        self.column(ColumnKind::Words, head.into(), cell)
    }

    /// Adds a column of names; the first one names the rows.
    pub(crate) fn names<C: Into<Cell>>(
        self,
        head: impl Into<Text>,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        self.column(ColumnKind::Names, head.into(), cell)
    }

    /// Adds the last column, of sentences.
    pub(crate) fn prose<C: Into<Cell>>(
        self,
        head: impl Into<Text>,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        self.column(ColumnKind::Prose, head.into(), cell)
    }

    fn column<C: Into<Cell>>(
        mut self,
        kind: ColumnKind,
        head: Text,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        for (row, of) in self.table.rows.iter_mut().zip(&self.rows) {
            row.cells.push(cell(of).into());
        }
        self.table.columns.push(Column {
            head,
            kind,
            is_optional: false,
        });
        self
    }

    /// Says whether a terminal without room leaves the last column out.
    pub(crate) fn optional(mut self, is_optional: bool) -> Self {
        if let Some(last) = self.table.columns.last_mut() {
            last.is_optional = is_optional;
        }
        self
    }

    /// Removes the last column unless it is `shown`.
    pub(crate) fn only_if(mut self, shown: bool) -> Self {
        if !shown {
            self.table.columns.pop();
            for row in &mut self.table.rows {
                row.cells.pop();
            }
        }
        self
    }

    /// Adds a column of figures for each of `items`, with its head.
    pub(crate) fn each<T, C: Into<Cell>>(
        self,
        items: impl IntoIterator<Item = (impl Into<Text>, T)>,
        cell: impl Fn(&R, &T) -> C,
    ) -> Self {
        let items = items.into_iter();
        items.fold(self, |table, (head, of)| {
            table.figures(head, |row| cell(row, &of))
        })
    }

    /// Marks the rows that sum up those before them.
    pub(crate) fn total_if(mut self, is_total: impl Fn(&R) -> bool) -> Self {
        for (row, of) in self.table.rows.iter_mut().zip(&self.rows) {
            row.is_total = is_total(of);
        }
        self
    }

    /// Lets a narrow page show each row as a block.
    pub(crate) fn stacking(mut self) -> Self {
        self.table.stacks = true;
        self
    }

    pub(crate) fn node(self) -> Node {
        Node::Table(self.table)
    }
}

impl Cell {
    pub(crate) fn styled(self, style: Style) -> Self {
        Cell { style, ..self }
    }

    /// Adds lines below the text.
    pub(crate) fn below(mut self, texts: impl IntoIterator<Item = impl Into<Text>>) -> Self {
        self.below.extend(texts.into_iter().map(Into::into));
        self
    }

    /// Sets the remark on the text.
    pub(crate) fn remark(self, text: impl Into<Text>) -> Self {
        let remark = text.into();
        Cell { remark, ..self }
    }
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }
}
