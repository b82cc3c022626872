//! The report on a patch or series on two releases: a table and a verdict in words.

use super::bisect::{cost, known_effect};
use super::document::{Cell, Document, name, paragraph, table, title};
use super::number::margin;
use perfquilt_judge::bisect::two_way::{LossSource, LossTable};
use perfquilt_judge::stats::SpeedChange;

/// Returns the document: the verdict in words, and the releases against each other, the effect of the patch on each,
/// and their difference.
pub fn document(of: &LossTable) -> Document {
    let figure =
        |shown: &Option<SpeedChange>| Cell::from(known_effect(&of.question, shown.as_ref()));
    let [old, new] = names(of);
    let what = what(of);
    let [without, with] = &of.release;
    let [on_old, on_new] = &of.patch;
    let nothing = Cell::default;
    let rows = [
        (format!("{new} against {old}"), figure(without), with),
        (format!("{what} on {old}"), nothing(), on_old),
        (format!("{what} on {new}"), nothing(), on_new),
        ("worth more there by".to_owned(), nothing(), &of.difference),
    ];
    let table = table("The releases and the patch on each", rows)
        .names(of.question.meter.meter.shown_quantity(), |(name, ..)| {
            name.clone()
        })
        .figures(format!("without {what}"), |(_, without, _)| without.clone())
        .figures(format!("with {what}"), |(.., with)| figure(with));
    Document(vec![
        title(verdict(of)),
        paragraph(scope(of)),
        table.node(),
        paragraph(cost(&of.cost)),
    ])
}

fn names(of: &LossTable) -> [String; 2] {
    of.releases.each_ref().map(|release| name(release))
}

fn what(table: &LossTable) -> String {
    let state = |place: usize| table.question.states.get(place);
    let (before, after) = (state(0), state(1));
    match (before, after) {
        // States of neighbouring points differ by one patch.
        (Some(before), Some(after)) if is_next(&before.label, &after.label) => name(&after.name),
        _ => "the series".to_owned(),
    }
}

/// Returns whether two states are neighbouring points; their labels end in the points' numbers.
fn is_next(before: &str, after: &str) -> bool {
    let number = |label: &str| -> Option<usize> { label.rsplit(' ').next()?.parse().ok() };
    matches!((number(before), number(after)), (Some(a), Some(b)) if b == a + 1)
}

fn scope(table: &LossTable) -> String {
    format!(
        "{} ({}), recipe {}; losses of {} or more, error rate {}.",
        name(&table.question.workload),
        table.question.meter,
        name(&table.question.recipe),
        margin(table.question.size),
        margin(table.question.error),
    )
}

/// Attributes the loss in a sentence.
fn verdict(table: &LossTable) -> String {
    let [old, new] = names(table);
    let what = what(table);
    let figure = |shown: &Option<SpeedChange>| known_effect(&table.question, shown.as_ref());
    let least = margin(table.question.size);
    // An interval that contains both 0 and the requested size does not show that the patch no longer helps.
    let nothing = table.patch[1]
        .and_then(|effect| effect.ends())
        .is_some_and(|(low, high)| low <= 0.0 && high < table.question.size);
    let less = if nothing {
        "no longer helps"
    } else {
        "is worth less"
    };
    match table.whose {
        LossSource::Patch => format!(
            "The loss is that of {what}: it {less} on {new}, {} after {} on {old}; {new} itself is no \
             slower by {least}",
            figure(&table.patch[1]),
            figure(&table.patch[0]),
        ),
        LossSource::Upstream => format!(
            "The loss is upstream's: {new} without {what} is {} against {old}; {what} is worth as much as \
             before",
            figure(&table.release[0])
        ),
        LossSource::Both => format!(
            "Both: {new} without {what} is {} against {old}, and {what} {less} there, {} after {}",
            figure(&table.release[0]),
            figure(&table.patch[1]),
            figure(&table.patch[0]),
        ),
        LossSource::Nobody => format!(
            "No loss of {least} or more: neither is {new} slower, nor is {what} worth less there"
        ),
        LossSource::Undecided => format!(
            "Undecided: {} blocks do not tell a loss of {least} from none",
            table.cost.blocks
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::width;
    use perfquilt_judge::bisect::two_way::DifferenceInDifferences;
    use perfquilt_judge::bisect::{Direction, Question, Revision};
    use perfquilt_model::observation::Meter;

    fn table(costs: [f64; 4], points: [usize; 2]) -> LossTable {
        let states = [0, 1].iter().flat_map(|release| {
            points.map(|point| Revision {
                label: format!("toy-{}.0 at point {point}", release + 1),
                name: format!("{point:04}-change.patch"),
                title: String::new(),
                tree: String::new(),
            })
        });
        let question = Question {
            states: states.collect(),
            change: "patch".into(),
            release: "toy-1.0".into(),
            recipe: "make".into(),
            workload: "load".into(),
            meter: Meter::Instructions.into(),
            direction: Direction::Slower,
            size: 0.005,
            error: 0.01,
            most_blocks: 10,
            known_sd: Some(0.0005),
        };
        let mut all = DifferenceInDifferences::new(question, ["toy-1.0".into(), "toy-2.0".into()]);
        for more in [0.0, 0.01, 0.0] {
            all.add(costs.map(|cost| cost + more), 4, 2.0);
        }
        all.table()
    }

    #[test]
    fn the_verdict_is_in_words() {
        for (costs, words) in [
            ([100.0, 90.0, 100.0, 90.0], "No loss of 0.5 % or more"),
            (
                [100.0, 90.0, 105.0, 94.5],
                "The loss is upstream's: toy-2.0 without the series",
            ),
            ([100.0, 90.0, 100.0, 100.0], "it no longer helps on toy-2.0"),
            ([100.0, 90.0, 100.0, 97.0], "it is worth less on toy-2.0"),
            (
                [100.0, 90.0, 105.0, 103.0],
                "Both: toy-2.0 without the series",
            ),
        ] {
            let text = document(&table(costs, [0, 4])).terminal(400, false);
            assert!(text.contains(words), "{text}");
        }
        let mut open = table([100.0, 90.0, 100.0, 100.0], [0, 4]);
        open.patch[1] = Some(SpeedChange {
            estimate: 0.01,
            low: Some(-0.001),
            high: Some(0.021),
            blocks: 3,
        });
        let text = document(&open).terminal(400, false);
        assert!(text.contains("it is worth less on toy-2.0"), "{text}");
        let one = document(&table([100.0, 90.0, 100.0, 100.0], [3, 4])).markdown();
        assert!(
            one.contains("0004-change") && one.contains("|:--|--:|--:|"),
            "{one}"
        );
    }

    #[test]
    fn every_form() {
        let table = table([100.0, 90.0, 105.0, 103.0], [3, 4]);
        insta::assert_snapshot!(crate::tests::forms(&[
            ("80 columns", document(&table).terminal(80, false)),
            ("Markdown", document(&table).markdown()),
        ]));
    }

    #[test]
    fn what_it_cost_fits_into_the_columns() {
        let mut table = table([100.0, 90.0, 100.0, 100.0], [0, 4]);
        table.cost.builds = 1;
        table.cost.build_seconds = 0.5;
        let text = document(&table).terminal(60, false);
        let cost = &text[text.find("Cost: ").unwrap()..];
        assert!(cost.contains("built in 0.5 s"), "{text}");
        assert!(cost.lines().all(|line| width(line) <= 60), "{text}");
    }

    #[test]
    fn the_heading_is_whole() {
        let mut table = table([100.0, 90.0, 100.0, 100.0], [3, 4]);
        table.releases = ["mariadb-10.11.18".into(), "mariadb-11.8.6".into()];
        let page = document(&table).markdown();
        let heading = page.lines().next().unwrap();
        assert!(heading.chars().count() > 165, "{heading}");
        assert!(
            heading.ends_with("`mariadb-11.8.6` itself is no slower by 0.5 %"),
            "{heading}"
        );
    }
}
