//! The report as Markdown, with the parts that a comment on a pull request shares.

use std::fmt::Write;

use super::escape::{SENTENCE, code, fenced, is_commit, markdown as escape, shell};
use super::next::is_sandboxed;
use super::nouns::Nouns;
use super::text::clean;
use super::view::{Label, Row, SeparateEffects, View};
use super::{functions, number, tail};
use perfquilt_judge::attribution::Attribution;

/// Returns the report as GitHub-flavoured Markdown: the verdict first, then one row per patch; noise, method,
/// machine, builds and the commands that reproduce it are folded away. Names and titles cannot introduce markup,
/// links, mentions or HTML. `stored` says whether the experiment is in a workspace's store, so that further commands
/// can use it.
pub(super) fn markdown(attribution: &Attribution, stored: bool) -> String {
    let view = View::new(attribution);
    let mut page = String::new();
    let _ = writeln!(page, "## {}\n", view.headline(&|name| code(name)));
    let _ = writeln!(page, "{}.\n", view.tally(&|name| code(name)));
    let recipe = match attribution.recipe.as_str() {
        "" => String::new(),
        recipe => format!(", recipe {}", code(recipe)),
    };
    let _ = writeln!(
        page,
        "{}{recipe}: {}\n",
        code(attribution.base()),
        view.scope(&|name| code(name))
    );
    table(&mut page, &view, &view.rows.iter().collect::<Vec<_>>());
    let _ = writeln!(page, "\n{} {SIGNIFICANT}", view.legend());
    provenance(&mut page, &view);
    warnings(&mut page, attribution);
    separate_effects(&mut page, &view);
    tails(&mut page, &view);
    workloads(&mut page, &view);
    all_workloads(&mut page, &view);
    changed_functions(&mut page, attribution);
    noise(&mut page, attribution);
    method(&mut page, attribution);
    machine(&mut page, attribution);
    builds(&mut page, attribution);
    reproduce(&mut page, &commands(attribution, "markdown", stored));
    page
}

/// The explanation of bold figures, the only bold text of a report.
pub(super) const SIGNIFICANT: &str = "Bold figures are significant.";

/// How points are interleaved; omitted if each point was measured in a run of its own. Backticks are the only markup
/// of this and the following texts.
const TURNS: &str = "\
The points' servers are alive at once and take turns every few milliseconds, so that what disturbs the \
machine disturbs them alike. ";

/// How figures are computed.
const METHOD: &str = "\
A block starts every server afresh and gives one value a point. An effect is the mean over blocks of the \
log ratio of two points' values; its interval takes blocks as the unit. `no effect` means that the effect is \
shown to lie within the margin and that neither mean nor tail say otherwise, `mixed` that something is faster and \
something slower, `unclear` that nothing is shown. ";

/// Describes the control of a point.
fn describe_control(base: &str) -> String {
    format!(
        "The control is {base} measured a second time as if it were another point; where every block has it, effects \
         against {} are against the mean of both. ",
        base.replace("bare ", "")
    )
}

/// Caveat of experiments with a single code layout.
const LAYOUT: &str = "All times come from one code layout a point: a small effect on `time` with unchanged `instructions` may be \
code that happened to move.";

/// Appends the sources of reused figures, the closure check and the unused observations.
pub(super) fn provenance(page: &mut String, view: &View<'_>) {
    for line in view.origins(&escape) {
        let _ = writeln!(page, "\n{line}");
    }
    if let Some(line) = view.closure() {
        let _ = writeln!(page, "\n{line}.");
    }
    let left_out = view.left_out(&escape);
    if !left_out.is_empty() {
        page.push_str("\nObservations that no figure uses:\n\n");
        for line in left_out {
            let _ = writeln!(page, "- {line}");
        }
    }
}

pub(super) fn warnings(page: &mut String, attribution: &Attribution) {
    for warning in &attribution.warnings {
        let _ = writeln!(page, "\n> {}", sentence(warning));
    }
}

pub(super) fn method(page: &mut String, attribution: &Attribution) {
    details(
        page,
        "How the figures come about",
        &describe_method(attribution),
    );
}

/// Describes the method of an experiment; backticks are the only markup.
pub(super) fn describe_method(attribution: &Attribution) -> String {
    let layout = match attribution.noise.layouts {
        0 | 1 => LAYOUT.to_owned(),
        n => format!("Each point ran in {n} code layouts; blocks that share layouts count as one."),
    };
    let turns = if attribution.is_unpaired() { "" } else { TURNS };
    let control = describe_control(Nouns::of(attribution).base);
    format!("{turns}{METHOD}{control}{layout}")
}

/// Appends a table with the view's columns.
pub(super) fn table(page: &mut String, view: &View<'_>, rows: &[&Row<'_>]) {
    columns(page, &view.heads(), view.nouns().one, "verdict", rows);
}

pub(super) fn separate_effects(page: &mut String, view: &View<'_>) {
    for table in &view.separate_effects {
        let mut body = String::new();
        let heads = SeparateEffects::HEADS.map(|head| (head, table.places));
        columns(
            &mut body,
            &heads,
            view.nouns().one,
            "",
            &table.rows.iter().collect::<Vec<_>>(),
        );
        details(
            page,
            &format!(
                "{} ({})",
                view.nouns().separately,
                table.meter.shown_quantity()
            ),
            &body,
        );
    }
}

/// Appends typical time, mean and tail of each patch, folded away.
pub(super) fn tails(page: &mut String, view: &View<'_>) {
    let Some((meter, places)) = view.columns.first().copied() else {
        return;
    };
    let lines = tail::rows(view.attribution, meter);
    if lines.is_empty() {
        return;
    }
    let mut body = format!(
        "| {} | {} |\n|:--|{}\n",
        view.nouns().one,
        tail::HEADS.join(" | "),
        "--:|".repeat(tail::HEADS.len())
    );
    for line in lines {
        let _ = write!(body, "| {} |", escape(&line.name));
        for (text, shown) in line.cells(places) {
            let text = if shown { bold(&text) } else { text };
            let _ = write!(body, " {} |", unbroken(&text));
        }
        body.push('\n');
    }
    let _ = write!(body, "\n{}", tail::ABOUT);
    details(page, "Mean and tail", &body);
}

/// Appends a table with columns given by head and decimals; `noun` is the head of the points, `last` that of the verdicts.
pub(super) fn columns(
    page: &mut String,
    heads: &[(&str, usize)],
    noun: &str,
    last: &str,
    rows: &[&Row<'_>],
) {
    let by_workload = rows
        .iter()
        .any(|row| matches!(row.label, Label::Workload { .. }));
    let _ = write!(page, "| # | {noun} |");
    page.push_str(if by_workload { " workload |" } else { "" });
    for (head, _) in heads {
        let _ = write!(page, " {head} |");
    }
    let _ = write!(page, " {last} |\n|--:|:--|");
    page.push_str(if by_workload { ":--|" } else { "" });
    page.push_str(&"--:|".repeat(heads.len()));
    page.push_str(":--|\n");
    for row in rows {
        match row.label {
            Label::Patch { index, name, title } => {
                let _ = write!(page, "| {index} | {}", code(name));
                if !title.is_empty() {
                    let _ = write!(page, "<br>{}", escape(title));
                }
            }
            Label::Total => page.push_str("| | total"),
            Label::Control => page.push_str("| | control (A/A)"),
            Label::Workload {
                index,
                name,
                workload,
            } => {
                let _ = write!(page, "| {index} | {} | {}", code(name), code(workload));
            }
        }
        page.push_str(" |");
        for (effect, (_, places)) in row.effects.iter().zip(heads) {
            let figure = match effect {
                None => "–".to_owned(),
                Some(effect) if effect.is_stale() => {
                    format!("*{}*", number::effect(effect, *places))
                }
                Some(effect) if !effect.is_shown() => number::effect(effect, *places),
                Some(effect) => bold(&number::effect(effect, *places)),
            };
            let _ = write!(page, " {} |", unbroken(&figure));
        }
        let notes: Vec<String> = row.notes.iter().map(|note| sentence(note)).collect();
        let verdict = row.verdict;
        let _ = match notes.len() {
            0 => writeln!(page, " {verdict} |"),
            _ if verdict.is_empty() => writeln!(page, " {} |", notes.join("; ")),
            _ => writeln!(page, " {verdict} ({}) |", notes.join("; ")),
        };
    }
}

/// Keeps the figure of a table cell on one line; only a range in parentheses may begin a second one.
fn unbroken(figure: &str) -> String {
    figure.replace(' ', "\u{a0}").replace("\u{a0}(", " (")
}

/// Makes the estimate bold, but not its interval.
fn bold(figure: &str) -> String {
    match figure.split_once(" %") {
        Some((estimate, interval)) => format!("**{estimate} %**{interval}"),
        None => figure.to_owned(),
    }
}

/// Escapes a sentence of this program that may contain untrusted names. It is cut only beyond [`SENTENCE`]
/// characters. Text between backticks becomes code.
pub(super) fn sentence(text: &str) -> String {
    let (text, end) = match text.char_indices().nth(SENTENCE) {
        Some((end, _)) => (&text[..end], " …"),
        None => (text, ""),
    };
    let parts: Vec<&str> = text.split('`').collect();
    // An empty pair of backticks would join the text around it.
    let mut coded = parts.iter().skip(1).step_by(2);
    let paired = parts.len() % 2 == 1 && coded.all(|part| !part.trim().is_empty());
    let shown: String = if paired {
        parts
            .iter()
            .enumerate()
            .map(|(place, part)| match place % 2 {
                1 => code(part),
                _ => escape_words(part),
            })
            .collect()
    } else {
        escape_words(text)
    };
    shown + end
}

/// Escapes `text` word by word; only words that may become active change.
fn escape_words(text: &str) -> String {
    text.split(' ')
        .map(|word| {
            let word = clean(word);
            let plain = |c: char| c.is_alphanumeric() || "%()±−,;'".contains(c);
            let bare = word.trim_end_matches(['.', ':']);
            let address = bare.to_ascii_lowercase().ends_with("www");
            if bare.chars().all(plain) && !is_commit(bare) && !address {
                word
            } else {
                escape(&word)
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

pub(super) fn details(page: &mut String, summary: &str, body: &str) {
    let _ = writeln!(
        page,
        "\n<details><summary>{summary}</summary>\n\n{}\n\n</details>",
        body.trim_end()
    );
}

fn workloads(page: &mut String, view: &View<'_>) {
    let rows = view.rows_with_effect();
    if view.has_suite() && !rows.is_empty() {
        page.push_str("\nBy workload, where there is an effect:\n\n");
        table(page, view, &rows);
    }
    further(page, view);
}

/// Appends the effects on meters without a column.
pub(super) fn further(page: &mut String, view: &View<'_>) {
    let further = view.further();
    if further.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n{}:\n", view.further_heading());
    for (index, meter, effect) in further {
        let figure = number::effect(effect, number::decimals(meter, [effect].into_iter()));
        let _ = writeln!(
            page,
            "- {} {index}, {} of {}: {figure}",
            view.nouns().one,
            code(meter.name()),
            code(super::workload_name(&effect.workload)),
        );
    }
}

pub(super) fn all_workloads(page: &mut String, view: &View<'_>) {
    if !view.has_suite() || view.rows_with_effect().len() == view.details.len() {
        return;
    }
    let mut body = String::new();
    table(&mut body, view, &view.details.iter().collect::<Vec<_>>());
    let workloads = view.attribution.workloads.len();
    let noun = view.nouns().one;
    details(
        page,
        &format!("All {workloads} workloads, {noun} by {noun}"),
        &body,
    );
}

pub(super) fn changed_functions(page: &mut String, attribution: &Attribution) {
    let lines = functions::lines(attribution, &|name| code(name));
    if lines.is_empty() {
        return;
    }
    let mut body = format!(
        "{}\n\n| # | workload | functions |\n|--:|:--|:--|\n",
        functions::HEAD
    );
    for (index, workload, changes) in lines {
        let _ = writeln!(body, "| {index} | {} | {changes} |", code(&workload));
    }
    details(page, "Functions", &body);
}

pub(super) fn noise(page: &mut String, attribution: &Attribution) {
    let spreads = &attribution.noise.spread;
    if spreads.iter().all(|spread| spread.block_sd.is_none()) {
        return;
    }
    let mut body = String::from(
        "Standard deviations of one point's value in one block.\n\n\
         | workload | meter | blocks | in all | between layouts | between restarts | within a block |\n\
         |:--|:--|--:|--:|--:|--:|--:|\n",
    );
    let show = |sd: Option<f64>| sd.map_or("unknown".to_owned(), number::spread);
    for spread in spreads {
        let _ = writeln!(
            body,
            "| {} | {} | {} | {} | {} | {} | {} |",
            code(&spread.workload),
            spread.meter,
            spread.blocks,
            show(spread.block_sd),
            show(spread.layout_sd),
            show(spread.restart_sd),
            show(spread.within_sd)
        );
    }
    let noise = &attribution.noise;
    let words = super::describe_machines(&noise.machines);
    let words = words.map(|words| sentence(&words).to_string());
    for words in words
        .into_iter()
        .chain(super::describe_conditions(&noise.conditions))
    {
        let _ = writeln!(body, "\n{words}");
    }
    let controls = &attribution.noise.control;
    let missed = controls
        .iter()
        .filter(|control| control.contains_zero == Some(false))
        .count();
    let summary = match controls.len() {
        0 => "Noise".to_owned(),
        n => format!("Noise (the control misses 0 in {missed} of {n} intervals)"),
    };
    details(page, &summary, &body);
}

pub(super) fn machine(page: &mut String, attribution: &Attribution) {
    let mut body = String::new();
    for (key, value) in &attribution.machine {
        let _ = writeln!(body, "- {}: {}", escape(key), escape(value));
    }
    for (key, value) in attribution.provenance() {
        let _ = writeln!(body, "- {key}: {}", code(value));
    }
    let margins: Vec<String> = attribution
        .margins
        .iter()
        .map(|(meter, margin)| format!("{} ±{}", code(meter.name()), number::margin(*margin)))
        .collect();
    let _ = writeln!(body, "- margins of `no effect`: {}", margins.join(", "));
    details(page, "Machine and settings", &body);
}

pub(super) fn builds(page: &mut String, attribution: &Attribution) {
    if attribution.builds.is_empty() {
        return;
    }
    let mut body = String::from(
        "| point | configure | compile | link | units | tool's own |\n|:--|--:|--:|--:|--:|--:|\n",
    );
    if let Some(words) = super::code_size::describe(attribution) {
        body = format!("{words}\n\n{body}");
    }
    if let Some(words) = super::profile_guided::describe(attribution, &escape) {
        body = format!("{words}\n\n{body}");
    }
    for build in &attribution.builds {
        let from = if build.cached {
            " (from the cache)"
        } else {
            ""
        };
        let _ = writeln!(
            body,
            "| {}{from} | {} | {} | {} | {} | {} |",
            Nouns::of(attribution).point(build.point),
            number::seconds(build.configure),
            number::seconds(build.compile),
            number::seconds(build.link),
            build.units,
            number::seconds(build.overhead)
        );
    }
    let all: f64 = attribution
        .builds
        .iter()
        .map(|build| build.configure + build.compile + build.link + build.overhead)
        .sum();
    details(
        page,
        &format!("Builds ({} in all)", number::seconds(all)),
        &body,
    );
}

/// Appends the commands that reproduce the report.
pub(super) fn reproduce(page: &mut String, commands: &[String]) {
    details(page, "Reproduce this report", &fenced("sh", commands));
}

/// Returns the commands that reproduce the report in `format`, with comments. If the experiment is not `stored`, the
/// input files are unknown and stand as FILE.
pub(super) fn commands(attribution: &Attribution, format: &str, stored: bool) -> Vec<String> {
    if !stored {
        return vec![format!("perfquilt analyse FILE --format {format}")];
    }
    let name = shell(&attribution.experiment);
    // A command that would not be shown whole is of no use.
    let known = attribution.command.as_ref();
    let (measuring, command) = match known.filter(|command| clean(command) == **command) {
        Some(command) => ("# builds", command.clone()),
        None => (
            "# with the preset and options of the run: builds",
            "perfquilt run".to_owned(),
        ),
    };
    let report = if is_sandboxed(attribution) {
        command.clone()
    } else {
        format!("perfquilt report {name}")
    };
    vec![
        format!("{measuring} and measures missing points, then reports"),
        command,
        "# this report from the stored observations".to_owned(),
        format!("{report} --format {format}"),
        "# the raw observations, for `perfquilt analyse`".to_owned(),
        format!("{report} --format jsonl"),
    ]
}
