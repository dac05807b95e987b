//! DaemonSets: an annotation counts the changes of the template, for clients from before there were revisions. Nobody else can set it.

use serde_json::{Value, json};

use crate::object::meta_mut;

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn generation(object: &Value) -> i64 {
    let text = object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().unwrap_or_default();
    text.parse().unwrap_or(0).max(1)
}

fn set(object: &mut Value, generation: i64) {
    let annotations = meta_mut(object).entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[TEMPLATE_GENERATION] = json!(generation.to_string());
}

pub(super) fn prepare_for_create(object: &mut Value) {
    set(object, generation(object));
}

pub(super) fn prepare_for_update(old: &Value, new: &mut Value) {
    let changed = old["spec"]["template"] != new["spec"]["template"];
    set(new, generation(old).saturating_add(i64::from(changed)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_begins_at_one_and_follows_the_template_alone() {
        let mut first = json!({"metadata": {"name": "d"}, "spec": {"template": {"a": 1}}});
        prepare_for_create(&mut first);
        assert_eq!(first["metadata"]["annotations"][TEMPLATE_GENERATION], "1");
        let mut same = json!({"metadata": {"name": "d", "annotations": {TEMPLATE_GENERATION: "7"}}, "spec": {"template": {"a": 1}}});
        prepare_for_update(&first, &mut same);
        assert_eq!(same["metadata"]["annotations"][TEMPLATE_GENERATION], "1");
        let mut other = json!({"metadata": {"name": "d"}, "spec": {"template": {"a": 2}}});
        prepare_for_update(&same, &mut other);
        assert_eq!(other["metadata"]["annotations"][TEMPLATE_GENERATION], "2");
    }
}
