//! Draws the padding behind sections of code and data: a function of a seed and the section's key.

/// Unit of padding in bytes: the alignment of functions.
pub(super) const STEP: u64 = 16;
/// Alignment of a section that begins a page: the range that indexes first-level caches.
pub(super) const PAGE: u64 = 4096;
/// Number of different small paddings, starting at none: the next section may begin anywhere in a cache line of
/// 64 bytes.
const LINE_STEPS: u64 = 4;
/// Number of different large paddings: the next section may begin anywhere in a page of 4 KiB, the range that
/// indexes first-level caches and branch predictors.
const PAGE_STEPS: u64 = 256;
/// One section in this many gets a large padding. More would scatter related code over too many pages; with
/// fewer, the distance between functions some ten kilobytes apart would change by only a line or two.
const LARGE_PADDING_INTERVAL: u64 = 64;
/// One section in this many begins a page. Servers whose addresses differ before it, because a linker's table or
/// a merged string changed, agree again behind it, up to whole pages.
const PAGE_START_INTERVAL: u64 = 256;

/// The largest padding in bytes.
pub(super) const MAX_PADDING: u64 = (PAGE_STEPS - 1) * STEP;

/// A seed's draw for one section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Draw {
    /// Bytes behind the section: 0 to 48, a multiple of 16, or rarely up to [`MAX_PADDING`].
    pub padding: u64,
    /// A padding of any multiple of 16 up to [`MAX_PADDING`], for a section that always gets a large one.
    pub large: u64,
    /// Whether the section begins a page.
    pub page_start: bool,
}

impl Draw {
    /// Draws for the section `key` in the layout `seed`. No other section takes part, so that a section that is
    /// added or removed changes no other's draw.
    pub(super) fn of(seed: u64, key: u64) -> Draw {
        let mut rest = mix(mix(seed) ^ key);
        let mut below = |count: u64| {
            let drawn = rest % count;
            rest /= count;
            drawn
        };
        let large = below(PAGE_STEPS) * STEP;
        let padding = if below(LARGE_PADDING_INTERVAL) == 0 {
            large
        } else {
            below(LINE_STEPS) * STEP
        };
        Draw {
            padding,
            large,
            page_start: below(PAGE_START_INTERVAL) == 0,
        }
    }
}

/// Returns the key of the part `inner` of the thing with the key `outer`.
pub(super) fn nested(outer: u64, inner: u64) -> u64 {
    mix(outer).wrapping_add(inner)
}

/// Maps 64 bits to 64 well-mixed bits, one to one: a step of SplitMix64 (Steele, Lea and Flood, *Fast splittable
/// pseudorandom number generators*, OOPSLA 2014). Written out, because layouts must be the same with every
/// version of every library.
pub(super) fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn draws_are_a_fixed_function_of_seed_and_key() {
        // The reference generator's first output for the seed 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(Draw::of(1, 2), Draw::of(1, 2));
        let draws: Vec<Draw> = (0..50).map(|key| Draw::of(1, key)).collect();
        let others: Vec<Draw> = (0..50).map(|key| Draw::of(2, key)).collect();
        assert_ne!(draws, others);
        assert_ne!(nested(1, 2), nested(2, 1));
    }

    /// 64000 draws over 1000 seeds: the counts below lie within five standard errors.
    #[test]
    fn small_paddings_are_equally_frequent_and_one_in_64_is_large() {
        let mut small: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut large, mut page_starts, mut sum) = (0, 0, 0);
        for seed in 0..1000 {
            for key in 0..64 {
                let draw = Draw::of(seed, key);
                assert!(draw.padding <= MAX_PADDING && draw.padding.is_multiple_of(STEP));
                if draw.padding < LINE_STEPS * STEP {
                    *small.entry(draw.padding).or_default() += 1;
                } else {
                    large += 1;
                    assert_eq!(draw.padding, draw.large);
                }
                page_starts += u32::from(draw.page_start);
                sum += draw.large;
            }
        }
        assert_eq!(small.keys().copied().collect::<Vec<_>>(), [0, 16, 32, 48]);
        assert!(
            small.values().all(|n| (15_200..16_350).contains(n)),
            "{small:?}"
        );
        // 252 of 256 large ones are more than 48 bytes.
        assert!((830..1140).contains(&large), "{large}");
        assert!((170..330).contains(&page_starts), "{page_starts}");
        let mean = sum / 64_000;
        assert!((2015..2065).contains(&mean), "{mean}");
    }
}
