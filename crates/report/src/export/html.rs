//! The report as a page.

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{ExportedReport, Exporter, ReportData, RequiredInput, failed};
use crate::report::{PageContent, RawData, whole};
use perfquilt_model::error::Result;

/// Maximum size of embedded compressed observations, in bytes; it keeps a page below 3 MB.
const MOST_EMBEDDED: usize = 1_100_000;

/// Lower bound of the size of a compressed observation, in bytes.
const LEAST_BYTES: usize = 8;

/// The report as a self-contained page, with the observations for download.
pub(super) const HTML: Exporter = Exporter {
    required_input: RequiredInput::Distributions,
    is_for_terminals: false,
    includes_flame_graph: true,
    ..Exporter::new(
        "html",
        "One page with drawings and the data, for browsers",
        page,
    )
};

fn page(data: &ReportData<'_>) -> Result<ExportedReport> {
    let file = data.observations()?;
    // Too many observations are not compressed when there is no file to write them to.
    let few = file.observations.len() <= MOST_EMBEDDED / LEAST_BYTES;
    let bytes = if few || data.companion.is_some() {
        Some(file.compressed()?)
    } else {
        None
    };
    let embedded = bytes
        .as_deref()
        .filter(|bytes| bytes.len() <= MOST_EMBEDDED);
    let raw = match (embedded, &bytes, data.companion) {
        (Some(embedded), _, _) => RawData::Embedded(embedded),
        (None, Some(bytes), Some(name)) => RawData::File(name, bytes.len() as u64),
        _ => RawData::Command,
    };
    let mut document = GzEncoder::new(Vec::new(), Compression::default());
    let document = serde_json::to_writer(&mut document, data.attribution)
        .map_err(Into::into)
        .and_then(|()| document.finish())
        .map_err(|error| failed("JSON", &error))?;
    let content = PageContent {
        header: &file.header,
        observations: &file.observations,
        distributions: data.distributions,
        data: raw,
        document: &document,
        flame_graph: data.flame_graph,
    };
    let document = whole(data.attribution, data.stored, Some(&content));
    let text = document.page(data.attribution.base())?;
    let companion = match raw {
        RawData::File(..) => bytes,
        RawData::Embedded(_) | RawData::Command => None,
    };
    Ok(ExportedReport {
        companion,
        ..text.into()
    })
}
