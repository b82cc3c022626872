//! The report on an experiment. Each section is a function to nodes; the page with its Markdown, the terminal and the comment
//! arrange the same sections.

mod blocks;
mod builds;
mod effects;
mod noise;
mod slices;
mod tails;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::document::{
    Document, Folding, Inline, Node, Style, Target, Text, list, literal, name, note, paragraph,
    section, sentence, soft, title,
};
use super::method::{SIGNIFICANT, commands, describe_method};
use super::nouns::Nouns;
use super::text::capital;
use super::view::View;
use super::{functions, number};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};

pub(super) use builds::builds;
pub use builds::{BuiltServer, built_servers};
pub(super) use effects::{columns, separately, single_workloads, workloads};
pub(super) use noise::noise;
pub use slices::Distribution;

/// The content of a page besides the attribution document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageContent<'a> {
    /// The experiment.
    pub(crate) header: &'a ExperimentHeader,
    /// Its observations.
    pub(crate) observations: &'a [Observation],
    /// The distributions of its slices; empty if none are stored.
    pub(crate) distributions: &'a [Distribution],
    /// The raw observations for download.
    pub(crate) data: RawData<'a>,
    /// A flame graph (SVG), if one was given.
    pub(crate) flame_graph: Option<&'a [u8]>,
}

/// The location of the raw observations of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RawData<'a> {
    /// In the page: an observation file, compressed with gzip.
    Embedded(&'a [u8]),
    /// In a file beside the page, with this name and size in bytes, because they are too large to embed.
    File(&'a str, u64),
    /// In the store or in the analysed file; a command writes them.
    Command,
}

/// Returns the report for a terminal, with the answer last, where a terminal shows it; `details` adds functions, noise and
/// builds.
pub(super) fn terminal(attribution: &Attribution, details: bool) -> Document {
    let view = View::new(attribution);
    let mut nodes = vec![subject(&view)];
    if details {
        let shown = [
            builds(attribution),
            noise(attribution),
            functions::in_short(attribution),
        ];
        nodes.extend(shown.into_iter().flatten());
    }
    nodes.extend(separately(&view));
    nodes.extend(single_workloads(&view));
    nodes.extend(warnings(attribution));
    nodes.extend(one_layout(attribution));
    nodes.push(effects::main_table(&view));
    nodes.push(soft(view.legend()));
    if !details {
        nodes.push(Node::Hint(
            "`--details` adds functions, noise and builds.".into(),
        ));
    }
    nodes.extend(provenance(&view));
    nodes.extend([title(view.headline(&name)), paragraph(view.tally(&name))]);
    Document(nodes)
}

/// Returns the report in short, as Markdown for a mail or an issue: the page without tails, noise, machine and builds.
pub(super) fn short(attribution: &Attribution, stored: bool) -> Document {
    let view = View::new(attribution);
    let mut nodes = opening(&view, stored);
    nodes.extend(patches(&view));
    nodes.extend(one_layout(attribution));
    nodes.extend(single_workloads(&view));
    let sections = [
        separately(&view),
        functions::in_short(attribution),
        reproduce(commands(attribution, "markdown", stored)),
    ];
    nodes.extend(sections.into_iter().flatten());
    let details = "; `--details` adds tails, all workloads, noise, machine and builds";
    nodes.push(origin(attribution, details));
    Document(nodes)
}

/// Returns the report as a page, or as Markdown without the content of one: the verdict first, then one row per patch, and
/// all that is behind them. `stored` says whether the experiment is in a workspace's store, so that further commands can use
/// it.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the data of a page cannot be written.
pub(super) fn whole(
    attribution: &Attribution,
    stored: bool,
    page: Option<&PageContent<'_>>,
) -> Result<Document> {
    let view = View::new(attribution);
    let mut nodes = opening(&view, stored);
    let many = view.nouns().many;
    let single = single_workloads(&view);
    let distributions = page.map_or(&[][..], |page| page.distributions);
    let flame_graph = page.and_then(|page| page.flame_graph);
    let format = if page.is_some() {
        "html"
    } else {
        "markdown --details"
    };
    let sections = [
        opened(section(many, capital(many), patches(&view))),
        effects::adds_up(&view),
        separately(&view),
        opened(section("single", "On single workloads", single)),
        workloads(&view).filter(|_| page.is_some() || view.has_suite()),
        tails::mean_and_tail(&view, distributions),
        functions::in_full(attribution),
        flame_graph.and_then(|svg| self::flame_graph(svg, &attribution.functions)),
        slices::slices(view.nouns(), distributions),
        page.and_then(|page| blocks::blocks(&view, page.header, page.observations)),
        noise(attribution),
        builds(attribution),
        method(attribution),
        page.map(|page| data(attribution, page, stored))
            .transpose()?
            .flatten(),
        reproduce(commands(attribution, format, stored)),
    ];
    nodes.extend(sections.into_iter().flatten());
    nodes.push(origin(attribution, ""));
    Ok(Document(nodes))
}

/// Returns the verdict, what is unfinished or failed, and what was measured.
fn opening(view: &View<'_>, stored: bool) -> Vec<Node> {
    let mut nodes = vec![title(view.headline(&name))];
    nodes.extend(alerts(view.attribution, stored));
    nodes.extend([paragraph(view.tally(&name) + "."), subject(view)]);
    nodes
}

/// Returns one row per patch, with what its figures mean and what to hold against them.
fn patches(view: &View<'_>) -> Vec<Node> {
    let mut nodes = vec![effects::main_table(view), legend(view)];
    nodes.extend(provenance(view));
    nodes.extend(warnings(view.attribution));
    nodes
}

/// Returns the last line, which names the experiment.
fn origin(attribution: &Attribution, rest: &str) -> Node {
    let from = format!("experiment {}{rest}", name(&attribution.experiment));
    Node::Footer(from.into())
}

/// Lets every format show a section openly.
fn opened(section: Option<Node>) -> Option<Node> {
    match section? {
        Node::Section(id, _, title, nodes) => Some(Node::Section(id, Folding::Open, title, nodes)),
        other => Some(other),
    }
}

/// Says that the experiment is unfinished, and which points failed.
fn alerts(attribution: &Attribution, stored: bool) -> Vec<Node> {
    let alert = |words: String, rest: &str| {
        let mut text = Text::from(words).strong();
        text.push(rest);
        Node::Paragraph(Style::Alert, text)
    };
    let mut nodes = Vec::new();
    if !attribution.is_complete() {
        let next = if stored {
            "; `perfquilt run` continues where it stopped"
        } else {
            ""
        };
        let rest =
            format!(" Its intervals hold at every look and are wider than those at the end{next}.");
        nodes.push(alert("This experiment is not finished.".to_owned(), &rest));
    }
    let failed = attribution.failed.iter().map(|(point, reason)| {
        let mut line = Text::from(format!("{}: ", Nouns::of(attribution).point(*point)));
        line.push(sentence(reason));
        line
    });
    if let Some(failed) = list(failed) {
        let count = attribution.failed.len();
        let words = format!("{count} of the points could not be built or measured:");
        nodes.extend([alert(words, ""), failed]);
    }
    nodes
}

/// Says what was measured: release, recipe, workloads, blocks.
pub(super) fn subject(view: &View<'_>) -> Node {
    let recipe = match view.attribution.recipe.as_str() {
        "" => String::new(),
        recipe => format!(", recipe {}", name(recipe)),
    };
    soft(format!(
        "{}{recipe}: {}",
        name(view.attribution.base()),
        view.scope(&name)
    ))
}

/// Returns the meaning of the table's figures.
pub(super) fn legend(view: &View<'_>) -> Node {
    soft(format!("{} {SIGNIFICANT}", view.legend()))
}

pub(super) fn warnings(attribution: &Attribution) -> Vec<Node> {
    let warnings = attribution.warnings.iter();
    warnings.map(|warning| note(sentence(warning))).collect()
}

/// Returns the sources of reused figures, the end-to-end check and the unused observations.
pub(super) fn provenance(view: &View<'_>) -> Vec<Node> {
    let mut nodes: Vec<Node> = view.origins(&literal).into_iter().map(soft).collect();
    nodes.extend(view.end_to_end().map(|line| paragraph(line + ".")));
    if let Some(left_out) = list(view.left_out(&literal)) {
        nodes.extend([paragraph("Observations that no figure uses:"), left_out]);
    }
    nodes
}

/// Says that the code layout is part of the effects, if there was only one.
fn one_layout(attribution: &Attribution) -> Option<Node> {
    let mut spread = attribution.noise.spread.iter();
    let timed =
        spread.any(|spread| spread.blocks > 0 && matches!(spread.meter, Meter::Time | Meter::Cpu));
    let words = "All times come from one code layout a point, which is part of the effects.";
    (timed && attribution.noise.layouts < 2).then(|| paragraph(words))
}

/// Returns the section with a flame graph. Saved and opened by itself, the graph can be searched and zoomed.
fn flame_graph(
    svg: &[u8],
    listed: &[perfquilt_model::observation::FunctionChange],
) -> Option<Node> {
    let target = Target::Within("flame-graph.svg".into(), "image/svg+xml", svg.to_vec());
    let mut text = Text::from(Inline::Link("Save the flame graph".into(), target));
    text.push(" to search and zoom in it");
    if !listed.is_empty() {
        text.push("; the functions that changed are listed above");
    }
    text.push(".");
    let picture = Node::Picture(
        svg.to_vec(),
        "Differential flame graph of two points".into(),
    );
    section("flame-graph", "Flame graph", [paragraph(text), picture])
}

/// Returns the section on the machine, the settings and the method.
pub(super) fn method(attribution: &Attribution) -> Option<Node> {
    let machine = attribution.machine.iter();
    let machine = machine.map(|(key, value)| (literal(key).into(), literal(value).into()));
    let provenance = attribution.provenance();
    let provenance = provenance.map(|(key, value)| (key.into(), name(value).into()));
    let margins = attribution.margins.iter().map(|(meter, margin)| {
        let head = format!("margin of {}", name(meter.name()));
        (head.into(), format!("±{}", number::margin(*margin)).into())
    });
    let facts = Node::Facts(machine.chain(provenance).chain(margins).collect());
    let words = paragraph(describe_method(attribution));
    section("method", "Machine and method", [facts, words])
}

/// Returns the section with the data of a page.
fn data(attribution: &Attribution, page: &PageContent<'_>, stored: bool) -> Result<Option<Node>> {
    let file = |ending: &str| {
        let name: String = attribution.experiment.chars().take(100).collect();
        let name = if name.is_empty() { "experiment" } else { &name };
        format!("{name}.{ending}")
    };
    let link = |words: &str, ending: &str, bytes: Vec<u8>| {
        let target = Target::Within(file(ending), "application/gzip", bytes);
        Text::from(Inline::Link(words.to_owned(), target))
    };
    let mut document = GzEncoder::new(Vec::new(), Compression::default());
    let document = serde_json::to_writer(&mut document, attribution)
        .map_err(Into::into)
        .and_then(|()| document.finish())
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    let all = format!("All {} observations", page.observations.len());
    let (mut observations, rest) = match page.data {
        RawData::Embedded(bytes) => (
            link(&all, "jsonl.gz", bytes.to_vec()),
            ", exactly as they were stored (JSON Lines, gzip); `perfquilt analyse` reads the file."
                .to_owned(),
        ),
        RawData::File(file, bytes) => (
            Inline::Link(all, Target::Beside(file.to_owned())).into(),
            format!(
                ", exactly as they were stored ({}, {} MB: too much for a page). Keep it beside this page.",
                literal(file),
                bytes / 1_000_000
            ),
        ),
        RawData::Command => {
            let place = if stored {
                "a command below writes them"
            } else {
                "they are in the file that was analysed"
            };
            (all.into(), format!(" are too much for a page; {place}."))
        }
    };
    observations.push(rest);
    let mut effects = link("Every effect of this page", "json.gz", document);
    effects.push(", unrounded: the attribution document (JSON, gzip).");
    Ok(section("data", "Data", list([observations, effects])))
}

/// Returns the section with the commands that reproduce the report.
pub(super) fn reproduce(commands: Vec<String>) -> Option<Node> {
    let commands = Node::Code("sh", commands);
    section("reproduce", "Reproduce this report", [commands])
}

#[cfg(test)]
mod consistency_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Experiment;
    use crate::text::width;
    use perfquilt_judge::attribution::attribute_with;
    use perfquilt_model::observation::Observation;
    use perfquilt_model::point::Point;

    /// Returns an experiment's report with its white space collapsed to single blanks.
    fn words(experiment: &Experiment, observations: &[Observation]) -> String {
        let (header, supplement) = (&experiment.header, &experiment.supplement);
        let attribution = attribute_with(header, observations, supplement, &Meter::default_margin);
        let text = terminal(&attribution.unwrap(), true).terminal(80, false);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn points_that_share_no_block_have_notes_in_their_rows() {
        let mut experiment = Experiment::new(&[(0.03, 0.03), (0.0, 0.0)]);
        experiment.workloads.truncate(1);
        let shown = |experiment: &Experiment| {
            let mut observations = experiment.observations();
            for observation in &mut observations {
                if observation.point == Point::Step(1) {
                    observation.block += 100;
                }
            }
            words(experiment, &observations)
        };
        let text = shown(&experiment);
        for words in [
            "no block has both points",
            "against the bare release, the last before it that shares blocks with it",
            "Some points share no block",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("the last before it with figures"), "{text}");
        experiment.gains.truncate(1);
        experiment.header.series.truncate(1);
        experiment.header.titles.truncate(1);
        experiment.blocks = 1;
        let text = shown(&experiment);
        let words = "a single run of each gives no interval";
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_not_said_to_have_no_effect() {
        let experiment = Experiment::new(&[(0.02, 0.02), (-0.02, -0.02)]);
        let mut observations = experiment.observations();
        let lacks = |o: &Observation| o.point == Point::Step(2) && o.workload == "oltp_read_only";
        observations.retain(|observation| !lacks(observation));
        let text = words(&experiment, &observations);
        for words in [
            "no figures on 1 of 2 workloads",
            "One pair of patch and workload has no figures.",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("show none"), "{text}");
        // One workload after the other.
        let mut observations = experiment.observations();
        for observation in &mut observations {
            if observation.workload == "oltp_read_only" {
                observation.block += 100;
            }
        }
        let text = words(&experiment, &observations);
        for words in [
            "No figure for the series over all workloads",
            "no block has it on all workloads",
            "By workload, where there is an effect",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn columns_fit_many_patches_and_the_longest_verdict() {
        let mut experiment = Experiment::new(&[]);
        experiment.gains = vec![(0.01, 0.01); 101];
        let name = |k: usize| {
            format!("{k:04}-a-patch-whose-name-takes-all-of-the-room-of-its-column.patch")
        };
        experiment.header.series = (1..=101).map(name).collect();
        experiment.header.titles = vec![String::new(); 101];
        experiment.workloads.truncate(1);
        experiment.blocks = 3;
        let mut attribution = experiment.attribution();
        attribution.patches[0].reason = Some("it was not asked for".into());
        let text = terminal(&attribution, true).terminal(80, false);
        assert!(text.contains("no figures"), "{text}");
        for line in text.lines() {
            assert!(width(line) <= 80, "{line}");
        }
        for k in [9, 99, 101] {
            let number = format!("{k:>3}  {k:04}-");
            let lines = text.lines();
            let lines = lines.filter(|line| line.starts_with(&number));
            assert_eq!(lines.count(), 1, "{k}: {text}");
        }
    }

    #[test]
    fn notes_are_kept_whole() {
        let mut attribution = Experiment::new(&[(0.01, 0.01)]).attribution();
        let reason = format!("it is {}not separable", "very ".repeat(60));
        attribution.patches[0].reason = Some(reason);
        for columns in [40, 80] {
            let text = terminal(&attribution, true).terminal(columns, false);
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(words.join(" ").contains("very not separable"), "{text}");
        }
    }
}
