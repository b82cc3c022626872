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
pub(crate) struct Column {
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
pub(crate) struct Row {
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

/// Returns a table with these columns and rows; `about` says what it shows.
pub(crate) fn table<R: IntoIterator<Item = Cell>>(
    about: impl Into<String>,
    columns: impl IntoIterator<Item = Column>,
    rows: impl IntoIterator<Item = R>,
) -> Node {
    let mut table = Table::new(about, columns);
    for row in rows {
        table.row(row);
    }
    Node::Table(table)
}

impl Table {
    /// Returns a table without rows; `about` says what it shows.
    pub(crate) fn new(about: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Table {
            about: about.into(),
            columns: columns.into_iter().collect(),
            ..Table::default()
        }
    }

    /// Lets a narrow page show each row as a block.
    pub(crate) fn stacking(self) -> Self {
        Table {
            stacks: true,
            ..self
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.push(cells, false);
    }

    /// Appends a row; a total sums up the rows before it.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = Cell>, is_total: bool) {
        let cells = cells.into_iter().collect();
        self.rows.push(Row { cells, is_total });
    }
}

impl Column {
    pub(crate) fn figures(head: impl Into<Text>) -> Self {
        Column::new(head, ColumnKind::Figures)
    }

    pub(crate) fn words(head: impl Into<Text>) -> Self {
        Column::new(head, ColumnKind::Words)
    }

    pub(crate) fn names(head: impl Into<Text>) -> Self {
        Column::new(head, ColumnKind::Names)
    }

    pub(crate) fn prose(head: impl Into<Text>) -> Self {
        Column::new(head, ColumnKind::Prose)
    }

    fn new(head: impl Into<Text>, kind: ColumnKind) -> Self {
        Column {
            head: head.into(),
            kind,
            is_optional: false,
        }
    }

    /// Lets a terminal without room leave the column out.
    pub(crate) fn optional(self) -> Self {
        Column {
            is_optional: true,
            ..self
        }
    }
}

impl Cell {
    pub(crate) fn styled(self, style: Style) -> Self {
        Cell { style, ..self }
    }

    /// Adds a line below the text.
    pub(crate) fn below(mut self, text: impl Into<Text>) -> Self {
        self.below.push(text.into());
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
