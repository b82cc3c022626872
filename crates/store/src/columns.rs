//! The columns of tables whose rows hold a type's fields. Each is declared once; what writes and reads the rows follows.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql};
use serde::de::DeserializeOwned;

use super::functions::Costs;
use super::json::Json;
use super::{ExperimentId, SliceBlob, blob};
use perfquilt_model::error::Error;
use perfquilt_model::observation::{Meter, Observation, PointFunctions, Slices};
use perfquilt_model::point::Point;

/// The values of a row.
pub(super) type Values = Vec<Box<dyn ToSql>>;

/// A value that is read from one column or several.
pub(super) trait ReadColumns: Sized {
    /// Reads it from the columns at `at`, and moves `at` behind them.
    fn read(row: &Row<'_>, at: &mut usize) -> rusqlite::Result<Self>;
}

/// A value in one column or several.
pub(super) trait Columns: ReadColumns {
    /// Appends its columns to `row`.
    fn write(&self, row: &mut Values);
}

/// A type whose fields are columns of a table.
pub(super) trait Record: Columns {
    /// Returns the names of the columns, separated by commas.
    fn names() -> String;
}

macro_rules! record {
    (@names $field:ident) => { stringify!($field) };
    (@names $field:ident $names:literal) => { $names };
    ($record:ty: $($field:ident $(as $names:literal)?),+ $(; ..$rest:expr)?) => {
        impl $crate::columns::Record for $record {
            fn names() -> String {
                [$(record!(@names $field $($names)?)),+].join(", ")
            }
        }

        impl $crate::columns::Columns for $record {
            fn write(&self, row: &mut $crate::columns::Values) {
                $($crate::columns::Columns::write(&self.$field, row);)+
            }
        }

        impl $crate::columns::ReadColumns for $record {
            fn read(row: &rusqlite::Row<'_>, at: &mut usize) -> rusqlite::Result<Self> {
                Ok(Self { $($field: $crate::columns::ReadColumns::read(row, at)?,)+ $(..$rest)? })
            }
        }
    };
}

pub(super) use record;

record!(
    Observation: workload, meter, direct, block, point, order as "position", layout, value, n, mean,
    slow, p99, lane, machine, stalled, began, ended;
    ..Observation::new(0, Point::BASE, "", Meter::Time, 0.0)
);
record!(Slices: point, transactions_per_slice as "transactions", values as "slice_values");
record!(
    SliceBlob: workload, direct, block, point, transactions_per_slice as "transactions",
    values as "slice_values"
);
record!(PointFunctions: workload, block, point, functions as "costs");
/// Types of one column, with the type that SQLite has for them and the conversions.
macro_rules! column {
    ($($type:ty as $stored:ty: $write:expr, $read:expr;)+) => {
        $(impl $crate::columns::Columns for $type {
            fn write(&self, row: &mut $crate::columns::Values) {
                let write: fn(&Self) -> $stored = $write;
                row.push(Box::new(write(self)));
            }
        }

        impl $crate::columns::ReadColumns for $type {
            fn read(row: &rusqlite::Row<'_>, at: &mut usize) -> rusqlite::Result<Self> {
                let read: fn($stored) -> Self = $read;
                *at += 1;
                row.get(*at - 1).map(read)
            }
        })+
    };
    ($($type:ty),+) => {
        column!($($type as $type: Clone::clone, std::convert::identity;)+);
    };
}

pub(super) use column;

column!(bool, u32, i64, f64, String, Vec<u8>);
column!(Option<u32>, Option<i64>, Option<f64>, Option<String>);
column!(
    // SQLite's integers have a sign, which counts never reach.
    u64 as i64: |number| number.cast_signed(), |number| number.cast_unsigned();
    Vec<f32> as Vec<u8>: |values| blob::encode(values), |bytes| blob::decode(&bytes);
    Meter as Word<Meter>: |meter| Word(*meter), |word| word.0;
    Point as Word<Point>: |point| Word(*point), |word| word.0;
    usize as i64: |number| *number as i64, |number| usize::try_from(number).unwrap_or(usize::MAX);
    ExperimentId as i64: |id| id.0, ExperimentId;
    BTreeMap<String, f64> as Costs: |costs| Costs(costs.clone()), |costs| costs.0;
);

impl<T: DeserializeOwned> ReadColumns for Json<T> {
    fn read(row: &Row<'_>, at: &mut usize) -> rusqlite::Result<Self> {
        *at += 1;
        row.get(*at - 1)
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        impl<$($name: ReadColumns),+> ReadColumns for ($($name,)+) {
            fn read(row: &Row<'_>, at: &mut usize) -> rusqlite::Result<Self> {
                Ok(($($name::read(row, at)?,)+))
            }
        }
    };
}

tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);

/// A text of a column as the value that it names.
pub(super) struct Word<T>(pub T);

impl<T: FromStr<Err = Error>> FromSql for Word<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?.parse();
        word.map(Word).map_err(FromSqlError::other)
    }
}

impl<T: Display> ToSql for Word<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}
