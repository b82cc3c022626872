//! The formats of this program's own documents and files.

use sha2::{Digest, Sha256};

use super::{Exporter, RequiredInput, indented_json};
use crate::report::{short, terminal, whole};
use crate::sql_bench;
use perfquilt_model::observation::CHECKSUM;

/// The report as text, as wide as the terminal.
pub(super) const TERMINAL: Exporter = Exporter::new("terminal", "Table for a terminal", |data| {
    let document = terminal(data.attribution, data.details);
    Ok(document.terminal(data.columns, data.color).into())
});

/// The report as GitHub-flavoured Markdown.
pub(super) const MARKDOWN: Exporter = Exporter::new("markdown", "The same as Markdown", |data| {
    let document = if data.details {
        whole(data.attribution, data.stored, None)
    } else {
        short(data.attribution, data.stored)
    };
    Ok(document.markdown().into())
});

/// The attribution document, unrounded (docs/json.md).
pub(super) const JSON: Exporter = Exporter::new("json", "Attribution document", |data| {
    Ok(indented_json(data.attribution)?.into())
});

/// The raw observations, which `perfquilt analyse` reads (docs/json.md).
pub(super) const JSONL: Exporter = Exporter::new("jsonl", "Raw observations", |data| {
    let mut bytes = Vec::new();
    data.observations()?.write(&mut bytes)?;
    let digest = hex::encode(Sha256::digest(&bytes));
    bytes.extend(format!("{CHECKSUM}{digest}\"}}\n").into_bytes());
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
})
.with_input(RequiredInput::Observations);

/// Every operation as sql-bench prints it, and with intervals and verdicts.
pub(super) const SQL_BENCH: Exporter = Exporter::new(
    "sql-bench",
    "Every operation of sql-bench's programs, as sql-bench prints them and with intervals and verdicts",
    |data| {
        let document = sql_bench::document(data.attribution, data.recorded, data.columns)?;
        Ok(document.terminal(data.columns, data.color).into())
    },
);
