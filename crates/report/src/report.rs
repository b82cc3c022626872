//! The report on an experiment. Each section is a function from the view to nodes; the terminal, Markdown and the comment
//! arrange the same sections.

use super::document::{
    Cell, Column, Document, Figure, Folding, Node, Style, Table, Text, list, literal, name, note,
    paragraph, sentence, soft, title,
};
use super::method::{SIGNIFICANT, commands, describe_method};
use super::nouns::Nouns;
use super::view::{Label, Row, SeparateEffects, Tone, View};
use super::{
    code_size, describe_conditions, describe_machines, functions, number, profile_guided, tail,
    workload_name,
};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::Meter;

/// Returns the report for a terminal, with the answer last, where a terminal shows it; `details` adds functions, noise and
/// builds.
pub(super) fn terminal(attribution: &Attribution, details: bool) -> Document {
    let view = View::new(attribution);
    let mut nodes = vec![subject(&view)];
    if details {
        nodes.extend(
            [
                builds(attribution),
                noise(attribution),
                changed_functions(attribution),
            ]
            .into_iter()
            .flatten(),
        );
    }
    nodes.extend(separate_effects(&view));
    nodes.extend(workloads(&view));
    nodes.extend(warnings(attribution));
    nodes.extend(one_layout(attribution));
    nodes.push(main_table(&view));
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

/// Returns the report as Markdown: the verdict first, then one row per patch; noise, method, machine, builds and the
/// commands that reproduce it are folded away. `stored` says whether the experiment is in a workspace's store, so that
/// further commands can use it.
pub(super) fn markdown(attribution: &Attribution, stored: bool) -> Document {
    let view = View::new(attribution);
    let mut nodes = vec![
        title(view.headline(&name)),
        paragraph(view.tally(&name) + "."),
        subject(&view),
        main_table(&view),
    ];
    nodes.push(legend(&view));
    nodes.extend(provenance(&view));
    nodes.extend(warnings(attribution));
    nodes.extend(separate_effects(&view));
    nodes.extend(tails(&view));
    nodes.extend(workloads(&view));
    nodes.extend(all_workloads(&view));
    nodes.extend(changed_functions(attribution));
    nodes.extend(noise(attribution));
    nodes.push(method(attribution));
    nodes.push(machine(attribution));
    nodes.extend(builds(attribution));
    nodes.push(reproduce(commands(attribution, "markdown", stored)));
    Document(nodes)
}

fn folded(summary: impl Into<Text>, nodes: impl IntoIterator<Item = Node>) -> Node {
    Node::Details(Folding::Folded, summary.into(), nodes.into_iter().collect())
}

/// Says what was measured: release, recipe, workloads, blocks.
pub(super) fn subject(view: &View<'_>) -> Node {
    let recipe = match view.attribution.recipe.as_str() {
        "" => String::new(),
        recipe => format!(", recipe {}", name(recipe)),
    };
    paragraph(format!(
        "{}{recipe}: {}",
        name(view.attribution.base()),
        view.scope(&name)
    ))
}

/// Returns the table of the patches, the total and the control.
fn main_table(view: &View<'_>) -> Node {
    table(view, &view.rows.iter().collect::<Vec<_>>())
}

/// Returns a table with the view's columns.
fn table(view: &View<'_>, rows: &[&Row<'_>]) -> Node {
    columns(&view.heads(), view.nouns().one, rows)
}

/// Returns a table with columns given by head and decimals; `noun` is what its rows are.
pub(super) fn columns(heads: &[(&str, usize)], noun: &str, rows: &[&Row<'_>]) -> Node {
    let is_workload = |row: &&Row<'_>| matches!(row.label, Label::Workload { .. });
    let by_workload = rows.iter().any(is_workload);
    let is_judged = rows.iter().any(|row| !row.verdict.is_empty());
    let last = if is_judged { "verdict" } else { "" };
    let mut columns = vec![Column::figures("#"), Column::names(noun)];
    if by_workload {
        columns = vec![
            Column::figures("#"),
            Column::names(noun).optional(),
            Column::names("workload"),
        ];
    }
    columns.extend(heads.iter().map(|(head, _)| Column::figures(*head)));
    columns.push(Column::words(last));
    let mut table = Table::new(format!("Effect of each {noun}"), columns).stacking();
    for row in rows {
        let mut cells: Vec<Cell> = match row.label {
            Label::Patch {
                index,
                name: of,
                title,
            } => {
                let of = Cell::from(name(of));
                let of = if title.is_empty() {
                    of
                } else {
                    of.below(literal(title))
                };
                vec![index.to_string().into(), of]
            }
            Label::Total => vec!["".into(), "total".into()],
            Label::Control => vec!["".into(), "control (A/A)".into()],
            Label::Workload {
                index,
                name: of,
                workload,
            } => {
                vec![
                    index.to_string().into(),
                    name(of).into(),
                    name(workload).into(),
                ]
            }
        };
        cells.extend(
            row.effects
                .iter()
                .zip(heads)
                .map(|(effect, (_, places))| match effect {
                    None => Cell::from(Figure::plain("–")),
                    Some(effect) => {
                        let style = if effect.is_stale() {
                            Style::Quiet
                        } else {
                            Style::Plain
                        };
                        Cell::from(Figure::of(effect, *places)).styled(style)
                    }
                }),
        );
        let notes = Text::joined(row.notes.iter().map(|note| sentence(note)), "; ");
        cells.push(
            Cell::from(row.verdict)
                .styled(row.tone.style())
                .remark(notes),
        );
        table.push(cells, row.label == Label::Total);
    }
    Node::Table(table)
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Good => Style::Good,
            Tone::Bad => Style::Bad,
            Tone::Open => Style::Open,
            Tone::Quiet => Style::Quiet,
        }
    }
}

/// Returns the meaning of the table's figures.
pub(super) fn legend(view: &View<'_>) -> Node {
    paragraph(format!("{} {SIGNIFICANT}", view.legend()))
}

pub(super) fn warnings(attribution: &Attribution) -> Vec<Node> {
    attribution
        .warnings
        .iter()
        .map(|warning| note(sentence(warning)))
        .collect()
}

/// Returns the sources of reused figures, the end-to-end check and the unused observations.
pub(super) fn provenance(view: &View<'_>) -> Vec<Node> {
    let mut nodes: Vec<Node> = view.origins(&literal).into_iter().map(soft).collect();
    nodes.extend(view.end_to_end().map(|line| paragraph(line + ".")));
    let left_out = list(view.left_out(&literal));
    nodes.extend(
        left_out
            .into_iter()
            .flat_map(|left_out| [paragraph("Observations that no figure uses:"), left_out]),
    );
    nodes
}

/// Says that the code layout is part of the effects, if there was only one.
fn one_layout(attribution: &Attribution) -> Option<Node> {
    let mut spread = attribution.noise.spread.iter();
    let timed =
        spread.any(|spread| spread.blocks > 0 && matches!(spread.meter, Meter::Time | Meter::Cpu));
    let words = "All times come from one code layout a point, whose luck is part of the effects.";
    (timed && attribution.noise.layouts < 2).then(|| paragraph(words))
}

/// Returns the effects of each patch in order, alone and without.
pub(super) fn separate_effects(view: &View<'_>) -> Vec<Node> {
    let tables = view.separate_effects.iter().map(|of| {
        let heads = SeparateEffects::HEADS.map(|head| (head, of.places));
        let about = format!(
            "{} ({})",
            view.nouns().separately,
            of.meter.shown_quantity()
        );
        folded(
            about,
            [columns(
                &heads,
                view.nouns().one,
                &of.rows.iter().collect::<Vec<_>>(),
            )],
        )
    });
    tables.collect()
}

/// Returns typical time, mean and tail of each patch.
pub(super) fn tails(view: &View<'_>) -> Option<Node> {
    let (meter, places) = view.columns.first().copied()?;
    let rows = tail::rows(view.attribution, meter);
    let heads = tail::HEADS.map(Column::figures);
    let mut table = Table::new(
        "Mean and tail",
        [Column::names(view.nouns().one)].into_iter().chain(heads),
    );
    for row in &rows {
        let cells = row
            .cells(places)
            .map(|(text, is_shown)| Cell::from(Figure::marked(text, is_shown)));
        table.push([literal(&row.name).into()].into_iter().chain(cells), false);
    }
    (!rows.is_empty()).then(|| {
        folded(
            "Mean and tail",
            [Node::Table(table), paragraph(tail::ABOUT)],
        )
    })
}

/// Returns the single workloads on which a patch has an effect or is not executed, and the effects on other meters.
fn workloads(view: &View<'_>) -> Vec<Node> {
    let mut nodes = Vec::new();
    if view.has_suite() && view.has_intervals() {
        let noun = view.nouns().one;
        let shown = view.rows_with_effect();
        let unexecuted = view.unexecuted_rows().next().is_some();
        let chosen = |row: &&Row<'_>| {
            row.effects
                .iter()
                .flatten()
                .any(|effect| effect.is_shown() || !effect.executed)
        };
        let rows: Vec<&Row<'_>> = view.details.iter().filter(chosen).collect();
        let is_empty = |row: &&Row<'_>| row.effects.iter().all(Option::is_none);
        let without = view.details.iter().filter(is_empty).count();
        let others = view.details.len() - rows.len() - without;
        if shown.is_empty() {
            nodes.push(paragraph("No single workload shows an effect."));
        }
        if !rows.is_empty() {
            let words = match (shown.is_empty(), unexecuted) {
                (_, false) => "there is an effect".to_owned(),
                (true, true) => format!("the {noun} is not executed"),
                (false, true) => format!("there is an effect, or the {noun} is not executed"),
            };
            nodes.extend([
                paragraph(format!("By workload, where {words}:")),
                table(view, &rows),
            ]);
        }
        if !shown.is_empty() && others > 0 {
            nodes.push(soft(format!(
                "{others} further pairs of {noun} and workload show none."
            )));
        }
        match without {
            0 => {}
            1 => nodes.push(soft(format!(
                "One pair of {noun} and workload has no figures."
            ))),
            n => nodes.push(soft(format!(
                "{n} pairs of {noun} and workload have no figures."
            ))),
        }
    }
    nodes.extend(further(view));
    nodes
}

/// Returns the single workloads on which a patch has an effect, for a comment; more than `open` rows are folded.
pub(super) fn shown_workloads(view: &View<'_>, open: usize) -> Vec<Node> {
    let rows = view.rows_with_effect();
    let mut nodes = Vec::new();
    if view.has_suite() && view.has_intervals() {
        let words = "By workload, where there is an effect";
        match rows.len() {
            0 => nodes.push(paragraph("No single workload shows an effect.")),
            count if count > open => nodes.push(folded(
                format!("{words} ({count} rows)"),
                [table(view, &rows)],
            )),
            _ => nodes.extend([paragraph(format!("{words}:")), table(view, &rows)]),
        }
    }
    nodes.extend(view.unexecuted(&name).map(paragraph));
    nodes.extend(further(view));
    nodes
}

/// Returns the effects on meters without a column.
fn further(view: &View<'_>) -> Vec<Node> {
    let lines = view.further().into_iter().map(|(index, meter, effect)| {
        let figure = number::effect(effect, number::decimals(meter, [effect].into_iter()));
        let (noun, workload) = (view.nouns().one, name(workload_name(&effect.workload)));
        format!(
            "{noun} {index}, {} of {workload}: {figure}",
            name(meter.name())
        )
    });
    let lines = list(lines);
    lines
        .into_iter()
        .flat_map(|lines| [paragraph(view.further_heading() + ":"), lines])
        .collect()
}

pub(super) fn all_workloads(view: &View<'_>) -> Option<Node> {
    let noun = view.nouns().one;
    let summary = format!(
        "All {} workloads, {noun} by {noun}",
        view.attribution.workloads.len()
    );
    let adds = view.has_suite() && view.rows_with_effect().len() < view.details.len();
    adds.then(|| {
        folded(
            summary,
            [table(view, &view.details.iter().collect::<Vec<_>>())],
        )
    })
}

pub(super) fn changed_functions(attribution: &Attribution) -> Option<Node> {
    let lines = functions::lines(attribution, &name);
    let mut table = Table::new(
        "Functions",
        [
            Column::figures("#"),
            Column::names("workload"),
            Column::prose("functions"),
        ],
    );
    for (index, workload, changes) in &lines {
        table.push(
            [
                index.to_string().into(),
                name(workload).into(),
                changes.into(),
            ],
            false,
        );
    }
    (!lines.is_empty()).then(|| {
        folded(
            "Functions",
            [paragraph(functions::HEAD), Node::Table(table)],
        )
    })
}

pub(super) fn noise(attribution: &Attribution) -> Option<Node> {
    let noise = &attribution.noise;
    let heads = ["blocks", "in all", "by layout", "by restart", "in a block"];
    let heads = heads.map(Column::figures);
    let mut table = Table::new(
        "Noise",
        [Column::names("workload"), Column::words("meter")]
            .into_iter()
            .chain(heads),
    );
    for spread in &noise.spread {
        let parts = [
            spread.block_sd,
            spread.layout_sd,
            spread.restart_sd,
            spread.within_sd,
        ];
        let parts = parts.map(|sd| Cell::from(sd.map_or("unknown".to_owned(), number::spread)));
        let first = [
            name(&spread.workload).into(),
            spread.meter.to_string().into(),
            spread.blocks.to_string().into(),
        ];
        table.push(first.into_iter().chain(parts), false);
    }
    let missed = noise
        .control
        .iter()
        .filter(|control| control.contains_zero == Some(false))
        .count();
    let summary = match noise.control.len() {
        0 => "Noise".to_owned(),
        n => format!("Noise (the control misses 0 in {missed} of {n} intervals)"),
    };
    let about = paragraph("Standard deviations of one point's value in one block.");
    let machines = describe_machines(&noise.machines).map(|words| paragraph(sentence(&words)));
    let conditions = describe_conditions(&noise.conditions).map(paragraph);
    let is_known = noise.spread.iter().any(|spread| spread.block_sd.is_some());
    is_known.then(|| {
        folded(
            summary,
            [about, Node::Table(table)]
                .into_iter()
                .chain(machines)
                .chain(conditions),
        )
    })
}

pub(super) fn method(attribution: &Attribution) -> Node {
    folded(
        "How the figures come about",
        [paragraph(describe_method(attribution))],
    )
}

pub(super) fn machine(attribution: &Attribution) -> Node {
    let machine = attribution
        .machine
        .iter()
        .map(|(key, value)| (literal(key).into(), literal(value).into()));
    let provenance = attribution.provenance();
    let provenance = provenance.map(|(key, value)| (key.into(), name(value).into()));
    let margins = attribution.margins.iter();
    let margins: Vec<String> = margins
        .map(|(meter, margin)| format!("{} ±{}", name(meter.name()), number::margin(*margin)))
        .collect();
    let margins = ("margins of `no effect`".into(), margins.join(", ").into());
    folded(
        "Machine and settings",
        [Node::Facts(
            machine.chain(provenance).chain([margins]).collect(),
        )],
    )
}

pub(super) fn builds(attribution: &Attribution) -> Option<Node> {
    let heads = ["configure", "compile", "link", "units", "tool's own"].map(Column::figures);
    let mut table = Table::new("Builds", [Column::names("point")].into_iter().chain(heads));
    for build in &attribution.builds {
        let from = if build.cached {
            " (from the cache)"
        } else {
            ""
        };
        let point = format!("{}{from}", Nouns::of(attribution).point(build.point));
        let [configure, compile, link, overhead] =
            [build.configure, build.compile, build.link, build.overhead].map(number::seconds);
        table.push(
            [
                point,
                configure,
                compile,
                link,
                build.units.to_string(),
                overhead,
            ]
            .map(Cell::from),
            false,
        );
    }
    let builds = attribution.builds.iter();
    let all: f64 = builds
        .map(|of| of.configure + of.compile + of.link + of.overhead)
        .sum();
    let words = [
        profile_guided::describe(attribution, &literal),
        code_size::describe(attribution),
    ];
    let words = words.into_iter().flatten().map(paragraph);
    let summary = format!("Builds ({} in all)", number::seconds(all));
    (!attribution.builds.is_empty()).then(|| folded(summary, words.chain([Node::Table(table)])))
}

/// Returns the commands that reproduce the report.
pub(super) fn reproduce(commands: Vec<String>) -> Node {
    folded("Reproduce this report", [Node::Code("sh", commands)])
}

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
