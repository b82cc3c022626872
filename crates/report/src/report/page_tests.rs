use super::*;
use crate::tests::Experiment;
use perfquilt_judge::attribution::attribute_with;
use perfquilt_model::observation::Slices;
use perfquilt_model::observation::{FunctionChange, Meter, PlannedBlocks, PointBuild};
use perfquilt_model::point::Point;

fn page(experiment: &Experiment) -> String {
    let observations = experiment.observations();
    let attribution = experiment.attribution();
    let slices = Slices {
        point: Point::BASE,
        values: vec![100.0, 120.0, 110.0],
        transactions_per_slice: 1,
    };
    let content = PageContent {
        header: &experiment.header,
        observations: &observations,
        distributions: &Distribution::of(experiment.workloads[0], [vec![slices]]),
        data: RawData::Embedded(b"gzip"),
        document: b"gzip",
        flame_graph: Some(b"<svg><script>alert(1)</script></svg>"),
    };
    shown(&attribution, &content, true)
}

fn shown(attribution: &Attribution, content: &PageContent<'_>, stored: bool) -> String {
    let document = super::whole(attribution, stored, Some(content));
    document.page(attribution.base()).unwrap()
}

/// Returns an experiment with content for every section.
fn whole() -> Experiment {
    let mut experiment = Experiment::new(&[(0.02, 0.01), (-0.01, -0.01), (0.0, 0.0)]);
    experiment.supplement.functions = vec![FunctionChange {
        patch: 1,
        workload: "oltp_read_only".into(),
        function: "String::append(char const*)".into(),
        before: 200.0,
        after: 100.0,
        half_width: 1.0,
        share: -0.01,
    }];
    experiment.supplement.builds = vec![PointBuild {
        point: Point::BASE,
        key: "k".into(),
        configure: 40.0,
        compile: 1300.0,
        link: 3.0,
        overhead: 1.0,
        units: 860,
        cached: false,
        code_bytes: Some(11_263_440),
        profile: None,
    }];
    experiment.separate_points = vec![(Point::Alone(1), 0.02), (Point::Without(1), 0.03)];
    experiment
}

#[test]
fn every_section_is_there_and_every_drawing_has_a_table() {
    let page = page(&whole());
    // The list below has every section of the navigation.
    assert_eq!(page.matches("<li><a href=\"#").count(), 14);
    for (id, times) in [
        ("patches", 2),
        ("adds-up", 2),
        ("apart", 2),
        ("single", 2),
        ("workloads", 2),
        ("functions", 2),
        ("flame-graph", 2),
        ("slices", 2),
        ("blocks", 2),
        ("noise", 2),
        ("builds", 2),
        ("method", 2),
        ("data", 2),
        ("reproduce", 2),
    ] {
        let found = page.matches(&format!("=\"{id}\"")).count();
        assert_eq!(found, times, "{id}");
        assert!(page.contains(&format!("href=\"#{id}\"")), "{id}");
    }
    let drawings = page.matches("<svg role=\"img\" aria-label=").count();
    assert_eq!(drawings, page.matches("The same as a table").count());
    assert!(drawings >= 10, "{drawings}");
    assert_eq!(
        page.matches("<svg").count(),
        drawings,
        "the flame graph is an image"
    );
}

#[test]
fn the_page_as_a_whole() {
    insta::assert_snapshot!(crate::tests::forms(&[("page", page(&whole()))]));
}

#[test]
fn nothing_acts_and_nothing_is_loaded() {
    let mut experiment = whole();
    let hostile = "\"><script>alert(1)</script><img src=x onerror=alert(1)>' style=x {{7*7}} \u{202e}\u{1b}[31m";
    experiment.header.series[0] = hostile.into();
    experiment.header.titles[0] = hostile.into();
    experiment.header.release = hostile.into();
    experiment.header.harness = hostile.into();
    experiment
        .header
        .machine
        .insert(hostile.into(), hostile.into());
    experiment
        .header
        .failed
        .insert(Point::Step(3), hostile.into());
    experiment.supplement.functions[0].function = hostile.into();
    let page = page(&experiment);
    for active in ["<script", "<img src=x", "\u{202e}", "\u{1b}"] {
        assert!(!page.contains(active), "{active}");
    }
    // Attributes of elements hold it as text only.
    let tags = regex::Regex::new(r#"<[a-z][^<>"]*(?:"[^"]*"[^<>"]*)*>"#).unwrap();
    let quoted = regex::Regex::new(r#""[^"]*""#).unwrap();
    assert!(tags.find_iter(&page).count() > 100);
    for tag in tags.find_iter(&page) {
        let names = quoted.replace_all(tag.as_str(), "\"\"");
        assert!(
            !names.contains(" on") && !names.contains(" style=") && !names.contains("'"),
            "{names}"
        );
    }
    for loads in [
        "src=\"http",
        "href=\"http",
        "url(",
        "@import",
        "<link",
        "<iframe",
    ] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn unfinished_and_failed_experiments_say_so_first() {
    let mut experiment = whole();
    experiment.supplement.planned = vec![PlannedBlocks::fixed("oltp_read_only", Meter::Time, 40)];
    experiment
        .header
        .failed
        .insert(Point::Step(3), "the server did not start".into());
    let page = page(&experiment);
    let first = page.split("</header>").next().unwrap();
    assert!(
        first.contains("This experiment is not finished."),
        "{first}"
    );
    assert!(
        first.contains("patch 3: the server did not start"),
        "{first}"
    );
    assert!(!self::page(&whole()).contains("role=\"note\""));
}

#[test]
fn no_patches_and_no_observations_are_a_page_too() {
    let header = ExperimentHeader::new("r", "");
    let attribution =
        attribute_with(&header, &[], &Default::default(), &Meter::default_margin).unwrap();
    let content = PageContent {
        header: &header,
        observations: &[],
        distributions: &[],
        data: RawData::Command,
        document: &[],
        flame_graph: None,
    };
    let page = shown(&attribution, &content, false);
    assert!(page.contains("<h1>Nothing was measured"), "{page}");
    // Without a stored experiment, no command can continue.
    assert!(
        page.contains("perfquilt analyse FILE --format html"),
        "{page}"
    );
    assert!(!page.contains("perfquilt run"), "{page}");
}

/// Returns the contrast of two colours `#rrggbb` (WCAG 2.2, section 1.4.3).
fn contrast(a: &str, b: &str) -> f64 {
    let light = |color: &str| {
        let digits = color.trim_start_matches('#');
        let digits: String = match digits.len() {
            3 => digits.chars().flat_map(|c| [c, c]).collect(),
            _ => digits.to_owned(),
        };
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0;
            match value {
                v if v <= 0.04045 => v / 12.92,
                v => ((v + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
    };
    let (a, b) = (light(a), light(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn letters_and_marks_are_seen_in_light_and_dark() {
    let style = include_str!("../document/style.css");
    let palettes: Vec<std::collections::BTreeMap<&str, &str>> = style
        .split(":root{")
        .skip(1)
        .map(|rest| {
            let rules = rest.split('}').next().unwrap().split(';');
            rules
                .filter_map(|rule| rule.strip_prefix("--")?.split_once(':'))
                .collect()
        })
        .collect();
    assert_eq!(palettes.len(), 2);
    for palette in &palettes {
        for ground in ["page", "panel"] {
            for letters in ["text", "soft", "link", "good", "bad", "open", "quiet"] {
                let found = contrast(palette[letters], palette[ground]);
                assert!(found >= 4.5, "{letters} on {ground}: {found:.2}");
            }
            for mark in ["first", "second", "third", "fourth"] {
                let found = contrast(palette[mark], palette[ground]);
                assert!(found >= 3.0, "{mark} on {ground}: {found:.2}");
            }
        }
    }
}

#[test]
fn tails_lanes_and_machines_are_drawn() {
    use perfquilt_judge::attribution::{LaneFigures, LaneNoise, MachineFigures, MachineNoise};
    use perfquilt_judge::stats::GroupFigures;
    let mut experiment = whole();
    experiment.stalled = Some(1);
    let drawn =
        |page: &str, about: &str| page.contains(&format!("<svg role=\"img\" aria-label=\"{about}"));
    assert!(drawn(
        &page(&experiment),
        "Typical time, mean and tail of each patch"
    ));

    let mut attribution = experiment.attribution();
    let figures = |difference: f64| GroupFigures {
        blocks: 6,
        block_sd: Some(0.01),
        control: Some(0.002),
        largest_difference: difference,
    };
    let (workload, meter) = ("oltp_read_only".to_owned(), Meter::Time);
    attribution.noise.lanes = vec![LaneNoise {
        workload: workload.clone(),
        meter,
        lanes: [(0, 0.004), (1, -0.004)]
            .map(|(lane, difference)| LaneFigures {
                lane,
                figures: figures(difference),
            })
            .to_vec(),
        p_value: 0.4,
    }];
    let noise = |attribution: &Attribution| {
        let view = View::new(attribution);
        let nodes = noise::noise(&Content::new(&view, Form::Page));
        Document(nodes).html().unwrap()
    };
    let lanes = noise(&attribution);
    assert!(drawn(&lanes, "What each lane measured, time"), "{lanes}");
    assert!(
        lanes.contains("oltp_read_only: lane 1") && lanes.contains("−0.40\u{a0}%"),
        "{lanes}"
    );
    attribution.noise.machines = vec![MachineNoise {
        workload,
        meter,
        machines: vec![MachineFigures {
            machine: "<b>node".into(),
            figures: figures(0.01),
        }],
        between_sd: 0.01,
        p_value: 0.4,
        units: false,
    }];
    let machines = noise(&attribution);
    assert!(
        drawn(&machines, "What each machine measured, time"),
        "{machines}"
    );
    assert!(!machines.contains("<b>node"), "{machines}");
}

#[test]
fn every_table_scrolls_inside_and_no_figure_breaks() {
    let page = page(&whole());
    let (_, body) = page.split_once("<body>").unwrap();
    let tables: Vec<usize> = body.match_indices("<table").map(|(at, _)| at).collect();
    assert!(tables.len() > 10, "{}", tables.len());
    for at in tables {
        // The innermost element around a table is its scrolled container.
        let (_, around) = body[..at].rsplit_once('<').unwrap();
        assert!(
            around.starts_with("div class=\"scroll\" tabindex"),
            "{around}"
        );
    }
    let broken = regex::Regex::new("[0-9] %|% ± ").unwrap();
    let found = broken.find(body).map(|at| &body[at.start()..]);
    assert_eq!(found.map(|text| text.get(..60)), None);
    assert!(body.contains("\u{a0}%\u{a0}±\u{a0}"));
}

#[test]
fn the_bars_of_functions_point_the_way_of_the_table() {
    let page = page(&whole());
    // Patch 1 takes fewer instructions: below 0 in the table of patches and in that of functions.
    let values = regex::Regex::new("<data value=\"([^\"]+)\"").unwrap();
    let section = |id: &str| -> Vec<f64> {
        let (_, behind) = page.split_once(&format!("<h2 id=\"{id}\"")).unwrap();
        let (section, _) = behind.split_once("</section>").unwrap();
        let found = values.captures_iter(section);
        found.map(|value| value[1].parse().unwrap()).collect()
    };
    let (patches, functions) = (section("patches"), section("functions"));
    assert!(patches[0] > 0.0 && patches[1] < 0.0, "{patches:?}");
    assert!(functions[0] < 0.0, "{functions:?}");
}
