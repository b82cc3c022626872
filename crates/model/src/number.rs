//! Numbers in the output of other programs.

use std::ops::Range;

/// Parses a decimal number, whose thousands may be separated by commas: `1234.5`, `1,234.5`, `1e-05`. Returns `None` for
/// anything else, such as the decimal comma of `1234,5`, and for numbers that are not finite.
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = if text.contains(',') {
        without_groups(text)?
    } else {
        text.to_owned()
    };
    plain.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Returns whether the comma of a number may separate thousands or decimals: `1,234`.
pub fn is_ambiguous(text: &str) -> bool {
    let text = text.trim();
    text.matches(',').count() == 1 && !text.contains('.') && parse(text).is_some()
}

/// Returns the number in `text` that `part`, digits found in it, is only a part of: `1,234.5` around `234.5`, `-5` around
/// `5`, `1e-05` around `1`, `1m3.5s` around `3.5`. `None` if the part is a whole number.
///
/// A blank outside `matched`, the range around `part` that a pattern expects, separates groups of three digits: `1 234`
/// around `234`. Within, it separates columns.
pub fn around(text: &str, part: Range<usize>, matched: Range<usize>) -> Option<&str> {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    // Between digits, these separate groups, decimals, or minutes and seconds.
    let joins = |c: char| ",.'\u{2019}\u{a0}\u{2009}\u{202f}".contains(c);
    let (mut start, mut end) = (part.start, part.end);
    loop {
        let mut before = text[..start].chars().rev();
        let (last, other) = (before.next(), before.next());
        let is_sign = last == Some('-') && !other.is_some_and(char::is_alphanumeric);
        let belongs = |c: char| {
            c.is_ascii_digit() || (joins(c) || "mh".contains(c)) && is_digit(other) || is_sign
        };
        match last.filter(|c| belongs(*c)) {
            Some(c) => start -= c.len_utf8(),
            None => break,
        }
    }
    loop {
        let mut after = text[end..].chars();
        let (first, second, third) = (after.next(), after.next(), after.next());
        let is_exponent =
            is_digit(second) || second.is_some_and(|sign| "+-".contains(sign)) && is_digit(third);
        let belongs = |c: char| {
            c.is_ascii_digit()
                || (joins(c) || "mh".contains(c)) && is_digit(second)
                || "eE".contains(c) && is_exponent
                || "+-".contains(c) && text[..end].ends_with(['e', 'E']) && is_digit(second)
        };
        match first.filter(|c| belongs(*c)) {
            Some(c) => end += c.len_utf8(),
            None => break,
        }
    }
    let whole = with_groups(text, start..end, &matched);
    (whole != part).then(|| &text[whole])
}

/// Extends a number by the groups of three digits that blanks outside `matched` separate from it.
fn with_groups(text: &str, mut whole: Range<usize>, matched: &Range<usize>) -> Range<usize> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let is_group =
        |text: &str| digits(text) == 3 && !text[3..].starts_with(|c: char| c.is_alphanumeric());
    while whole.start <= matched.start && is_group(&text[whole.start..]) {
        let before = text[..whole.start].strip_suffix(' ').unwrap_or_default();
        let rest = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let leads = (1..=3).contains(&(before.len() - rest.len()));
        if !leads || rest.ends_with(|c: char| c.is_alphanumeric() || ".,".contains(c)) {
            break;
        }
        whole.start = rest.len();
    }
    while whole.end >= matched.end
        && let Some(rest) = text[whole.end..].strip_prefix(' ')
        && is_group(rest)
        && digits(&text[whole.start..]) <= 3
        && text[whole.clone()]
            .bytes()
            .all(|b| b == b' ' || b.is_ascii_digit())
    {
        whole.end += 4;
    }
    let fraction = text[whole.end..].strip_prefix('.').map_or(0, digits);
    if fraction > 0 {
        whole.end += 1 + fraction;
    }
    whole
}

/// Removes the commas between groups of three digits; `None` if there are other groups.
fn without_groups(text: &str) -> Option<String> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let leads = (1..=3).contains(&first.len()) && digits(first) && !first.starts_with('0');
    let follow = groups.all(|group| group.len() == 3 && digits(group));
    (leads && follow && fraction.is_none_or(digits)).then(|| text.replace(',', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_groups_of_three_digits_and_nothing_else() {
        for (text, number) in [
            ("1234.5", 1234.5),
            ("1,234.5", 1234.5),
            (" 12,345,678 ", 12_345_678.0),
            ("123,456", 123_456.0),
            ("1e-05", 1e-5),
            ("0.5", 0.5),
        ] {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in [
            "1234,5",
            "1,5",
            "12,34",
            "1,2345",
            "0,123",
            "1.234,5",
            "1,234.5,6",
            "1,,234",
            ",123",
            "1,23,456",
            "1,234.5.6",
            "nan",
            "inf",
            "1e999",
            "",
            "x",
            "1 234",
            "1,234e3",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_part_of_a_number_is_no_number() {
        for (text, part, whole) in [
            ("rate 1,234.5 a second", "234.5", "1,234.5"),
            ("rate 1,234.5 a second", "1", "1,234.5"),
            ("rate 1234,5", "1234", "1234,5"),
            ("rate 1\u{202f}234", "234", "1\u{202f}234"),
            ("rate 1'234", "1", "1'234"),
            ("rate 1 234", "234", "1 234"),
            ("rate 1 234", "1", "1 234"),
            ("rate 12 345 678.5 a second", "345", "12 345 678.5"),
            ("rate -5", "5", "-5"),
            ("took 4.1e-05 s", "4.1", "4.1e-05"),
            ("took 4e5", "4", "4e5"),
            ("real 1m3.5s", "3.5", "1m3.5"),
            ("12345", "345", "12345"),
        ] {
            let start = text.rfind(part).unwrap();
            assert_eq!(
                around(text, start..start + part.len(), start..start + part.len()),
                Some(whole),
                "{text}"
            );
        }
        for (text, part) in [
            ("GET: 123.5 requests", "123.5"),
            ("took 5.", "5"),
            ("(1.5, 2.5)", "1.5"),
            ("a-5", "5"),
            ("5ms", "5"),
            ("1, 2", "2"),
            ("5 e2", "5"),
            ("5 1234", "1234"),
            ("1.5 234", "234"),
            ("12 23", "23"),
            ("1234 567", "567"),
            ("w1 234", "234"),
            ("5 123ms", "5"),
        ] {
            let start = text.rfind(part).unwrap();
            assert_eq!(
                around(text, start..start + part.len(), start..start + part.len()),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn blanks_within_a_match_separate_columns() {
        assert_eq!(around("10 123 ms", 3..6, 0..9), None);
        assert_eq!(around("10 123 ms", 0..2, 0..9), None);
        assert_eq!(around("10 123 ms", 3..6, 3..9), Some("10 123"));
    }

    #[test]
    fn one_group_without_a_point_may_be_decimals() {
        assert!(is_ambiguous("1,234"));
        for text in ["1,234.5", "1,234,567", "1234", "1234,5", "0,123"] {
            assert!(!is_ambiguous(text), "{text}");
        }
    }
}
