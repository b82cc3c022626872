//! The report on an experiment. Each section is a function to nodes; the page with its Markdown, the terminal and the comment
//! arrange the same sections.

mod blocks;
mod builds;
pub(crate) mod columns;
mod effects;
mod noise;
mod slices;
mod tails;

use super::document::{
    Document, Folding, Inline, Node, Style, Target, Text, folded, list, literal, name, note,
    paragraph, section, sentence, soft, title,
};
use super::method::{SIGNIFICANT, commands, describe_method};
use super::nouns::Nouns;
use super::text::capital;
use super::view::View;
use super::{functions, number};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
use perfquilt_model::warning::Warning;

pub use builds::{BuiltServer, built_servers};
pub(super) use columns::{EffectRows, main_table};
pub use slices::Distribution;

/// A form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text on a terminal, with the answer last, where a terminal shows it.
    Terminal,
    /// The same with `--details`.
    TerminalDetails,
    /// Markdown in short, for a mail or an issue.
    Markdown,
    /// The same with `--details`.
    MarkdownDetails,
    Page,
    Comment,
}

/// All forms.
pub(crate) const EVERYWHERE: &[Form] = &[
    Form::Terminal,
    Form::TerminalDetails,
    Form::Markdown,
    Form::MarkdownDetails,
    Form::Page,
    Form::Comment,
];
/// The forms that show everything.
const WHOLE: &[Form] = &[Form::MarkdownDetails, Form::Page];
/// The forms with the facts behind the effects.
const DETAILED: &[Form] = &[
    Form::TerminalDetails,
    Form::MarkdownDetails,
    Form::Page,
    Form::Comment,
];

const WHOLE_OR_COMMENT: &[Form] = &[Form::MarkdownDetails, Form::Page, Form::Comment];
/// The forms that name the functions of each patch in a line.
const SHORT: &[Form] = &[Form::TerminalDetails, Form::Markdown, Form::Comment];
/// The forms that are read far from the terminal of the run.
const SENT: &[Form] = &[
    Form::Markdown,
    Form::MarkdownDetails,
    Form::Page,
    Form::Comment,
];

/// What a section can show.
pub(crate) struct Content<'a> {
    pub(crate) view: &'a View<'a>,
    pub(crate) form: Form,
    /// Whether the experiment is in a workspace's store, so that further commands can use it.
    pub(crate) stored: bool,
    /// The content of a page.
    pub(crate) page: Option<&'a PageContent<'a>>,
    /// Commands that check out the measured commit.
    pub(crate) checkout: Vec<String>,
}

/// A section of the report.
pub(crate) struct ReportSection {
    forms: &'static [Form],
    rank: u8,
    nodes: fn(&Content<'_>) -> Vec<Node>,
}

impl ReportSection {
    /// Declares a section that `forms` show. A comment that is too long leaves out the section of the highest `rank` first.
    pub(crate) const fn new(
        forms: &'static [Form],
        rank: u8,
        nodes: fn(&Content<'_>) -> Vec<Node>,
    ) -> Self {
        ReportSection { forms, rank, nodes }
    }
}

/// The sections below the table of the patches, in their order; a terminal, whose last lines are read first, shows them in
/// reverse order above it.
const SECTIONS: &[ReportSection] = &[
    ReportSection::new(WHOLE, 0, effects::adds_up),
    ReportSection::new(&[Form::Markdown], 0, one_layout),
    ReportSection::new(EVERYWHERE, 5, effects::single_workloads),
    ReportSection::new(EVERYWHERE, 7, effects::separately),
    ReportSection::new(WHOLE_OR_COMMENT, 12, effects::workloads),
    ReportSection::new(WHOLE, 0, tails::mean_and_tail),
    ReportSection::new(SHORT, 8, |of| functions::in_short(of.view.attribution)),
    ReportSection::new(WHOLE, 0, |of| functions::in_full(of.view.attribution)),
    ReportSection::new(&[Form::Page], 0, flame_graph),
    ReportSection::new(&[Form::Page], 0, slices::slices),
    ReportSection::new(&[Form::Page], 0, blocks::blocks),
    ReportSection::new(DETAILED, 9, noise::noise),
    ReportSection::new(DETAILED, 10, method),
    ReportSection::new(DETAILED, 11, builds::builds),
    ReportSection::new(&[Form::Page], 0, data),
    ReportSection::new(SENT, 6, reproduce),
];

impl<'a> Content<'a> {
    pub(crate) fn new(view: &'a View<'a>, form: Form) -> Self {
        Content {
            view,
            form,
            stored: true,
            page: None,
            checkout: Vec::new(),
        }
    }

    fn distributions(&self) -> &'a [Distribution] {
        self.page.map_or(&[], |page| page.distributions)
    }

    /// Returns the nodes of each section that this form shows, with its rank.
    pub(crate) fn sections(&self) -> Vec<(u8, Vec<Node>)> {
        self.those_of(SECTIONS)
    }

    fn those_of(&self, sections: &[ReportSection]) -> Vec<(u8, Vec<Node>)> {
        let shown = sections.iter().filter(|of| of.forms.contains(&self.form));
        shown.map(|of| (of.rank, (of.nodes)(self))).collect()
    }
}

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
    /// The attribution document (JSON), compressed with gzip.
    pub(crate) document: &'a [u8],
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

/// Returns the report for a terminal; `details` adds functions, noise, machine and builds.
pub(super) fn terminal(attribution: &Attribution, details: bool) -> Document {
    let view = View::new(attribution);
    let form = if details {
        Form::TerminalDetails
    } else {
        Form::Terminal
    };
    let content = Content::new(&view, form);
    let mut nodes = vec![subject(&view)];
    let sections = content.sections().into_iter().rev();
    nodes.extend(sections.flat_map(|(_, nodes)| nodes));
    nodes.extend(warnings(&attribution.warnings));
    nodes.extend(one_layout(&content));
    nodes.push(main_table(&content));
    nodes.push(soft(view.legend()));
    if !details {
        let hint = "`--details` adds functions, noise, machine and builds.";
        nodes.push(Node::Hint(hint.into()));
    }
    nodes.extend(provenance(&view));
    nodes.extend([title(view.headline(&name)), paragraph(view.tally(&name))]);
    Document(nodes)
}

/// Returns the report in short, as Markdown for a mail or an issue.
pub(super) fn short(attribution: &Attribution, stored: bool) -> Document {
    let view = View::new(attribution);
    let content = Content {
        stored,
        ..Content::new(&view, Form::Markdown)
    };
    let details = "; `--details` adds tails, all workloads, noise, machine and builds";
    arranged(&content, patches(&content), details)
}

/// Returns the report as a page, or as Markdown without the content of one.
pub(super) fn whole(
    attribution: &Attribution,
    stored: bool,
    page: Option<&PageContent<'_>>,
) -> Document {
    let view = View::new(attribution);
    let form = page.map_or(Form::MarkdownDetails, |_| Form::Page);
    let content = Content {
        stored,
        page,
        ..Content::new(&view, form)
    };
    let many = view.nouns().many;
    let patches = folded(Folding::Open, many, capital(many), patches(&content));
    arranged(&content, patches, "")
}

/// Returns the verdict, one row per patch, all sections, and the experiment's name with the `rest` of the last line.
fn arranged(content: &Content<'_>, patches: Vec<Node>, rest: &str) -> Document {
    let attribution = content.view.attribution;
    let mut nodes = opening(content.view, content.stored);
    nodes.extend(patches);
    nodes.extend(content.sections().into_iter().flat_map(|(_, nodes)| nodes));
    let from = format!("experiment {}{rest}", name(&attribution.experiment));
    nodes.push(Node::Footer(from.into()));
    Document(nodes)
}

/// Returns the verdict, what is unfinished or failed, and what was measured.
fn opening(view: &View<'_>, stored: bool) -> Vec<Node> {
    let mut nodes = vec![title(view.headline(&name))];
    nodes.extend(alerts(view.attribution, stored));
    nodes.extend([paragraph(view.tally(&name) + "."), subject(view)]);
    nodes
}

/// Returns one row per patch, with what its figures mean and what to hold against them.
fn patches(content: &Content<'_>) -> Vec<Node> {
    let view = content.view;
    let mut nodes = vec![main_table(content), legend(view)];
    nodes.extend(provenance(view));
    nodes.extend(warnings(&view.attribution.warnings));
    nodes
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

/// Returns the words of warnings, each with its code.
pub(super) fn warnings(warnings: &[Warning]) -> impl Iterator<Item = Node> {
    let words = warnings.iter().map(Warning::to_string);
    words.map(|words| note(sentence(&words)))
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
fn one_layout(of: &Content<'_>) -> Vec<Node> {
    let noise = &of.view.attribution.noise;
    let mut spread = noise.spread.iter();
    let timed =
        spread.any(|spread| spread.blocks > 0 && matches!(spread.meter, Meter::Time | Meter::Cpu));
    let words = "All times come from one code layout a point, which is part of the effects.";
    let is_one = timed && noise.layouts < 2;
    is_one.then(|| paragraph(words)).into_iter().collect()
}

/// Returns the section with a flame graph. Saved and opened by itself, the graph can be searched and zoomed.
fn flame_graph(of: &Content<'_>) -> Vec<Node> {
    let Some(svg) = of.page.and_then(|page| page.flame_graph) else {
        return Vec::new();
    };
    let target = Target::Within("flame-graph.svg".into(), "image/svg+xml", svg.to_vec());
    let mut text = Text::from(Inline::Link("Save the flame graph".into(), target));
    text.push(" to search and zoom in it");
    if !of.view.attribution.functions.is_empty() {
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
fn method(of: &Content<'_>) -> Vec<Node> {
    let attribution = of.view.attribution;
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
fn data(of: &Content<'_>) -> Vec<Node> {
    let Some(page) = of.page else {
        return Vec::new();
    };
    let file = |ending: &str| {
        let name: String = of.view.attribution.experiment.chars().take(100).collect();
        let name = if name.is_empty() { "experiment" } else { &name };
        format!("{name}.{ending}")
    };
    let link = |words: &str, ending: &str, bytes: Vec<u8>| {
        let target = Target::Within(file(ending), "application/gzip", bytes);
        Text::from(Inline::Link(words.to_owned(), target))
    };
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
            let place = if of.stored {
                "a command below writes them"
            } else {
                "they are in the file that was analysed"
            };
            (all.into(), format!(" are too much for a page; {place}."))
        }
    };
    observations.push(rest);
    let document = page.document.to_vec();
    let mut effects = link("Every effect of this page", "json.gz", document);
    effects.push(", unrounded: the attribution document (JSON, gzip).");
    section("data", "Data", list([observations, effects]))
}

/// Returns the section with the commands that reproduce the report.
fn reproduce(of: &Content<'_>) -> Vec<Node> {
    let format = match of.form {
        Form::Page => "html",
        Form::MarkdownDetails => "markdown --details",
        _ => "markdown",
    };
    let mut lines = of.checkout.clone();
    lines.extend(commands(of.view.attribution, format, of.stored));
    section(
        "reproduce",
        "Reproduce this report",
        [Node::Code("sh", lines)],
    )
}

#[cfg(test)]
mod consistency_tests;
#[cfg(test)]
mod example_tests;
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
