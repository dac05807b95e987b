//! Reading values that may not be there, and the ways in which a Table writes times, selectors and lists that are too long.

use jiff::Timestamp;
use serde_json::Value;

/// A text; empty where there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text, or what stands for none.
pub(super) fn or(value: &Value, none: &str) -> Value {
    match text(value) {
        "" => none.into(),
        text => text.into(),
    }
}

/// A number; zero where there is none.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The name of an object.
pub(super) fn name(object: &Value) -> Value {
    text(&object["metadata"]["name"]).into()
}

/// How long ago an object was created.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(&object["metadata"]["creationTimestamp"], now).into()
}

/// The items of a list.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// How many entries a list or a map has.
pub(super) fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

/// The same as a cell.
pub(super) fn length(value: &Value) -> Value {
    count(value).into()
}

/// The condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == kind)
}

/// The time that a value tells.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// How long ago a time was, for people.
pub(super) fn since(value: &Value, now: Timestamp) -> String {
    time(value).map_or_else(|| "<unknown>".to_owned(), |then| super::between(then, now))
}

/// A duration with two units at most, and only while the second one tells something.
pub(super) fn human_duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match () {
        // Clocks may differ a little.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

/// Labels as `a=b,c=d`, or `<none>`.
pub(super) fn labels(value: &Value) -> String {
    let pairs: Vec<String> = value.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value))).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A label selector as clients write it; `none` stands for one that selects everything.
pub(super) fn selector(value: &Value, none: &str) -> String {
    let mut terms: Vec<(String, String)> = Vec::new();
    for (key, value) in value["matchLabels"].as_object().into_iter().flatten() {
        terms.push((key.clone(), format!("{key}={}", text(value))));
    }
    for expression in items(&value["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = items(&expression["values"]).iter().map(text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), term));
    }
    if terms.is_empty() {
        return none.to_owned();
    }
    terms.sort();
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// The first few of a list, and how many more there are.
pub(super) fn first_of(all: &[String], most: usize, separator: &str) -> String {
    if all.len() <= most {
        return all.join(separator);
    }
    format!("{} + {} more...", all[..most].join(separator), all.len() - most)
}

/// The names and the images of a Pod's containers.
pub(super) fn containers(pod_spec: &Value) -> [Value; 2] {
    let joined = |field: &str| items(&pod_spec["containers"]).iter().map(|c| text(&c[field])).collect::<Vec<_>>().join(",");
    [joined("name").into(), joined("image").into()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_have_the_precision_that_people_want() {
        for (seconds, told) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 300, "3h5m"),
            (47 * 3600, "47h"),
            (49 * 3600, "2d1h"),
            (9 * 86400, "9d"),
            (800 * 86400, "2y70d"),
            (9 * 365 * 86400, "9y"),
        ] {
            assert_eq!(human_duration(seconds), told, "{seconds}");
        }
    }

    #[test]
    fn selectors_are_written_as_clients_write_them() {
        let value = json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}, {"key": "e", "operator": "Exists"}]});
        assert_eq!(selector(&value, "<none>"), "a=1,b=2,c in (x,y),!d,e");
        assert_eq!(selector(&Value::Null, "<none>"), "<none>");
    }
}
