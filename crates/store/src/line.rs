//! A fast parser for observations in the usual format.
//!
//! A general JSON parser would take nine tenths of the time for a large file. This one accepts objects that
//! have all known fields once, in any order, without escapes; it rejects anything else, which the general
//! parser then parses or reports.

use std::borrow::Cow;

use perfquilt_model::observation::{Meter, Observation};
use perfquilt_model::observation_columns;
use perfquilt_model::point::Point;

/// Parses the observation in `text`; `None` unless it has the usual format. The result is the same as that of
/// the JSON parser.
pub(super) fn parse(text: &[u8]) -> Option<Observation<Cow<'_, str>>> {
    let mut cursor = Cursor {
        left: text.trim_ascii(),
    };
    cursor.take(b'{')?;
    let mut fields = Fields::new();
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

macro_rules! fields {
    ($($(#[$about:meta])* $name:ident: $type:ty,)*) => {
        /// The fields read so far.
        struct Fields<Text> {
            $($name: Option<$type>,)*
        }

        impl<'a, Text: Field<'a>> Fields<Text> {
            fn new() -> Self {
                Fields { $($name: None,)* }
            }

            /// Reads the value of `key`; `None` for an unknown key, an unsupported value or a duplicate.
            fn read(&mut self, key: &str, cursor: &mut Cursor<'a>) -> Option<()> {
                cursor.blanks();
                match key {
                    $(stringify!($name) => once(&mut self.$name, <$type>::read(cursor)?),)*
                    _ => None,
                }
            }

            fn observation(self) -> Option<Observation<Text>> {
                Some(Observation { $($name: self.$name.or_else(<$type>::missing)?,)* })
            }
        }
    };
}

observation_columns!(fields);

/// A value of a field.
trait Field<'a>: Sized {
    /// Reads it.
    fn read(cursor: &mut Cursor<'a>) -> Option<Self>;

    /// Returns the value of a field that is left out, if it may be.
    fn missing() -> Option<Self> {
        None
    }
}

impl Field<'_> for u32 {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.integer()?.try_into().ok()
    }
}

impl Field<'_> for u64 {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.integer()
    }
}

impl Field<'_> for f64 {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.float()
    }
}

impl Field<'_> for bool {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.boolean()
    }

    fn missing() -> Option<Self> {
        Some(false)
    }
}

impl<'a> Field<'a> for Cow<'a, str> {
    fn read(cursor: &mut Cursor<'a>) -> Option<Self> {
        cursor.string().map(Cow::Borrowed)
    }
}

impl Field<'_> for Point {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.string()?.parse().ok()
    }
}

impl Field<'_> for Meter {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let name = cursor.string()?;
        Meter::ALL.into_iter().find(|known| known.name() == name)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn read(cursor: &mut Cursor<'a>) -> Option<Self> {
        T::read(cursor).map(Some)
    }

    fn missing() -> Option<Self> {
        Some(None)
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

    fn slow(text: &[u8]) -> Option<Observation<Cow<'_, str>>> {
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
