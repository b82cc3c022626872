//! A fast parser for observations in the usual format.
//!
//! A general JSON parser would take nine tenths of the time for a large file. This one accepts objects that
//! have all known fields once, in any order, without escapes; it rejects anything else, which the general
//! parser then parses or reports.

use std::borrow::Cow;

use perfquilt_model::observation::{Meter, ObservationRef};

/// Parses the observation in `text`; `None` unless it has the usual format. The result is the same as that of
/// the JSON parser.
pub(super) fn parse(text: &[u8]) -> Option<ObservationRef<'_>> {
    let mut cursor = Cursor {
        left: text.trim_ascii(),
    };
    cursor.take(b'{')?;
    let mut fields = Fields::default();
    loop {
        let key = cursor.string()?;
        cursor.take(b':')?;
        fields.read(key, &mut cursor)?;
        match cursor.next()? {
            b',' => cursor.blanks(),
            b'}' if cursor.left.is_empty() => return fields.observation(),
            _ => return None,
        }
    }
}

/// The fields read so far.
#[derive(Default)]
struct Fields<'a> {
    schema: Option<u32>,
    experiment: Option<&'a str>,
    block: Option<u32>,
    order: Option<u32>,
    point: Option<&'a str>,
    layout: Option<u64>,
    workload: Option<&'a str>,
    meter: Option<&'a str>,
    unit: Option<&'a str>,
    value: Option<f64>,
    n: Option<u64>,
    direct: Option<bool>,
    mean: Option<f64>,
    slow: Option<f64>,
    p99: Option<f64>,
    stalled: Option<f64>,
    lane: Option<u32>,
    began: Option<f64>,
    ended: Option<f64>,
    machine: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// Reads the value of `key`; `None` for an unknown key, an unsupported value or a duplicate.
    fn read(&mut self, key: &str, cursor: &mut Cursor<'a>) -> Option<()> {
        cursor.blanks();
        match key {
            "schema" => once(&mut self.schema, cursor.small()?),
            "experiment" => once(&mut self.experiment, cursor.string()?),
            "block" => once(&mut self.block, cursor.small()?),
            "order" => once(&mut self.order, cursor.small()?),
            "point" => once(&mut self.point, cursor.string()?),
            "layout" => once(&mut self.layout, cursor.integer()?),
            "workload" => once(&mut self.workload, cursor.string()?),
            "meter" => once(&mut self.meter, cursor.string()?),
            "unit" => once(&mut self.unit, cursor.string()?),
            "value" => once(&mut self.value, cursor.float()?),
            "n" => once(&mut self.n, cursor.integer()?),
            "direct" => once(&mut self.direct, cursor.boolean()?),
            "mean" => once(&mut self.mean, cursor.float()?),
            "slow" => once(&mut self.slow, cursor.float()?),
            "p99" => once(&mut self.p99, cursor.float()?),
            "stalled" => once(&mut self.stalled, cursor.float()?),
            "lane" => once(&mut self.lane, cursor.small()?),
            "began" => once(&mut self.began, cursor.float()?),
            "ended" => once(&mut self.ended, cursor.float()?),
            "machine" => once(&mut self.machine, cursor.string()?),
            _ => None,
        }
    }

    fn observation(self) -> Option<ObservationRef<'a>> {
        let meter = self.meter?;
        Some(ObservationRef {
            schema: self.schema?,
            experiment: Cow::Borrowed(self.experiment?),
            block: self.block?,
            order: self.order?,
            point: self.point?.parse().ok()?,
            layout: self.layout?,
            workload: Cow::Borrowed(self.workload?),
            meter: Meter::ALL.into_iter().find(|known| known.name() == meter)?,
            unit: Cow::Borrowed(self.unit?),
            value: self.value?,
            n: self.n?,
            direct: self.direct.unwrap_or(false),
            mean: self.mean,
            slow: self.slow,
            p99: self.p99,
            stalled: self.stalled,
            lane: self.lane,
            began: self.began,
            ended: self.ended,
            machine: self.machine.map(Cow::Borrowed),
        })
    }
}

fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    match field.replace(value) {
        None => Some(()),
        Some(_) => None,
    }
}

struct Cursor<'a> {
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, left) = self.left.split_first()?;
        self.left = left;
        Some(first)
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    fn blanks(&mut self) {
        while let [b' ', left @ ..] = self.left {
            self.left = left;
        }
    }

    fn string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let length = self
            .left
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        let (text, left) = self.left.split_at(length);
        self.left = left;
        self.take(b'"')?;
        std::str::from_utf8(text).ok()
    }

    fn boolean(&mut self) -> Option<bool> {
        for (word, value) in [("true", true), ("false", false)] {
            if let Some(left) = self.left.strip_prefix(word.as_bytes()) {
                self.left = left;
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.integer()?.try_into().ok()
    }

    /// Parses an integer without sign or leading zeros.
    fn integer(&mut self) -> Option<u64> {
        let digits = self.digits();
        if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
            return None;
        }
        digits.iter().try_fold(0u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
    }

    fn digits(&mut self) -> &'a [u8] {
        let length = self
            .left
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(self.left.len());
        let (digits, left) = self.left.split_at(length);
        self.left = left;
        digits
    }

    /// Parses a non-negative JSON number.
    fn float(&mut self) -> Option<f64> {
        let whole = self.left;
        let digits = self.digits();
        if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
            return None;
        }
        if let [b'.', left @ ..] = self.left {
            self.left = left;
            if self.digits().is_empty() {
                return None;
            }
        }
        if let [b'e' | b'E', left @ ..] = self.left {
            self.left = left;
            if let [b'+' | b'-', left @ ..] = self.left {
                self.left = left;
            }
            if self.digits().is_empty() {
                return None;
            }
        }
        let text = &whole[..whole.len() - self.left.len()];
        let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        value.is_finite().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"schema":1,"experiment":"quick-1","block":3,"order":2,"point":"alone:2","layout":18446744073709551615,"workload":"oltp – größer","meter":"l1i_misses","unit":"misses/txn","value":91823.4e-3,"n":400,"direct":true,"mean":92000.5,"slow":0.01,"p99":1e5,"stalled":1e-4,"lane":1,"began":1764187000.25,"ended":1764187004.5,"machine":"node-7"}"#;

    fn slow(text: &[u8]) -> Option<ObservationRef<'_>> {
        serde_json::from_slice(text).ok()
    }

    #[test]
    fn plain_lines_are_taken() {
        for text in [
            LINE.to_owned(),
            LINE.replace(',', ", ")
                .replace(':', ": ")
                .replace("alone: ", "alone:"),
            format!("{LINE}\r\n"),
            LINE.replace(",\"direct\":true", ""),
            LINE.replace(",\"slow\":0.01", ""),
        ] {
            let found = parse(text.as_bytes());
            assert!(found.is_some(), "{text}");
            assert_eq!(found, slow(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn odd_lines_are_left_to_the_json_parser() {
        for (from, to) in [
            ("\"block\":3", "\"block\":03"),
            ("\"block\":3", "\"block\":3.0"),
            ("\"block\":3", "\"block\":-3"),
            ("\"block\":3", "\"block\":4294967296"),
            ("18446744073709551615", "18446744073709551616"),
            ("91823.4e-3", "91823."),
            ("91823.4e-3", ".5"),
            ("91823.4e-3", "1e999"),
            ("91823.4e-3", "inf"),
            ("91823.4e-3", "+1"),
            ("quick-1", "quick\\u002d1"),
            ("\"n\":400", "\"n\":400,\"n\":400"),
            ("\"n\":400", "\"m\":400"),
            ("\"n\":400", "\"n\":400}{"),
            ("l1i_misses", "joules"),
            ("alone:2", "alone:0"),
            ("true", "truer"),
        ] {
            let text = LINE.replacen(from, to, 1);
            assert_ne!(text, LINE);
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_taken_is_what_the_json_parser_takes(
            at in 0..LINE.len(),
            byte in proptest::num::u8::ANY,
            value in proptest::num::f64::POSITIVE,
            cut in proptest::bool::ANY,
        ) {
            let mut text = LINE.replace("91823.4e-3", &format!("{value:?}")).into_bytes();
            let found = parse(&text).map(|o| o.value);
            proptest::prop_assert_eq!(found, slow(&text).map(|o| o.value));
            let at = at.min(text.len() - 1);
            if cut { drop(text.drain(at..)) } else { text[at] = byte }
            if let Some(found) = parse(&text) {
                proptest::prop_assert_eq!(Some(found), slow(&text));
            }
        }
    }
}
