//! What each value of an enumeration means: the last lines of a field's description, which `kubectl explain` shows.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The values with their meanings, a line each, by the fields that they belong to.
static MEANINGS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let blocks = include_str!("enumerations.txt").split("\n\n").filter_map(|block| block.split_once('\n'));
    blocks.flat_map(|(fields, values)| fields.split(' ').map(move |field| (field, values))).collect()
});

/// The end of the description of a field that takes one of `values`.
pub fn possible(definition: &str, field: &str, values: &[String]) -> String {
    let name = definition.rsplit('.').next().unwrap_or_default();
    let known = MEANINGS.get(format!("{name}.{field}").as_str()).copied().unwrap_or_default();
    let line = |value: &String| {
        let meaning = known.lines().filter_map(|line| line.split_once('\t')).find(|(known, _)| known == value);
        match meaning {
            Some((_, meaning)) => format!("\n - `{value:?}` {meaning}"),
            None => format!("\n - `{value:?}`"),
        }
    };
    format!("\n\nPossible enum values:{}", values.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_with_their_meaning_where_they_have_one() {
        let values = ["Recreate".to_owned(), "Unheard".to_owned()];
        assert_eq!(
            possible("io.k8s.api.apps.v1.DeploymentStrategy", "type", &values),
            "\n\nPossible enum values:\n - `\"Recreate\"` Kill all existing pods before creating new ones.\n - `\"Unheard\"`"
        );
        assert_eq!(possible("a.B", "c", &[]), "\n\nPossible enum values:");
    }
}
