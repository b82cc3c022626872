use super::chart::{ChartContent, ChartRow};
use super::inline::Emphasis;
use super::*;
use crate::text::width;

/// Returns a document with a text in every place that text can have.
fn everywhere(text: &dyn Fn() -> String) -> Document {
    let raw = || Text::from(text());
    let mixed = || {
        let mut mixed = Text::from(format!("{}{}{}", literal(&text()), name(&text()), text()));
        mixed.push(sentence(&text()).strong());
        mixed.push(Figure::plain(text()));
        mixed.push(raw());
        for target in [
            Target::Beside(text()),
            Target::Within(text(), "application/gzip", text().into()),
        ] {
            mixed.push(Inline::Link(text(), target));
        }
        mixed.push(key(Ink::Good, true, &text()));
        mixed
    };
    let cell = || Cell::from(mixed()).below([raw(), mixed()]).remark(mixed());
    let rows = [
        [
            Cell::from(text()),
            cell(),
            cell().styled(Style::Bad),
            literal(&text()).into(),
        ],
        [
            raw().into(),
            name(&text()).into(),
            Cell::default(),
            raw().into(),
        ],
    ];
    let of = |place: usize| move |row: &(usize, [Cell; 4])| row.1[place].clone();
    let table = table(text(), (0..).zip(rows))
        .figures(raw(), of(0))
        .names(mixed(), of(1))
        .words(raw(), of(2))
        .optional(true)
        .prose(raw(), of(3))
        .total_if(|(place, _)| *place == 1)
        .stacking()
        .node();
    let drawing = Drawing {
        heading: raw(),
        chart: Chart {
            about: text(),
            unit: text(),
            content: ChartContent::Rows(vec![ChartRow {
                label: text(),
                marks: vec![chart::Mark::Dot(1.0, 0, Ink::Good)],
            }]),
        },
        caption: mixed(),
        below: vec![table.clone(), paragraph(raw())],
        folded: true,
    };
    let lines = || vec![text(), text()];
    Document(vec![
        title(mixed()),
        paragraph(raw()),
        paragraph(literal(&text())),
        note(mixed()),
        Node::Paragraph(Style::Alert, mixed()),
        soft(name(&text())),
        Node::List(vec![Cell::from(raw()).below([mixed()]), mixed().into()]),
        Node::Facts(vec![(raw(), mixed())]),
        table,
        Node::Code("diff", lines()),
        Node::Code("sh", lines()),
        heading(raw()),
        Node::Details(Folding::Folded, mixed(), vec![paragraph(mixed())]),
        Node::Section(
            "open",
            Folding::Open,
            raw(),
            vec![Node::Drawings(vec![drawing])],
        ),
        Node::Section("folded", Folding::LeftOut, raw(), vec![paragraph(raw())]),
        Node::Hint(raw()),
        Node::Picture(text().into(), text()),
        Node::Footer(mixed()),
        Node::Next(vec![(text(), text())]),
    ])
}

/// Asserts that nothing of `words`, wherever it stands, is active in any format.
fn assert_inert(words: &[String]) {
    let next = std::cell::Cell::new(0);
    let hostile = || {
        next.set(next.get() + 1);
        format!("x{}", words[next.get() % words.len()])
    };
    let bare = || {
        next.set(next.get() + 1);
        words[next.get() % words.len()].clone()
    };
    for document in [everywhere(&hostile), everywhere(&bare)] {
        let markdown = document.markdown();
        assert_eq!(inert::active(&markdown), [""; 0], "{markdown}");
        for columns in [40, 80, 200] {
            let text = document.terminal(columns, false);
            let steers = |c: char| c.is_control() && c != '\n' || crate::is_deceptive(c);
            assert!(!text.contains(steers), "{text:?}");
        }
    }
    // The elements and attributes of a page are those of harmless text.
    let page = everywhere(&hostile).html().unwrap();
    let harmless = everywhere(&|| "x".to_owned()).html().unwrap();
    let (found, expected) = (elements(&page), elements(&harmless));
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(
        (differs, found.len()),
        (None, expected.len()),
        "{differs:?} {found:?} {page}"
    );
}

/// Returns the tags of a page outside of drawings, without their values and those around code, which a sentence may have.
fn elements(page: &str) -> Vec<String> {
    let page = regex::Regex::new("<svg.*?</svg>")
        .unwrap()
        .replace_all(page, "");
    let tags = regex::Regex::new("<[^>]*>").unwrap();
    let values = regex::Regex::new("\"[^\"]*\"").unwrap();
    let tags = tags
        .find_iter(&page)
        .map(|tag| values.replace_all(tag.as_str(), "").into_owned());
    tags.filter(|tag| !tag.contains("code")).collect()
}

#[test]
fn nothing_untrusted_is_active_in_any_format() {
    let words = [
        "@octocat",
        "#1 GH-3",
        "0123456789abcdef",
        "[a](https://evil.example)",
        "<https://evil.example>",
        "www.evil.example",
        "<img src=x onerror=alert(1)>",
        "</td></details><script>alert(1)</script>",
        "<!--",
        "-->",
        "a | b",
        "`a` ``b`` `",
        "```",
        "~~~",
        "**a** _b_",
        "# a",
        "- [x] a",
        "1. a",
        "> a",
        "---",
        "===",
        "[^1]: a",
        "$x$",
        ":tada:",
        "\" onload=\"x",
        "\u{1b}[2J\u{202e}\u{1}\u{2}\u{3}",
        "\\",
        "    a",
        "\n\n<b>",
        "&lt;b&gt; &#64;octocat",
    ];
    let words: Vec<String> = words.map(str::to_owned).into();
    for first in 0..words.len() {
        let mut turned = words.clone();
        turned.rotate_left(first);
        assert_inert(&turned);
        assert_inert(&words[first..=first]);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn no_combination_is_active_in_any_format(
        words in proptest::collection::vec(
            proptest::collection::vec(
                proptest::sample::select(vec![
                    "@", "#", "1", "a", "gh-", "http", "://", "www", ".", "x.com", "[", "]", "(", ")", "!", "<", ">", "/", "b",
                    "script", "|", "`", "``", "~", "*", "_", "$", "\\", "&", "#x40;", ":", "tada", "\n", " ", "-", "+", "=",
                    "0123abc", "deadbeef", "\t", "'", "\"", "^", "<!--", "-->", "\u{1}", "\u{2}", "\u{3}",
                ]),
                1..10,
            ),
            1..6,
        )
    ) {
        let words: Vec<String> = words.into_iter().map(|parts| parts.concat()).collect();
        assert_inert(&words);
    }

    #[test]
    fn a_terminal_is_never_too_narrow(
        names in proptest::collection::vec("[a-z漢 ]{0,70}", 1..5), columns in 40usize..140,
    ) {
        let table = table("", &names)
            .figures("#", |_| "12")
            .names("name", |name| Cell::from(literal(name)).below([literal(name)]))
            .words("word", |_| "unclear")
            .optional(true)
            .figures("figure", |name| Cell::from("−1.23 % ± 0.12").remark(literal(name)))
            .prose("why", |name| literal(name));
        let document = Document(vec![title(literal(&names[0])), table.node(), paragraph(literal(&names[0]))]);
        for line in document.terminal(columns, false).lines() {
            // A word that is longer gets a line of its own.
            let longest = names.iter().flat_map(|name| name.split(' ')).map(width).max().unwrap_or(0);
            proptest::prop_assert!(width(line) <= columns.max(longest + 4), "{line}");
        }
    }
}

#[test]
fn neighbours_do_not_become_active_together() {
    for (first, second) in [
        ("@", "octocat"),
        ("#", "12"),
        ("http:", "//evil.example"),
        ("GH-", "3"),
        ("www", ".evil.example"),
    ] {
        let mut text = Text::from(first);
        text.push(literal(second));
        let markdown = Document(vec![paragraph(text)]).markdown();
        assert_eq!(inert::active(&markdown), [""; 0], "{markdown}");
    }
}

#[test]
fn one_tree_is_three_formats() {
    let figure = Figure {
        emphasis: Emphasis::Significant,
        ..Figure::plain("+1.2 % ± 0.1")
    };
    let rows: [[Cell; 4]; 2] = [
        [
            "1".into(),
            Cell::from(name("a_b.patch")).below([literal("Its *title*")]),
            figure.into(),
            Cell::from("faster").styled(Style::Good).remark("on `load`"),
        ],
        [
            "".into(),
            "total".into(),
            Figure::plain("–").into(),
            "unclear".into(),
        ],
    ];
    let table = table("Effects", rows)
        .figures("#", |row| row[0].clone())
        .names("patch", |row| row[1].clone())
        .figures("speed", |row| row[2].clone())
        .words("verdict", |row| row[3].clone())
        .total_if(|row| row[1].text.plain() == "total");
    let document = Document(vec![
        title("Faster"),
        paragraph("See `--help`."),
        table.node(),
    ]);
    assert_eq!(
        document.terminal(60, false),
        "Faster\nSee `--help`.\n\n#  patch             speed  verdict\n1  a_b.patch  +1.2 % ± 0.1  faster   on `load`\n    Its *title*\n\
         ───────────────────────────────────\n   total                 –  unclear\n"
    );
    assert_eq!(
        document.markdown(),
        "## Faster\n\nSee `--help`.\n\n| # | patch | speed | verdict |\n|--:|:--|--:|:--|\n\
         | 1 | `a_b.patch`<br>Its \\*title\\* | **+1.2\u{a0}%**\u{a0}±\u{a0}0.1 | faster (on `load`) |\n| | total | – | unclear |\n"
    );
    let page = document.html().unwrap();
    for part in [
        "<h1>Faster</h1>",
        "<th scope=\"row\"><code>a_b.patch</code><br>Its *title*</th>",
        "<b>+1.2\u{a0}%\u{a0}±\u{a0}0.1</b>",
        "<td class=\"good\">faster<div class=\"soft\">on <code>load</code></div></td>",
        "<tr class=\"total\">",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn sentences_are_kept_whole_but_not_endless() {
    let shown = |text: String| Document(vec![paragraph(text)]).markdown();
    let words = "a <word> ".repeat(40);
    assert_eq!(
        shown(literal(&words)).trim_end(),
        "a &lt;word&gt; ".repeat(40).trim_end()
    );
    let endless = "x ".repeat(5000);
    for text in [
        shown(literal(&endless)),
        Document(vec![Node::Paragraph(Style::Plain, sentence(&endless))]).markdown(),
    ] {
        assert!(
            text.trim_end().ends_with('…') && text.chars().count() < 1010,
            "{text}"
        );
    }
}
