//! Numbers in the output of other programs.

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
    fn one_group_without_a_point_may_be_decimals() {
        assert!(is_ambiguous("1,234"));
        for text in ["1,234.5", "1,234,567", "1234", "1234,5", "0,123"] {
            assert!(!is_ambiguous(text), "{text}");
        }
    }
}
