//! Plans layouts that several builds of a program have in common: each section takes as much space in every build
//! as in the build where it is largest.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::object_sections::{Keys, LinkInput, Section, SectionKind};
use super::padding::{Draw, MAX_PADDING, PAGE, STEP, nested};

/// The inputs of one build's link.
#[derive(Debug)]
pub(super) struct BuildInputs {
    /// Names in the build's folder, in the order of the link.
    pub names: Vec<PathBuf>,
    /// The content of each, shared where builds have the same file.
    pub files: Vec<Arc<LinkInput>>,
    /// Whether the linker gathers code of some groups before other code.
    pub gathers_groups: bool,
}

/// How to lay out one build's link: what to do to each input.
pub(super) type LinkPlan = BTreeMap<PathBuf, Arc<FilePlan>>;

/// How to extend the sections of a file.
#[derive(Debug)]
pub(super) struct FilePlan {
    pub objects: Vec<ObjectPlan>,
    pub is_archive: bool,
    pub can_grow: bool,
}

/// How to extend the sections of an object file.
#[derive(Debug)]
pub(super) struct ObjectPlan {
    /// Offset in the file.
    pub start: u64,
    pub length: u64,
    pub sections: Vec<SectionPlan>,
}

/// How to extend a section.
#[derive(Debug)]
pub(super) struct SectionPlan {
    pub section: Section,
    /// Identifies the section in the whole link.
    key: u64,
    /// Its size without padding: the largest of all builds, a multiple of [`STEP`].
    floor: u64,
    /// The largest alignment of all builds.
    align: u64,
    place: SectionPlace,
    /// Key and floor of sections of other builds that would follow here.
    missing: Vec<(u64, u64)>,
}

/// A section's freedom in the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SectionPlace {
    /// It is the first of its kind: always begins a page, and a large padding follows it. All others thus begin
    /// anywhere in a page, at the same place in every build, whatever the linker puts before this section.
    First,
    /// All builds have it in the same place: it may begin a page.
    Everywhere,
    /// Some builds do not have it, or have the sections of its object in another order. It never begins a page:
    /// how far the page before it was filled would depend on the build, and so would all that follows.
    Somewhere,
}

impl SectionPlan {
    /// Returns size and alignment in the layout `seed`.
    pub(super) fn draw(&self, seed: u64) -> (u64, u64) {
        let draw = Draw::of(seed, self.key);
        let missing = self
            .missing
            .iter()
            .map(|&(key, floor)| floor.saturating_add(Draw::of(seed, key).padding));
        let (padding, page_start) = match self.place {
            SectionPlace::First => (draw.large, true),
            SectionPlace::Everywhere => (draw.padding, draw.page_start),
            SectionPlace::Somewhere => (draw.padding, false),
        };
        let size = missing.fold(self.floor.saturating_add(padding), u64::saturating_add);
        let align = if page_start {
            self.align.max(PAGE)
        } else {
            self.align
        };
        (size, align)
    }

    /// Returns the largest size in any layout.
    fn most(&self) -> u64 {
        let missing = self
            .missing
            .iter()
            .map(|&(_, floor)| floor.saturating_add(MAX_PADDING));
        let own = self.floor.saturating_add(MAX_PADDING);
        missing.fold(own, u64::saturating_add)
    }
}

impl ObjectPlan {
    /// Returns the number of bytes to add to the object so that it contains sections of these sizes.
    pub(super) fn growth(&self, sizes: impl Iterator<Item = u64>) -> u64 {
        let ends = self.sections.iter().zip(sizes).filter_map(|(plan, size)| {
            let begin = plan.section.end?.saturating_sub(plan.section.size);
            Some(begin.saturating_add(size))
        });
        let end = ends.max().unwrap_or(0);
        // A multiple of an even number keeps archives sound, where members begin at even offsets.
        end.saturating_sub(self.length).next_multiple_of(STEP)
    }
}

impl FilePlan {
    /// Returns the largest number of bytes by which the file grows in any layout.
    pub(super) fn most_growth(&self) -> u64 {
        let growth = |object: &ObjectPlan| {
            let sizes = object.sections.iter().map(SectionPlan::most);
            object.growth(sizes)
        };
        if self.can_grow {
            self.objects.iter().map(growth).fold(0, u64::saturating_add)
        } else {
            0
        }
    }
}

/// One of several builds' contents of a file, with the sections that the linker keeps.
struct Variant {
    input: Arc<LinkInput>,
    /// Whether the linker keeps each section of the file, in order.
    kept: Vec<bool>,
    /// How many builds have it.
    builds: usize,
}

impl Variant {
    /// Returns the kept sections of the file with the key `file`.
    fn sections(&self, file: u64) -> impl Iterator<Item = KeptSection<'_>> {
        let sections = self.input.objects.iter().flat_map(move |object| {
            let object_key = nested(file, object.key);
            object.sections.iter().map(move |section| KeptSection {
                object: object_key,
                key: nested(object_key, section.key),
                section,
            })
        });
        let kept = self.kept.iter();
        sections
            .zip(kept)
            .filter_map(|(section, &kept)| kept.then_some(section))
    }
}

/// A section that the linker keeps.
#[derive(Debug, Clone, Copy)]
struct KeptSection<'a> {
    /// Identifies its object in the whole link.
    object: u64,
    /// Identifies the section in the whole link.
    key: u64,
    section: &'a Section,
}

/// A section in all builds.
#[derive(Debug, Clone, Copy)]
struct Merged {
    size: u64,
    align: u64,
    /// The number of builds that have it.
    builds: usize,
    /// Whether all builds have the sections of its object in the same order.
    is_ordered: bool,
}

/// Returns a plan for each of these builds. Two builds with the same inputs have the same plan.
pub(super) fn plan(builds: &[BuildInputs]) -> Vec<LinkPlan> {
    // By the file's key and in the order of the link: which builds have it as which variant.
    let mut order: Vec<u64> = Vec::new();
    let mut known = HashSet::new();
    let mut variants: HashMap<u64, Vec<Variant>> = HashMap::new();
    let mut names: Vec<Vec<(PathBuf, u64, usize)>> = Vec::new();
    for build in builds {
        let mut keys = Keys::default();
        let mut groups = HashSet::new();
        let mut sequence = Vec::new();
        let mut variant_of = Vec::new();
        for (name, input) in build.names.iter().zip(&build.files) {
            let key = keys.of(stable_name(name).as_bytes());
            let kept = kept(input, &mut groups);
            let variants = variants.entry(key).or_default();
            let same = variants
                .iter()
                .position(|known| Arc::ptr_eq(&known.input, input) && known.kept == kept);
            let variant = same.unwrap_or_else(|| {
                variants.push(Variant {
                    input: Arc::clone(input),
                    kept,
                    builds: 0,
                });
                variants.len() - 1
            });
            variants[variant].builds += 1;
            sequence.push(key);
            variant_of.push((name.clone(), key, variant));
        }
        merge(&mut order, &mut known, sequence);
        names.push(variant_of);
    }
    let gathers_groups = builds.iter().any(|build| build.gathers_groups);
    let mut started = HashSet::new();
    let plans: HashMap<u64, Vec<Arc<FilePlan>>> = order
        .into_iter()
        .filter_map(|file| {
            let variants = variants.get(&file)?;
            let kind = |section: &Section| {
                if gathers_groups {
                    section.kind
                } else {
                    section.kind.without_groups()
                }
            };
            let planned = plan_file(file, variants, builds.len(), &kind, &mut started);
            Some((file, planned))
        })
        .collect();
    names
        .into_iter()
        .map(|names| {
            names
                .into_iter()
                .filter_map(|(name, file, variant)| {
                    Some((name, Arc::clone(plans.get(&file)?.get(variant)?)))
                })
                .collect()
        })
        .collect()
}

/// Returns which sections of `input` the linker keeps: of a group, those of the first file. `seen` has the
/// groups of the files before.
fn kept(input: &LinkInput, seen: &mut HashSet<u64>) -> Vec<bool> {
    let mut kept = Vec::new();
    for object in &input.objects {
        let groups: HashSet<u64> = object.sections.iter().filter_map(|s| s.group).collect();
        let new: HashSet<u64> = groups.into_iter().filter(|g| seen.insert(*g)).collect();
        let sections = object.sections.iter();
        kept.extend(sections.map(|section| section.group.is_none_or(|g| new.contains(&g))));
    }
    kept
}

/// Returns the name of a file without its number in the link command, which changes with the number of files.
pub(super) fn stable_name(name: &std::path::Path) -> String {
    let name = name.to_string_lossy();
    match name.split_once('-') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest.to_owned(),
        _ => name.into_owned(),
    }
}

/// Adds the keys of `sequence` that are not in `order` yet, each behind the one that it follows in `sequence`.
fn merge(order: &mut Vec<u64>, known: &mut HashSet<u64>, sequence: impl IntoIterator<Item = u64>) {
    let mut new: HashMap<Option<u64>, Vec<u64>> = HashMap::new();
    let mut last = None;
    for key in sequence {
        if known.insert(key) {
            new.entry(last).or_default().push(key);
        } else {
            last = Some(key);
        }
    }
    if new.is_empty() {
        return;
    }
    let mut merged = new.remove(&None).unwrap_or_default();
    for &key in &*order {
        merged.push(key);
        merged.extend(new.remove(&Some(key)).unwrap_or_default());
    }
    *order = merged;
}

/// Plans the file with the key `file`, which `builds` builds have as one of `variants`; returns a plan for each
/// variant. `started` has the kinds of which an earlier file has the first section.
fn plan_file(
    file: u64,
    variants: &[Variant],
    builds: usize,
    kind: &dyn Fn(&Section) -> SectionKind,
    started: &mut HashSet<SectionKind>,
) -> Vec<Arc<FilePlan>> {
    let mut merged: HashMap<u64, Merged> = HashMap::new();
    let mut orders: BTreeMap<SectionKind, (Vec<u64>, HashSet<u64>)> = BTreeMap::new();
    for variant in variants {
        let mut sequences: BTreeMap<SectionKind, Vec<u64>> = BTreeMap::new();
        for KeptSection { key, section, .. } in variant.sections(file) {
            let entry = merged.entry(key).or_insert(Merged {
                size: 0,
                align: 1,
                builds: 0,
                is_ordered: true,
            });
            entry.size = entry.size.max(section.size);
            entry.align = entry.align.max(section.align);
            entry.builds += variant.builds;
            sequences.entry(kind(section)).or_default().push(key);
        }
        for (kind, sequence) in sequences {
            let (order, known) = orders.entry(kind).or_default();
            merge(order, known, sequence);
        }
    }
    merged.retain(|_, section| section.size > 0);
    let reordered = reordered(file, variants, kind, &|key| {
        merged.get(&key).is_some_and(|found| found.builds == builds)
    });
    for key in reordered {
        if let Some(section) = merged.get_mut(&key) {
            section.is_ordered = false;
        }
    }
    let mut first = HashSet::new();
    for (&kind, (order, _)) in &orders {
        let everywhere = |key: &&u64| merged.get(key).is_some_and(|s| s.builds == builds);
        if let Some(&key) = order.iter().find(everywhere)
            && started.insert(kind)
        {
            first.insert(key);
        }
    }
    let orders: Vec<&Vec<u64>> = orders.values().map(|(order, _)| order).collect();
    variants
        .iter()
        .map(|variant| {
            let missing = missing(variant, file, &merged, &orders);
            Arc::new(plan_variant(
                variant, file, &merged, builds, &first, missing,
            ))
        })
        .collect()
}

/// Returns the sections of those objects that have their sections of one kind in another order in another variant,
/// as far as all builds have them. Compilers order functions by who calls whom.
fn reordered(
    file: u64,
    variants: &[Variant],
    kind: &dyn Fn(&Section) -> SectionKind,
    is_everywhere: &dyn Fn(u64) -> bool,
) -> HashSet<u64> {
    let mut reordered = HashSet::new();
    let mut first: Option<HashMap<(u64, SectionKind), Vec<u64>>> = None;
    for variant in variants {
        let mut sequences: HashMap<(u64, SectionKind), Vec<u64>> = HashMap::new();
        for kept in variant.sections(file) {
            if is_everywhere(kept.key) {
                let place = (kept.object, kind(kept.section));
                sequences.entry(place).or_default().push(kept.key);
            }
        }
        let Some(first) = &first else {
            first = Some(sequences);
            continue;
        };
        for (place, sequence) in sequences {
            if first.get(&place) != Some(&sequence) {
                reordered.extend(sequence);
            }
        }
    }
    reordered
}

/// Returns key and floor of the sections that `variant` does not have, by the section that they would follow; by
/// the one that they would precede if none comes before.
fn missing(
    variant: &Variant,
    file: u64,
    merged: &HashMap<u64, Merged>,
    orders: &[&Vec<u64>],
) -> HashMap<u64, Vec<(u64, u64)>> {
    let present: HashSet<u64> = variant.sections(file).map(|kept| kept.key).collect();
    let mut missing: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for order in orders {
        let (mut last, mut leading) = (None, Vec::new());
        for &key in *order {
            let Some(section) = merged.get(&key) else {
                continue;
            };
            let absent = (key, floor(section));
            match last {
                _ if present.contains(&key) => {
                    if !leading.is_empty() {
                        missing.entry(key).or_default().append(&mut leading);
                    }
                    last = Some(key);
                }
                Some(last) => missing.entry(last).or_default().push(absent),
                None => leading.push(absent),
            }
        }
    }
    missing
}

fn floor(section: &Merged) -> u64 {
    section
        .size
        .checked_next_multiple_of(STEP)
        .unwrap_or(section.size)
}

fn plan_variant(
    variant: &Variant,
    file: u64,
    merged: &HashMap<u64, Merged>,
    builds: usize,
    first: &HashSet<u64>,
    mut missing: HashMap<u64, Vec<(u64, u64)>>,
) -> FilePlan {
    let mut kept = variant.kept.iter();
    let objects = variant.input.objects.iter().map(|object| {
        let object_key = nested(file, object.key);
        let sections = object.sections.iter().zip(kept.by_ref());
        let planned = sections.filter_map(|(section, &kept)| {
            let key = nested(object_key, section.key);
            let merged = if kept {
                *merged.get(&key)?
            } else {
                // The linker may keep it all the same, if it does not use the file with the first one.
                Merged {
                    size: section.size,
                    align: section.align,
                    builds: 0,
                    is_ordered: true,
                }
            };
            let place = if first.contains(&key) {
                SectionPlace::First
            } else if merged.builds == builds && merged.is_ordered {
                SectionPlace::Everywhere
            } else {
                SectionPlace::Somewhere
            };
            Some(SectionPlan {
                section: *section,
                key,
                floor: floor(&merged),
                align: merged.align,
                place,
                missing: missing.remove(&key).unwrap_or_default(),
            })
        });
        ObjectPlan {
            start: object.start,
            length: object.length,
            sections: planned.collect(),
        }
    });
    FilePlan {
        objects: objects.collect(),
        is_archive: variant.input.is_archive,
        can_grow: variant.input.can_grow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_sections::Object;

    /// Returns a section of code in an object of 1000 bytes.
    fn section(key: u64, size: u64) -> Section {
        Section {
            key,
            kind: SectionKind::Text,
            group: None,
            header: 0,
            is_little_endian: true,
            end: Some(100 + size),
            size,
            align: 16,
        }
    }

    fn build(objects: Vec<Vec<Section>>) -> BuildInputs {
        let objects = objects.into_iter().zip(0..);
        let input = LinkInput {
            objects: objects
                .map(|(sections, key)| Object {
                    key,
                    start: 2000 * key,
                    length: 1000,
                    sections,
                })
                .collect(),
            is_archive: false,
            can_grow: true,
        };
        BuildInputs {
            names: vec!["1-x.a".into()],
            files: vec![Arc::new(input)],
            gathers_groups: true,
        }
    }

    fn sections(plan: &LinkPlan) -> Vec<&SectionPlan> {
        let objects = plan.values().flat_map(|file| &file.objects);
        objects.flat_map(|object| &object.sections).collect()
    }

    /// Address of the end of each section by key, if the first begins at 0 and the linker follows the plan.
    fn ends(plan: &LinkPlan, seed: u64) -> BTreeMap<u64, u64> {
        let mut end: u64 = 0;
        let mut ends = BTreeMap::new();
        for plan in sections(plan) {
            let (size, align) = plan.draw(seed);
            end = end.next_multiple_of(align) + size;
            ends.insert(plan.section.key, end);
        }
        ends
    }

    #[test]
    fn what_two_builds_have_in_common_has_the_same_addresses() {
        let one = build(vec![
            (0..100).map(|key| section(key, 40)).collect(),
            (100..200).map(|key| section(key, 40)).collect(),
        ]);
        // One function longer, one shorter, one new and one gone, in objects that are not the last.
        let size = |key| match key {
            20 => 400,
            30 => 8,
            _ => 40,
        };
        let mut first: Vec<Section> = (0..100).map(|key| section(key, size(key))).collect();
        first.insert(50, section(1000, 333));
        first.remove(70);
        let removed = 69;
        let other = build(vec![
            first,
            (100..200).map(|key| section(key, 40)).collect(),
        ]);
        let plans = plan(&[one, other]);
        let mut seen = HashSet::new();
        for seed in 0..40 {
            let (one, other) = (ends(&plans[0], seed), ends(&plans[1], seed));
            assert_eq!((one.len(), other.len()), (200, 200));
            for (key, end) in &one {
                // The sections before the new and the removed one are extended by those.
                if ![49, removed - 1, removed].contains(key) {
                    assert_eq!(other[key], *end, "seed {seed}, section {key}");
                }
            }
            assert!(seen.insert(one[&199]));
        }
    }

    #[test]
    fn a_missing_section_extends_the_one_before_it_or_else_the_one_behind() {
        let all = build(vec![vec![section(1, 16), section(2, 32), section(3, 64)]]);
        let without_last = build(vec![vec![section(1, 16), section(2, 32)]]);
        let without_first = build(vec![vec![section(2, 32), section(3, 64)]]);
        let plans = plan(&[all, without_last, without_first]);
        let missing = |build: usize| -> Vec<Vec<u64>> {
            let sections = sections(&plans[build]);
            let floors = |s: &&SectionPlan| s.missing.iter().map(|(_, floor)| *floor).collect();
            sections.iter().map(floors).collect()
        };
        assert_eq!(missing(0), vec![Vec::<u64>::new(); 3]);
        assert_eq!(missing(1), [vec![], vec![64]]);
        assert_eq!(missing(2), [vec![16], vec![]]);
        // The only section that all have is the one that begins a page.
        for plan in &plans {
            let paged: Vec<u64> = sections(plan)
                .iter()
                .filter(|section| section.draw(5).1 >= PAGE)
                .map(|section| section.section.key)
                .collect();
            assert_eq!(paged, [2]);
        }
    }

    #[test]
    fn another_order_in_an_object_moves_nothing_behind_it() {
        let after: Vec<Section> = (300..400).map(|key| section(key, 40)).collect();
        let one: Vec<Section> = (0..300).map(|key| section(key, key + 1)).collect();
        let mut other = one.clone();
        other[1..].reverse();
        let plans = plan(&[build(vec![one, after.clone()]), build(vec![other, after])]);
        for seed in 0..40 {
            let (one, other) = (ends(&plans[0], seed), ends(&plans[1], seed));
            assert_ne!(one[&100], other[&100]);
            assert!((300..400).all(|key| one[&key] == other[&key]), "{seed}");
        }
    }

    #[test]
    fn of_a_group_the_first_counts() {
        let of_group = |key| Section {
            group: Some(7),
            ..section(key, 80)
        };
        let one = build(vec![
            vec![section(1, 16)],
            vec![section(2, 16), of_group(3), section(4, 16)],
        ]);
        // An earlier object has it too: it moves there.
        let other = build(vec![
            vec![section(1, 16), of_group(5)],
            vec![section(2, 16), of_group(3), section(4, 16)],
        ]);
        let plans = plan(&[one, other]);
        let missing = |build: usize| -> Vec<u64> {
            let sections = sections(&plans[build]);
            let with = sections.iter().filter(|s| !s.missing.is_empty());
            with.map(|s| s.section.key).collect()
        };
        assert_eq!((missing(0), missing(1)), (vec![1], vec![2]));
    }

    #[test]
    fn new_keys_come_behind_the_one_that_they_follow() {
        let (mut order, mut known) = (Vec::new(), HashSet::new());
        merge(&mut order, &mut known, [1, 2, 3]);
        merge(&mut order, &mut known, [8, 1, 9, 3, 7, 6]);
        merge(&mut order, &mut known, [3, 2, 5]);
        assert_eq!(order, [8, 1, 9, 2, 5, 3, 7, 6]);
    }

    #[test]
    fn the_number_of_a_file_in_its_link_does_not_count() {
        let name = |name: &str| stable_name(std::path::Path::new(name));
        assert_eq!(name("12-libsql.a"), "libsql.a");
        assert_eq!(name("src/1-x.o"), "src/1-x.o");
        assert_eq!(name("a-b.o"), "a-b.o");
    }

    #[test]
    fn growth_is_what_the_largest_layout_needs() {
        let plans = plan(&[
            build(vec![vec![section(1, 850)]]),
            build(vec![vec![section(1, 850), section(2, 5000)]]),
        ]);
        for plan in &plans {
            let file = plan.values().next().unwrap();
            let object = &file.objects[0];
            for seed in 0..200 {
                let growth = object.growth(object.sections.iter().map(|s| s.draw(seed).0));
                assert!(
                    growth > 4000 && growth <= file.most_growth() && growth.is_multiple_of(STEP)
                );
            }
        }
    }

    #[test]
    fn sizes_of_damaged_files_do_not_overflow() {
        let huge = Section {
            end: None,
            size: u64::MAX - 3,
            ..section(1, 0)
        };
        let plans = plan(&[build(vec![vec![huge, section(2, 16)]])]);
        let file = plans[0].values().next().unwrap();
        assert_eq!(file.objects[0].sections[0].draw(1).0, u64::MAX);
        assert!(file.most_growth() <= 2 * MAX_PADDING);
    }
}
