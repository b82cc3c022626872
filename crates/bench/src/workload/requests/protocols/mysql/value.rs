//! The first value of a row as text.

use super::{Malformed, TYPE_LONGLONG};
use crate::server::innodb::packets;

const TYPE_TINY: u8 = 0x01;
const TYPE_SHORT: u8 = 0x02;
const TYPE_LONG: u8 = 0x03;
const TYPE_INT24: u8 = 0x09;
const TYPE_VARCHAR: u8 = 0x0f;
/// The types from here on are decimals, texts and blobs, all sent as text.
const FIRST_TEXT_TYPE: u8 = 0xf6;
/// The flag of a column without negative values.
const UNSIGNED: u16 = 0x20;
/// Texts of a column's definition before its fixed part: catalogue, database, table and column, two of these twice.
const NAMES: usize = 6;

/// A column's type.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    kind: u8,
    is_unsigned: bool,
}

impl Column {
    /// Reads a column's definition.
    pub(super) fn read(definition: &[u8]) -> Result<Self, Malformed> {
        let mut rest = definition;
        for _ in 0..NAMES {
            rest = length_encoded_text(rest)?.1;
        }
        // The length of the rest, character set, width.
        let [_, _, _, _, _, _, _, kind, low, high, ..] = *rest else {
            return Err(Malformed::instead_of("a column", definition));
        };
        Ok(Column {
            kind,
            is_unsigned: u16::from_le_bytes([low, high]) & UNSIGNED != 0,
        })
    }

    /// Returns the text of the value at the begin of `input`.
    fn text(self, input: &[u8]) -> Result<Vec<u8>, Malformed> {
        let size = match self.kind {
            TYPE_TINY => 1,
            TYPE_SHORT => 2,
            TYPE_LONG | TYPE_INT24 => 4,
            TYPE_LONGLONG => 8,
            TYPE_VARCHAR | FIRST_TEXT_TYPE.. => return Ok(length_encoded_text(input)?.0.to_vec()),
            other => {
                let fault = format!("a first column of type {other}, which no `value` can name");
                return Err(Malformed(fault));
            }
        };
        let short = || Malformed::instead_of("a value", input);
        let number = input.get(..size).ok_or_else(short)?;
        let is_negative = !self.is_unsigned && number[size - 1] >= 0x80;
        let mut bytes = [if is_negative { 0xff } else { 0 }; 8];
        bytes[..size].copy_from_slice(number);
        let text = if self.is_unsigned {
            u64::from_le_bytes(bytes).to_string()
        } else {
            i64::from_le_bytes(bytes).to_string()
        };
        Ok(text.into_bytes())
    }
}

/// Returns a text with its length before it, and the bytes behind it.
fn length_encoded_text(input: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    packets::length_encoded_text(input).ok_or_else(|| Malformed::instead_of("a text", input))
}

/// Returns the first value of a row in text form; `None` for NULL.
pub(super) fn text_value(row: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    match row {
        [0xfb, ..] => Ok(None),
        _ => Ok(Some(length_encoded_text(row)?.0.to_vec())),
    }
}

/// Returns the first value of a row in binary form; `None` for NULL. `columns` are their number and the first one.
pub(super) fn binary_value(
    row: &[u8],
    (count, first): (u64, Column),
) -> Result<Option<Vec<u8>>, Malformed> {
    // A zero, and a bit for each column that is NULL, behind two others.
    let header = usize::try_from(1 + (count + 2).div_ceil(8)).unwrap_or(usize::MAX);
    match row.split_at_checked(header) {
        Some(([0, nulls, ..], _)) if nulls & 0x4 != 0 => Ok(None),
        Some(([0, ..], values)) => first.text(values).map(Some),
        _ => Err(Malformed::instead_of("a row", row)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the definition of a column of this type.
    fn definition(kind: u8, flags: u16) -> Vec<u8> {
        let names: &[u8] = b"\x03def\x04test\x01t\x01t\x02id\x02id";
        let fixed = [12, 63, 0, 11, 0, 0, 0, kind];
        [names, &fixed, &flags.to_le_bytes(), &[0, 0, 0]].concat()
    }

    #[test]
    fn values_are_read_in_both_forms() {
        assert_eq!(text_value(b"\x0242\x01x"), Ok(Some(b"42".to_vec())));
        assert_eq!(text_value(b"\xfb\x01x"), Ok(None));
        assert!(text_value(b"\x0942").is_err());
        let value = |kind, flags, bytes: &[u8]| {
            let column = Column::read(&definition(kind, flags)).unwrap();
            let row = [&[0, 0], bytes].concat();
            let value = binary_value(&row, (3, column));
            value.map(|value| String::from_utf8(value.unwrap()).unwrap())
        };
        for (kind, flags, bytes, text) in [
            (TYPE_LONG, UNSIGNED, &[0xff; 4][..], "4294967295"),
            (TYPE_LONG, 0, &[0xff; 4], "-1"),
            (TYPE_LONG, 0, &[42, 0, 0, 0, 7], "42"),
            (TYPE_TINY, 0, &[0x80], "-128"),
            (TYPE_SHORT, UNSIGNED, &[0, 0x80], "32768"),
            (TYPE_LONGLONG, UNSIGNED, &[0xff; 8], "18446744073709551615"),
            (0xfd, 0, b"\x02ab", "ab"),
        ] {
            assert_eq!(value(kind, flags, bytes), Ok(text.to_owned()), "{kind}");
        }
        for (kind, bytes) in [(TYPE_LONG, &[1, 2][..]), (0xfd, b"\x05ab"), (4, &[0; 4])] {
            assert!(value(kind, 0, bytes).is_err(), "{kind}");
        }
    }

    #[test]
    fn nulls_and_broken_rows_have_no_value() {
        let column = Column::read(&definition(TYPE_LONG, 0)).unwrap();
        assert_eq!(binary_value(&[0, 4, 1, 0, 0, 0], (3, column)), Ok(None));
        // Seven columns need a second byte of bits.
        let row = [0, 0, 0, 9, 0, 0, 0];
        assert_eq!(binary_value(&row, (7, column)), Ok(Some(b"9".to_vec())));
        assert!(binary_value(&[1, 0, 1, 0, 0, 0], (3, column)).is_err());
        assert!(binary_value(&[0], (3, column)).is_err());
        assert!(Column::read(b"def").is_err());
    }
}
