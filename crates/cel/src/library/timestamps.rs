//! The parts of timestamps and durations. A time zone is a name or an offset; without one it is UTC.

use crate::error::{failed, no_such_overload};
use crate::meter::Meter;
use crate::operations::Answer;
use crate::time::Parts;
use crate::value::Value;

fn part<'a>(args: &[Value<'a>], of_timestamp: fn(&Parts) -> i64, of_duration: Option<fn(i64) -> i64>) -> Answer<'a> {
    let (time, zone) = match args {
        [Value::Duration(nanos)] => {
            let of_duration = of_duration.ok_or_else(no_such_overload)?;
            return Ok(Value::Int(of_duration(*nanos)));
        }
        [Value::Timestamp(time)] => (time, None),
        [Value::Timestamp(time), Value::String(zone)] => (time, Some(&**zone)),
        _ => return Err(no_such_overload()),
    };
    let parts = time.parts(zone).map_err(failed)?;
    Ok(Value::Int(of_timestamp(&parts)))
}

macro_rules! parts {
    ($($name:ident: $timestamp:expr $(, $duration:expr)?;)*) => {$(
        pub(crate) fn $name<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
            #[allow(unused_mut, unused_assignments)]
            let mut of_duration: Option<fn(i64) -> i64> = None;
            $(of_duration = Some($duration);)?
            part(args, $timestamp, of_duration)
        }
    )*};
}

parts! {
    full_year: |p| p.year;
    month: |p| p.month - 1;
    day_of_year: |p| p.day_of_year;
    day_of_month: |p| p.day - 1;
    date: |p| p.day;
    day_of_week: |p| p.day_of_week;
    hours: |p| p.hour, |d| d / 3_600_000_000_000;
    minutes: |p| p.minute, |d| d / 60_000_000_000;
    seconds: |p| p.second, |d| d / 1_000_000_000;
    milliseconds: |p| p.milliseconds, |d| d / 1_000_000;
}
